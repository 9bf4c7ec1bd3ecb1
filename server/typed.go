package server

import (
	"fmt"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// Keys and values are bytes everywhere inside; where a caller has them typed, the instance that it asked translates, and
// nobody behind it knows.

// setFormat finds the formats in which rows are sent.
func (rd *read) setFormat(f statemeshv1.Format) error {
	typed, err := wire.ToFormat(f)
	if err != nil || !typed {
		return err
	}
	if rd.keys, err = rd.declared("format", rd.info.KeyFormat); err != nil {
		return err
	}
	if rd.values, err = rd.declared("format", rd.info.ValueFormat); err != nil {
		return err
	}
	if rd.keys == nil && rd.values == nil {
		return &store.InvalidRequestError{
			Field: "format", Reason: fmt.Sprintf("store %s declares no formats: its keys and values are bytes", rd.store),
		}
	}
	return nil
}

// declared is the format of that name; nil for bytes.
func (rd *read) declared(field, name string) (*serde.Format, error) {
	if name == "" || name == serde.FormatBytes {
		return nil, nil //nolint:nilnil // bytes have no other form
	}
	f, err := rd.formats.Lookup(name)
	if err != nil {
		return nil, &store.InvalidRequestError{
			Field: field, Reason: fmt.Sprintf("store %s declares the format %q, which this instance does not know", rd.store, name),
		}
	}
	return &f, nil
}

// typedKey is the key that a caller has typed in field, instead of bytes.
func (rd *read) typedKey(field string, m *statemeshv1.TypedValue, bytes []byte) ([]byte, error) {
	if len(bytes) > 0 {
		return nil, &store.InvalidRequestError{Field: field, Reason: "not together with the same in bytes"}
	}
	f, err := rd.declared(field, rd.info.KeyFormat)
	if err != nil {
		return nil, err
	}
	if f == nil {
		return nil, &store.InvalidRequestError{
			Field: field, Reason: fmt.Sprintf("store %s declares no format of its keys: they are bytes", rd.store),
		}
	}
	return wire.ToTyped(field, *f, m)
}

func (rd *read) typed() bool { return rd.keys != nil || rd.values != nil }

// fromValue makes the message of a value for the caller.
func (rd *read) fromValue(p store.Partition, v store.Value) (*statemeshv1.Value, error) {
	m := wire.FromValue(v)
	return m, rd.typeValue(p, m)
}

// typeValue gives a value the form that the caller wants.
func (rd *read) typeValue(p store.Partition, m *statemeshv1.Value) error {
	if rd.values == nil {
		return nil
	}
	t, err := wire.FromTyped(*rd.values, m.GetData())
	if err != nil {
		return rd.misfit("a value", p, rd.values)
	}
	m.Data, m.Typed = nil, t
	return nil
}

// typeRow is a row in the form that the caller wants. It is another one: the merge still compares with this one.
func (rd *read) typeRow(r *statemeshv1.Row) (*statemeshv1.Row, error) {
	p := store.Partition(r.GetPartition())
	out := &statemeshv1.Row{
		Key: r.GetKey(), Value: r.GetValue(), Partition: r.GetPartition(), Span: r.GetSpan(), Cursor: r.GetCursor(),
	}
	if rd.keys != nil {
		t, err := wire.FromTyped(*rd.keys, r.GetKey())
		if err != nil {
			return nil, rd.misfit("a key", p, rd.keys)
		}
		out.Key, out.TypedKey = nil, t
	}
	return out, rd.typeValue(p, out.GetValue())
}

func (rd *read) misfit(what string, p store.Partition, f *serde.Format) error {
	return &store.InvalidRequestError{
		Field: "format", Reason: fmt.Sprintf("%s in partition %d of store %s is not %s: ask for bytes", what, p, rd.store, f.Name),
	}
}
