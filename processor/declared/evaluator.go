package declared

import (
	"bytes"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/expr"
)

// maxMade is how many bytes of keys and values may be made of one record with a list, which are together in memory.
const maxMade = 16 << 20

// evaluator does a step in one task. What it returns is its own, and new for each record: it is kept downstream.
type evaluator struct {
	*step

	row   *expr.Row // nil: nothing is evaluated
	left  *shaping
	sides []*sideAt
	drop  func(reason string)

	// Of the record in hand. borrowed: its value is in one of the buffers.
	record   processor.Record
	borrowed bool
	out      []outcome
	made     int // bytes
	// forItem is what is done for each item of a list. free is for the next record, if out was not too long.
	forItem func() error
	free    []outcome
	// Buffers for the first side as an object, both sides, and what is made of them.
	first, both, buf []byte
}

// open makes an evaluator for a task. drop counts a record that is lost.
func (s *step) open(drop func(reason string)) (*evaluator, error) {
	e := &evaluator{step: s, drop: drop}
	e.forItem = e.ofItem
	var err error
	if s.left != nil {
		if e.left, err = s.left.open(); err != nil {
			return nil, err
		}
	}
	for _, other := range s.sides {
		at, err := other.open()
		if err != nil {
			return nil, err
		}
		e.sides = append(e.sides, at)
	}
	if programs := s.programs(); len(programs) > 0 {
		e.row, err = s.schema.NewRow(programs...)
	}
	return e, err
}

// outcome of a step.
type outcome struct {
	// value is nil for a deletion. key is the new one, if there is one; nil: none.
	value, key []byte
}

// do evaluates a record, with the value and the sides in c, which must stay as they are until it returns. It returns what goes on, all of it
// or nothing. Hand that back to done.
func (e *evaluator) do(r processor.Record, c carrier, m processor.RecordMetadata) (out []outcome, err error) {
	e.out, e.free = e.free[:0], nil
	if e.record = r; c.value == nil && len(c.rights) == 0 {
		e.deleted()
	} else {
		err = e.present(c, m)
	}
	out, e.out = e.out, nil
	if err != nil {
		e.done(out)
		return nil, err
	}
	return out, nil
}

// done takes back what do returned: while it is handed on, the next record may come, see streams' scope.
func (e *evaluator) done(out []outcome) {
	const kept = 64
	if clear(out); cap(out) <= kept {
		e.free = out
	}
}

// present evaluates a record that has a value.
func (e *evaluator) present(c carrier, m processor.RecordMetadata) (err error) {
	e.record.Value, e.borrowed = c.value, false
	if e.left != nil && c.value != nil {
		if e.first, err = e.left.append(e.first[:0], &e.record, m); err != nil {
			return err
		}
		e.record.Value, e.borrowed = e.first, true
	}
	if len(c.rights) > 0 {
		if e.both, err = e.joined(e.both[:0], c, m); err != nil {
			return err
		}
		e.record.Value, e.borrowed = e.both, true
	}
	if e.row != nil {
		if err := e.row.Set(&e.record, m); err != nil {
			return err
		}
	}
	if e.each == nil {
		return e.evaluate()
	}
	e.made = 0
	return e.each.Do(e.row, e.forItem)
}

// ofItem evaluates a record for the item of a list that is in the row.
func (e *evaluator) ofItem() error {
	n := len(e.out)
	if err := e.evaluate(); err != nil || len(e.out) == n {
		return err
	}
	if e.made += len(e.out[n].value) + len(e.out[n].key); e.made > maxMade {
		return e.each.TooLarge()
	}
	return nil
}

// evaluate adds what becomes of the row.
func (e *evaluator) evaluate() error {
	if e.where != nil {
		if ok, err := e.where.Bool(e.row); err != nil || !ok {
			if err == nil && e.tombstones {
				e.out = append(e.out, outcome{})
			}
			return err
		}
	}
	var o outcome
	var err error
	if o.value, err = e.value(); err != nil {
		return err
	}
	if e.key != nil {
		if o.key, err = e.key.Append(nil, e.row); err != nil {
			return err
		}
	}
	e.out = append(e.out, o)
	return nil
}

// value is that of the row: inputs of an aggregate, computed columns, or what was there.
func (e *evaluator) value() (_ []byte, err error) {
	switch {
	case e.inputs != nil:
		e.buf, err = e.inputs.append(e.buf[:0], e.record.Timestamp, e.row)
	case e.object != nil:
		e.buf, err = e.object.Append(e.buf[:0], e.row)
	case e.tail != nil:
		if e.buf, err = e.tail.Append(append(e.buf[:0], e.record.Value...), e.row); err == nil {
			e.buf = spliced(e.buf, len(e.record.Value))
		}
	case e.borrowed:
		return bytes.Clone(e.record.Value), nil
	default:
		return e.record.Value, nil
	}
	if err != nil {
		return nil, err
	}
	return bytes.Clone(e.buf), nil
}

// deleted is what becomes of a record without a value: of a table it deletes; of a stream it goes on where nothing is asked of its
// columns.
func (e *evaluator) deleted() {
	switch {
	case e.tombstones:
		e.out = append(e.out, outcome{})
	case e.each != nil, e.where == nil && (e.key != nil || e.inputs != nil):
		e.drop("null value")
	case e.where == nil:
		e.out = append(e.out, outcome{})
	}
}
