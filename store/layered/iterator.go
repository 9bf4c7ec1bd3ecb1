package layered

import (
	"cmp"
	"context"
	"runtime"
	"sync/atomic"

	"github.com/statemesh/statemesh/store"
)

// iterator is what callers hold. All that costs something is in its walk, so that an iterator nobody closed can be found
// and ended by the garbage collector.
type iterator struct {
	w       *walk
	cleanup runtime.Cleanup
}

// walk is an open scan.
type walk struct {
	m      *merge
	view   *view
	end    iteratorEnd
	stores *Stores
	name   store.Name
	place  string // that opened it; only in builds with assertions
	entry  store.Entry
	err    error
	closed atomic.Bool // the collector's goroutine may close it too
}

// iteratorEnd is what may end a scan before its end, and what it lets go of.
type iteratorEnd struct {
	stop func() error // the caller's context; nil for the writer
	task *Task        // nil for a snapshot's
	pin  *scanPin
	snap *Snapshot // nil for the writer's
}

var _ store.Iterator = (*iterator)(nil)

// iterate opens an iterator over the tables of m and the engine under v, which it pins.
func (s *Stores) iterate(m *merge, v *view, number int, end iteratorEnd) (store.Iterator, error) {
	w := &walk{m: m, view: v, end: end, stores: s, name: v.stores[number].spec.Name, place: opener()}
	m.stop = w.stopped
	v.users.Add(1) // the caller has it pinned
	s.iterators.Add(1)
	it := &iterator{w: w}
	it.cleanup = runtime.AddCleanup(it, func(w *walk) { s.leaked("iterator", w.place); w.close() }, w)
	if !m.sp.empty {
		sv := v.stores[number]
		if err := m.addEngine(v.bases[sv.engine].snap, sv.id); err != nil {
			it.Close()
			return nil, sv.wrap(err)
		}
	}
	return it, nil
}

// Next moves to the next entry.
func (it *iterator) Next() bool { return it.w.next() }

// Entry is the current entry; its slices are the caller's.
func (it *iterator) Entry() store.Entry { return it.w.entry }

// Err is what ended the scan before its end.
func (it *iterator) Err() error { return it.w.err }

// Close ends the scan.
func (it *iterator) Close() {
	it.cleanup.Stop()
	it.w.close()
}

func (w *walk) next() bool {
	if w.err != nil {
		return false
	}
	if w.err = w.stopped(); w.err != nil {
		w.close()
		return false
	}
	for {
		r, ok := w.m.next()
		if !ok {
			w.err = cmp.Or(w.view.intact(w.name), w.m.err)
			w.close()
			return false
		}
		e, live, err := w.m.entry(r)
		if cut := w.view.intact(w.name); cut != nil {
			err = cut
		}
		if err != nil {
			w.err = err
			w.close()
			return false
		}
		w.m.pass(r)
		if live {
			w.entry = e
			return true
		}
	}
}

// stopped says why the scan may not go on.
func (w *walk) stopped() error {
	switch {
	case w.closed.Load():
		return nil // its own end; next finds nothing
	case w.stores.closed.Load():
		return store.ErrClosed
	case w.end.pin != nil && w.end.pin.cut.Load():
		return store.ErrClosed
	case w.end.snap != nil && w.end.snap.closed():
		return store.ErrClosed
	case w.end.stop != nil:
		if err := w.end.stop(); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) close() {
	if w.closed.Swap(true) {
		return
	}
	w.m.close()
	w.view.unpin()
	if w.end.task != nil {
		w.end.task.unpinScan(w.end.pin)
	}
	w.stores.iterators.Add(-1)
}

// stopper keeps of a context what a scan asks it for: whether to end.
func stopper(ctx context.Context) func() error {
	if ctx.Done() == nil {
		return nil
	}
	return func() error { return context.Cause(ctx) }
}
