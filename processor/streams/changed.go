package streams

import (
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/serde"
)

// Changes of a table on a repartition topic, as upstream's ChangedSerializer has them since 3.5 (KIP-904): the value or both, and a byte
// that says which.
//
//	old                   0     old           latest  3
//	new                   1     new           latest  4
//	varint of len(new)
//	new  old              2     ... new  old  latest  5
//
// The second column is written by some versions of upstream: latest says that it is no older version of the key. It is read and not written.
const (
	changedOld = iota
	changedNew
	changedBoth
	changedLatest
)

var errChanged = errors.New("streams: no change of a table")

// appendChanged appends the bytes of a change to dst. One of the values is nil when there is none.
func appendChanged(dst, before, after []byte) []byte {
	switch {
	case before == nil:
		return append(append(dst, after...), changedNew)
	case after == nil:
		return append(append(dst, before...), changedOld)
	default:
		dst = binary.AppendVarint(dst, int64(len(after)))
		return append(append(append(dst, after...), before...), changedBoth)
	}
}

// splitChanged returns the values of a change, nil for one that it has not. They share memory with b.
func splitChanged(b []byte) (before, after []byte, err error) {
	if len(b) == 0 {
		return nil, nil, errChanged
	}
	flag, b := b[len(b)-1], b[:len(b)-1]
	if flag >= changedLatest {
		if len(b) == 0 || flag > changedLatest+changedBoth {
			return nil, nil, errChanged
		}
		flag, b = flag-changedLatest, b[:len(b)-1]
	}
	switch flag {
	case changedOld:
		return b, nil, nil
	case changedNew:
		return nil, b, nil
	default:
		n, at := binary.Varint(b)
		if at <= 0 || n < 0 || n > int64(len(b)-at) {
			return nil, nil, errChanged
		}
		end := at + int(n)
		return b[end:], b[at:end:end], nil
	}
}

// movedEncoder hands rows on to their groups, through the sink of a repartition topic: one record if a row stays in its group, and two if it
// moves, of which that of the old group goes first (upstream's KTableRepartitionMap).
type movedEncoder[K, V any] struct {
	ctx            *processor.Context
	child          string
	fromKey, toKey coder[K]
	before, after  coder[V]
	buf            []byte
}

func (e *movedEncoder[K, V]) receive(m *moved[K, V]) (err error) {
	var fromKey, toKey, before, after []byte
	if m.from.ok {
		if fromKey, err = e.fromKey.encode(m.from.key, encoded[K]{}); err != nil {
			return err
		}
		if before, err = e.before.encode(m.from.value, encoded[V]{}); err != nil {
			return err
		}
	}
	if m.to.ok {
		if toKey, err = e.toKey.encode(m.to.key, encoded[K]{}); err != nil {
			return err
		}
		if after, err = e.after.encode(m.to.value, encoded[V]{}); err != nil {
			return err
		}
	}
	if m.from.ok && m.to.ok && bytes.Equal(fromKey, toKey) {
		return e.send(m, toKey, before, after)
	}
	if err := e.send(m, fromKey, before, nil); err != nil {
		return err
	}
	return e.send(m, toKey, nil, after)
}

func (e *movedEncoder[K, V]) send(m *moved[K, V], key, before, after []byte) error {
	if before == nil && after == nil {
		return nil
	}
	e.buf = appendChanged(e.buf[:0], before, after)
	return e.ctx.ForwardTo(e.child, processor.Record{Key: key, Value: e.buf, Timestamp: m.timestamp, Headers: m.headers})
}

// changeDecoder makes changes of what came through a repartition topic.
func changeDecoder[K, V any](keys serde.Serde[K], values serde.Serde[V]) func() func(*processor.Record) (*Change[K, V], error) {
	return func() func(*processor.Record) (*Change[K, V], error) {
		var c Change[K, V]
		return func(r *processor.Record) (_ *Change[K, V], err error) {
			c = Change[K, V]{Timestamp: r.Timestamp, Headers: r.Headers, NoNew: true, NoOld: true}
			if c.Key, err = keys.Decode(r.Key); err != nil {
				return nil, deserialization("undecodable key", err)
			}
			c.key.is(r.Key, keys)
			before, after, err := splitChanged(r.Value)
			if err != nil {
				return nil, deserialization("undecodable value", err)
			}
			if before != nil {
				if c.Old, err = values.Decode(before); err != nil {
					return nil, deserialization("undecodable value", err)
				}
				c.NoOld = false
			}
			if after != nil {
				if c.New, err = values.Decode(after); err != nil {
					return nil, deserialization("undecodable value", err)
				}
				c.NoNew = false
				c.value.is(after, values)
			}
			return &c, nil
		}
	}
}
