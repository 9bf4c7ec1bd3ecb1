package processor

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// arrivals is the topics of records in the order in which they were processed.
type arrivals struct {
	mu     sync.Mutex
	topics []string
}

type arriving struct {
	all *arrivals
	ctx *Context
}

func (p *arriving) Init(ctx *Context) error { p.ctx = ctx; return nil }

func (p *arriving) Process(*Record) error {
	m, _ := p.ctx.RecordMetadata()
	p.all.mu.Lock()
	defer p.all.mu.Unlock()
	p.all.topics = append(p.all.topics, m.Topic)
	return nil
}

func (p *arriving) Close() error { return nil }

// TestSimBacklogInOrder: two topics whose records lie on the brokers when an application starts are processed in the order of time, although a
// fetch brings only one of them. That is what a join of a stream with a table needs to be the same whenever it is made again.
func TestSimBacklogInOrder(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		const late, early, records = "late", "early", 300
		f := newFleet(t, true, 1)
		if _, err := kadm.NewClient(f.client).CreateTopics(t.Context(), 1, 1, nil, late, early); err != nil {
			t.Fatal(err)
		}
		value := make([]byte, 4000) // which do not compress
		for i := range value {
			value[i] = byte(rng.IntN(256))
		}
		for i := range records {
			for topic, at := range map[string]int64{late: 1_000_000, early: 0} {
				r := &kgo.Record{Topic: topic, Key: []byte(strconv.Itoa(i)), Value: value, Timestamp: time.UnixMilli(at + int64(i))}
				if err := f.client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
		}
		var all arrivals
		f.topo = func() *Topology {
			return NewTopology().AddSource("source", SourceOptions{}, late, early).
				AddProcessor("see", func() Processor { return &arriving{all: &all} }, "source")
		}
		f.options = func(c *Config) { c.Kafka.FetchBytes = 1 << 20 }
		a := f.start("a")
		f.eventually("all processed", time.Minute, func() error { return all.count(2 * records) })
		if err := a.stop(); err != nil {
			t.Fatal(err)
		}
		for i, topic := range all.topics[:2*records] {
			if want := map[bool]string{true: early, false: late}[i < records]; topic != want {
				t.Fatalf("record %d is of the topic %s, want %s", i, topic, want)
			}
		}
	})
}

func (a *arrivals) count(want int) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := len(a.topics); n < want {
		return fmt.Errorf("%d of %d", n, want)
	}
	return nil
}
