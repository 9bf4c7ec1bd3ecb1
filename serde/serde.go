package serde

import "errors"

// Serde translates between a T and the bytes that producers write and stores keep. It is a handle: small, comparable, safe
// for concurrent use. The zero Serde refuses everything, see [Serde.Err].
//
// Bytes that are nil are a value of their own, a tombstone on its way: only [Bytes], [List], [Nullable] and what is made
// of them take and give it. All others refuse nil bytes and never return them: an empty string is the empty slice.
type Serde[T any] struct {
	c *codec[T]
}

// codec is what a serde does. It never changes.
type codec[T any] struct {
	name   string // of the type, in errors
	format string // that stores declare for these bytes
	fixed  int    // bytes of each value where upstream's ListSerializer knows it; else 0
	null   bool   // nil bytes are a value
	window int    // bytes behind the key that say which window it is
	// appendTo returns nil for a value that stands for nil.
	appendTo func(dst []byte, v T) ([]byte, error)
	decode   func(b []byte) (T, error)
	forTopic func(topic string, part Part) Serde[T]
	err      error // why it cannot work
}

// Part is the part of a record that bytes are.
type Part uint8

// The parts.
const (
	Key Part = iota
	Value
)

// String is "key" or "value", the suffix of a schema registry's subjects.
func (p Part) String() string {
	if p == Value {
		return "value"
	}
	return "key"
}

var errZero = errors.New("serde: none is set")

// New returns a serde of one's own. name is that of the type, for errors. appendTo appends the bytes of a value to dst and
// keeps neither; decode may keep b only where its result is to share memory with it, and says so. What they return as an
// error is wrapped in an [*EncodeError] or a [*DecodeError], so its text must not hold data; one that is [ErrUnavailable] is
// passed on as it is.
func New[T any](name string, appendTo func(dst []byte, v T) ([]byte, error), decode func(b []byte) (T, error)) Serde[T] {
	return Serde[T]{&codec[T]{name: name, appendTo: appendTo, decode: decode}}
}

// Of is [New] of functions that know no buffer, such as those of an encoding package.
func Of[T any](name string, encode func(T) ([]byte, error), decode func([]byte) (T, error)) Serde[T] {
	return New(name, func(dst []byte, v T) ([]byte, error) {
		b, err := encode(v)
		if err != nil {
			return nil, err
		}
		return append(dst, b...), nil
	}, decode)
}

// Bind returns a serde whose bytes depend on where they are, such as a schema registry's: forTopic gives the one for a topic,
// and unbound serves where nobody says which.
func Bind[T any](unbound Serde[T], forTopic func(topic string, part Part) Serde[T]) Serde[T] {
	c := *unbound.codec()
	c.forTopic = forTopic
	return Serde[T]{&c}
}

// As returns the serde under the name of a [Format] that reads its bytes.
func (s Serde[T]) As(format string) Serde[T] {
	c := *s.codec()
	c.format = format
	return Serde[T]{&c}
}

// TakesNil reports whether nil bytes stand for a value: [Bytes], [List], [Nullable] and what is made of them.
func (s Serde[T]) TakesNil() bool { return s.codec().null }

// Format names the [Format] of the bytes, for the declaration of a store; "bytes" when none is known.
func (s Serde[T]) Format() string {
	if f := s.codec().format; f != "" {
		return f
	}
	return FormatBytes
}

// Name of the type, as in errors.
func (s Serde[T]) Name() string { return s.codec().name }

// Err is why the serde cannot work, nil when it can. Whoever takes a serde to use it later asks early.
func (s Serde[T]) Err() error { return s.codec().err }

// ForTopic returns the serde for one part of the records of a topic.
func (s Serde[T]) ForTopic(topic string, part Part) Serde[T] {
	if f := s.codec().forTopic; f != nil {
		return f(topic, part)
	}
	return s
}

// Encode returns the bytes of v, in memory of its own; nil only when v stands for nil.
func (s Serde[T]) Encode(v T) ([]byte, error) { return s.Append([]byte{}, v) }

// Append appends the bytes of v to dst, for callers who encode often and keep a buffer. It returns nil when v stands for
// nil, and with an error.
func (s Serde[T]) Append(dst []byte, v T) ([]byte, error) {
	c := s.codec()
	if c.err != nil {
		return nil, &EncodeError{Type: c.name, Err: c.err}
	}
	if dst == nil {
		dst = []byte{}
	}
	b, err := c.appendTo(dst, v)
	switch {
	case err == nil && b == nil && !c.null:
		return nil, &EncodeError{Type: c.name, Err: errNil}
	case err != nil:
		return nil, asEncodeError(c.name, err)
	}
	return b, nil
}

// Decode returns the value that b stands for. An error that is [ErrDecode] is about the bytes and stays.
func (s Serde[T]) Decode(b []byte) (T, error) {
	c := s.codec()
	var zero T
	switch {
	case c.err != nil:
		return zero, c.err
	case b == nil && !c.null:
		return zero, &DecodeError{Type: c.name, Length: -1}
	}
	v, err := c.decode(b)
	if err != nil {
		return zero, asDecodeError(c.name, len(b), err)
	}
	return v, nil
}

func (s Serde[T]) codec() *codec[T] {
	if s.c == nil {
		return &codec[T]{name: "value", err: errZero}
	}
	return s.c
}

// invalid is a serde that cannot work.
func invalid[T any](name string, err error) Serde[T] {
	return Serde[T]{&codec[T]{name: name, err: err}}
}

// Nullable takes nil bytes as a nil pointer, and the other way round (upstream's null, which its serializers all pass
// through).
func Nullable[T any](inner Serde[T]) Serde[*T] {
	in := inner.codec()
	c := &codec[*T]{name: "nullable " + in.name, format: in.format, fixed: in.fixed, null: true, err: in.err}
	c.appendTo = func(dst []byte, v *T) ([]byte, error) {
		if v == nil {
			return nil, nil
		}
		return inner.Append(dst, *v)
	}
	c.decode = func(b []byte) (*T, error) {
		if b == nil {
			return nil, nil
		}
		v, err := inner.Decode(b)
		if err != nil {
			return nil, err
		}
		return &v, nil
	}
	if in.forTopic != nil {
		c.forTopic = func(topic string, part Part) Serde[*T] { return Nullable(inner.ForTopic(topic, part)) }
	}
	return Serde[*T]{c}
}
