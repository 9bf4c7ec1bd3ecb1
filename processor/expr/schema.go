package expr

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"

	"github.com/statemesh/statemesh/processor/internal/decode"
	"github.com/statemesh/statemesh/serde"
)

// Format says how the values of records are written.
type Format string

// The formats.
const (
	// CSV: one record of comma-separated columns. An empty column is missing.
	CSV Format = decode.FormatCSV
	// JSON: an object. A member that is null is missing.
	JSONObject Format = decode.FormatJSON
	// Text: the whole value is one column.
	Text Format = decode.FormatString
)

// Column is one column of a record.
type Column struct {
	// Name in expressions: an identifier, or several joined by dots.
	Name string
	Type Type
	// Optional columns are null where they are missing. A record that lacks another one that an expression uses cannot be
	// decoded.
	Optional bool
	// Field of the record that it is: the name of a CSV column, the path of a JSON member ("user.id"). Default: Name.
	Field string
}

// Layout describes the records of a topic.
type Layout struct {
	Format Format
	// Header names the columns of a CSV record, in order, when Columns has not all of them. Default: the fields of Columns.
	Header []string
	// Columns that expressions may use, in the order in which they are written out.
	Columns []Column
	// KeyFormat is the serde's name of the records' keys. Default: bytes.
	KeyFormat string
	// KeyOptional makes the key null where a record has none; otherwise such a record cannot be decoded by expressions that use it.
	KeyOptional bool
}

// Schema is what expressions over the records of a topic are checked against. It never changes and is safe for concurrent use.
type Schema struct {
	layout Layout
	fields []string // by column: of the record
	header []string // of CSV
	key    Type
	keys   serde.Format
	env    *cel.Env
	vars   []variable
	item   int // the column that is in no record, see [Each]; -1: none
}

// variable is a name that expressions may use.
type variable struct {
	name string
	slot int // of a row: a column's index, or behind them what every record has
	typ  Type
	cel  *cel.Type
}

// What every record has, behind the columns.
const (
	slotKey = iota
	slotTimestamp
	slotTopic
	slotPartition
	slotOffset
	slotHeaders
	metaSlots
)

// recordName is the prefix under which what every record has can be reached whatever the columns are called.
const recordName = "record"

var identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$`)

// reserved words begin no name: they are the language's. Its types and functions are no names of variables, and may be.
var reserved = []string{
	"as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop", "namespace", "null",
	"package", "return", "true", "var", "void", "while", recordName,
}

// NewSchema checks a layout. All that is wrong with it is returned at once, each thing a [*SchemaError].
func NewSchema(l Layout) (*Schema, error) {
	s := &Schema{layout: l, item: -1}
	s.layout.Columns = slices.Clone(l.Columns)
	if err := errors.Join(append(s.checkFormat(), s.checkColumns()...)...); err != nil {
		return nil, err
	}
	s.declare()
	env, err := s.newEnv()
	if err != nil {
		return nil, fmt.Errorf("expr: %w", err)
	}
	s.env = env
	return s, nil
}

// Columns lists the columns.
func (s *Schema) Columns() []Column { return slices.Clone(s.layout.Columns) }

func (s *Schema) checkFormat() (errs []error) {
	bad := func(path, format string, args ...any) {
		errs = append(errs, &SchemaError{Path: path, Reason: fmt.Sprintf(format, args...)})
	}
	l := s.layout
	switch l.Format {
	case CSV, JSONObject:
		if len(l.Columns) == 0 {
			bad("columns", "expressions need at least one")
		}
	case Text:
		if len(l.Columns) != 1 {
			bad("columns", "a text is one column, not %d", len(l.Columns))
		}
	default:
		bad("format", "%q: want one of %s, %s, %s", l.Format, CSV, JSONObject, Text)
	}
	if len(l.Header) > 0 && l.Format != CSV {
		bad("header", "only CSV has one")
	}
	key, ok := FormatType(l.KeyFormat)
	format, err := serde.Builtin().Lookup(l.KeyFormat)
	if !ok || err != nil {
		bad("key_format", "%q: expressions read %s", l.KeyFormat, strings.Join(serde.Builtin().Names(), ", "))
	}
	s.key, s.keys = key, format
	return errs
}

func (s *Schema) checkColumns() (errs []error) {
	seen := make(map[string]bool)
	for i, c := range s.layout.Columns {
		path := fmt.Sprintf("columns[%d]", i)
		bad := func(part, format string, args ...any) {
			errs = append(errs, &SchemaError{Path: path + part, Reason: fmt.Sprintf(format, args...)})
		}
		if reason := nameReason(c.Name); reason != "" {
			bad(".name", "%s; take another name and set field to what the record calls it", reason)
		} else if seen[c.Name] {
			bad(".name", "%q is given twice", c.Name)
		}
		seen[c.Name] = true
		if c.Type < String || c.Type > JSON {
			bad(".type", "want one of %s", strings.Join(TypeNames(), ", "))
		}
		field := c.Field
		if field == "" {
			field = c.Name
		}
		if s.layout.Format == JSONObject && slices.Contains(strings.Split(field, "."), "") {
			bad(".field", "%q: a path has a name before and after each dot", field)
		}
		if s.layout.Format == Text {
			field = decode.Whole
		}
		s.fields = append(s.fields, field)
	}
	return append(errs, s.checkHeader()...)
}

// nameReason says why a name cannot be that of a column; "": it can.
func nameReason(name string) string {
	first, _, _ := strings.Cut(name, ".")
	switch {
	case !identifier.MatchString(name):
		return fmt.Sprintf("%q is no name for expressions: letters, digits and _, parts joined by dots", name)
	case slices.Contains(reserved, first):
		return fmt.Sprintf("%q is a word of the language", first)
	default:
		return ""
	}
}

// checkHeader sees to it that every column of CSV has exactly one place.
func (s *Schema) checkHeader() (errs []error) {
	if s.layout.Format != CSV {
		return nil
	}
	if s.header = slices.Clone(s.layout.Header); len(s.header) == 0 {
		s.header = slices.Clone(s.fields)
	}
	for i, name := range s.header {
		if slices.Contains(s.header[:i], name) {
			errs = append(errs, &SchemaError{Path: "header", Reason: fmt.Sprintf("%q is given twice", name)})
		}
	}
	for i, name := range s.fields {
		if !slices.Contains(s.header, name) {
			errs = append(errs, &SchemaError{Path: fmt.Sprintf("columns[%d]", i), Reason: fmt.Sprintf("%q is not in the header", name)})
		}
	}
	return errs
}

// declare lists the variables. A column hides what every record has under its name; record.<name> reaches it still.
func (s *Schema) declare() {
	taken := make(map[string]bool)
	for i, c := range s.layout.Columns {
		taken[c.Name] = true
		v := variable{name: c.Name, slot: i, typ: c.Type, cel: c.Type.cel()}
		if c.Optional {
			v.cel = c.Type.nullable()
		}
		s.vars = append(s.vars, v)
	}
	key := s.key.cel()
	if s.layout.KeyOptional {
		key = s.key.nullable()
	}
	for i, m := range []struct {
		name string
		typ  Type
		cel  *cel.Type
	}{
		slotKey:       {"key", s.key, key},
		slotTimestamp: {"timestamp", Timestamp, cel.TimestampType},
		slotTopic:     {"topic", String, cel.StringType},
		slotPartition: {"partition", Int, cel.IntType},
		slotOffset:    {"offset", Int, cel.IntType},
		slotHeaders:   {"headers", JSON, cel.MapType(cel.StringType, cel.BytesType)},
	} {
		v := variable{name: recordName + "." + m.name, slot: len(s.layout.Columns) + i, typ: m.typ, cel: m.cel}
		s.vars = append(s.vars, v)
		if !taken[m.name] {
			v.name = m.name
			s.vars = append(s.vars, v)
		}
	}
}

func (s *Schema) variable(name string) (variable, bool) {
	i := slices.IndexFunc(s.vars, func(v variable) bool { return v.name == name })
	if i < 0 {
		return variable{}, false
	}
	return s.vars[i], true
}
