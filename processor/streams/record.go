package streams

import (
	"errors"
	"reflect"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/serde"
)

// Record is a record of a stream: what processors are given and what they forward (upstream's api.Record). The zero values of NoKey and
// NoValue say that both are there.
type Record[K, V any] struct {
	Key   K
	Value V
	// NoKey and NoValue say that the record has none (null): Key or Value is the zero value then.
	NoKey, NoValue bool
	// Timestamp in Unix milliseconds.
	Timestamp int64
	Headers   []processor.Header

	key   encoded[K]
	value encoded[V]
}

// encoded is what a key or value was decoded from, if that is known: bytes of the serde by. They are the record's and as short-lived.
type encoded[T any] struct {
	bytes []byte
	by    serde.Serde[T]
}

// is makes the bytes known.
func (e *encoded[T]) is(b []byte, by serde.Serde[T]) { e.bytes, e.by = b, by }

// coder makes bytes of keys or values in a buffer of its own.
type coder[T any] struct {
	serde serde.Serde[T]
	buf   []byte
}

// encode returns the bytes of v, those that are known if they are of the same serde. They are valid until the next call.
func (c *coder[T]) encode(v T, known encoded[T]) ([]byte, error) {
	if known.bytes != nil && known.by == c.serde {
		return known.bytes, nil
	}
	b, err := c.serde.Append(c.buf[:0], v)
	if err != nil {
		return nil, err
	}
	if cap(b) > cap(c.buf) {
		c.buf = b[:0]
	}
	return b, nil
}

// recordDecoder makes records of bytes.
type recordDecoder[K, V any] struct {
	keys     serde.Serde[K]
	values   serde.Serde[V]
	noKeys   nulls[K]
	noValues nulls[V]
}

func newRecordDecoder[K, V any](keys serde.Serde[K], values serde.Serde[V]) recordDecoder[K, V] {
	return recordDecoder[K, V]{keys: keys, values: values, noKeys: nullsOf[K](), noValues: nullsOf[V]()}
}

// decode fills out. Bytes that stand for nil, as the null of JSON does, are none (as upstream, where a deserializer returns null). An error is a *processor.DeserializationError, unless a serde is unavailable.
func (d *recordDecoder[K, V]) decode(r *processor.Record, out *Record[K, V]) (err error) {
	*out = Record[K, V]{Timestamp: r.Timestamp, Headers: r.Headers, NoKey: r.Key == nil, NoValue: r.Value == nil}
	if !out.NoKey || d.keys.TakesNil() {
		if out.Key, err = d.keys.Decode(r.Key); err != nil {
			return deserialization("undecodable key", err)
		}
		out.key.is(r.Key, d.keys)
		if d.noKeys.null(&out.Key) {
			out.NoKey, out.key = true, encoded[K]{}
		}
	}
	if !out.NoValue || d.values.TakesNil() {
		if out.Value, err = d.values.Decode(r.Value); err != nil {
			return deserialization("undecodable value", err)
		}
		out.value.is(r.Value, d.values)
		if d.noValues.null(&out.Value) {
			out.NoValue, out.value = true, encoded[V]{}
		}
	}
	return nil
}

// deserialization is what the handler of undecodable records decides about. A serde that lacks what it needs for the moment says nothing
// about the record.
func deserialization(reason string, err error) error {
	if errors.Is(err, serde.ErrUnavailable) {
		return err
	}
	return &processor.DeserializationError{Reason: reason, Err: err}
}

// nulls knows whether a type has a nil, which is null then.
type nulls[T any] struct{ nilable bool }

func nullsOf[T any]() nulls[T] {
	switch reflect.TypeFor[T]().Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Interface:
		return nulls[T]{nilable: true}
	default:
		return nulls[T]{}
	}
}

// null reports whether v is one. It allocates nothing.
func (n nulls[T]) null(v *T) bool { return n.nilable && reflect.ValueOf(v).Elem().IsNil() }

// setKey gives a record another key.
func setKey[K, V any](r *Record[K, V], k K, n nulls[K]) {
	r.Key, r.key = k, encoded[K]{}
	r.NoKey = n.null(&r.Key)
}

// setValue gives a record another value.
func setValue[K, V any](r *Record[K, V], v V, n nulls[V]) {
	r.Value, r.value = v, encoded[V]{}
	r.NoValue = n.null(&r.Value)
}

// noValue takes the value away.
func noValue[K, V any](r *Record[K, V]) {
	var none V
	r.Value, r.value, r.NoValue = none, encoded[V]{}, true
}

// withKeyOf copies all but the value.
func withKeyOf[K, V, W any](out *Record[K, W], r *Record[K, V]) {
	out.Key, out.key, out.NoKey, out.Timestamp, out.Headers = r.Key, r.key, r.NoKey, r.Timestamp, r.Headers
}

// withValueOf copies all but the key.
func withValueOf[K, L, V any](out *Record[L, V], r *Record[K, V]) {
	out.Value, out.value, out.NoValue, out.Timestamp, out.Headers = r.Value, r.value, r.NoValue, r.Timestamp, r.Headers
}
