package processor

import (
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/store"
)

// clocked counts as counter does, with a time of its own that every second record moves.
type clocked struct {
	counter

	seen   *ObservedTime
	begins func(at int64)
}

func (c *clocked) Init(ctx *Context) (err error) {
	if c.seen, err = ctx.ObservedTime(string(testStore)); err != nil {
		return err
	}
	c.begins(c.seen.Now())
	return c.counter.Init(ctx)
}

func (c *clocked) Process(r *Record) error {
	if string(r.Value) == "seen" {
		c.seen.Observe(r.Timestamp)
	}
	return c.counter.Process(r)
}

// TestSimObservedTimeMoves: an operator's own time goes with its task to another instance, whose disk is empty, as of the last commit.
func TestSimObservedTimeMoves(t *testing.T) {
	for _, guarantee := range []Guarantee{ExactlyOnce, AtLeastOnce} {
		t.Run(string(guarantee), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var begun []int64
				begins := func(at int64) {
					mu.Lock()
					defer mu.Unlock()
					begun = append(begun, at)
				}
				f := newFleet(t, true, 1)
				f.options = func(c *Config) { c.Guarantee, c.SessionTimeout = guarantee, 6*time.Second }
				f.topo = func() *Topology {
					return NewTopology().AddSource("source", SourceOptions{}, testInput).
						AddProcessor("count", func() Processor { return &clocked{begins: begins} }, "source").
						AddStateStore(store.Spec{Name: testStore, Kind: store.KindTimestampedKeyValue}, "count").
						AddSink("sink", SinkOptions{}, testOut, "count")
				}
				produce := func(value string, at int64) {
					t.Helper()
					r := &kgo.Record{Topic: testInput, Key: []byte("k"), Value: []byte(value), Timestamp: time.UnixMilli(at)}
					if err := f.client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
						t.Fatal(err)
					}
				}
				a := f.start("a")
				a.waitRunning()
				produce("seen", 100)
				produce("passes", 1000)
				f.waitCaughtUp(time.Minute)
				a.cut.off() // a kill
				b := f.start("b")
				b.waitRunning()
				produce("seen", 200)
				f.waitCaughtUp(time.Minute)
				if err := b.stop(); err != nil {
					t.Fatal(err)
				}
				f.start("c").waitRunning()
				mu.Lock()
				defer mu.Unlock()
				if want := []int64{math.MinInt64, 100, 200}; !slices.Equal(begun, want) {
					t.Errorf("the operator's time at the beginning of each stay: %d, want %d", begun, want)
				}
			})
		})
	}
}
