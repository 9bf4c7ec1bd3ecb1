package declared

import (
	"fmt"
	"slices"
	"sync"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/expr"
)

// step is what is done with a record between two operators: joined sides become one value, then it is filtered, given other
// columns and another key. It never changes; an evaluator of a task does it.
type step struct {
	schema *expr.Schema
	sides  []side // that were joined, beyond the first
	left   *shape // how the first side becomes an object; nil: it is one, or need not be
	where  *expr.Program
	object *expr.Object // nil: the value stays
	fields []*expr.Program
	key    *expr.Output // nil: the key stays
	// aside leaves the key of the record as it is, and hands the new one on beside the value.
	aside bool
	// tombstones are what becomes of a row that where leaves out, and pass: of tables.
	tombstones bool
	inputs     *inputs // of an aggregate, which take the place of the value
}

// side is a joined value.
type side struct {
	name  string // its prefix, as a member of the joined object
	shape *shape // how it becomes an object; nil: it is one
}

// shape makes JSON objects of the values of a relation.
type shape struct {
	schema *expr.Schema
	object *expr.Object
	fields []*expr.Program
}

// newShape returns one that writes all columns.
func newShape(s *expr.Schema) (*shape, error) {
	sh := &shape{schema: s}
	var fields []expr.Field
	for _, c := range s.Columns() {
		p, err := expr.Compile(expr.Source{Text: c.Name, Line: 1, Column: 1}, s, expr.JSON)
		if err != nil {
			return nil, err
		}
		fields = append(fields, expr.Field{Name: c.Name, Program: p})
		sh.fields = append(sh.fields, p)
	}
	var err error
	sh.object, err = expr.NewObject(fields)
	return sh, err
}

// shaping is a shape at work, in one task.
type shaping struct {
	*shape

	row *expr.Row
}

func (s *shape) open() (*shaping, error) {
	row, err := s.schema.NewRow(s.fields...)
	return &shaping{s, row}, err
}

func (s *shaping) append(dst []byte, r *processor.Record, m processor.RecordMetadata) ([]byte, error) {
	if err := s.row.Set(r, m); err != nil {
		return nil, err
	}
	return s.object.Append(dst, s.row)
}

// evaluator does a step in one task. What it returns is its own, and new for each record: it is kept downstream.
type evaluator struct {
	*step

	row    *expr.Row // nil: nothing is evaluated
	left   *shaping
	sides  []*shaping // nil where a side is an object
	record processor.Record
}

func (s *step) open() (*evaluator, error) {
	e := &evaluator{step: s}
	var err error
	if s.left != nil {
		if e.left, err = s.left.open(); err != nil {
			return nil, err
		}
	}
	for _, other := range s.sides {
		var sh *shaping
		if other.shape != nil {
			if sh, err = other.shape.open(); err != nil {
				return nil, err
			}
		}
		e.sides = append(e.sides, sh)
	}
	programs := slices.Clone(s.fields)
	if s.where != nil {
		programs = append(programs, s.where)
	}
	if s.key != nil {
		programs = append(programs, s.key.Program)
	}
	if s.inputs != nil {
		programs = append(programs, s.inputs.programs()...)
	}
	if len(programs) > 0 {
		e.row, err = s.schema.NewRow(programs...)
	}
	return e, err
}

// outcome of a step.
type outcome struct {
	keep bool
	// dropped says why a record that is not kept counts as lost; "": it was left out by where.
	dropped string
	// value is nil for a deletion. key is the new one, if there is one; nil: none.
	value, key []byte
}

// do evaluates a record. Its value and its sides must stay as they are until it returns.
func (e *evaluator) do(r processor.Record, rights [][]byte, m processor.RecordMetadata) (out outcome, err error) {
	if r.Value == nil && len(rights) == 0 {
		return e.deleted(), nil
	}
	e.record = r
	if e.left != nil && r.Value != nil {
		if e.record.Value, err = e.left.append(nil, &r, m); err != nil {
			return out, err
		}
	}
	if len(rights) > 0 {
		if e.record.Value, err = e.joined(rights, m); err != nil {
			return out, err
		}
	}
	out = outcome{keep: true, value: e.record.Value}
	if e.row != nil {
		if err := e.row.Set(&e.record, m); err != nil {
			return outcome{}, err
		}
	}
	if e.where != nil {
		if ok, err := e.where.Bool(e.row); err != nil || !ok {
			return outcome{keep: err == nil && e.tombstones}, err
		}
	}
	if e.object != nil {
		if out.value, err = e.object.Append(nil, e.row); err != nil {
			return outcome{}, err
		}
	}
	if e.key != nil {
		if out.key, err = e.key.Append(nil, e.row); err != nil {
			return outcome{}, err
		}
	}
	if e.inputs != nil {
		if out.value, err = e.inputs.append(nil, r.Timestamp, e.row); err != nil {
			return outcome{}, err
		}
	}
	return out, nil
}

// deleted is what becomes of a record without a value: of a table it deletes; of a stream it goes on where nothing is asked of its
// columns.
func (e *evaluator) deleted() outcome {
	if e.tombstones {
		return outcome{keep: true}
	}
	if e.where == nil && (e.key != nil || e.inputs != nil) {
		return outcome{dropped: "null value"}
	}
	return outcome{keep: e.where == nil}
}

// joined is one object of both sides.
func (e *evaluator) joined(rights [][]byte, m processor.RecordMetadata) ([]byte, error) {
	left := e.record.Value
	if left == nil { // of an outer join
		left = []byte("{}")
	}
	n := len(left) + 1
	for i, right := range rights {
		n += len(e.step.sides[i].name) + len(right) + 4
	}
	dst := append(make([]byte, 0, n), left[:len(left)-1]...)
	for i, right := range rights {
		if right == nil {
			continue
		}
		if len(dst) > 1 {
			dst = append(dst, ',')
		}
		dst = fmt.Appendf(dst, "%q:", e.step.sides[i].name)
		if sh := e.sides[i]; sh != nil {
			rec := processor.Record{Key: e.record.Key, Value: right, Timestamp: e.record.Timestamp}
			var err error
			if dst, err = sh.append(dst, &rec, m); err != nil {
				return nil, err
			}
		} else {
			dst = append(dst, right...)
		}
	}
	return append(dst, '}'), nil
}

// program is an expression that all tasks share: with a pool of rows.
type program struct {
	*expr.Program

	rows sync.Pool
}

func newProgram(p *expr.Program, s *expr.Schema) *program {
	return &program{Program: p, rows: sync.Pool{New: func() any {
		row, err := s.NewRow(p)
		if err != nil {
			return err
		}
		return row
	}}}
}

// extract is a [processor.TimestampExtractor].
func (p *program) extract(r *processor.Record, m processor.RecordMetadata, partitionTime int64) (int64, error) {
	if r.Value == nil {
		return processor.FailOnInvalidTimestamp(r, m, partitionTime)
	}
	row, ok := p.rows.Get().(*expr.Row)
	if !ok {
		return 0, errNoRow
	}
	defer p.rows.Put(row)
	if err := row.Set(r, m); err != nil {
		return 0, err
	}
	v, err := p.Value(row)
	if err != nil {
		return 0, err
	}
	return milliseconds(v)
}
