package declared

import (
	"slices"
	"sync"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/expr"
)

// step is what is done with a record between two operators: joined sides become one value, which becomes one record per item of a list; those
// are filtered, given other columns and another key. It never changes once it is understood; an evaluator of a task does it.
type step struct {
	schema *expr.Schema
	sides  []*side // that were joined, beyond the first
	left   *shape  // how the first side becomes an object; nil: it is one, or need not be
	each   *expr.Each
	tail   *expr.Object // the item, to be put behind the columns of a value that is an object; nil: it is in object, or nobody sees it
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

// programs are all that is evaluated on a record.
func (s *step) programs() []*expr.Program {
	programs := slices.Clone(s.fields)
	if s.each != nil {
		programs = append(programs, s.each.Program)
	}
	if s.where != nil {
		programs = append(programs, s.where)
	}
	if s.key != nil {
		programs = append(programs, s.key.Program)
	}
	if s.inputs != nil {
		programs = append(programs, s.inputs.programs()...)
	}
	return programs
}

// shape makes JSON objects of the values of a relation.
type shape struct {
	schema *expr.Schema
	object *expr.Object
	fields []*expr.Program
}

// newShape returns one that writes all columns.
func newShape(s *expr.Schema) (*shape, error) {
	var names []string
	for _, c := range s.Columns() {
		names = append(names, c.Name)
	}
	return newShapeOf(s, names...)
}

// newShapeOf writes what has these names.
func newShapeOf(s *expr.Schema, names ...string) (*shape, error) {
	sh := &shape{schema: s}
	var fields []expr.Field
	for _, name := range names {
		p, err := expr.Compile(expr.Source{Text: name, Line: 1, Column: 1}, s, expr.JSON)
		if err != nil {
			return nil, err
		}
		fields = append(fields, expr.Field{Name: name, Program: p})
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
