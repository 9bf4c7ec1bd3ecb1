package declared

import (
	"slices"
	"strconv"
	"strings"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/expr"
)

// side is a joined value, which becomes a member of one object: "<as>":{"key":...,...}.
type side struct {
	name  string
	shape *shape // how it becomes an object; nil: it is one
	// key is how its key becomes an object; nil: nobody asks for it. keyFrom is where it is.
	key     *shape
	keyFrom keyFrom
}

// keyFrom is where the key of a joined value is.
type keyFrom uint8

const (
	// ofRecord: the key of the record that it was joined with is its own.
	ofRecord keyFrom = iota
	// ofCarrier: so is the key that was made of it.
	ofCarrier
	// ofRight: it was joined by something else, and brought its key with it.
	ofRight
)

// keyShape makes {"key":...} of keys of a format.
func keyShape(format string) (*shape, error) {
	s, err := expr.NewSchema(expr.Layout{
		Format: expr.Text, Columns: []expr.Column{{Name: "value", Type: expr.String, Optional: true}}, KeyFormat: format, KeyOptional: true,
	})
	if err != nil {
		return nil, err
	}
	return newShapeOf(s, keyColumn)
}

// sideAt is a side at work, in one task.
type sideAt struct {
	*side

	member []byte
	value  *shaping
	row    *shaping // of its key
	record processor.Record
}

func (s *side) open() (at *sideAt, err error) {
	at = &sideAt{side: s, member: append(strconv.AppendQuote(nil, s.name), ':')}
	if s.shape != nil {
		if at.value, err = s.shape.open(); err != nil {
			return nil, err
		}
	}
	if s.key != nil {
		at.row, err = s.key.open()
	}
	return at, err
}

// append appends the object of a joined value, beginning with its key. key is that of the record, carried the one that was made of it.
func (s *sideAt) append(dst []byte, right right, r *processor.Record, carried []byte, m processor.RecordMetadata) (_ []byte, err error) {
	var key []byte
	switch s.keyFrom {
	case ofRecord:
		key = r.Key
	case ofCarrier:
		key = carried
	case ofRight:
		key = right.key
	}
	start := len(dst)
	s.record = processor.Record{Key: key, Timestamp: r.Timestamp}
	if s.row != nil {
		if dst, err = s.row.append(dst, &s.record, m); err != nil {
			return nil, err
		}
	}
	behind := len(dst)
	if s.value == nil {
		dst = append(dst, right.value...)
	} else {
		s.record.Value = right.value
		if dst, err = s.value.append(dst, &s.record, m); err != nil {
			return nil, err
		}
	}
	if behind == start {
		return dst, nil
	}
	return append(dst[:start], spliced(dst[start:], behind-start)...), nil
}

// spliced makes one object of two, the second of which begins at at.
func spliced(b []byte, at int) []byte {
	switch {
	case len(b)-at <= len("{}"):
		return b[:at]
	case at <= len("{}"):
		return append(b[:0], b[at:]...)
	default: // ...}{... becomes ...,...
		b[at-1] = ','
		return append(b[:at], b[at+1:]...)
	}
}

// joined appends one object of both sides.
func (e *evaluator) joined(dst []byte, c carrier, m processor.RecordMetadata) (_ []byte, err error) {
	left := e.record.Value
	if left == nil { // of an outer join
		left = []byte("{}")
	}
	dst = append(dst, left[:len(left)-1]...)
	for i, right := range c.rights {
		if right.value == nil {
			continue
		}
		if len(dst) > 1 {
			dst = append(dst, ',')
		}
		dst = append(dst, e.sides[i].member...)
		if dst, err = e.sides[i].append(dst, right, &e.record, c.key, m); err != nil {
			return nil, err
		}
	}
	return append(dst, '}'), nil
}

// keyColumn of what is joined is its key, if it has no column of this name.
const keyColumn = "key"

// hasKey tells whether there is a column for the key.
func (j *join) hasKey() bool {
	return !slices.ContainsFunc(j.with.schema.Columns(), func(c expr.Column) bool {
		return c.Name == keyColumn || strings.HasPrefix(c.Name, keyColumn+".")
	})
}

// keyFrom says where the key of what j joins is.
func (r *relation) keyFrom(j *join) keyFrom {
	switch {
	case r.foreign(j), j.with.Kind == GlobalTable && j.On != nil:
		return ofCarrier
	case j.OtherOn != nil:
		return ofRight
	default:
		return ofRecord
	}
}
