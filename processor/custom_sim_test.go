package processor

import (
	"encoding/binary"
	"errors"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/statemesh/statemesh/store"
)

// ranking is a store of one's own: counters, and which of them are the highest. Its second part has a row for each counter, by its
// value; total is what it finds again in the first.
type ranking struct {
	counts, ranks store.KeyValue
	total         uint64
}

const ranksStore = store.Name("ranks")

func newRanking() *CustomStore[*ranking] {
	open := func(p *Parts) (*ranking, error) {
		counts, err := p.KeyValue(testStore)
		ranks, ranksErr := p.KeyValue(ranksStore)
		if err := errors.Join(err, ranksErr); err != nil {
			return nil, err
		}
		r := &ranking{counts: counts, ranks: ranks}
		it, err := counts.Scan(store.Scan{})
		if err != nil {
			return nil, err
		}
		defer it.Close()
		for it.Next() {
			r.total += binary.BigEndian.Uint64(it.Entry().Data)
		}
		return r, it.Err()
	}
	return NewCustomStore(open,
		store.Spec{Name: testStore, Kind: store.KindTimestampedKeyValue}, store.Spec{Name: ranksStore, Kind: store.KindKeyValue})
}

func rankOf(key []byte, n uint64) []byte {
	return append(binary.BigEndian.AppendUint64(nil, n), key...)
}

// add counts one more of a key and returns how many there are.
func (r *ranking) add(key []byte, timestamp int64) (uint64, error) {
	n, err := readCount(r.counts.Get(key))
	if err != nil {
		return 0, err
	}
	if n > 0 {
		if _, was, err := r.ranks.Delete(rankOf(key, n)); err != nil || !was {
			return 0, errors.Join(err, errors.New("a counter has no rank"))
		}
	}
	n++
	r.total++
	value := store.Value{Data: binary.BigEndian.AppendUint64(nil, n), Timestamp: timestamp}
	return n, errors.Join(r.counts.Put(key, value), r.ranks.Put(rankOf(key, n), value))
}

// check compares what the handle keeps with what its parts have.
func (r *ranking) check() error {
	sum := func(kv store.KeyValue) (total uint64, err error) {
		it, err := kv.Scan(store.Scan{})
		if err != nil {
			return 0, err
		}
		defer it.Close()
		for it.Next() {
			total += binary.BigEndian.Uint64(it.Entry().Data)
		}
		return total, it.Err()
	}
	counts, err := sum(r.counts)
	ranks, ranksErr := sum(r.ranks)
	if counts != ranks || counts != r.total {
		err = errors.Join(err, errors.New("counters, ranks and total differ"))
	}
	return errors.Join(err, ranksErr)
}

// rankedCounter counts by a ranking; check is true of the one that looks whether the other's changes are in its own handle.
type rankedCounter struct {
	ctx      *Context
	declared *CustomStore[*ranking]
	ranking  *ranking
	checks   bool
}

func (p *rankedCounter) Init(ctx *Context) (err error) {
	p.ctx = ctx
	p.ranking, err = p.declared.Open(ctx)
	return err
}

func (p *rankedCounter) Process(r *Record) error {
	if p.checks {
		if err := p.ranking.check(); err != nil {
			return err
		}
		return p.ctx.Forward(*r)
	}
	n, err := p.ranking.add(r.Key, r.Timestamp)
	if err != nil {
		return err
	}
	return p.ctx.Forward(Record{Key: r.Key, Value: binary.BigEndian.AppendUint64(nil, n), Timestamp: r.Timestamp})
}

func (p *rankedCounter) Close() error { return nil }

func rankedTopology() *Topology {
	declared := newRanking()
	return NewTopology().
		AddSource("source", SourceOptions{}, testInput).
		AddProcessor("count", func() Processor { return &rankedCounter{declared: declared} }, "source").
		AddProcessor("check", func() Processor { return &rankedCounter{declared: declared, checks: true} }, "count").
		AddStore(declared, "count", "check").
		AddSink("sink", SinkOptions{}, testOut, "check")
}

// TestSimCustomStore lets anything happen to a fleet with a store of one's own of two parts. In each task the parts agree at every record,
// after every abort, restore and promotion; and when all is calm again both changelogs, the output and the answers are the truth.
func TestSimCustomStore(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		tasks := 2 + rng.IntN(3)
		f := newFleet(t, true, int32(tasks))
		f.topo = rankedTopology
		f.withStandbys(rng.IntN(2))
		ff := &faultyFleet{fleet: f, rng: rng, brokers: newBrokerFaults(f, rng)}
		for i := range 2 + rng.IntN(2) {
			ff.slots = append(ff.slots, &slot{name: string(rune('a' + i))})
			ff.begin(ff.slots[i])
		}
		tr := truth{}
		f.produce(tr, rng, 20, 40)
		for range 6 {
			ff.lookAfter()
			ff.happen()
			for range rng.IntN(8) {
				f.produce(tr, rng, 20, 40)
				time.Sleep(time.Duration(rng.IntN(2000)) * time.Millisecond)
			}
		}
		ff.lookAfter()
		ff.calm(tasks)
		f.produce(tr, rng, 100, 40)
		f.waitCaughtUp(5 * time.Minute)
		f.eventually("all run", 3*time.Minute, func() error { return allServe(tasks, ff.living()...) })
		f.check(tr, ff.living()...)
		ranks := make(map[string]uint64)
		for key, n := range tr {
			ranks[string(rankOf([]byte(key), n))] = n
		}
		if logged, _ := f.replay(testApp + "-ranks-changelog"); !maps.Equal(logged, ranks) {
			t.Fatalf("the ranks are not the truth: %s", diff(logged, ranks))
		}
	})
}
