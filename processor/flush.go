package processor

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/statemesh/statemesh/store"
)

// OnFlush makes fn hear of the changes of a store that is connected to this node (upstream's
// CachedStateStore.setFlushListener and TimestampedCacheFlushListener). Of a store with Spec.Caching it hears when the
// record cache lets go of them, at a commit or under pressure: one change per key, with the value it heard last as the
// old one. Of any other store it hears of each put at once. fn may forward and write to stores; what it forwards goes
// out in the same commit. Inside fn there is no record in hand. An error of fn ends the task: no record is to blame that
// a handler could skip.
//
// It is called in Init. A store has one listener. [*store.WrongKindError] for a versioned store and for one that keeps
// duplicates.
func (c *Context) OnFlush(name store.Name, fn func(store.Flushed) error) error {
	if !slices.Contains(c.node.def.stores, name) {
		return &store.UnknownStoreError{Store: name, Known: c.node.def.stores}
	}
	return c.task.listen(c.node, name, fn)
}

// flushError is what a flush listener returned: no handler may skip it.
type flushError struct{ err error }

func (e *flushError) Error() string { return "flush: " + e.err.Error() }

func (e *flushError) Unwrap() error { return e.err }

// flushing is the order in which the record caches of a task's stores are flushed.
type flushing struct {
	stores []flushedStore
	// depth counts the listeners that run: one may write to a store whose cache is full.
	depth int
	// failed is what a listener returned: its change is lost, also when the processor that put something went on.
	failed error
}

type flushedStore struct {
	name store.Name
	// node that listens, -1 for none. Parents have smaller numbers, and so what listeners write is flushed after them.
	node int
}

// prepareFlush forgets the listeners of former processors.
func (t *task) prepareFlush() error {
	t.flushing = flushing{}
	for _, s := range t.sub.stores {
		if s.spec.Kind == store.KindVersioned || s.spec.RetainDuplicates {
			continue
		}
		if err := t.state.OnFlush(s.spec.Name, nil); err != nil {
			return err
		}
		if s.spec.Caching {
			t.flushing.stores = append(t.flushing.stores, flushedStore{name: s.spec.Name, node: -1})
		}
	}
	return nil
}

func (t *task) listen(n *nodeRun, name store.Name, fn func(store.Flushed) error) error {
	f := &t.flushing
	i := slices.IndexFunc(f.stores, func(s flushedStore) bool { return s.name == name })
	if i >= 0 && f.stores[i].node >= 0 {
		return fmt.Errorf("processor %s: store %s has a flush listener already", n.def.name, name)
	}
	err := t.state.OnFlush(name, func(change store.Flushed) error {
		had := t.hasCurrent
		t.hasCurrent = false // the change is of an earlier record, or of several
		f.depth++
		err := fn(change)
		f.depth--
		t.hasCurrent = had
		if err != nil {
			f.failed = &flushError{n.wrap(err)}
		}
		return f.failed
	})
	if err != nil {
		return err
	}
	s := flushedStore{name: name, node: slices.Index(t.nodes, n)}
	if i >= 0 {
		f.stores[i] = s
	} else {
		f.stores = append(f.stores, s)
	}
	slices.SortStableFunc(f.stores, func(a, b flushedStore) int { return cmp.Compare(a.node, b.node) })
	return nil
}

// flush empties the record caches: what they hold is forwarded, and is part of the commit that follows. Listeners write
// to stores further down, which are flushed after them; only stores that feed each other need more rounds.
func (t *task) flush() (err error) {
	defer t.guard(&err)
	if err := t.flushing.failed; err != nil {
		return &TaskError{Task: t.id, Err: err}
	}
	for range len(t.flushing.stores) + 1 {
		dirty := false
		for _, s := range t.flushing.stores {
			had, err := t.state.FlushCache(s.name)
			if err != nil {
				return &TaskError{Task: t.id, Err: err}
			}
			dirty = dirty || had
		}
		if !dirty {
			return nil
		}
	}
	return &TaskError{Task: t.id, Err: fmt.Errorf("flush: listeners write to each other's stores without an end: %d rounds", len(t.flushing.stores)+1)}
}

// hand gives a record to a child. A flush comes in the middle of anything, so the child may have one in hand.
func (n *nodeRun) hand(child *nodeRun, r Record) error {
	if n.task.flushing.depth == 0 {
		child.in = r
		return child.process(&child.in)
	}
	had := child.in
	child.in = r
	err := child.process(&child.in)
	child.in = had
	return err
}
