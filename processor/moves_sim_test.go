package processor

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/statemesh/statemesh/store"
)

// TestSimAtLeastOnce: without kills the guarantee is exact; after a kill nothing is lost (PL-04).
func TestSimAtLeastOnce(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 3)
		f.options = func(c *Config) { c.Guarantee, c.CommitInterval = AtLeastOnce, 200*time.Millisecond }
		tr := truth{}
		a, b := f.start("a"), f.start("b")
		for range 10 {
			f.produce(tr, rng, 50, 50)
			time.Sleep(100 * time.Millisecond)
		}
		f.waitCaughtUp(time.Minute)
		f.eventually("all served", time.Minute, func() error { return allServe(3, a, b) })
		f.check(tr, a, b)
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		f.produce(tr, rng, 200, 50)
		time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
		a.kill("c")
		c := f.start("c")
		f.reap(c) // a may have been killed in a join
		f.waitCaughtUp(3 * time.Minute)
		f.eventually("all served", time.Minute, func() error { return allServe(3, c) })
		logged, _ := f.replay(testApp + "-counts-changelog")
		for k, want := range tr {
			if logged[k] < want {
				t.Errorf("%s: %d, want at least %d", k, logged[k], want)
			}
		}
	})
}

// TestSimThreads runs several threads per instance: tasks change threads and instances, and are handed over (CR-12, RB-12).
func TestSimThreads(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 8)
		f.options = func(c *Config) { c.NumStreamThreads = 2 }
		tr := truth{}
		f.produce(tr, rng, 500, 50)
		a := f.start("a")
		a.waitRunning()
		var b *instance
		for i := range 4 {
			b = f.start(fmt.Sprintf("b%d", i))
			for range 10 {
				f.produce(tr, rng, 20, 50)
				time.Sleep(time.Duration(50+rng.IntN(200)) * time.Millisecond)
			}
			if i < 3 {
				if err := b.stop(); err != nil {
					t.Fatal(err)
				}
			}
		}
		f.waitCaughtUp(2 * time.Minute)
		f.eventually("all served", 2*time.Minute, func() error { return allServe(8, a, b) })
		f.check(tr, a, b)
	})
}

// TestSimRepartition: two sub-topologies with an internal topic between them, all of it exactly once over kills; consumed
// records of the internal topic are purged.
func TestSimRepartition(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 3)
		f.topo = func() *Topology {
			return NewTopology().AddSource("source", SourceOptions{}, testInput).
				AddProcessor("rekey", func() Processor { return &rekey{} }, "source").
				AddRepartition("by-half", RepartitionOptions{Partitions: 2}, "rekey").
				AddProcessor("count", func() Processor { return &counter{} }, "by-half").
				AddStateStore(store.Spec{Name: testStore, Kind: store.KindTimestampedKeyValue}, "count").
				AddSink("sink", SinkOptions{}, testOut, "count")
		}
		tr := truth{}
		a, b := f.start("a"), f.start("b")
		for range 10 {
			f.produce(tr, rng, 50, 50)
			time.Sleep(time.Duration(rng.IntN(200)) * time.Millisecond)
		}
		a.kill("c")
		f.produce(tr, rng, 50, 50)
		c := f.start("c")
		f.reap(b, c) // a may have been killed in a join
		f.waitCaughtUp(3 * time.Minute)
		f.eventually("all served", time.Minute, func() error { return allServe(5, b, c) })
		time.Sleep(time.Second)
		halves := truth{}
		for k, n := range tr {
			halves["half-"+k[len(k)-1:]] += n
		}
		logged, _ := f.replay(testApp + "-counts-changelog")
		if d := diff(logged, halves); len(logged) != len(halves) || d != "0 keys differ: " {
			t.Fatalf("changelog is not the truth: %s", d)
		}
		time.Sleep(2 * time.Minute)
		start, err := f.logStart(testApp+"-by-half-repartition", 0)
		if err != nil || start == 0 {
			t.Fatalf("repartition topic starts at %d: nothing was purged (%v)", start, err)
		}
	})
}

type rekey struct{ ctx *Context }

func (p *rekey) Init(ctx *Context) error { p.ctx = ctx; return nil }

func (p *rekey) Process(r *Record) error {
	return p.ctx.Forward(Record{Key: []byte("half-" + string(r.Key[len(r.Key)-1:])), Value: r.Value, Timestamp: r.Timestamp})
}

func (p *rekey) Close() error { return nil }

func (f *fleet) logStart(topic string, p int32) (int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition, rp.Timestamp = p, listEarliest
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(f.t.Context(), f.client)
	if err != nil {
		return 0, err
	}
	return resp.Topics[0].Partitions[0].Offset, nil
}

// TestSimStopWhileRebalancing: RB-07. A group that never comes to rest lets an instance go within its bound, and the
// broker knows at once that it is gone.
func TestSimStopWhileRebalancing(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 4)
		a := f.start("a")
		a.waitRunning()
		stop := make(chan struct{})
		done := make(chan struct{})
		go func() { // members that come and go
			defer close(done)
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				b := f.start(fmt.Sprintf("b%d", i))
				time.Sleep(time.Duration(rng.IntN(1500)) * time.Millisecond)
				if err := b.stop(); err != nil {
					t.Error(err)
				}
			}
		}()
		time.Sleep(5 * time.Second)
		began := time.Now()
		if err := a.stop(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 15*time.Second {
			t.Fatalf("stopping took %s", took)
		}
		close(stop)
		<-done
		if info := f.cluster.GroupInfo(testApp); info != nil && len(info.Members) != 0 {
			t.Fatalf("%d members left in the group", len(info.Members))
		}
	})
}

// TestSimPause: while it is paused an instance processes nothing, keeps its tasks and answers; then it goes on.
func TestSimPause(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 2)
		tr := truth{}
		a := f.start("a")
		a.waitRunning()
		f.produce(tr, rng, 100, 20)
		f.waitCaughtUp(time.Minute)
		a.rt.Pause()
		time.Sleep(time.Second)
		later := truth{}
		f.produce(later, rng, 100, 20)
		time.Sleep(5 * time.Minute)
		f.checkReads(tr, a)
		if n, err := f.lag(); err != nil || n != 100 {
			t.Fatalf("lag %d, %v while paused, want 100", n, err)
		}
		a.rt.Resume()
		for k, n := range later {
			tr[k] += n
		}
		f.waitCaughtUp(time.Minute)
		f.check(tr, a)
	})
}

// TestSimReadErrors: what a query that cannot be answered is told.
func TestSimReadErrors(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 2)
		tr := truth{}
		f.produce(tr, rng, 100, 20)
		a := f.start("a")
		read := func(in *instance, name store.Name, p store.Partition, age time.Duration) error {
			r, err := in.rt.Read(t.Context(), name, p, store.ReadOptions{MaxAge: age, OnlyActive: true})
			if err == nil {
				if facts := r.Facts(); age > 0 && facts.Age > age || facts.Role != store.RoleActive {
					t.Errorf("facts %+v of a read bounded by %s", facts, age)
				}
				r.Close()
			}
			return err
		}
		a.waitRunning()
		f.waitCaughtUp(time.Minute)
		if err := read(a, "nope", 0, 0); !is[*store.UnknownStoreError](err) {
			t.Errorf("unknown store: %v", err)
		}
		if err := read(a, testStore, 2, 0); !is[*store.InvalidRequestError](err) {
			t.Errorf("partition 2 of 2: %v", err)
		}
		time.Sleep(10 * time.Minute) // idle: only an own heartbeat can prove a small age
		if err := read(a, testStore, 0, 50*time.Millisecond); err != nil {
			t.Errorf("bounded read of an idle owner: %v", err)
		}
		a.cut.cut()
		time.Sleep(30 * time.Second)
		if err := read(a, testStore, 0, time.Second); !is[*store.NotReadyError](err) {
			t.Errorf("bounded read of an owner that is cut off: %v", err)
		}
		a.cut.mend()
		f.eventually("both run", time.Minute, func() error { return allServe(2, a) })
		b := f.start("b")
		f.eventually("one each", time.Minute, func() error { return errors.Join(allServe(1, a), allServe(1, b)) })
		time.Sleep(5 * time.Second)
		moved, here := 0, 0
		for p := range store.Partition(2) {
			switch err := read(a, testStore, p, 0); {
			case err == nil:
				here++
			case is[*store.MovedError](err):
				e, _ := errors.AsType[*store.MovedError](err)
				if e.Instance != "b" || e.Endpoint != "b:1" || e.Epoch == 0 {
					t.Errorf("moved: %+v", e)
				}
				moved++
			default:
				t.Errorf("partition %d: %v", p, err)
			}
		}
		if moved != 1 || here != 1 {
			t.Errorf("%d moved, %d here", moved, here)
		}
		if err := a.stop(); err != nil {
			t.Fatal(err)
		}
		if err := read(a, testStore, 0, 0); !errors.Is(err, store.ErrShuttingDown) {
			t.Errorf("read after the end: %v", err)
		}
	})
}

// TestSimNoEndpoint: instances that answer no peer share the work all the same, and read what they hold.
func TestSimNoEndpoint(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 4)
		f.options = func(c *Config) { c.Endpoint = "" }
		tr := truth{}
		a, b := f.start("a"), f.start("b")
		f.produce(tr, rng, 200, 50)
		f.waitCaughtUp(time.Minute)
		for _, in := range []*instance{a, b} {
			f.eventually("a whole map", time.Minute, func() error {
				s := in.table.Load()
				if s == nil || len(s.Missing()) > 0 {
					return errors.New("no whole map")
				}
				if got := s.Instances(); len(got) != 2 || got[0].Endpoint != "" || len(got[0].Active) != 2 {
					return fmt.Errorf("map: %+v", got)
				}
				return nil
			})
		}
		f.eventually("all served", time.Minute, func() error { return allServe(4, a, b) })
		f.check(tr, a, b)
	})
}
