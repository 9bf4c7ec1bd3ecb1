package streams

import (
	"errors"
	"slices"

	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// changedWindow is a window that the record in hand has changed.
type changedWindow[K, V any] struct {
	change Change[serde.Windowed[K], V]
	// before is the row as it was, without Data if there was none.
	before store.Value
}

// change is put for one of several windows that a record changes: nobody is told before all of them are put, see settle.
func (w *windowKeeper[K, V]) change(kb []byte, c *Change[serde.Windowed[K], V], before store.Value) error {
	if err := w.set(kb, c); err != nil {
		return err
	}
	c.value = encoded[V]{} // valid until the next window is encoded
	w.changed = append(w.changed, changedWindow[K, V]{change: *c, before: before})
	return nil
}

// settle ends a record that was given to change: it tells what the record has changed, or, after an error, puts the windows back. A handler that
// goes on passes over a whole record, not over the windows that came last. Upstream leaves what was put before the error.
func (w *windowKeeper[K, V]) settle(kb []byte, err error) error {
	changed := w.changed
	w.changed = nil // what is told may come back here: see scope.emit
	if err != nil {
		if undone := w.undo(kb, changed); undone != nil {
			err = errors.Join(err, undone)
		}
	}
	for i := 0; err == nil && i < len(changed); i++ {
		err = w.tell(&changed[i].change)
	}
	clear(changed)
	w.changed = changed[:0]
	return err
}

// undo puts windows back, the last first: a session may have been taken away and put again.
func (w *windowKeeper[K, V]) undo(kb []byte, changed []changedWindow[K, V]) error {
	for _, c := range slices.Backward(changed) {
		back := &c.change
		if err := w.rows.put(kb, back.Key.Start, back.Key.End, c.before); err != nil {
			return err
		}
		if w.closer == nil {
			continue
		}
		back.NoNew, back.NoOld = c.before.Data == nil, back.NoNew
		if err := w.closer.changed(kb, back); err != nil {
			return err
		}
	}
	return nil
}
