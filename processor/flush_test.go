package processor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/statemesh/statemesh/store"
)

// TestCachingRefused: what has no record cache says so when the topology is built.
func TestCachingRefused(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]store.Spec{
		"versioned":  {Name: "s", Kind: store.KindVersioned, Caching: true, Retention: time.Hour},
		"duplicates": {Name: "s", Kind: store.KindWindow, Caching: true, RetainDuplicates: true, Retention: time.Hour, WindowSize: time.Hour},
	} {
		topology := NewTopology().AddSource("in", SourceOptions{}, "in").
			AddProcessor("p", func() Processor { return &relay{} }, "in").AddStateStore(spec, "p")
		_, err := topology.Build("app")
		e, ok := errors.AsType[*TopologyError](err)
		if !ok || e.Kind != "store" || !strings.Contains(e.Reason, "record cache") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestOnFlushErrors: a listener that fails ends the task without a record to blame, whatever the handlers say.
func TestOnFlushErrors(t *testing.T) {
	t.Parallel()
	b := newTaskBench(t, func(s *seer) {
		s.init = func(ctx *Context) error {
			if err := ctx.OnFlush("nowhere", nil); !errors.Is(err, store.ErrUnknownStore) {
				t.Errorf("unknown store: %v", err)
			}
			err := ctx.OnFlush("s", func(store.Flushed) error { return errors.New("full") })
			if err != nil {
				return err
			}
			if err := ctx.OnFlush("s", func(store.Flushed) error { return nil }); err == nil {
				t.Error("a second listener is taken")
			}
			return nil
		}
		s.do = func(ctx *Context, r *Record) error {
			kv, err := ctx.Store("s")
			if err != nil {
				return err
			}
			return kv.Put(r.Key, store.Value{Data: []byte("1")})
		}
	}, func(e *taskEnv) {
		e.onError = (&handlers{processing: Continue}).judge
	}, "in")
	b.push(0, "0@5")
	_, err := b.task.process(1)
	e, ok := errors.AsType[*TaskError](err)
	if !ok || e.Record != nil || !strings.Contains(e.Error(), "seer: full") {
		t.Errorf("%v", err)
	}
	// A processor that swallows it does not get its task committed.
	if err := b.task.flush(); !is[*flushError](err) {
		t.Errorf("commit after a failed flush: %v", err)
	}
	if err := b.task.rollback(); err != nil {
		t.Fatal(err)
	}
	if err := b.task.flush(); err != nil {
		t.Errorf("commit after a rollback: %v", err)
	}
}

// TestFlushIntoADeadProducer: that the producer has failed is found out in a flush too. It is not the task's fault, so the commit
// is settled as any that failed, wherever it was begun: also when processing is paused, and in the last one.
func TestFlushIntoADeadProducer(t *testing.T) {
	t.Parallel()
	dead := errors.New("broker away")
	b := newTaskBench(t, func(s *seer) {
		s.init = func(ctx *Context) error {
			return ctx.OnFlush("s", func(store.Flushed) error { return &outputError{dead} })
		}
		s.do = func(ctx *Context, r *Record) error {
			kv, err := ctx.Store("s")
			if err != nil {
				return err
			}
			_ = kv.Put(r.Key, store.Value{Data: []byte("1")}) // heard of at once; the commit finds it
			return nil
		}
	}, nil, "in")
	b.push(0, "0@5")
	b.process()
	th := &thread{rt: &Runtime{now: time.Now}, running: []*ownedTask{{task: b.task}}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // no broker is asked how it ended
	if err := th.commit(ctx); !errors.Is(err, context.Canceled) || !errors.Is(th.aborted, dead) {
		t.Errorf("commit: %v, aborted for %v", err, th.aborted)
	}
}

// TestFlushCircle: stores whose listeners write to each other without an end are an error, not a hang.
func TestFlushCircle(t *testing.T) {
	t.Parallel()
	b := newTaskBench(t, func(s *seer) {
		s.init = func(ctx *Context) error {
			kv, err := ctx.Store("s")
			if err != nil {
				return err
			}
			return ctx.OnFlush("s", func(f store.Flushed) error {
				return kv.Put(f.Key, store.Value{Data: append(f.New.Data, '.')})
			})
		}
		s.do = func(ctx *Context, r *Record) error {
			kv, err := ctx.Store("s")
			if err != nil {
				return err
			}
			return kv.Put(r.Key, store.Value{Data: []byte("1")})
		}
	}, nil, "in")
	b.push(0, "0@5")
	b.process()
	if err := b.task.flush(); err == nil || !strings.Contains(err.Error(), "without an end") {
		t.Errorf("%v", err)
	}
}

// TestOnFlushPerPut: a store without a cache tells of each put, with the value before it; PL-12: under its own timestamp.
func TestOnFlushPerPut(t *testing.T) {
	t.Parallel()
	var heard []string
	b := newTaskBench(t, func(s *seer) {
		s.init = func(ctx *Context) error {
			return ctx.OnFlush("s", func(f store.Flushed) error {
				if _, ok := ctx.RecordMetadata(); ok {
					t.Error("a listener has a record in hand")
				}
				heard = append(heard, fmt.Sprintf("%s=%s(%s)@%d", f.Key, f.New.Data, f.Old.Data, f.New.Timestamp))
				return nil
			})
		}
		s.do = func(ctx *Context, r *Record) error {
			kv, err := ctx.Store("s")
			if err != nil {
				return err
			}
			err = kv.Put(r.Key, store.Value{Data: fmt.Append(nil, r.Timestamp), Timestamp: r.Timestamp})
			if m, ok := ctx.RecordMetadata(); !ok || m.Topic != "in" {
				t.Errorf("after a flush the record in hand is %v, %v", m, ok)
			}
			return err
		}
	}, nil, "in")
	b.push(0, "0@5", "1@7", "2@6")
	b.process()
	if got, want := strings.Join(heard, " "), "k=5()@5 k=7(5)@7 k=6(7)@6"; got != want {
		t.Errorf("heard %s, want %s", got, want)
	}
	if err := b.task.rollback(); err != nil {
		t.Fatal(err)
	}
	heard = nil
	b.push(0, "0@5")
	b.process()
	if got, want := strings.Join(heard, " "), "k=5()@5"; got != want {
		t.Errorf("after a rollback heard %s, want %s", got, want)
	}
}
