package streams

import "iter"

// FilterNot keeps the records for which drop is false (upstream's KStream.filterNot).
func (s *Stream[K, V]) FilterNot(drop func(k K, v V) bool, opts ...Option) *Stream[K, V] {
	o := s.b.read("FilterNot", opts)
	nilable := nullsOf[V]().nilable
	return s.same(s.b.nameOr(o.named, "KSTREAM-FILTER-"), func(sc *scope[Record[K, V]]) (func(*Record[K, V]) error, error) {
		return func(r *Record[K, V]) error {
			if (!r.NoValue || nilable) && drop(r.Key, r.Value) {
				return nil
			}
			return sc.emit(r)
		}, nil
	})
}

// Map makes another record of each, with the same time and headers (upstream's KStream.map). What needs all records of a key in one
// task repartitions; where the key stays, MapValuesWithKey does without.
func Map[K, V, L, W any](s *Stream[K, V], f func(k K, v V) (L, W), opts ...Option) *Stream[L, W] {
	o := s.b.read("Map", opts)
	from, keys, values := nullsOf[V](), nullsOf[L](), nullsOf[W]()
	return derive(s, s.b.nameOr(o.named, "KSTREAM-MAP-"), func(sc *scope[Record[L, W]]) (func(*Record[K, V]) error, error) {
		var out Record[L, W]
		return func(r *Record[K, V]) error {
			if r.NoValue && !from.nilable {
				sc.Drop("null value")
				return nil
			}
			out.Timestamp, out.Headers = r.Timestamp, r.Headers
			k, v := f(r.Key, r.Value)
			setKey(&out, k, keys)
			setValue(&out, v, values)
			return sc.emit(&out)
		}, nil
	}).changesKeys()
}

// MapValuesWithKey is MapValues of a function that sees the key too.
func MapValuesWithKey[K, V, W any](s *Stream[K, V], f func(k K, v V) W, opts ...Option) *Stream[K, W] {
	o := s.b.read("MapValuesWithKey", opts)
	return mapValues(s, s.b.nameOr(o.named, "KSTREAM-MAPVALUES-"), func(r *Record[K, V]) W { return f(r.Key, r.Value) })
}

// mapValues makes another value of each record that has one. The key stays, and with it the partition.
func mapValues[K, V, W any](s *Stream[K, V], name string, f func(r *Record[K, V]) W) *Stream[K, W] {
	from, to := nullsOf[V](), nullsOf[W]()
	d := derive(s, name, func(sc *scope[Record[K, W]]) (func(*Record[K, V]) error, error) {
		var out Record[K, W]
		return func(r *Record[K, V]) error {
			withKeyOf(&out, r)
			if r.NoValue && !from.nilable {
				noValue(&out)
			} else {
				setValue(&out, f(r), to)
			}
			return sc.emit(&out)
		}, nil
	}).changesValues()
	d.keys = s.keys
	return d
}

// FlatMap makes any number of records of each, with its time and headers (upstream's KStream.flatMap); a nil sequence is none. What needs
// all records of a key in one task repartitions; where the key stays, FlatMapValues does without.
func FlatMap[K, V, L, W any](s *Stream[K, V], f func(k K, v V) iter.Seq2[L, W], opts ...Option) *Stream[L, W] {
	o := s.b.read("FlatMap", opts)
	from, keys, values := nullsOf[V](), nullsOf[L](), nullsOf[W]()
	return derive(s, s.b.nameOr(o.named, "KSTREAM-FLATMAP-"), func(sc *scope[Record[L, W]]) (func(*Record[K, V]) error, error) {
		var runs flatRuns[L, W]
		return func(r *Record[K, V]) error {
			if r.NoValue && !from.nilable {
				sc.Drop("null value")
				return nil
			}
			seq := f(r.Key, r.Value)
			if seq == nil {
				return nil
			}
			run := runs.begin(sc, keys, values)
			run.from = Record[L, W]{Timestamp: r.Timestamp, Headers: r.Headers}
			seq(run.pair)
			return runs.end()
		}, nil
	}).changesKeys()
}

// flatRun hands on what is made of one record.
type flatRun[K, V any] struct {
	// from is what all of them have of it.
	from, out Record[K, V]
	pair      func(k K, v V) bool
	value     func(v V) bool
	err       error
}

// flatRuns are the runs of an operator in one task: one, but for a flush in the middle of it, see scope.emit.
type flatRuns[K, V any] struct {
	runs  []*flatRun[K, V]
	depth int
}

func (f *flatRuns[K, V]) begin(sc *scope[Record[K, V]], keys nulls[K], values nulls[V]) *flatRun[K, V] {
	if f.depth == len(f.runs) {
		r := &flatRun[K, V]{}
		r.value = func(v V) bool {
			if r.err != nil {
				return false // the sequence goes on although it was told to end
			}
			r.out = r.from
			setValue(&r.out, v, values)
			r.err = sc.emit(&r.out)
			return r.err == nil
		}
		r.pair = func(k K, v V) bool {
			setKey(&r.from, k, keys)
			return r.value(v)
		}
		f.runs = append(f.runs, r)
	}
	f.depth++
	r := f.runs[f.depth-1]
	r.err = nil
	return r
}

func (f *flatRuns[K, V]) end() error {
	f.depth--
	return f.runs[f.depth].err
}

// FlatMapValues makes any number of records of each, with other values (upstream's KStream.flatMapValues): strings.FieldsSeq makes words of
// lines. A nil sequence is none. The key stays, and with it the partition.
func FlatMapValues[K, V, W any](s *Stream[K, V], f func(v V) iter.Seq[W], opts ...Option) *Stream[K, W] {
	o := s.b.read("FlatMapValues", opts)
	return flatMapValues(s, s.b.nameOr(o.named, "KSTREAM-FLATMAPVALUES-"), func(r *Record[K, V]) iter.Seq[W] { return f(r.Value) })
}

// FlatMapValuesWithKey is FlatMapValues of a function that sees the key too.
func FlatMapValuesWithKey[K, V, W any](s *Stream[K, V], f func(k K, v V) iter.Seq[W], opts ...Option) *Stream[K, W] {
	o := s.b.read("FlatMapValuesWithKey", opts)
	return flatMapValues(s, s.b.nameOr(o.named, "KSTREAM-FLATMAPVALUES-"), func(r *Record[K, V]) iter.Seq[W] { return f(r.Key, r.Value) })
}

func flatMapValues[K, V, W any](s *Stream[K, V], name string, f func(r *Record[K, V]) iter.Seq[W]) *Stream[K, W] {
	from, keys, values := nullsOf[V](), nullsOf[K](), nullsOf[W]()
	d := derive(s, name, func(sc *scope[Record[K, W]]) (func(*Record[K, V]) error, error) {
		var (
			runs flatRuns[K, W]
			none Record[K, W]
		)
		return func(r *Record[K, V]) error {
			if r.NoValue && !from.nilable {
				withKeyOf(&none, r)
				noValue(&none)
				return sc.emit(&none)
			}
			seq := f(r)
			if seq == nil {
				return nil
			}
			run := runs.begin(sc, keys, values)
			withKeyOf(&run.from, r)
			seq(run.value)
			return runs.end()
		}, nil
	}).changesValues()
	d.keys = s.keys
	return d
}

// Peek calls see with each record and hands it on as it is (upstream's KStream.peek). After a failure see is called again for the records
// since the last commit.
func (s *Stream[K, V]) Peek(see func(k K, v V), opts ...Option) *Stream[K, V] {
	o := s.b.read("Peek", opts)
	nilable := nullsOf[V]().nilable
	return s.same(s.b.nameOr(o.named, "KSTREAM-PEEK-"), func(sc *scope[Record[K, V]]) (func(*Record[K, V]) error, error) {
		return func(r *Record[K, V]) error {
			if !r.NoValue || nilable {
				see(r.Key, r.Value)
			}
			return sc.emit(r)
		}, nil
	})
}

// ForEach ends the stream with a call for each record (upstream's KStream.foreach). What do does outside is no part of any transaction: after
// a failure it is done again for the records since the last commit.
func (s *Stream[K, V]) ForEach(do func(k K, v V), opts ...Option) {
	o := s.b.read("ForEach", opts)
	nilable := nullsOf[V]().nilable
	s.same(s.b.nameOr(o.named, "KSTREAM-FOREACH-"), func(*scope[Record[K, V]]) (func(*Record[K, V]) error, error) {
		return func(r *Record[K, V]) error {
			if !r.NoValue || nilable {
				do(r.Key, r.Value)
			}
			return nil
		}, nil
	})
}

// Merge is the stream of the records of both, without an order between them (upstream's KStream.merge). It is written as s is, or as other
// is where s does not know.
func (s *Stream[K, V]) Merge(other *Stream[K, V], opts ...Option) *Stream[K, V] {
	o := s.b.read("Merge", opts)
	name := s.b.nameOr(o.named, "KSTREAM-MERGE-")
	if s.b != other.b {
		s.b.fail(name, "merges a stream of another builder")
		return s
	}
	d := s.same(name, func(sc *scope[Record[K, V]]) (func(*Record[K, V]) error, error) { return sc.emit, nil })
	if other.node != s.node {
		d.node.parents = append(d.node.parents, other.node)
	}
	d.node.merges = true
	d.rekeyed = s.rekeyed || other.rekeyed
	if d.keys.Err() != nil {
		d.keys = other.keys
	}
	if d.values.Err() != nil {
		d.values = other.values
	}
	return d
}

// changesKeys notes that the operator of the stream makes other keys.
func (s *Stream[K, V]) changesKeys() *Stream[K, V] {
	s.rekeyed, s.node.rekeys = true, true
	return s
}

// changesValues notes that the operator of the stream makes other values.
func (s *Stream[K, V]) changesValues() *Stream[K, V] {
	s.node.revalues = true
	return s
}
