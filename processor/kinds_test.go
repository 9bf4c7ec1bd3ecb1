package processor

import (
	"errors"
	"testing"

	"github.com/statemesh/statemesh/store"
)

// A processor writes windows, sessions and versions within its task: what an abort takes back was never there.
func TestTaskKeepsEveryKind(t *testing.T) {
	t.Parallel()
	b := newTaskBench(t, func(s *seer) {
		s.do = func(ctx *Context, r *Record) error {
			w, err := ctx.WindowStore("windows")
			if err != nil {
				return err
			}
			z, err := ctx.SessionStore("sessions")
			if err != nil {
				return err
			}
			y, err := ctx.VersionedStore("versions")
			if err != nil {
				return err
			}
			v := store.Value{Data: []byte{byte(r.Timestamp)}, Timestamp: r.Timestamp}
			_, err = y.Put([]byte("k"), v)
			return errors.Join(err, w.Put([]byte("k"), r.Timestamp/10*10, v), z.Put([]byte("k"), r.Timestamp, r.Timestamp+1, v))
		}
	}, nil, "x")
	b.push(0, "0@11")
	b.process()
	b.commit()
	b.push(0, "1@12")
	b.process()
	if err := b.task.rollback(); err != nil {
		t.Fatal(err)
	}
	w, err := b.task.state.Window("windows")
	if err != nil {
		t.Fatal(err)
	}
	if v, err := w.Fetch([]byte("k"), 10); err != nil || v.Data[0] != 11 || v.Timestamp != 11 {
		t.Error(v, err)
	}
	z, err := b.task.state.Session("sessions")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := z.Fetch([]byte("k"), 11, 12); err != nil {
		t.Error(err)
	}
	if _, err := z.Fetch([]byte("k"), 12, 13); !errors.Is(err, store.ErrNotFound) {
		t.Error(err)
	}
	y, err := b.task.state.Versioned("versions")
	if err != nil {
		t.Fatal(err)
	}
	if v, err := y.Get([]byte("k")); err != nil || v.Timestamp != 11 || v.ValidTo != store.NoEnd {
		t.Error(v, err)
	}
}

// PL-14, and a store is what it was declared as.
func TestTaskRefusesOfEveryKind(t *testing.T) {
	t.Parallel()
	large := store.Value{Data: make([]byte, 990)}
	b := newTaskBench(t, func(s *seer) {
		s.do = func(ctx *Context, _ *Record) error {
			w, err1 := ctx.WindowStore("windows")
			z, err2 := ctx.SessionStore("sessions")
			y, err3 := ctx.VersionedStore("versions")
			if err := errors.Join(err1, err2, err3); err != nil {
				return err
			}
			_, err := y.Put(make([]byte, 11), large)
			for _, err := range []error{err, w.Put([]byte("k"), 0, large), z.Put([]byte("k"), 0, 0, large)} {
				if e, ok := errors.AsType[*store.TooLargeError](err); !ok || e.Setting != "the test" {
					t.Errorf("put: %v", err)
				}
			}
			_, err = ctx.WindowStore("sessions")
			_, err1 = ctx.SessionStore("s")
			_, err2 = ctx.Store("versions")
			_, err3 = ctx.VersionedStore("windows")
			for _, err := range []error{err, err1, err2, err3} {
				if !errors.Is(err, store.ErrWrongKind) {
					t.Error(err)
				}
			}
			_, err1 = ctx.WindowStore("nowhere")
			_, err2 = ctx.SessionStore("nowhere")
			_, err3 = ctx.VersionedStore("nowhere")
			for _, err := range []error{err1, err2, err3} {
				if !errors.Is(err, store.ErrUnknownStore) {
					t.Error(err)
				}
			}
			return nil
		}
	}, nil, "x")
	b.push(0, "0@1")
	b.process()
	if b.task.state.Dirty() {
		t.Error("the state was written")
	}
}
