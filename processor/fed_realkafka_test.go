//go:build realkafka

package processor

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/store"
)

// TestRealKafkaSourceTopicAsChangelog: kills, disks that are kept and lost, and records beyond the committed offset.
func TestRealKafkaSourceTopicAsChangelog(t *testing.T) {
	f, _ := newRealFleet(t, 2)
	f.compacted(tableTopic, 2)
	f.topo = tableTopology
	with := f.options
	f.options = func(c *Config) { with(c); c.DeserializationHandler = Continue }
	tb, rng := newTable(f), rand.New(rand.NewPCG(3, 3))
	tb.write(rng, 300, 20)
	in := f.start("a")
	in.waitRunning()
	for i := range 2 {
		for range 5 {
			tb.write(rng, 40, 20)
			pause(50 * time.Millisecond)
		}
		disk := fmt.Sprintf("disk%d", i)
		in.kill(disk)
		tb.write(rng, 100, 20)
		if i == 1 {
			disk = "empty"
		}
		in = f.start(disk)
		f.eventually("served", time.Minute, func() error { return allServe(2, in) })
		f.waitCaughtUp(time.Minute)
		tb.check(in)
	}
}

// TestRealKafkaGlobalStore: followed, restarted from its disk, and rebuilt when its topic is made anew under its name.
func TestRealKafkaGlobalStore(t *testing.T) {
	f, _ := newRealFleet(t, 1)
	f.compacted(tableTopic, 3)
	f.topo = globalTopology
	n, rng := &names{f: f, want: map[string]string{}}, rand.New(rand.NewPCG(4, 4))
	n.write(rng, 300)
	a, b := f.start("a"), f.start("b")
	a.waitRunning()
	b.waitRunning()
	n.check(store.Token{}, a, b)
	for range 10 {
		n.check(n.write(rng, 1+rng.IntN(50)), a, b)
	}
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	last := n.write(rng, 50)
	b = f.start("b")
	b.waitRunning()
	n.check(last, a, b)
	if _, err := kadm.NewClient(f.client).DeleteTopics(t.Context(), tableTopic); err != nil {
		t.Fatal(err)
	}
	f.eventually("created again", 30*time.Second, func() error {
		resp, err := kadm.NewClient(f.client).CreateTopic(t.Context(), 3, 1, map[string]*string{"cleanup.policy": new("compact")}, tableTopic)
		if err == nil {
			err = resp.Err
		}
		return err
	})
	again, err := kgo.NewClient(kgo.SeedBrokers(f.brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	f.client, n.want = again, map[string]string{}
	second := n.write(rng, 100)
	for _, in := range []*instance{a, b} {
		f.eventually("rebuilt", time.Minute, func() error {
			r, err := in.rt.Read(t.Context(), globalName, 0, store.ReadOptions{AtLeast: second, Wait: time.Second})
			if err != nil {
				return err
			}
			defer r.Close()
			if have := rows(t, r); fmt.Sprint(have) != fmt.Sprint(n.want) {
				return fmt.Errorf("have %v, want %v", have, n.want)
			}
			return nil
		})
	}
}
