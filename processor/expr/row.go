package expr

import (
	"encoding/base64"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/internal/decode"
	"github.com/statemesh/statemesh/serde"
)

// Row is the record that programs are evaluated on: what they look at, decoded once. It belongs to one task.
type Row struct {
	schema  *Schema
	columns []int // by field that is decoded: the column
	decoder decode.Decoder
	fields  []decode.Field
	names   []string // that programs use
	slots   []int    // by name
	used    []bool   // by slot
	known   []interner
	// Of the record in hand, by slot. nil: not made yet.
	values []ref.Val
	raw    [][]byte // of columns of JSON, as written, and of strings
	record *processor.Record
	meta   processor.RecordMetadata
	spent  uint64 // steps, by programs that share them
}

var _ cel.Activation = (*activation)(nil)

// activation is the row as the library sees it.
type activation Row

// NewRow returns a row for these programs, which must be of one schema.
func (s *Schema) NewRow(programs ...*Program) (*Row, error) {
	n := len(s.layout.Columns)
	r := &Row{
		schema: s, used: make([]bool, n+metaSlots), values: make([]ref.Val, n+metaSlots), raw: make([][]byte, n),
		known: make([]interner, n+metaSlots),
	}
	for _, p := range programs {
		if p.schema != s {
			return nil, errOtherSchema
		}
		for _, slot := range p.slots {
			r.used[slot] = true
		}
	}
	for _, v := range s.vars {
		if r.used[v.slot] {
			r.names, r.slots = append(r.names, v.name), append(r.slots, v.slot)
		}
	}
	var fields []string
	for i := range n {
		if r.used[i] && i != s.item && !slices.Contains(fields, s.fields[i]) {
			fields = append(fields, s.fields[i])
		}
	}
	for i := range n {
		if r.used[i] && i != s.item {
			r.columns = append(r.columns, slices.Index(fields, s.fields[i]))
		} else {
			r.columns = append(r.columns, -1)
		}
	}
	r.fields = make([]decode.Field, len(fields))
	r.decoder = decode.New(string(s.layout.Format), s.header, fields)
	return r, nil
}

// Set takes a record, which must stay as it is until the next one, or until nothing more is evaluated. A record that cannot be
// read is a *processor.DeserializationError; nothing can be evaluated on it. A value that is nil has no columns: all are null, which those
// that are not optional must not be.
func (r *Row) Set(rec *processor.Record, m processor.RecordMetadata) error {
	r.record, r.meta, r.spent = rec, m, 0
	clear(r.values)
	if rec.Value == nil {
		clear(r.fields)
	} else if err := r.decoder.Decode(rec.Value, r.fields); err != nil {
		return err
	}
	for i, f := range r.columns {
		if f < 0 {
			continue
		}
		if err := r.setColumn(i, r.fields[f]); err != nil {
			return err
		}
	}
	key := len(r.columns) + slotKey
	if !r.used[key] {
		return nil
	}
	v, err := r.keyValue(key)
	r.values[key] = v
	return err
}

func (r *Row) setColumn(i int, f decode.Field) error {
	c := &r.schema.layout.Columns[i]
	if f.Kind == decode.Missing {
		switch {
		case c.Optional:
			r.values[i] = types.NullValue
			r.raw[i] = nil
			return nil
		case r.record.Value == nil:
			return decode.Undecodable(reasonNullValue, "column %s is missing in a record without a value", c.Name)
		default:
			return decode.Undecodable(reasonMissingField, "column %s is missing", c.Name)
		}
	}
	if c.Type == JSON {
		if f.Kind == decode.Plain && !validJSON(f.Data) {
			return decode.Undecodable(decode.ReasonJSON, "column %s: %d bytes that are no JSON", c.Name, len(f.Data))
		}
		if r.raw[i] = f.Data; f.Kind == decode.Quoted { // without its quotes and escapes
			r.values[i], r.raw[i] = r.known[i].text(f.Data), nil
		}
		return nil // others are made when somebody looks at them
	}
	if c.Type == String && (f.Kind == decode.Plain || f.Kind == decode.Quoted) {
		r.raw[i] = f.Data // many a text is only passed on
		return nil
	}
	v, err := r.scalar(c, f)
	r.values[i] = v
	return err
}

// scalar reads a field as the type of its column.
func (r *Row) scalar(c *Column, f decode.Field) (ref.Val, error) {
	textual, numeric := f.Kind == decode.Plain || f.Kind == decode.Quoted, f.Kind == decode.Plain || f.Kind == decode.Number
	switch {
	case c.Type == Int && numeric:
		return parseInt(f.Data)
	case c.Type == Double && numeric:
		x, err := decode.ParseNumber(f.Data)
		return types.Double(x), err
	case c.Type == Bool && f.Kind == decode.Boolean, c.Type == Bool && f.Kind == decode.Plain && (string(f.Data) == "true" || string(f.Data) == "false"):
		return types.Bool(f.Data[0] == 't'), nil
	case c.Type == Bytes && textual:
		b, err := base64.StdEncoding.AppendDecode(nil, f.Data)
		if err != nil {
			return nil, decode.Undecodable(reasonBase64, "column %s: %d bytes that are no base64", c.Name, len(f.Data))
		}
		return types.Bytes(b), nil
	case c.Type == Timestamp && (textual || numeric):
		return parseTimestamp(c.Name, f)
	case c.Type == Duration && (textual || numeric):
		return parseDuration(c.Name, f)
	default:
		return nil, decode.Undecodable(reasonColumnType, "column %s holds no %s", c.Name, c.Type)
	}
}

// parseInt reads a whole number.
func parseInt(b []byte) (ref.Val, error) {
	n, err := strconv.ParseInt(string(b), 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return nil, decode.Undecodable(decode.ReasonRange, "a number is beyond the range of int")
	case err != nil:
		return nil, decode.Undecodable(decode.ReasonNumber, "%d bytes that are no whole number", len(b))
	}
	return types.Int(n), nil
}

// parseTimestamp reads Unix milliseconds or RFC 3339.
func parseTimestamp(column string, f decode.Field) (ref.Val, error) {
	var t time.Time
	if ms, err := strconv.ParseInt(string(f.Data), 10, 64); err == nil {
		if ms < minMillis || ms > maxMillis {
			return nil, decode.Undecodable(reasonTimestamp, "column %s is before the year 1 or after 9999", column)
		}
		t = time.UnixMilli(ms)
	} else if t, err = time.Parse(time.RFC3339Nano, string(f.Data)); err != nil || f.Kind == decode.Number {
		return nil, decode.Undecodable(reasonTimestamp, "column %s: %d bytes that are neither Unix milliseconds nor RFC 3339", column, len(f.Data))
	}
	if t = t.UTC(); t.UnixMilli() < minMillis || t.UnixMilli() > maxMillis {
		return nil, decode.Undecodable(reasonTimestamp, "column %s is before the year 1 or after 9999", column)
	}
	return types.Timestamp{Time: t}, nil
}

// parseDuration reads milliseconds, or a text such as "1h30m".
func parseDuration(column string, f decode.Field) (ref.Val, error) {
	if ms, err := strconv.ParseInt(string(f.Data), 10, 64); err == nil {
		if limit := int64(math.MaxInt64 / time.Millisecond); ms > limit || ms < -limit {
			return nil, decode.Undecodable(reasonDuration, "column %s is beyond the range of durations", column)
		}
		return types.Duration{Duration: time.Duration(ms) * time.Millisecond}, nil
	}
	d, err := time.ParseDuration(string(f.Data))
	if err != nil || f.Kind == decode.Number {
		return nil, decode.Undecodable(reasonDuration, "column %s: %d bytes that are neither milliseconds nor a duration", column, len(f.Data))
	}
	return types.Duration{Duration: d}, nil
}

// keyValue reads the record's key.
func (r *Row) keyValue(slot int) (ref.Val, error) {
	if r.record.Key == nil {
		if r.schema.layout.KeyOptional {
			return types.NullValue, nil
		}
		return nil, decode.Undecodable(reasonNullKey, "the record has no key")
	}
	switch r.schema.layout.KeyFormat {
	case "", serde.FormatBytes:
		return types.Bytes(r.record.Key), nil
	case serde.FormatString:
		if !utf8.Valid(r.record.Key) {
			return nil, decode.Undecodable(decode.ReasonUTF8, "the key is not valid UTF-8")
		}
		return r.known[slot].text(r.record.Key), nil
	}
	v, err := r.schema.keys.Decode(r.record.Key)
	if err != nil {
		return nil, &processor.DeserializationError{Reason: reasonBadKey, Err: err}
	}
	out, ok := fromSerde(v, r.schema.key)
	if !ok {
		return nil, &processor.DeserializationError{Reason: reasonBadKey, Err: fmt.Errorf("no %s", r.schema.key)}
	}
	return out, nil
}

// value of a slot, made now if it was not needed before.
func (r *Row) value(slot int) ref.Val {
	if v := r.values[slot]; v != nil {
		return v
	}
	n := len(r.columns)
	var v ref.Val
	switch {
	case slot < n && r.schema.layout.Columns[slot].Type == String:
		v = r.known[slot].text(r.raw[slot])
	case slot < n:
		v = parseJSON(r.raw[slot])
	default:
		switch slot - n {
		case slotTimestamp:
			v = types.Timestamp{Time: time.UnixMilli(r.record.Timestamp).UTC()}
		case slotTopic:
			v = r.known[slot].text([]byte(r.meta.Topic))
		case slotPartition:
			v = types.Int(r.meta.Partition)
		case slotOffset:
			v = types.Int(r.meta.Offset)
		case slotHeaders:
			v = headerMap(r.record.Headers)
		default:
			v = types.NullValue
		}
	}
	r.values[slot] = v
	return v
}

// headerMap is the headers by key, the last of each; one without a value is empty.
func headerMap(headers []processor.Header) ref.Val {
	m := make(map[string]any, len(headers))
	for _, h := range headers {
		m[h.Key] = types.Bytes(slices.Clone(h.Value))
	}
	return types.NewStringInterfaceMap(types.DefaultTypeAdapter, m)
}

// hasNull reports whether something that a program looks at is null.
func (r *Row) hasNull(p *Program) bool {
	return slices.ContainsFunc(p.slots, func(slot int) bool { return r.values[slot] == types.NullValue })
}

// ResolveName implements cel.Activation.
func (a *activation) ResolveName(name string) (any, bool) {
	for i, n := range a.names {
		if n == name {
			return (*Row)(a).value(a.slots[i]), true
		}
	}
	return nil, false
}

// Parent implements cel.Activation.
func (a *activation) Parent() cel.Activation { return nil }

// interner keeps the short texts of a column that came last, so that those of a column with few values are made once. A
// collision replaces; it never grows.
type interner struct {
	entries []internedText
}

type internedText struct {
	text  string
	value ref.Val
}

const (
	internedTexts = 64 // a power of two
	internedBytes = 32
)

// internSeed spreads texts over entries.
var internSeed = maphash.MakeSeed()

func (n *interner) text(b []byte) ref.Val {
	if len(b) > internedBytes {
		return types.String(b)
	}
	if n.entries == nil {
		n.entries = make([]internedText, internedTexts)
	}
	e := &n.entries[maphash.Bytes(internSeed, b)%internedTexts]
	if e.value == nil || e.text != string(b) {
		e.text = string(b)
		e.value = types.String(e.text)
	}
	return e.value
}
