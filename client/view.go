package client

import (
	"context"
	"fmt"
	"iter"

	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// View is a store with the types of its keys and values. Safe for concurrent use.
type View[K, V any] struct {
	c      *Client
	name   store.Name
	keys   serde.Serde[K]
	values serde.Serde[V]
}

// NewView returns the store name of c's application, seen through serdes. They must be those of the producers: nothing is
// checked here, and a key that is encoded otherwise is simply not found.
func NewView[K, V any](c *Client, name store.Name, keys serde.Serde[K], values serde.Serde[V]) *View[K, V] {
	return &View[K, V]{c: c, name: name, keys: keys, values: values}
}

// Item is one row of a view.
type Item[K, V any] struct {
	Key   K
	Value V
	// Span is the window, the session, or the time the version was valid; zero in a View.
	Span Span
	// Timestamp in Unix milliseconds; -1 when the store keeps none.
	Timestamp int64
	Partition store.Partition
	// Found is false in a BatchGet for a key that has no value.
	Found bool
}

// Get returns the value of key. See [Client.Get] for errors; [serde.ErrDecode] for a value that the serde cannot read.
func (v *View[K, V]) Get(ctx context.Context, key K, opts ...Option) (V, error) {
	val, _, err := v.GetAnswer(ctx, key, opts...)
	return val, err
}

// GetAnswer is Get with what the answer is worth.
func (v *View[K, V]) GetAnswer(ctx context.Context, key K, opts ...Option) (V, Answer, error) {
	var zero V
	k, err := v.key(key)
	if err != nil {
		return zero, Answer{}, err
	}
	r, err := v.c.Get(ctx, v.name, k, opts...)
	if err != nil {
		return zero, r.Answer, err
	}
	val, err := v.value(r.Value)
	return val, r.Answer, err
}

// BatchGet returns one item per key, in order. See [Client.BatchGet].
func (v *View[K, V]) BatchGet(ctx context.Context, keys []K, opts ...Option) ([]Item[K, V], error) {
	raw := make([][]byte, len(keys))
	for i, key := range keys {
		var err error
		if raw[i], err = v.key(key); err != nil {
			return nil, err
		}
	}
	lookups, err := v.c.BatchGet(ctx, v.name, raw, opts...)
	if err != nil {
		return nil, err
	}
	items := make([]Item[K, V], len(lookups))
	for i, l := range lookups {
		items[i] = Item[K, V]{Key: keys[i], Timestamp: -1, Partition: l.Partition, Found: l.Found}
		if !l.Found {
			continue
		}
		items[i].Timestamp = l.Value.Timestamp
		if items[i].Value, err = v.value(l.Value); err != nil {
			return nil, err
		}
	}
	return items, nil
}

// Scan reads items in the order of their key bytes. See [Client.Scan]. A row that the serdes cannot read ends it.
func (v *View[K, V]) Scan(ctx context.Context, q ScanQuery, opts ...Option) iter.Seq2[Item[K, V], error] {
	return v.items(v.c.Scan(ctx, v.name, q, opts...))
}

// items decodes rows.
func (v *View[K, V]) items(rows iter.Seq2[Row, error]) iter.Seq2[Item[K, V], error] {
	return func(yield func(Item[K, V], error) bool) {
		for row, err := range rows {
			item := Item[K, V]{Span: row.Span, Timestamp: row.Value.Timestamp, Partition: row.Partition, Found: true}
			if err == nil {
				if item.Key, err = v.keys.Decode(row.Key); err != nil {
					err = fmt.Errorf("store %s: key: %w", v.name, err)
				}
			}
			if err == nil {
				item.Value, err = v.value(row.Value)
			}
			if err != nil {
				yield(Item[K, V]{}, err)
				return
			}
			if !yield(item, nil) {
				return
			}
		}
	}
}

// Range is Scan from one key to another, both inclusive in the order of their bytes. A key that stands for nil is no bound.
func (v *View[K, V]) Range(ctx context.Context, from, to K, opts ...Option) iter.Seq2[Item[K, V], error] {
	var q ScanQuery
	var err error
	if q.From, err = v.key(from); err == nil {
		q.To, err = v.key(to)
	}
	if err != nil {
		return failed[Item[K, V]](err)
	}
	return v.Scan(ctx, q, opts...)
}

// point asks for one value.
func (v *View[K, V]) point(
	key K, ask func(key []byte) (Result, error),
) (Item[K, V], Answer, error) {
	k, err := v.key(key)
	if err != nil {
		return Item[K, V]{}, Answer{}, err
	}
	r, err := ask(k)
	if err != nil {
		return Item[K, V]{}, r.Answer, err
	}
	item := Item[K, V]{Key: key, Span: r.Span, Timestamp: r.Value.Timestamp, Partition: r.Answer.Partition, Found: true}
	item.Value, err = v.value(r.Value)
	return item, r.Answer, err
}

// failed is a scan that cannot begin.
func failed[T any](err error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var zero T
		yield(zero, err)
	}
}

// oneKey is a key that selects rows: one that stands for nil is refused as empty, and does not select them all.
func (v *View[K, V]) oneKey(key K) ([]byte, error) {
	k, err := v.key(key)
	if k == nil {
		k = []byte{}
	}
	return k, err
}

func (v *View[K, V]) key(key K) ([]byte, error) {
	b, err := v.keys.Encode(key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", &store.InvalidKeyError{Store: v.name, Reason: "cannot be encoded"}, err)
	}
	return b, nil
}

func (v *View[K, V]) value(val store.Value) (V, error) {
	out, err := v.values.Decode(val.Data)
	if err != nil {
		return out, fmt.Errorf("store %s: value: %w", v.name, err)
	}
	return out, nil
}
