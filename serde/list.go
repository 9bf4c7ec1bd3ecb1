package serde

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
)

// The layouts of upstream's ListSerializer (KIP-466), by their first byte.
const (
	// constantSize: count of nils, their indexes, count of items, then the items that are not nil.
	constantSize = 0
	// variableSize: count of items, then the length of each, nilLength for nil, and its bytes.
	variableSize = 1

	nilLength = -1
)

var errList = errors.New("no list")

// List is a list of values as upstream's ListSerializer writes it, all counts and lengths in four bytes, big endian. Where
// the inner serializer is one of upstream's of a fixed size (Int16, Int32, Int64, Float32, Float64, UUID; Time too) lengths
// are left out. A nil slice stands for nil bytes, an empty one does not; a list that may hold nil is of [Nullable].
func List[T any](inner Serde[T]) Serde[[]T] {
	in := inner.codec()
	c := &codec[[]T]{name: "list of " + in.name, null: true, err: in.err}
	c.appendTo = func(dst []byte, items []T) ([]byte, error) {
		switch {
		case items == nil:
			return nil, nil
		case len(items) > math.MaxInt32:
			return nil, errors.New("more items than 31 bits count")
		case in.fixed > 0:
			return appendConstant(dst, inner, items)
		}
		return appendVariable(dst, inner, items)
	}
	c.decode = func(b []byte) ([]T, error) {
		if b == nil {
			return nil, nil
		}
		r := reader{b}
		switch flag := r.take(1); {
		case flag == nil:
			return nil, errList
		case flag[0] == variableSize:
			return readVariable(&r, inner)
		case flag[0] == constantSize && in.fixed > 0:
			return readConstant(&r, inner, in.fixed)
		}
		return nil, errors.New("another layout of lists")
	}
	if in.forTopic != nil {
		c.forTopic = func(topic string, part Part) Serde[[]T] { return List(inner.ForTopic(topic, part)) }
	}
	return Serde[[]T]{c}
}

func appendConstant[T any](dst []byte, inner Serde[T], items []T) ([]byte, error) {
	dst = append(dst, constantSize)
	nilsAt := len(dst)
	dst = binary.BigEndian.AppendUint32(dst, 0)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(items)))
	var indexes []byte // of the nils: known when all is written, and put in between then
	for i, item := range items {
		b, err := inner.Append(dst, item)
		switch {
		case err != nil:
			return nil, err
		case b == nil:
			indexes = binary.BigEndian.AppendUint32(indexes, uint32(i))
		default:
			dst = b
		}
	}
	binary.BigEndian.PutUint32(dst[nilsAt:], uint32(len(indexes)/4))
	return slices.Insert(dst, nilsAt+4, indexes...), nil
}

func appendVariable[T any](dst []byte, inner Serde[T], items []T) ([]byte, error) {
	dst = append(dst, variableSize)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(items)))
	for _, item := range items {
		at := len(dst)
		dst = binary.BigEndian.AppendUint32(dst, 0)
		b, err := inner.Append(dst, item)
		switch {
		case err != nil:
			return nil, err
		case b == nil:
			binary.BigEndian.PutUint32(dst[at:], math.MaxUint32) // nilLength
			continue
		case len(b)-at-4 > math.MaxInt32:
			return nil, errors.New("an item is longer than 31 bits count")
		}
		dst = b
		binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	}
	return dst, nil
}

func readVariable[T any](r *reader, inner Serde[T]) ([]T, error) {
	count, ok := r.count(4)
	if !ok {
		return nil, errList
	}
	items := make([]T, 0, count)
	for range count {
		var b []byte
		switch n, ok := r.int32(); {
		case !ok || n < nilLength:
			return nil, errList
		case n != nilLength:
			if b = r.take(int(n)); b == nil {
				return nil, errList
			}
		}
		item, err := inner.Decode(b)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return items, r.end()
}

func readConstant[T any](r *reader, inner Serde[T], size int) ([]T, error) {
	nils, ok := r.count(4)
	if !ok {
		return nil, errList
	}
	indexes := r.take(4 * nils)
	n, ok := r.int32()
	if !ok || n < 0 || len(r.rest) != (int(n)-nils)*size {
		return nil, errList
	}
	items := make([]T, 0, n)
	for i := range n {
		var b []byte
		if len(indexes) > 0 && int32(binary.BigEndian.Uint32(indexes)) == i {
			indexes = indexes[4:]
		} else if b = r.take(size); b == nil {
			return nil, errList
		}
		item, err := inner.Decode(b)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	if len(indexes) > 0 { // not ascending, or beyond the end
		return nil, errList
	}
	return items, r.end()
}

// reader takes bytes from the front and never more than there are.
type reader struct{ rest []byte }

// take returns the next n bytes, not nil, or nil when there are fewer.
func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.rest) {
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) int32() (int32, bool) {
	b := r.take(4)
	if b == nil {
		return 0, false
	}
	return int32(binary.BigEndian.Uint32(b)), true
}

// count reads how many things of at least size bytes follow; more than fit are none.
func (r *reader) count(size int) (int, bool) {
	n, ok := r.int32()
	return int(n), ok && n >= 0 && int(n) <= len(r.rest)/size
}

func (r *reader) end() error {
	if len(r.rest) > 0 {
		return errors.New("bytes behind the list")
	}
	return nil
}
