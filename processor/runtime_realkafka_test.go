//go:build realkafka

package processor

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/internal/kafkatest"
)

// newRealFleet is newFleet around a real Kafka.
func newRealFleet(t *testing.T, partitions int32) (*fleet, *kafkatest.Broker) {
	t.Helper()
	b := kafkatest.Run(t, nil)
	f := bareFleet(t)
	f.brokers = b.Brokers()
	var err error
	if f.client, err = kgo.NewClient(kgo.SeedBrokers(f.brokers...), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.client.Close)
	if _, err := kadm.NewClient(f.client).CreateTopics(t.Context(), partitions, 1, nil, testInput, testOut, "dead"); err != nil {
		t.Fatal(err)
	}
	f.options = func(c *Config) {
		c.SessionTimeout, c.HeartbeatInterval, c.TransactionTimeout = 6*time.Second, time.Second, 5*time.Second
		c.RebalanceTimeout = 10 * time.Second
	}
	return f, b
}

// TestRealKafkaScale: planned moves lose and repeat nothing.
func TestRealKafkaScale(t *testing.T) {
	f, _ := newRealFleet(t, 6)
	tr, rng := truth{}, rand.New(rand.NewPCG(7, 7))
	a := f.start("a")
	f.produce(tr, rng, 500, 50)
	b := f.start("b")
	for range 20 {
		f.produce(tr, rng, 50, 50)
		pause(50 * time.Millisecond)
	}
	c := f.start("c")
	for range 20 {
		f.produce(tr, rng, 50, 50)
		pause(50 * time.Millisecond)
	}
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	f.produce(tr, rng, 50, 50)
	f.waitCaughtUp(time.Minute)
	f.eventually("all served", time.Minute, func() error { return allServe(6, a, c) })
	f.check(tr, a, c)
	if err := errors.Join(a.stop(), c.stop()); err != nil {
		t.Fatal(err)
	}
}

// TestRealKafkaKill kills an instance; it comes back as a zombie after its tasks have another owner.
func TestRealKafkaKill(t *testing.T) {
	f, _ := newRealFleet(t, 4)
	tr, rng := truth{}, rand.New(rand.NewPCG(8, 8))
	a, b := f.start("a"), f.start("b")
	a.waitRunning()
	b.waitRunning()
	for range 10 {
		f.produce(tr, rng, 100, 50)
		pause(30 * time.Millisecond)
	}
	a.kill("c")
	f.produce(tr, rng, 200, 50)
	c := f.start("c")
	f.waitCaughtUp(time.Minute)
	a.cut.mend()
	for range 20 {
		f.produce(tr, rng, 50, 50)
		pause(100 * time.Millisecond)
	}
	f.waitCaughtUp(time.Minute)
	f.eventually("all served", time.Minute, func() error { return allServe(4, a, b, c) })
	f.check(tr, a, b, c)
}

// TestRealKafkaZombiePunctuation is TestSimZombiePunctuation on the broker where the fault was found.
func TestRealKafkaZombiePunctuation(t *testing.T) {
	f, _ := newRealFleet(t, 1)
	f.topo = tickTopology
	a := f.start("a")
	a.waitRunning()
	pause(3 * time.Second)
	a.cut.cut()
	b := f.start("b")
	f.eventually("b serves", time.Minute, func() error { return allServe(1, b) })
	pause(3 * time.Second)
	a.cut.mend()
	pause(8 * time.Second)
	_ = a.stop()
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	logged, _ := f.replay(testApp + "-counts-changelog")
	said, times := f.replay(testOut)
	if said["ticks"] != uint64(times["ticks"]) || logged["ticks"] != said["ticks"] || logged["ticks"] < 8 {
		t.Fatalf("%d ticks said %d, the changelog ends at %d", times["ticks"], said["ticks"], logged["ticks"])
	}
}

// TestRealKafkaConnectionsBreak cuts connections in the middle of everything: every outcome that can be unknown is.
func TestRealKafkaConnectionsBreak(t *testing.T) {
	f, _ := newRealFleet(t, 4)
	tr, rng := truth{}, rand.New(rand.NewPCG(9, 9))
	a, b := f.start("a"), f.start("b")
	a.waitRunning()
	b.waitRunning()
	for range 40 {
		f.produce(tr, rng, 50, 50)
		pause(time.Duration(rng.IntN(250)) * time.Millisecond)
		in := a
		if rng.IntN(2) == 0 {
			in = b
		}
		in.cut.cut()
		in.cut.mend()
	}
	f.waitCaughtUp(2 * time.Minute)
	f.eventually("all served", time.Minute, func() error { return allServe(4, a, b) })
	f.check(tr, a, b)
}

// TestRealKafkaBrokerKilled: kill -9 of the broker while counting, twice.
func TestRealKafkaBrokerKilled(t *testing.T) {
	f, broker := newRealFleet(t, 3)
	tr, rng := truth{}, rand.New(rand.NewPCG(10, 10))
	a, b := f.start("a"), f.start("b")
	a.waitRunning()
	b.waitRunning()
	for range 2 {
		for range 10 {
			f.produce(tr, rng, 100, 50)
			pause(time.Duration(rng.IntN(60)) * time.Millisecond)
		}
		broker.Kill()
		broker.MustRestart(t)
	}
	f.produce(tr, rng, 100, 50)
	f.waitCaughtUp(2 * time.Minute)
	f.eventually("all served", time.Minute, func() error { return allServe(3, a, b) })
	f.check(tr, a, b)
}

// TestRealKafkaThreads: threads come and go while records flow, also while another instance is away and comes back. The group's members are the
// threads that there are, stores stay open, and nothing is lost or counted twice.
func TestRealKafkaThreads(t *testing.T) {
	const tasks = 6
	f, _ := newRealFleet(t, tasks)
	tr, rng := truth{}, rand.New(rand.NewPCG(11, 11))
	a := f.start("a")
	f.produce(tr, rng, 500, 50)
	f.eventually("all served", time.Minute, func() error { return allServe(tasks, a) })
	opened := a.open(tasks)
	threads := 1
	for _, step := range []int{1, 1, -1, 1, -1, -1} {
		var changed string
		if step > 0 {
			changed = a.addThread()
		} else {
			changed = a.removeThread()
		}
		threads += step
		for range 5 {
			f.produce(tr, rng, 50, 50)
			pause(50 * time.Millisecond)
		}
		f.eventually("tasks on all threads", time.Minute, func() error { return a.spread(tasks, threads) })
		if members := f.members(); members != threads {
			t.Fatalf("after %s: %d members are in the group, want %d", changed, members, threads)
		}
	}
	if !slices.Equal(opened, a.open(tasks)) {
		t.Error("a store was opened anew")
	}
	b := f.start("b")
	b.waitRunning()
	b.addThread()
	f.eventually("all served", time.Minute, func() error { return allServe(tasks, a, b) })
	f.produce(tr, rng, 200, 50)
	b.kill("c")
	a.addThread()
	f.produce(tr, rng, 200, 50)
	f.waitCaughtUp(time.Minute)
	f.eventually("all served by one", time.Minute, func() error { return a.spread(tasks, 2) })
	b.cut.mend()
	a.removeThread()
	f.produce(tr, rng, 200, 50)
	f.waitCaughtUp(time.Minute)
	f.eventually("all served", time.Minute, func() error { return allServe(tasks, a, b) })
	f.check(tr, a, b)
	if err := errors.Join(a.stop(), b.stop()); err != nil {
		t.Fatal(err)
	}
}

// members counts those of the group.
func (f *fleet) members() int {
	f.t.Helper()
	groups, err := kadm.NewClient(f.client).DescribeGroups(f.t.Context(), testApp)
	if err != nil {
		f.t.Fatal(err)
	}
	return len(groups[testApp].Members)
}

// TestRealKafkaMembershipOutlivesBroker: the coordinator is away for longer than a session. Members stay who they are: those that gave
// up would be waited for by every generation until their sessions have ended.
func TestRealKafkaMembershipOutlivesBroker(t *testing.T) {
	f, broker := newRealFleet(t, 3)
	f.options = func(c *Config) {
		c.SessionTimeout, c.HeartbeatInterval, c.TransactionTimeout = 3*time.Second, 500*time.Millisecond, 2*time.Second
		c.RebalanceTimeout = 20 * time.Second
	}
	tr, rng := truth{}, rand.New(rand.NewPCG(11, 11))
	a, b := f.start("a"), f.start("b")
	a.waitRunning()
	b.waitRunning()
	f.eventually("all served", time.Minute, func() error { return allServe(3, a, b) })
	were := slices.Concat(a.members(), b.members())
	f.produce(tr, rng, 100, 50)
	broker.Kill()
	pause(6 * time.Second)
	broker.MustRestart(t)
	f.produce(tr, rng, 100, 50)
	f.waitCaughtUp(2 * time.Minute)
	f.eventually("all served", time.Minute, func() error { return allServe(3, a, b) })
	f.check(tr, a, b)
	if are := slices.Concat(a.members(), b.members()); !slices.Equal(are, were) {
		t.Errorf("members %q were %q", are, were)
	}
}
