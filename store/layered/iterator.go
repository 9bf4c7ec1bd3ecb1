package layered

import (
	"cmp"
	"context"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/statemesh/statemesh/store"
)

// iterator is what callers hold. All that costs something is in its walk, so that an iterator nobody closed can be found
// and ended by the garbage collector.
type iterator struct {
	w       *walk
	cleanup runtime.Cleanup
}

// walk is an open scan. Its lock is against who ends it for its user: the collector and the limit on age.
type walk struct {
	tracked

	mu     sync.Mutex
	m      *merge
	view   *view
	end    iteratorEnd
	stores *Stores
	name   store.Name
	entry  store.Entry
	err    error
	closed atomic.Bool
	// cause is why somebody else ends it.
	cause atomic.Pointer[error]
}

// iteratorEnd is what may end a scan before its end, and what it lets go of.
type iteratorEnd struct {
	user string       // who reads, for reports
	stop func() error // the caller's context; nil for the writer
	task *Task        // nil for a snapshot's
	pin  *scanPin
	snap *Snapshot // nil for the writer's
}

var _ store.Iterator = (*iterator)(nil)

// iterate opens an iterator over the tables of m and the engine under v, which it pins.
func (s *Stores) iterate(m *merge, v *view, number int, end iteratorEnd) (store.Iterator, error) {
	w := &walk{m: m, view: v, end: end, stores: s, name: v.stores[number].spec.Name}
	m.stop = w.stopped
	v.users.Add(1) // the caller has it pinned
	s.iterators.Add(1)
	it := &iterator{w: w}
	it.cleanup = runtime.AddCleanup(it, (*walk).forgotten, w)
	if !m.sp.empty {
		sv := v.stores[number]
		if err := m.addEngine(v.bases[sv.engine].snap, sv.id); err != nil {
			it.Close()
			return nil, sv.wrap(err)
		}
	}
	s.reads.add(&w.tracked, w, end.user) // now that others may end it
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
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return false
	}
	if w.err = w.stopped(); w.err != nil {
		w.finish()
		return false
	}
	for {
		r, ok := w.m.next()
		if !ok {
			w.err = cmp.Or(w.view.intact(w.name), w.m.err)
			w.finish()
			return false
		}
		live, err := w.m.entry(r, &w.entry)
		if cut := w.view.intact(w.name); cut != nil {
			err = cut
		}
		if err != nil {
			w.err = err
			w.finish()
			return false
		}
		w.m.pass(r)
		if live {
			return true
		}
	}
}

// stopped says why the scan may not go on.
func (w *walk) stopped() error {
	cause := w.cause.Load()
	switch {
	case cause != nil:
		return *cause
	case w.closed.Load():
		return nil // its own end; next finds nothing
	case w.stores.closed.Load():
		return store.ErrClosed
	case w.end.pin != nil && w.end.pin.cut.Load():
		return store.ErrClosed
	case w.end.snap != nil && w.end.snap.closed():
		return w.end.snap.why()
	case w.end.stop != nil:
		if err := w.end.stop(); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.finish()
}

// finish lets go of everything. w.mu is held.
func (w *walk) finish() {
	if w.closed.Swap(true) {
		return
	}
	w.remove()
	w.m.close()
	w.view.unpin()
	if w.end.task != nil {
		w.end.task.unpinScan(w.end.pin)
	}
	w.stores.iterators.Add(-1)
}

// forgotten ends a scan whose iterator the collector has found.
func (w *walk) forgotten() {
	if !w.closed.Load() {
		w.stores.leaked("iterator", w.name, &w.tracked)
	}
	w.close()
}

func (w *walk) what() (string, store.Name) { return iteratorKind, w.name }

// over: the writer's iterators are those of a processor, and end with its commits.
func (w *walk) over(limit error) error {
	if w.end.stop == nil {
		if w.end.task != nil {
			return nil
		}
		return limit
	}
	return cmp.Or(w.end.stop(), limit)
}

func (w *walk) expire(cause error) bool {
	w.cause.CompareAndSwap(nil, &cause)
	if !w.mu.TryLock() {
		return false // its user is in the middle of Next, and finds the cause
	}
	defer w.mu.Unlock()
	if w.closed.Load() {
		return false
	}
	w.finish()
	return true
}

// The kinds of open reads.
const (
	iteratorKind = "iterator"
	snapshotKind = "snapshot"
)

// stopper keeps of a context what a scan asks it for: whether to end.
func stopper(ctx context.Context) func() error {
	if ctx.Done() == nil {
		return nil
	}
	return func() error {
		if ctx.Err() == nil {
			return nil
		}
		return context.Cause(ctx)
	}
}
