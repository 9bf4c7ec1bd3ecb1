package processor

import (
	"errors"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/statemesh/statemesh/store"
)

// panicky counts as the counter does, and panics at every record while it is told to.
type panicky struct {
	counter

	panics func(RecordMetadata) bool
}

func (p *panicky) Process(r *Record) error {
	if m, ok := p.ctx.RecordMetadata(); ok && p.panics(m) {
		panic("no such page: " + string(r.Key))
	}
	return p.counter.Process(r)
}

func panickyTopology(panics func(RecordMetadata) bool) func() *Topology {
	return func() *Topology {
		return NewTopology().
			AddSource("source", SourceOptions{}, testInput).
			AddProcessor("count", func() Processor { return &panicky{panics: panics} }, "source").
			AddStateStore(store.Spec{Name: testStore, Kind: store.KindTimestampedKeyValue}, "count").
			AddSink("sink", SinkOptions{}, testOut, "count")
	}
}

// TestSimPanic: a panic of a processor ends the application with an error that names the record, the processor's own words and
// where it was; what came before is committed.
func TestSimPanic(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 1)
		tr := truth{}
		f.produce(tr, rng, 100, 10)
		f.produce(truth{}, rng, 50, 10)
		f.topo = panickyTopology(func(m RecordMetadata) bool { return m.Offset >= 100 })
		a := f.start("a")
		<-a.done
		failed, ok := errors.AsType[*TaskError](a.err)
		if !ok || failed.Record == nil || failed.Record.Offset != 100 {
			t.Fatalf("run: %v; want a task error at offset 100", a.err)
		}
		if p, ok := errors.AsType[*PanicError](a.err); !ok || !strings.Contains(p.Error(), "no such page") || !strings.Contains(string(p.Stack), "panicky") {
			t.Fatalf("run: %v; want the panic with its place", a.err)
		}
		logged, _ := f.replay(testApp + "-counts-changelog")
		if !maps.Equal(logged, tr) {
			t.Fatalf("changelog is not what came before: %s", diff(logged, tr))
		}
	})
}

// TestSimPanicOfGlobalStore: so does one of a processor that fills a global store, which has no stream thread around it.
func TestSimPanicOfGlobalStore(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 1)
		f.compacted(tableTopic, 1)
		n := &names{f: f, want: map[string]string{}}
		n.write(rng, 20)
		f.topo = func() *Topology {
			return NewTopology().AddGlobalStore(store.Spec{Name: testStore, Kind: store.KindTimestampedKeyValue}, "source", SourceOptions{},
				tableTopic, "fill", func() Processor { return &panicky{panics: func(RecordMetadata) bool { return true }} }).
				AddSource("other", SourceOptions{}, testInput)
		}
		a := f.start("a")
		<-a.done
		failed, ok := errors.AsType[*TaskError](a.err)
		if !ok || failed.Record == nil || failed.Record.Topic != tableTopic || !is[*PanicError](a.err) {
			t.Fatalf("run: %v; want the panic with its record", a.err)
		}
	})
}

// TestSimReplaceThread: a thread that fails is begun again, the tasks of the other go on being served and processed, and nothing
// is lost or counted twice (KIP-671).
func TestSimReplaceThread(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 4)
		var fails atomic.Bool
		var mu sync.Mutex
		replaced := make(map[int]int)
		f.topo = panickyTopology(func(m RecordMetadata) bool { return fails.Load() && m.Partition == 0 })
		f.options = func(c *Config) {
			c.NumStreamThreads = 2
			c.UncaughtHandler = ReplaceThread
			c.Listener.ThreadReplaced = func(thread int, err error) {
				mu.Lock()
				defer mu.Unlock()
				if !is[*PanicError](err) {
					t.Errorf("thread %d replaced for %v", thread, err)
				}
				replaced[thread]++
			}
		}
		tr := truth{}
		a := f.start("a")
		a.waitRunning()
		f.produce(tr, rng, 200, 50)
		f.waitCaughtUp(time.Minute)
		fails.Store(true)
		for range 20 {
			f.produce(tr, rng, 50, 50)
			time.Sleep(100 * time.Millisecond)
		}
		select {
		case <-a.done:
			t.Fatalf("the application has ended: %v", a.err)
		default:
		}
		fails.Store(false)
		f.waitCaughtUp(2 * time.Minute)
		f.eventually("all run", time.Minute, func() error { return allServe(4, a) }) // the group may still divide them anew
		f.check(tr, a)
		mu.Lock()
		defer mu.Unlock()
		if len(replaced) == 0 {
			t.Error("no thread was replaced: nothing was tested")
		}
	})
}
