package router

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// Why [Table.Publish] keeps what it has.
var (
	// ErrOldEpoch reports a snapshot whose epoch is not above the one in the table.
	ErrOldEpoch = errors.New("router: metadata is not newer")
	// ErrPartial reports a snapshot that says less than the one in the table: no instances, no stores where there were
	// some, or tasks that nobody owns where each had an owner.
	ErrPartial = errors.New("router: metadata is not whole")
)

// Table holds the newest metadata known. Readers load a pointer; they never wait. Safe for concurrent use.
type Table struct {
	cur atomic.Pointer[version]
}

// version is a snapshot (nil: none yet) and the channel that is closed when the next one takes its place.
type version struct {
	snap *Snapshot
	next chan struct{}
}

// NewTable returns a table without metadata.
func NewTable() *Table {
	t := &Table{}
	t.cur.Store(&version{next: make(chan struct{})})
	return t
}

// Load returns the newest snapshot, nil when there is none yet.
func (t *Table) Load() *Snapshot { return t.cur.Load().snap }

// Watch returns the newest snapshot, nil when there is none yet, and a channel that is closed once it has been replaced.
// A watcher calls it in a loop and misses nothing but intermediate versions:
//
//	for {
//		s, changed := t.Watch()
//		use(s)
//		select { case <-changed: case <-ctx.Done(): return }
//	}
func (t *Table) Watch() (*Snapshot, <-chan struct{}) {
	v := t.cur.Load()
	return v.snap, v.next
}

// Changed is the channel of [Table.Watch].
func (t *Table) Changed() <-chan struct{} { return t.cur.Load().next }

// Publish installs s and wakes the watchers. It keeps what it has, with the reason as the error, when s is not newer
// ([ErrOldEpoch]), says nothing, or has holes where the present one has none ([ErrPartial]): the owners of the older map
// still know best where their tasks went.
func (t *Table) Publish(s *Snapshot) error {
	if s == nil || len(s.instances) == 0 {
		return fmt.Errorf("%w: no instances", ErrPartial)
	}
	next := &version{snap: s, next: make(chan struct{})}
	for {
		have := t.cur.Load()
		if have.snap != nil {
			if s.epoch <= have.snap.epoch {
				return fmt.Errorf("%w: epoch %d, have %d", ErrOldEpoch, s.epoch, have.snap.epoch)
			}
			if len(s.stores) == 0 && len(have.snap.stores) > 0 {
				return fmt.Errorf("%w: epoch %d has no stores, have %d", ErrPartial, s.epoch, len(have.snap.stores))
			}
			if len(s.missing) > 0 && len(have.snap.missing) == 0 {
				return fmt.Errorf("%w: epoch %d lacks %d tasks, the first is %s", ErrPartial, s.epoch, len(s.missing), s.missing[0])
			}
		}
		if t.cur.CompareAndSwap(have, next) {
			close(have.next)
			return nil
		}
	}
}
