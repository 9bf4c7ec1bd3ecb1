package sink

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/changes"
	"github.com/statemesh/statemesh/processor/expr"
	"github.com/statemesh/statemesh/serde"
)

// reader of records: what all partitions share. It never changes.
type reader struct {
	schema   Schema
	values   *expr.Schema
	programs []*expr.Program
	// key returns the values of Schema.Keys; its slice is the caller's.
	key func([]byte) ([]any, error)
}

// newReader checks what the relation holds.
func newReader(c Config) (*reader, error) {
	r := &reader{schema: Schema{Sink: c.ID(), Append: c.stream()}}
	layout := expr.Layout{Format: expr.JSONObject}
	if c.Layout != nil {
		layout = *c.Layout
	}
	known := make(map[string]bool, len(layout.Columns))
	for _, col := range layout.Columns {
		known[col.Name] = true
	}
	for _, col := range c.Content.Columns {
		if c.Layout == nil { // objects that statemesh wrote: null is left out, and Field is that of the topic it came from
			layout.Columns = append(layout.Columns, expr.Column{Name: col.Name, Type: col.Type, Optional: true})
		} else if !known[col.Name] {
			return nil, &ConfigError{Field: "Layout", Reason: "has no column " + col.Name}
		}
		r.schema.Columns = append(r.schema.Columns, Column{Name: col.Name, Type: col.Type})
	}
	var err error
	if r.values, err = expr.NewSchema(layout); err != nil {
		return nil, err
	}
	for _, col := range c.Content.Columns {
		p, err := expr.Compile(expr.Source{File: "column " + col.Name, Text: col.Name}, r.values, expr.Any) // a wanted bool would have to be one
		if err != nil {
			return nil, err
		}
		if p.Type() != col.Type {
			return nil, &ConfigError{Field: "Layout", Reason: fmt.Sprintf("column %s is %s there, and %s in the content", col.Name, p.Type(), col.Type)}
		}
		r.programs = append(r.programs, p)
	}
	return r, r.setKey(c)
}

// setKey makes the decoder of keys.
func (r *reader) setKey(c Config) error {
	inner, typ, err := keyDecoder(c.Content.KeyFormat)
	if err != nil {
		return err
	}
	r.schema.Keys = []Column{{Name: "key", Type: typ}}
	if !c.Content.Windowed {
		r.key = func(b []byte) ([]any, error) {
			v, err := inner(b)
			return []any{v}, err
		}
		return nil
	}
	r.schema.Keys = append(r.schema.Keys, Column{Name: "window_start", Type: expr.Timestamp}, Column{Name: "window_end", Type: expr.Timestamp})
	var windows serde.Serde[serde.Windowed[[]byte]]
	switch {
	case c.Content.Session:
		windows = serde.SessionWindowed(serde.Bytes())
	case c.Source == FromChangelog:
		windows = serde.TimeWindowedChangelog(serde.Bytes(), c.WindowSize)
	default:
		windows = serde.TimeWindowed(serde.Bytes(), c.WindowSize)
	}
	r.key = func(b []byte) ([]any, error) {
		w, err := windows.Decode(b)
		if err != nil {
			return nil, err
		}
		v, err := inner(w.Key)
		if err != nil {
			return nil, err
		}
		start, err := instant(time.UnixMilli(w.Start))
		if err != nil {
			return nil, err
		}
		end, err := instant(time.UnixMilli(w.End))
		return []any{v, start, end}, err
	}
	return windows.Err()
}

// keyDecoder decodes keys of a format. JSON is kept as it is written, as text: keys are told apart by their bytes.
func keyDecoder(format string) (func([]byte) (any, error), expr.Type, error) {
	typ, ok := expr.FormatType(format)
	f, err := serde.Builtin().Lookup(format)
	switch {
	case err != nil:
		return nil, 0, err
	case !ok:
		return nil, 0, &ConfigError{Field: "Content.KeyFormat", Reason: "sinks read no " + format}
	case typ == expr.Timestamp:
		return func(b []byte) (any, error) {
			v, err := serde.Time().Decode(b)
			if err != nil {
				return nil, err
			}
			return instant(v)
		}, typ, nil
	case typ == expr.JSON:
		typ = expr.String
	}
	return func(b []byte) (any, error) {
		v, err := f.Decode(b)
		switch v := v.(type) {
		case []byte:
			return bytes.Clone(v), err
		case json.RawMessage:
			return string(v), err
		default:
			return v, err
		}
	}, typ, nil
}

// instant is a time that databases have, within the years that expressions know as well.
func instant(t time.Time) (time.Time, error) {
	if t = t.UTC(); t.Year() < 1 || t.Year() > 9999 {
		return t, errors.New("an instant before the year 1 or after 9999")
	}
	return t, nil
}

var errNoKey = &processor.DeserializationError{Reason: "null key", Err: errors.New("a table's record has no key")}

// row decodes a record. in is the goroutine's own.
func (r *reader) row(in *expr.Row, place Place, rec *changes.Record) (Row, error) {
	out := Row{Offset: rec.Offset}
	switch {
	case rec.Key != nil:
		key, err := r.key(rec.Key)
		if err != nil {
			return out, &processor.DeserializationError{Reason: "invalid key", Err: err}
		}
		out.Key = key
	case !r.schema.Append:
		return out, errNoKey
	default:
		out.Key = make([]any, len(r.schema.Keys))
	}
	if rec.Value == nil && !r.schema.Append {
		return out, nil
	}
	if err := in.Set(&rec.Record, processor.RecordMetadata{Topic: place.Topic, Partition: place.Partition, Offset: rec.Offset}); err != nil {
		return out, err
	}
	out.Values = make([]any, len(r.programs))
	for i, p := range r.programs {
		v, err := p.Value(in)
		if err != nil {
			return out, err
		}
		out.Values[i] = v
	}
	return out, nil
}

// reasonOf is the label of an error of row.
func reasonOf(err error) string {
	if e, ok := errors.AsType[*processor.DeserializationError](err); ok {
		return e.Reason
	}
	if e, ok := errors.AsType[processor.Labelled](err); ok {
		return e.DropReason()
	}
	return "undecodable"
}
