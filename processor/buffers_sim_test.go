package processor

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/store"
)

// metric is the sum of a metric over its labels, or of those with this label value.
func metric(t *testing.T, reg *prometheus.Registry, name string, label ...string) (sum float64) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "statemesh_"+name {
			continue
		}
		for _, m := range f.GetMetric() {
			if len(label) == 0 || len(m.GetLabel()) == 1 && m.GetLabel()[0].GetValue() == label[0] {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// TestSimInputBuffers: KIP-770. A task that waits for one of its inputs takes no more of the other than the bound; the one
// that is empty is fetched all the while; and in the end everything is processed, in the order of time.
func TestSimInputBuffers(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		const bound, size = 64 << 10, 1 << 10
		f := newFleet(t, true, 1)
		reg := prometheus.NewRegistry()
		var mu sync.Mutex
		var seen []string
		f.topo = func() *Topology {
			return NewTopology().
				AddSource("source", SourceOptions{}, testInput, "dead").
				AddProcessor("note", func() Processor {
					return &noter{func(r *Record) { mu.Lock(); seen = append(seen, string(r.Key)); mu.Unlock() }}
				}, "source")
		}
		f.options = func(c *Config) {
			c.InputBufferMaxBytes, c.MaxTaskIdle, c.Registerer = bound, time.Hour, reg
			c.BufferedRecordsPerPartition = 1 + rng.IntN(100)
		}
		send := func(topic string, from, n int) {
			records := make([]*kgo.Record, n)
			for i := range records {
				records[i] = &kgo.Record{
					Topic: topic, Key: fmt.Appendf(nil, "%s-%d", topic, from+i), Value: []byte(strings.Repeat("v", size)),
					Timestamp: time.UnixMilli(int64(from + i)),
				}
			}
			if err := f.client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		const n = 1000
		send(testInput, 0, 20) // from which the thread learns how large records are
		in := f.start("a")
		in.waitRunning()
		time.Sleep(time.Second)
		send(testInput, 20, n-20)
		most := 0.0
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			most = max(most, metric(t, reg, "input_buffer_bytes"))
		}
		if most < bound/2 || most > bound+2*size {
			t.Errorf("%v bytes waited, want up to %d and at most a record more", most, bound)
		}
		if metric(t, reg, "input_pauses_total") == 0 {
			t.Error("nothing was paused")
		}
		send("dead", 0, n)
		send("dead", 2*n, 1)
		f.eventually("all of the first input", time.Minute, func() error {
			mu.Lock()
			defer mu.Unlock()
			if len(seen) < 2*n {
				return fmt.Errorf("%d of %d", len(seen), 2*n)
			}
			return nil
		})
		mu.Lock()
		defer mu.Unlock()
		next := map[string]int{}
		for i, key := range seen[:2*n] {
			topic, _, _ := strings.Cut(key, "-")
			if want := fmt.Sprintf("%s-%d", topic, next[topic]); key != want {
				t.Fatalf("record %d is %s, want %s", i, key, want)
			}
			next[topic]++
			if d := next[testInput] - next["dead"]; d < -1 || d > 1 {
				t.Fatalf("record %d: %d of one input and %d of the other", i, next[testInput], next["dead"])
			}
		}
	})
}

type noter struct{ note func(*Record) }

func (p *noter) Init(*Context) error { return nil }

func (p *noter) Process(r *Record) error { p.note(r); return nil }

func (p *noter) Close() error { return nil }

// TestSimUncommittedBytes: KIP-892. What stores and sinks have not committed forces a commit before its time; -1 is no
// bound.
func TestSimUncommittedBytes(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		for _, c := range []struct {
			name  string
			bound int64
			topo  func() *Topology
			early bool
		}{
			{"store and sink", 20_000, countTopology, true},
			{"sink only", 20_000, passTopology, true},
			{"enough", 1 << 20, countTopology, false},
			{"no bound", -1, countTopology, false},
		} {
			f := newFleet(t, true, 1)
			reg := prometheus.NewRegistry()
			f.topo = c.topo
			f.options = func(cfg *Config) {
				cfg.CommitInterval, cfg.TransactionTimeout, cfg.SessionTimeout = 20*time.Second, 30*time.Second, 45*time.Second
				cfg.UncommittedMaxBytes, cfg.Registerer = c.bound, reg
			}
			in := f.start("a")
			in.waitRunning()
			f.produce(truth{}, rng, 200, 200)
			time.Sleep(5 * time.Second)
			if early := metric(t, reg, "commits_due_total", "uncommitted bytes"); (early > 0) != c.early {
				t.Errorf("%s: %v early commits", c.name, early)
			}
			f.waitCaughtUp(time.Minute)
			if err := in.stop(); err != nil {
				t.Error(err)
			}
		}
	})
}

// passTopology hands records on; a value of "big" it makes larger than any broker takes.
func passTopology() *Topology {
	return NewTopology().
		AddSource("source", SourceOptions{}, testInput).
		AddProcessor("pass", func() Processor { return &passer{} }, "source").
		AddSink("sink", SinkOptions{}, testOut, "pass")
}

type passer struct{ ctx *Context }

func (p *passer) Init(ctx *Context) error { p.ctx = ctx; return nil }

func (p *passer) Process(r *Record) error {
	out := Record{Key: r.Key, Value: []byte("12345678"), Timestamp: r.Timestamp}
	if string(r.Value) == "big" {
		out.Value = make([]byte, 2<<20)
	}
	return p.ctx.Forward(out)
}

func (p *passer) Close() error { return nil }

// TestSimRecordTooLarge: PL-14 for sinks. A record that no broker takes is refused when it is processed, so that a handler
// can skip it; nothing else of its commit suffers.
func TestSimRecordTooLarge(t *testing.T) {
	simulate(t, func(t *testing.T, _ *rand.Rand) {
		f := newFleet(t, true, 1)
		reg := prometheus.NewRegistry()
		f.topo = passTopology
		in := f.start("a", func(c *Config) { c.ProcessingHandler, c.Registerer = Continue, reg })
		in.waitRunning()
		for i, value := range []string{"small", "big", "small"} {
			r := &kgo.Record{Topic: testInput, Key: fmt.Append(nil, i), Value: []byte(value)}
			if err := f.client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		f.waitCaughtUp(time.Minute)
		if out := f.numbers(testOut); len(out) != 2 || len(out["1"]) != 0 {
			t.Errorf("output %v", out)
		}
		if n := metric(t, reg, "dropped_records_total"); n != 1 {
			t.Errorf("%v records dropped", n)
		}
		if err := in.stop(); err != nil {
			t.Fatal(err)
		}
		failing := f.start("b")
		failing.waitRunning()
		r := &kgo.Record{Topic: testInput, Key: []byte("k"), Value: []byte("big")}
		if err := f.client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
		<-failing.done
		if !is[*RecordTooLargeError](failing.err) || !strings.Contains(failing.err.Error(), testOut) || !errors.Is(failing.err, store.ErrTooLarge) {
			t.Errorf("%v", failing.err)
		}
	})
}
