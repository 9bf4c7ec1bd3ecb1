package statemesh_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh"
	"github.com/statemesh/statemesh/client"
	"github.com/statemesh/statemesh/processor/declared"
	"github.com/statemesh/statemesh/processor/expr"
	"github.com/statemesh/statemesh/sink"
)

// ledger is a database in memory, with one table and the offsets beside it. It may be away.
type ledger struct {
	mu      sync.Mutex
	away    bool
	offsets map[sink.Place]sink.Offset
	rows    map[string]int64
	opened  int // targets, less those that were closed
}

var errAway = errors.New("the ledger is away")

func newLedger() *ledger {
	return &ledger{offsets: make(map[sink.Place]sink.Offset), rows: make(map[string]int64)}
}

func (l *ledger) Check(sink.Schema) error { return nil }

func (l *ledger) Target(context.Context) (sink.Target, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.opened++
	return &page{ledger: l}, nil
}

func (l *ledger) leave() { l.set(true) }
func (l *ledger) back()  { l.set(false) }

func (l *ledger) set(away bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away = away
}

func (l *ledger) has(want map[string]int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !maps.Equal(l.rows, want) {
		return fmt.Errorf("the ledger has %v, want %v", l.rows, want)
	}
	return nil
}

// page is a target.
type page struct {
	*ledger

	closing sync.Once
}

func (p *page) Open(context.Context, sink.Schema) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away {
		return errAway
	}
	return nil
}

func (p *page) Begin(_ context.Context, place sink.Place, start int64) (sink.Offset, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away {
		return sink.Offset{}, errAway
	}
	at, ok := p.offsets[place]
	if !ok {
		at = sink.Offset{TopicID: place.TopicID, Next: start, Epoch: -1}
		p.offsets[place] = at
	}
	return at, nil
}

func (p *page) Apply(_ context.Context, b sink.Batch) (sink.Result, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.offsets[b.Place]
	switch {
	case p.away:
		return sink.Result{}, errAway
	case at.Next != b.From:
		return sink.Result{Next: at.Next}, nil
	}
	for _, r := range b.Rows {
		p.rows[r.Key[0].(string)] = r.Values[0].(int64)
	}
	at.Next, at.Epoch = b.Next, b.Epoch
	p.offsets[b.Place] = at
	return sink.Result{Next: b.Next, Upserts: len(b.Rows)}, nil
}

func (p *page) Close() {
	p.closing.Do(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.opened--
	})
}

// TestSinkBeside: a database that is away delays nothing but itself; when it is back it has what was committed, whichever instance writes it, and
// an instance that stops leaves its part to the others.
func TestSinkBeside(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "in", 4)
	db := newLedger()
	db.leave()
	config := func() statemesh.Config {
		cfg := b.config(t)
		cfg.Views = nil
		cfg.Processor.Kafka.MetadataMaxAge = time.Second // the changelog is made after the sink has looked for it
		cfg.Declared = &declared.Topology{Relations: []declared.Relation{
			{Name: "words", Kind: declared.Stream, Topic: "in", Source: declared.Source{Layout: expr.Layout{
				Format: expr.Text, KeyFormat: "string", Columns: []expr.Column{{Name: "word", Type: expr.String}},
			}}},
			{Name: "counts", Kind: declared.Table, From: "words", Aggregate: &declared.Aggregate{
				Columns: []declared.AggregateColumn{{Name: "n", Function: declared.Count}},
			}},
		}}
		cfg.Sinks = []statemesh.Sink{{Relation: "counts", Database: db, Options: sink.Config{
			Linger: time.Millisecond, Backoff: time.Millisecond, MaxBackoff: 10 * time.Millisecond, Idle: 100 * time.Millisecond,
		}}}
		return cfg
	}
	fleet := []*node{startNode(t, config()), startNode(t, config())}
	want := make(map[string]int64)
	write := func(times int64) {
		for i := range 20 {
			key := fmt.Sprintf("key-%02d", i)
			for range times {
				if err := b.cl.ProduceSync(t.Context(), &kgo.Record{Topic: "in", Key: []byte(key), Value: []byte("word")}).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
			want[key] += times
		}
	}
	answered := func(n *node) error {
		for key, count := range want {
			r, err := n.Get(t.Context(), "counts", []byte(key), client.NoCache())
			if err != nil {
				return err
			}
			if have, want := string(r.Value.Data), fmt.Sprintf(`{"n":%d}`, count); have != want {
				return fmt.Errorf("%s is %s, want %s", key, have, want)
			}
		}
		return nil
	}
	state := func(n *node, want sink.State) error {
		if s := n.Status().Sinks; len(s) != 1 || s[0].Sink != "counts" || s[0].State != string(want) || (want == sink.Away) != (s[0].Error != "") {
			return fmt.Errorf("sinks of %s: %+v, want %s", n.Endpoint(), s, want)
		}
		return nil
	}
	write(2)
	for _, n := range fleet {
		eventually(t, func() error { return answered(n) })
		eventually(t, func() error { return state(n, sink.Away) })
	}
	if err := db.has(nil); err != nil {
		t.Error(err)
	}
	db.back()
	eventually(t, func() error { return db.has(want) })
	for _, n := range fleet {
		eventually(t, func() error { return state(n, sink.Writing) })
	}
	write(1)
	eventually(t, func() error { return db.has(want) })
	db.leave()
	write(1)
	if err := fleet[0].stop(); err != nil {
		t.Error(err)
	}
	eventually(t, func() error { return answered(fleet[1]) })
	eventually(t, func() error { return state(fleet[1], sink.Away) })
	db.back()
	eventually(t, func() error { return db.has(want) })
	if err := fleet[1].stop(); err != nil {
		t.Error(err)
	}
	if db.opened != 0 {
		t.Errorf("%d targets are open", db.opened)
	}
}
