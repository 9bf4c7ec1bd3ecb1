package streams

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// emitInterval is how often windows that are closed are looked for, by the wall clock (upstream's internal setting).
const emitInterval = time.Second

// closer tells the values of windows when they are closed, in one task. Windows that are not told yet are rows of a store of its own, in the
// order of the time at which they close: it survives restarts and moves as every store, so each window is told once. Upstream looks for
// them by time in the store of the windows, which has to be another one for it.
type closer[K, V any] struct {
	w    *windowKeeper[K, V]
	open store.KeyValue
	row  []byte
	// first is when the first window closes at the earliest, by stream time; MaxInt64: there is none.
	first int64
	begin frontier
	// slack is how long after its close a window is kept.
	slack int64
	// next is when to look again, by the wall clock.
	next time.Time
}

func newCloser[K, V any](w *windowKeeper[K, V]) (*closer[K, V], error) {
	open, err := w.sc.Store(w.kept.closing.Name)
	if err != nil {
		return nil, err
	}
	kind := w.kept.kind
	lives := kind.closes(kind.end(0))
	if kind.session != nil {
		lives = kind.closes(0)
	}
	c := &closer[K, V]{w: w, open: open, slack: max(0, w.kept.spec.Retention.Milliseconds()-lives)}
	return c, c.look()
}

// look finds out when the first window closes.
func (c *closer[K, V]) look() error {
	c.first = math.MaxInt64
	it, err := c.open.Scan(store.Scan{From: c.begin.from()})
	if err != nil {
		return err
	}
	defer it.Close()
	if it.Next() {
		c.first = int64(binary.BigEndian.Uint64(it.Entry().Key))
	}
	return it.Err()
}

// rowTimes is how many bytes of a row are before the key: when the window closes, and its start.
const rowTimes = 16

// changed keeps the row of a window that has become one, or is none any more.
func (c *closer[K, V]) changed(kb []byte, ch *Change[serde.Windowed[K], V]) error {
	if ch.NoNew == ch.NoOld {
		return nil
	}
	closes := c.w.kept.kind.closes(ch.Key.End)
	c.row = binary.BigEndian.AppendUint64(c.row[:0], uint64(closes))
	c.row = binary.BigEndian.AppendUint64(c.row, uint64(ch.Key.Start))
	c.row = append(c.row, kb...)
	if ch.NoNew {
		_, _, err := c.open.Delete(c.row)
		return err
	}
	c.first = min(c.first, closes)
	c.begin.put(c.row)
	end := binary.BigEndian.AppendUint64(nil, uint64(ch.Key.End))
	return c.open.Put(c.row, store.Value{Data: end, Timestamp: ch.Timestamp})
}

// tell hands on the windows that are closed at stream time now. It is called before the record that moved the time changes anything: what
// it puts may make the store forget them.
func (c *closer[K, V]) tell(now int64, headers []processor.Header) error {
	if c.first > now {
		return nil
	}
	wall := c.w.sc.CurrentSystemTime()
	if wall.Before(c.next) && now-c.first < c.slack {
		return nil
	}
	it, err := c.open.Scan(store.Scan{From: c.begin.from(), To: binary.BigEndian.AppendUint64(nil, uint64(after(now, time.Millisecond)))})
	if err != nil {
		return err
	}
	defer it.Close()
	for it.Next() {
		c.next = wall.Add(emitInterval)
		if err := c.tellRow(it.Entry(), headers); err != nil {
			return err
		}
	}
	if err := it.Err(); err != nil {
		return err
	}
	return c.look()
}

func (c *closer[K, V]) tellRow(row store.Entry, headers []processor.Header) (err error) {
	kb := row.Key[rowTimes:]
	ch := &c.w.out
	*ch = Change[serde.Windowed[K], V]{NoOld: true, Headers: headers}
	ch.Key.Start, ch.Key.End = int64(binary.BigEndian.Uint64(row.Key[8:])), int64(binary.BigEndian.Uint64(row.Data))
	if _, _, err := c.open.Delete(row.Key); err != nil {
		return err
	}
	c.begin.passed(row.Key)
	var ok bool
	if ch.New, ch.Timestamp, ok, err = c.w.kept.get(c.w.rows, kb, ch.Key.Start, ch.Key.End); !ok || err != nil {
		return err
	}
	if ch.Key.Key, err = c.w.kept.keys.Decode(kb); err != nil {
		return err
	}
	return c.w.sc.emit(ch)
}
