package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/statemesh/statemesh/internal/postgrestest"
	"github.com/statemesh/statemesh/processor/declared"
	"github.com/statemesh/statemesh/sink"
)

var kinds = []declared.Kind{declared.Table, declared.Stream}

// TestCommitted: what was committed is in the table, and nothing else.
func TestCommitted(t *testing.T) {
	for _, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) {
			s := server(t)
			db := connect(t, s)
			schema := newSchema(t, db)
			w := newWorld(t, newFake(t, 3), 3, 1)
			if err := w.write(t.Context(), 50); err != nil {
				t.Fatal(err)
			}
			cfg := w.config(kind, newTestTarget(t, s, schema, nil))
			r := start(t, cfg)
			w.reached(db, schema, cfg.ID())
			w.holds(kind, db, schema)
			if err := w.write(t.Context(), 50); err != nil { // while it runs
				t.Fatal(err)
			}
			w.reached(db, schema, cfg.ID())
			w.holds(kind, db, schema)
			if err := r.stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestCutAtEveryStatement: the connection breaks before and after each statement and COMMIT, once with a sink that goes on and once
// with one that ends and is begun again.
func TestCutAtEveryStatement(t *testing.T) {
	s := server(t)
	w := newWorld(t, newFake(t, 1), 1, 2)
	if err := w.write(t.Context(), 12); err != nil {
		t.Fatal(err)
	}
	for _, kind := range kinds {
		for _, how := range []cut{before, after} {
			for _, restart := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%d/%v", kind, how, restart), func(t *testing.T) {
					n := 1
					for w.cutOnce(t, s, kind, n, how, restart) {
						n++
					}
					if t.Logf("%d statements were cut", n-1); n < 25 {
						t.Errorf("%d statements only", n-1)
					}
				})
			}
		}
	}
}

// cutOnce runs a sink over the whole topic and cuts its n-th statement. It reports whether there was one.
func (w *world) cutOnce(t *testing.T, s *postgrestest.Server, kind declared.Kind, n int, how cut, restart bool) bool {
	w.tb = t
	db := connect(t, s)
	defer db.Close()
	schema := newSchema(t, db)
	broke := make(chan struct{})
	c := &cutter{broke: func() { close(broke) }, at: func(i int) cut {
		if i == n {
			return how
		}
		return uncut
	}}
	cfg := w.config(kind, newTestTarget(t, s, schema, c.dial))
	cfg.Name = schema // a group of its own
	r := start(t, cfg)
	if restart {
		reached := make(chan struct{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() {
			defer close(reached)
			_ = w.waitReached(ctx, db, schema, cfg.ID()) // it is asked again below
		}()
		select {
		case <-broke:
			if err := r.stop(); err != nil {
				t.Error(err)
			}
			cfg.Target = newTestTarget(t, s, schema, c.dial)
			r = start(t, cfg)
		case <-reached:
		}
		<-reached
	}
	w.reached(db, schema, cfg.ID())
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	w.holds(kind, db, schema)
	if t.Failed() {
		t.Fatalf("with statement %d cut", n)
	}
	return c.count() >= n
}

// alias is a target under the name of another sink: two of them are two readers, each of all partitions, of one offset.
type alias struct {
	*Target
	id string
}

func (a alias) Begin(ctx context.Context, place sink.Place, start int64) (sink.Offset, error) {
	place.Sink = a.id
	return a.Target.Begin(ctx, place, start)
}

func (a alias) Apply(ctx context.Context, b sink.Batch) (sink.Result, error) {
	b.Place.Sink = a.id
	return a.Target.Apply(ctx, b)
}

// TestKills: a writer commits and aborts, and two sinks that both take every partition for theirs are ended and begun again at
// random, while connections break at random statements and PostgreSQL is killed.
func TestKills(t *testing.T) {
	for _, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) {
			w := newWorld(t, newFake(t, 3), 3, rand.Uint64())
			w.kills(t, kind, 8)
		})
	}
}

func (w *world) kills(t *testing.T, kind declared.Kind, crashes int) {
	s := postgrestest.Run(t)
	db := connect(t, s)
	const schema, id = "public", "app-sink-both"
	// The table is there before, so that the test may look at it.
	first := newTestTarget(t, s, schema, nil)
	cfg := w.config(kind, first)
	made, err := sink.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Open(t.Context(), made.Schema()); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(w.rng.Uint64(), 3))
	var mu sync.Mutex
	random := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return rng.IntN(n)
	}
	calm := false // of faults of connections; under mu
	c := &cutter{at: func(int) cut {
		mu.Lock()
		defer mu.Unlock()
		if calm || rng.IntN(60) > 0 {
			return uncut
		}
		return before + cut(rng.IntN(2))
	}}
	begin := func(name string) *running {
		cfg := w.config(kind, alias{newTestTarget(t, s, schema, c.dial), id})
		cfg.Name = name
		return start(t, cfg)
	}
	var kills sync.WaitGroup
	stop := make(chan struct{})
	for _, name := range []string{"a", "b"} {
		kills.Go(func() { // ends and begins one sink over and over
			r := begin(name)
			for {
				timer := time.NewTimer(time.Duration(20+random(400)) * time.Millisecond)
				select {
				case <-stop:
					timer.Stop()
					if err := r.stop(); err != nil {
						t.Error(err)
					}
					return
				case <-timer.C:
					if err := r.stop(); err != nil {
						t.Error(err)
					}
					r = begin(name)
				}
			}
		})
	}
	for range crashes {
		if err := w.write(t.Context(), 60); err != nil {
			t.Error(err)
		}
		s.Kill()
		if err := w.write(t.Context(), 10); err != nil { // while it is away
			t.Error(err)
		}
		s.MustRestart(t)
		db.Reset()
	}
	if err := w.write(t.Context(), 60); err != nil {
		t.Error(err)
	}
	close(stop)
	kills.Wait()
	mu.Lock()
	calm = true
	mu.Unlock()
	r := begin("c")
	w.reached(db, schema, id)
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	w.holds(kind, db, schema)
}
