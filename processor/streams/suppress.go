package streams

import (
	"errors"
	"fmt"
	"time"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/store"
)

// Suppressed says for how long Suppress holds changes back (upstream's Suppressed, KIP-328). It is made by UntilTimeLimit and
// UntilWindowCloses.
type Suppressed struct {
	limit  time.Duration
	closes bool
	buffer Buffer
}

// Buffer bounds what Suppress holds back (upstream's Suppressed.BufferConfig). The zero Buffer has no bounds.
type Buffer struct {
	// MaxRecords and MaxBytes (of keys, values and headers) in each task; 0: no bound.
	MaxRecords, MaxBytes int64
	// WhenFull is what happens beyond a bound.
	WhenFull WhenFull
}

// exceeded reports whether so much is beyond a bound.
func (b Buffer) exceeded(records, bytes int64) bool {
	return b.MaxRecords > 0 && records > b.MaxRecords || b.MaxBytes > 0 && bytes > b.MaxBytes
}

// WhenFull is what Suppress does when its buffer is full.
type WhenFull uint8

const (
	// ShutDown fails the task with a *BufferFullError (upstream's shutDownWhenFull).
	ShutDown WhenFull = iota
	// EmitEarly hands on the oldest changes before their time (upstream's emitEarlyWhenFull). It is not for UntilWindowCloses, whose results
	// are final.
	EmitEarly
)

// UntilTimeLimit holds back the changes of a key for d of stream time, from the first of them on, and hands on the last (upstream's
// Suppressed.untilTimeLimit). 0: nothing is held back.
func UntilTimeLimit(d time.Duration, b Buffer) Suppressed { return Suppressed{limit: d, buffer: b} }

// UntilWindowCloses hands on the final value of each window, once, when the window is closed (upstream's Suppressed.untilWindowCloses). It
// is for tables of windows and what keeps their keys. Windows that hold nothing in the end are not told. Beside Emit(OnWindowClose) it costs
// a second copy of the windows that are open, and works behind other operators.
func UntilWindowCloses(b Buffer) Suppressed { return Suppressed{closes: true, buffer: b} }

// BufferFullError ends the task of a Suppress whose buffer is full.
type BufferFullError struct {
	// Store of the buffer.
	Store          store.Name
	Records, Bytes int64
	// MaxRecords and MaxBytes are the bounds, 0 for none.
	MaxRecords, MaxBytes int64
}

func (e *BufferFullError) Error() string {
	return fmt.Sprintf("suppress %s: buffer of %d records, %d bytes is above its bound of %d records, %d bytes (0: none)",
		e.Store, e.Records, e.Bytes, e.MaxRecords, e.MaxBytes)
}

// Suppress holds changes back and hands on fewer (upstream's KTable.suppress). What is held back lies in a store of its own, which survives
// restarts and moves: <name>-store, name being that of Named. Options: LoggingDisabled, LoggingConfig.
func (t *Table[K, V]) Suppress(s Suppressed, opts ...Option) *Table[K, V] {
	o := t.b.read("Suppress", opts, "LoggingDisabled", "LoggingConfig")
	node := o.named
	if node == "" {
		node = t.b.name("KTABLE-SUPPRESS-")
	}
	k := &kept[K, V]{keys: t.keys, values: t.values, spec: store.Spec{
		Name: store.Name(node + "-store"), Kind: store.KindKeyValue, NoChangelog: o.noLogging, ChangelogConfig: o.logConfig,
	}}
	if o.named == "" {
		if !s.closes { // as upstream names it
			k.spec.Name = store.Name(t.b.name("KTABLE-SUPPRESS-STATE-STORE-"))
		}
		t.b.warn(string(k.spec.Name), "the store of Suppress is named by position; give it a name with Named")
	}
	b := &suppression[K, V]{kept: k, is: s, due: func(_ K, timestamp int64) int64 { return after(timestamp, s.limit) }}
	t.checkSuppress(node, s, b)
	out := newOutlet[Change[K, V]]()
	n := t.b.put(&graphNode{
		name: node, parents: []*graphNode{t.node}, add: addProcessor(node, supplier(b.operator, out, nil), []store.Spec{k.spec}, nil),
	})
	return &Table[K, V]{b: t.b, node: n, out: out, keys: t.keys, values: t.values, view: b.view(t), wantOld: func() {
		k.old = true
		t.wantOld()
	}}
}

// checkSuppress finds what the suppression needs, or reports why it cannot be.
func (t *Table[K, V]) checkSuppress(node string, s Suppressed, b *suppression[K, V]) {
	t.b.needs(node, "keys", t.keys.Err())
	t.b.needs(node, "values", t.values.Err())
	if t.view.versioned {
		t.b.fail(node, "a versioned table tells changes that are not the newest: it cannot be suppressed")
	}
	if s.limit < 0 || s.limit%time.Millisecond != 0 {
		t.b.fail(node, "time limit %s: want whole milliseconds, at least 0", s.limit)
	}
	if s.buffer.MaxRecords < 0 || s.buffer.MaxBytes < 0 {
		t.b.fail(node, "buffer of %d records, %d bytes: want 0 for no bound, or more", s.buffer.MaxRecords, s.buffer.MaxBytes)
	}
	if s.buffer.WhenFull > EmitEarly {
		t.b.fail(node, "buffer: WhenFull is %d: want ShutDown or EmitEarly", s.buffer.WhenFull)
	}
	if !s.closes {
		return
	}
	if s.buffer.WhenFull == EmitEarly {
		t.b.fail(node, "results that are final cannot be told early: the buffer of UntilWindowCloses must shut down when it is full")
	}
	finals := finalitiesOf[K](t.node)
	if len(finals) == 0 {
		t.b.fail(node, "UntilWindowCloses: the keys of the table have no windows")
		return
	}
	closes := together(finals)
	b.due = func(key K, _ int64) int64 { return closes(key) }
}

// suppression is the operator (upstream's KTableSuppressProcessor).
type suppression[K, V any] struct {
	kept *kept[K, V]
	is   Suppressed
	// due is the stream time at which a change goes on.
	due func(key K, timestamp int64) int64
}

func (s *suppression[K, V]) operator(sc *scope[Change[K, V]]) (func(*Change[K, V]) error, error) {
	buf, err := openBuffer(sc.Context, s.kept.spec.Name)
	if err != nil {
		return nil, err
	}
	sc.onClose = append(sc.onClose, buf.close)
	keys, before, next := coder[K]{serde: s.kept.keys}, coder[V]{serde: s.kept.values}, coder[V]{serde: s.kept.values}
	tell := func(key []byte, h *held) error { return s.tell(sc, buf, key, h) }
	// The time of changes that came here, and not of the task's records: what a record cache still has is older than those.
	seen, err := sc.ObservedTime(string(s.kept.spec.Name))
	if err != nil {
		return nil, err
	}
	due := func() bool { return buf.first <= seen.Now() }
	full := func() bool { return s.is.buffer.exceeded(buf.records, buf.bytes) }
	return func(c *Change[K, V]) error {
		seen.Observe(c.Timestamp)
		kb, err := keys.encode(c.Key, c.key)
		if err != nil {
			return err
		}
		h := held{timestamp: c.Timestamp, headers: c.Headers}
		if !c.NoNew {
			if h.next, err = next.encode(c.New, c.value); err != nil {
				return err
			}
		}
		if !c.NoOld {
			if h.before, err = before.encode(c.Old, encoded[V]{}); err != nil {
				return err
			}
		}
		if err := buf.put(kb, s.due(c.Key, c.Timestamp), &h); err != nil {
			return err
		}
		if err := buf.release(due, tell); err != nil {
			return err
		}
		if full() && s.is.buffer.WhenFull == ShutDown {
			return &BufferFullError{
				Store: s.kept.spec.Name, Records: buf.records, Bytes: buf.bytes,
				MaxRecords: s.is.buffer.MaxRecords, MaxBytes: s.is.buffer.MaxBytes,
			}
		}
		return buf.release(full, tell)
	}, nil
}

// tell hands on what was held back of a key.
func (s *suppression[K, V]) tell(sc *scope[Change[K, V]], buf *buffer, key []byte, h *held) (err error) {
	if h.next == nil && s.is.closes {
		return nil // nobody was told of the window
	}
	c := Change[K, V]{NoNew: h.next == nil, NoOld: true, Timestamp: h.timestamp, Headers: h.headers}
	if c.Key, err = s.kept.keys.Decode(key); err != nil {
		return err
	}
	c.key.is(key, s.kept.keys)
	if !c.NoNew {
		if c.New, err = s.kept.values.Decode(h.next); err != nil {
			return err
		}
		c.value.is(h.next, s.kept.values)
	}
	if s.kept.old && h.before != nil {
		if c.Old, err = s.kept.values.Decode(h.before); err != nil {
			return err
		}
		c.NoOld = false
	}
	buf.metrics.told.Inc()
	return sc.emit(&c)
}

// view shows what was handed on last: what a key was before it was held back, and else what the table behind has.
func (s *suppression[K, V]) view(parent *Table[K, V]) view[K, V] {
	name := s.kept.spec.Name
	open := func(ctx *processor.Context) (reader[K, V], error) {
		read, err := parent.view.open(ctx)
		if err != nil {
			return nil, err
		}
		rows, err := ctx.Store(name)
		if err != nil {
			return nil, err
		}
		keys := coder[K]{serde: s.kept.keys}
		return func(key K, known encoded[K]) (v V, ts int64, ok bool, err error) {
			kb, err := keys.encode(key, known)
			if err != nil {
				return v, 0, false, err
			}
			h, found, err := lookUp(rows, kb)
			switch {
			case err != nil:
				return v, 0, false, err
			case !found:
				return read(key, known)
			case h.before == nil:
				return v, 0, false, nil
			}
			v, err = s.kept.values.Decode(h.before)
			return v, -1, err == nil, err // when it was, nobody knows any more
		}, nil
	}
	return view[K, V]{stores: append([]store.Name{name}, parent.view.stores...), open: open, require: func() {
		parent.view.require()
		parent.wantOld()
	}}
}

var errHeld = errors.New("streams: the row of a change that is held back is cut off")
