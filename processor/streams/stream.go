package streams

import "github.com/statemesh/statemesh/serde"

// Stream is a stream of records (upstream's KStream): each one a fact of its own.
type Stream[K, V any] struct {
	b *Builder
	// node is the operator that makes the stream; out its far side.
	node *graphNode
	out  *outlet[Record[K, V]]
	// keys and values are how the stream is written, zero while nobody has said.
	keys   serde.Serde[K]
	values serde.Serde[V]
	// rekeyed: keys may have changed since the records were partitioned, so what needs all records of a key in one task repartitions.
	rekeyed bool
}

// derive adds an operator behind a stream. The new stream has no serdes but those its types have by themselves.
func derive[K, V, L, W any](s *Stream[K, V], name string, op operator[Record[K, V], Record[L, W]]) *Stream[L, W] {
	out := newOutlet[Record[L, W]]()
	n := s.b.put(&graphNode{
		name: name, parents: []*graphNode{s.node}, add: addProcessor(name, supplier(op, out, nil), nil, nil),
	})
	n.out = out
	return &Stream[L, W]{b: s.b, node: n, out: out, keys: natural[L](), values: natural[W](), rekeyed: s.rekeyed}
}

// same is derive for operators that keep types, and so serdes.
func (s *Stream[K, V]) same(name string, op operator[Record[K, V], Record[K, V]]) *Stream[K, V] {
	d := derive(s, name, op)
	d.keys, d.values = s.keys, s.values
	return d
}

// WithKeys says how keys are written from here on, where they are grouped, repartitioned, joined or sent to a topic.
func (s *Stream[K, V]) WithKeys(keys serde.Serde[K]) *Stream[K, V] {
	d := *s
	d.keys = keys
	return &d
}

// WithValues says how values are written from here on.
func (s *Stream[K, V]) WithValues(values serde.Serde[V]) *Stream[K, V] {
	d := *s
	d.values = values
	return &d
}

// Filter keeps the records for which keep is true (upstream's KStream.filter).
func (s *Stream[K, V]) Filter(keep func(k K, v V) bool, opts ...Option) *Stream[K, V] {
	o := s.b.read("Filter", opts)
	nilable := nullsOf[V]().nilable
	return s.same(s.b.nameOr(o.named, "KSTREAM-FILTER-"), func(sc *scope[Record[K, V]]) (func(*Record[K, V]) error, error) {
		return func(r *Record[K, V]) error {
			if (!r.NoValue || nilable) && !keep(r.Key, r.Value) {
				return nil
			}
			return sc.emit(r)
		}, nil
	})
}

// MapValues makes another value of each (upstream's KStream.mapValues). The key stays, and with it the partition.
func MapValues[K, V, W any](s *Stream[K, V], f func(v V) W, opts ...Option) *Stream[K, W] {
	o := s.b.read("MapValues", opts)
	return mapValues(s, s.b.nameOr(o.named, "KSTREAM-MAPVALUES-"), func(r *Record[K, V]) W { return f(r.Value) })
}

// SelectKey gives each record another key (upstream's KStream.selectKey). What needs all records of a key in one task repartitions.
func SelectKey[K, V, L any](s *Stream[K, V], f func(k K, v V) L, opts ...Option) *Stream[L, V] {
	o := s.b.read("SelectKey", opts)
	d := derive(s, s.b.nameOr(o.named, "KSTREAM-KEY-SELECT-"), selectKey[K, V](f))
	d.values = s.values
	return d.changesKeys()
}

func selectKey[K, V, L any](f func(k K, v V) L) operator[Record[K, V], Record[L, V]] {
	from, to := nullsOf[V](), nullsOf[L]()
	return func(sc *scope[Record[L, V]]) (func(*Record[K, V]) error, error) {
		var out Record[L, V]
		return func(r *Record[K, V]) error {
			withValueOf(&out, r)
			if r.NoValue && !from.nilable {
				sc.Drop("null value")
				return nil
			}
			setKey(&out, f(r.Key, r.Value), to)
			return sc.emit(&out)
		}, nil
	}
}
