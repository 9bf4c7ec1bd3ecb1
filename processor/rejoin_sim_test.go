package processor

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/statemesh/statemesh/store"
)

// picky counts, but leaves records with the value "skip" without a trace: only their offsets are committed.
type picky struct{ counter }

func (p *picky) Process(r *Record) error {
	if string(r.Value) == "skip" {
		return nil
	}
	return p.counter.Process(r)
}

func pickyTopology() *Topology {
	return NewTopology().
		AddSource("source", SourceOptions{}, testInput).
		AddProcessor("count", func() Processor { return &picky{} }, "source").
		AddStateStore(store.Spec{Name: testStore, Kind: store.KindTimestampedKeyValue}, "count").
		AddSink("sink", SinkOptions{}, testOut, "count")
}

// expel makes the coordinator forget a member, as the end of its session does.
func (f *fleet) expel(member string) {
	f.t.Helper()
	f.happened("group", "member forgotten")
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.MemberID = testApp, member
	rm := kmsg.NewLeaveGroupRequestMember()
	rm.MemberID = member
	req.Members = append(req.Members, rm)
	if _, err := req.RequestWith(f.t.Context(), f.client); err != nil {
		f.t.Fatal(err)
	}
}

// fill writes n records of the given value into each partition.
func (f *fleet) fill(partitions int32, n int, value string) {
	f.t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(f.brokers...), kgo.Dialer(f.dial), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		f.t.Fatal(err)
	}
	defer cl.Close()
	for p := range partitions {
		for range n {
			r := &kgo.Record{Topic: testInput, Partition: p, Key: fmt.Appendf(nil, "of-%d", p), Value: []byte(value), Timestamp: time.Now()}
			if err := cl.ProduceSync(f.t.Context(), r).FirstErr(); err != nil {
				f.t.Fatal(err)
			}
		}
	}
}

// gate breaks the connections of requests of one kind while it is shut.
type gate struct{ shut atomic.Bool }

type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

func (g *gate) holding(dial dialer, key kmsg.Key) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &gatedConn{Conn: conn, gate: g, key: key}, nil
	}
}

type gatedConn struct {
	net.Conn

	gate *gate
	key  kmsg.Key
}

// Write gets whole requests: a length, then the kind.
func (c *gatedConn) Write(b []byte) (int, error) {
	if len(b) >= 6 && binary.BigEndian.Uint16(b[4:]) == uint16(c.key) && c.gate.shut.Load() {
		return 0, errors.Join(errors.New("the gate is shut"), c.Close())
	}
	return c.Conn.Write(b)
}

// TestSimSilentRejoin: what a member sends is held up on the way while it joins, its session ends, others take its tasks.
// When its join arrives at last, the client library is told that the member is unknown, and joins as another one without a
// word: its partitions, it believes, are still its own. Under the new name the group accepts everything. Neither an answer that is proven by it
// nor offsets committed under it may come of the tasks that were held under the old name.
func TestSimSilentRejoin(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		const partitions = 4
		f := newFleet(t, true, partitions)
		f.topo = pickyTopology
		fetching := &gate{}
		a := f.start("a", func(c *Config) {
			c.Kafka.Dial = fetching.holding(c.Kafka.Dial, kmsg.Fetch)
			c.CommitInterval, c.TransactionTimeout, c.SessionTimeout = 3*time.Minute, 4*time.Minute, 5*time.Minute
		})
		b := f.start("b")
		a.waitRunning()
		b.waitRunning()
		f.fill(partitions, 3, "v")
		time.Sleep(time.Second)
		f.eventually("a owns some", time.Minute, func() error { return allServe(partitions/2, a) })
		old, _ := a.rt.streamThreads()[0].member.client.GroupMetadata()

		var joins atomic.Int64
		var back atomic.Bool
		arrive := make(chan struct{})
		f.cluster.Control(func(req kmsg.Request) (kmsg.Response, error, bool) {
			f.cluster.KeepControl()
			switch r := req.(type) {
			case *kmsg.JoinGroupRequest:
				if r.MemberID == old && joins.Add(1) == 1 {
					f.cluster.SleepControl(func() { <-arrive })
				}
			case *kmsg.SyncGroupRequest:
				if back.Load() { // a slow leader
					f.cluster.SleepControl(func() { time.Sleep(2 * time.Second) })
				}
			}
			return nil, nil, false
		})
		c := f.start("c") // makes everybody join
		f.eventually("a joins", time.Minute, func() error {
			if joins.Load() == 0 {
				return errors.New("not yet")
			}
			return nil
		})
		f.fill(partitions, 2, "skip") // a processes these of its tasks and commits none: its interval is long
		time.Sleep(time.Second)
		fetching.shut.Store(true)
		time.Sleep(6 * time.Second) // the fetches under way come to their end
		f.expel(old)
		f.eventually("b and c took over", 2*time.Minute, func() error { return allServe(partitions, b, c) })
		f.fill(partitions, 4, "v")
		want := truth{}
		for p := range partitions {
			want[fmt.Sprintf("of-%d", p)] = 7
		}
		f.waitCaughtUp(time.Minute)
		time.Sleep(10 * time.Second)

		back.Store(true)
		close(arrive)
		answers := 0
		for range 300 {
			time.Sleep(time.Duration(20+rng.IntN(60)) * time.Millisecond)
			for p := range store.Partition(partitions) {
				r, err := a.rt.Read(t.Context(), testStore, p, store.ReadOptions{MaxAge: time.Second})
				if err != nil {
					continue
				}
				v, err := keyValue(t, r).Get(t.Context(), fmt.Appendf(nil, "of-%d", p))
				if err != nil || binary.BigEndian.Uint64(v.Data) != 7 {
					t.Errorf("partition %d: %x, %v at an age of %s: want 7 for 10s now", p, v.Data, err, r.Facts().Age)
				}
				answers++
				r.Close()
			}
			if t.Failed() {
				break
			}
			if n, err := f.lag(); err == nil && n != 0 {
				t.Fatalf("offsets went back: %d records to process again", n)
			}
		}
		fetching.shut.Store(false)
		f.eventually("all served", 2*time.Minute, func() error { return allServe(partitions, a, b, c) })
		for _, in := range []*instance{a, b, c} {
			if err := in.stop(); err != nil {
				t.Fatal(err)
			}
		}
		d := f.start("d")
		f.fill(partitions, 1, "v")
		for k := range want {
			want[k]++
		}
		f.waitCaughtUp(time.Minute)
		if logged, _ := f.replay(testApp + "-counts-changelog"); !maps.Equal(logged, want) {
			t.Fatalf("changelog is not the truth: %s", diff(logged, want))
		}
		_ = d
		t.Logf("%d answers of a", answers)
	})
}
