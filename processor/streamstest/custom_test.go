package streamstest_test

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// Jobs is a store of one's own: a queue by priority that has room for so many. Its rows are in order of priority, the lowest first, which
// is what a store's order of bytes gives for numbers without a sign, big-endian.
type Jobs struct {
	rows      store.KeyValue
	room, has int
}

// JobsStore declares it.
func JobsStore(name store.Name, room int) *processor.CustomStore[*Jobs] {
	open := func(p *processor.Parts) (*Jobs, error) {
		rows, err := p.KeyValue(name)
		if err != nil {
			return nil, err
		}
		q := &Jobs{rows: rows, room: room}
		it, err := rows.Scan(store.Scan{})
		if err != nil {
			return nil, err
		}
		defer it.Close()
		for it.Next() {
			q.has++
		}
		return q, it.Err()
	}
	return processor.NewCustomStore(open, store.Spec{Name: name, Kind: store.KindKeyValue, ValueFormat: "string"})
}

// Push puts a job in, and takes the lowest out when there is no room. It returns what went, nil for nothing.
func (q *Jobs) Push(priority uint32, job []byte) (gone []byte, err error) {
	row := append(binary.BigEndian.AppendUint32(nil, priority), job...)
	_, was, err := q.rows.PutIfAbsent(row, store.Value{Data: job})
	if err != nil || was {
		return nil, err
	}
	if q.has++; q.has <= q.room {
		return nil, nil
	}
	return q.take(store.Scan{})
}

// Pop takes the highest out; nil when there is none.
func (q *Jobs) Pop() ([]byte, error) { return q.take(store.Scan{Reverse: true}) }

func (q *Jobs) take(s store.Scan) ([]byte, error) {
	it, err := q.rows.Scan(s)
	if err != nil {
		return nil, err
	}
	defer it.Close()
	if !it.Next() {
		return nil, it.Err()
	}
	q.has--
	e := it.Entry()
	_, _, err = q.rows.Delete(e.Key)
	return e.Data, err
}

// worker pushes what it is told with its priority, and pops at "next".
type worker struct {
	declared *processor.CustomStore[*Jobs]
	ctx      *processor.Context
	jobs     *Jobs
}

func (w *worker) Init(ctx *processor.Context) (err error) {
	w.ctx = ctx
	w.jobs, err = w.declared.Open(ctx)
	return err
}

func (w *worker) Process(r *processor.Record) (err error) {
	var job []byte
	what := "begun"
	if string(r.Value) == "next" {
		job, err = w.jobs.Pop()
	} else {
		var priority uint32
		if _, err := fmt.Sscan(string(r.Value), &priority); err != nil {
			return err
		}
		what = "dropped"
		job, err = w.jobs.Push(priority, r.Key)
	}
	if err != nil || job == nil {
		return err
	}
	return w.ctx.Forward(processor.Record{Key: []byte(what), Value: job, Timestamp: r.Timestamp})
}

func (*worker) Close() error { return nil }

func jobsTopology(room int) *processor.Topology {
	jobs := JobsStore("jobs", room)
	return processor.NewTopology().
		AddSource("in", processor.SourceOptions{}, "orders").
		AddProcessor("work", func() processor.Processor { return &worker{declared: jobs} }, "in").
		AddStore(jobs, "work").
		AddSink("out", processor.SinkOptions{}, "events", "work")
}

// A kind of store of one's own: a bounded queue by priority.
func ExampleDriver_customStore() {
	d, err := streamstest.New(context.Background(), jobsTopology(2), streamstest.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = d.Close() }()
	orders := streamstest.NewInput(d, "orders", serde.String(), serde.String())
	for _, o := range [][2]string{{"paint", "3"}, {"sweep", "1"}, {"repair", "7"}, {"", "next"}, {"", "next"}, {"", "next"}} {
		orders.Pipe(o[0], o[1], 0)
	}
	fmt.Println(streamstest.NewOutput(d, "events", serde.String(), serde.String()).ReadStrings())
	// Output: [dropped=sweep@0 begun=repair@0 begun=paint@0]
}

// TestCustomStoreModel: a queue by priority does what a list does, over commits and restarts, which find it in its changelog; what it
// counts for itself it finds again.
func TestCustomStoreModel(t *testing.T) {
	t.Parallel()
	const room = 5
	type job struct {
		priority int
		name     string
	}
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 11))
			d := streamstest.NewT(t, jobsTopology(room), streamstest.Config{CommitInterval: streamstest.Never})
			in := streamstest.NewInput(d, "orders", serde.String(), serde.String())
			out := streamstest.NewOutput(d, "events", serde.String(), serde.String())
			var model []job
			var want []string
			for range 300 {
				switch n := rng.IntN(10); {
				case n < 6:
					j := job{priority: rng.IntN(300), name: fmt.Sprint("j", rng.IntN(1000))}
					in.Pipe(j.name, fmt.Sprint(j.priority), 0)
					if slices.Contains(model, j) {
						break
					}
					model = append(model, j)
					slices.SortFunc(model, func(a, b job) int { return cmp.Or(a.priority-b.priority, cmp.Compare(a.name, b.name)) })
					if len(model) > room {
						want = append(want, "dropped="+model[0].name+"@0")
						model = model[1:]
					}
				case n < 8:
					in.Pipe("", "next", 0)
					if len(model) > 0 {
						want = append(want, "begun="+model[len(model)-1].name+"@0")
						model = model[:len(model)-1]
					}
				case n == 8:
					d.Commit()
				default:
					d.Commit()
					d.Restart()
				}
			}
			d.Commit()
			d.Restart()
			if got := out.ReadStrings(); !slices.Equal(got, want) {
				t.Errorf("got %v\nwant %v", got, want)
			}
			held := streamstest.NewKeyValue(d, "jobs", serde.Bytes(), serde.String()).Rows()
			names := make([]string, len(held))
			for i, row := range held {
				names[i] = row.Value
			}
			left := make([]string, len(model))
			for i, j := range model {
				left[i] = j.name
			}
			if !slices.Equal(names, left) {
				t.Errorf("the store has %v, want %v", names, left)
			}
		})
	}
}

// TestCustomStoreParts: a store of one's own has its parts and no other store, is opened once per task, and only by processors that it is
// connected to.
func TestCustomStoreParts(t *testing.T) {
	t.Parallel()
	var opens int
	declared := processor.NewCustomStore(func(p *processor.Parts) (int, error) {
		opens++
		if _, err := p.KeyValue("other"); !errors.Is(err, store.ErrUnknownStore) {
			t.Errorf("a store that is no part: %v", err)
		}
		if _, err := p.Session("kv"); !errors.Is(err, store.ErrWrongKind) {
			t.Errorf("a part of another kind: %v", err)
		}
		_, err := p.Window("window")
		_, sessionErr := p.Session("session")
		_, versionedErr := p.Versioned("versioned")
		return opens, errors.Join(err, sessionErr, versionedErr)
	},
		store.Spec{Name: "kv", Kind: store.KindKeyValue},
		store.Spec{Name: "window", Kind: store.KindWindow, Retention: time.Hour, WindowSize: time.Minute},
		store.Spec{Name: "session", Kind: store.KindSession, Retention: time.Hour},
		store.Spec{Name: "versioned", Kind: store.KindVersioned, Retention: time.Hour},
	)
	seen := make(map[string]int)
	var refused error
	opener := func(name string) processor.Supplier {
		return supply(node{init: func(ctx *processor.Context) error {
			n, err := declared.Open(ctx)
			if name == "stranger" {
				refused = err
				return nil
			}
			seen[name] = n
			return err
		}})
	}
	topology := processor.NewTopology().AddSource("in", processor.SourceOptions{}, "in").
		AddProcessor("one", opener("one"), "in").AddProcessor("two", opener("two"), "one").AddProcessor("stranger", opener("stranger"), "two").
		AddStateStore(store.Spec{Name: "other", Kind: store.KindKeyValue}, "one").AddStore(declared, "one", "two")
	d := streamstest.NewT(t, topology, streamstest.Config{})
	if want := map[string]int{"one": 1, "two": 1}; opens != 1 || !maps.Equal(seen, want) {
		t.Errorf("opened %d times, %v", opens, seen)
	}
	if !errors.Is(refused, store.ErrUnknownStore) {
		t.Errorf("a processor that is not connected: %v", refused)
	}
	d.Restart()
	if opens != 2 {
		t.Errorf("opened %d times in two lives", opens)
	}
}
