package streams

import (
	"github.com/statemesh/statemesh/processor"
)

// JoinTables joins two tables by key: a key has a value when both have one (upstream's KTable.join). The tables' topics must have equally
// many partitions. join is given the key and both values; nil that it returns is none. Options: As, which gives the result a store,
// Values, History, and those of stores.
func JoinTables[K, L, R, W any](l *Table[K, L], r *Table[K, R], join func(k K, l L, r R) W, opts ...Option) *Table[K, W] {
	j := &tableJoin[K, L, R, W]{left: l, right: r, needLeft: true, needRight: true}
	j.join = func(k K, l Maybe[L], r Maybe[R]) W { return join(k, l.Value, r.Value) }
	return j.build("JoinTables", opts)
}

// LeftJoinTables joins two tables by key: a key has a value when the left one has (upstream's KTable.leftJoin). See [JoinTables].
func LeftJoinTables[K, L, R, W any](l *Table[K, L], r *Table[K, R], join func(k K, l L, r Maybe[R]) W, opts ...Option) *Table[K, W] {
	j := &tableJoin[K, L, R, W]{left: l, right: r, needLeft: true}
	j.join = func(k K, l Maybe[L], r Maybe[R]) W { return join(k, l.Value, r) }
	l.wantOld()
	return j.build("LeftJoinTables", opts)
}

// OuterJoinTables joins two tables by key: a key has a value when either has one (upstream's KTable.outerJoin). See [JoinTables].
func OuterJoinTables[K, L, R, W any](
	l *Table[K, L], r *Table[K, R], join func(k K, l Maybe[L], r Maybe[R]) W, opts ...Option,
) *Table[K, W] {
	l.wantOld()
	r.wantOld()
	return (&tableJoin[K, L, R, W]{left: l, right: r, join: join}).build("OuterJoinTables", opts)
}

// tableJoin is a join of two tables. Each side has a node that hears the changes of its table and reads the other one; a third node brings
// the results together.
type tableJoin[K, L, R, W any] struct {
	left                *Table[K, L]
	right               *Table[K, R]
	needLeft, needRight bool
	join                func(k K, l Maybe[L], r Maybe[R]) W
	// old values are wanted of the result.
	old  bool
	null nulls[W]
}

func (j *tableJoin[K, L, R, W]) build(operation string, opts []Option) *Table[K, W] {
	b := j.left.b
	o := b.read(operation, opts, "As", "Values", "History", "CachingDisabled", "LoggingDisabled", "LoggingConfig", "InMemory")
	merge := b.nameOr(o.named, "KTABLE-MERGE-")
	this := b.suffixed(o.named, "-join-this", "KTABLE-JOINTHIS-")
	other := b.suffixed(o.named, "-join-other", "KTABLE-JOINOTHER-")
	o.refuseHistory(b, merge)
	j.null = nullsOf[W]()
	j.left.view.require()
	j.right.view.require()

	left := &joinSide[K, L, R, W]{
		other: j.right.view, needOther: j.needRight, versioned: j.left.view.versioned, old: &j.old, result: j.result,
	}
	right := &joinSide[K, R, L, W]{
		other: j.left.view, needOther: j.needLeft, versioned: j.right.view.versioned, old: &j.old,
		result: func(k K, r Maybe[R], l Maybe[L]) (W, bool) { return j.result(k, l, r) },
	}
	leftNode := addSide(b, this, j.left.node, left)
	rightNode := addSide(b, other, j.right.node, right)

	values := valuesOf(b, merge, o, natural[W]())
	t := &Table[K, W]{b: b, out: newOutlet[Change[K, W]](), keys: j.left.keys, values: values, view: j.view()}
	var k *kept[K, W]
	if o.store != "" {
		k = keep(b, merge, o.store, t.keys, values, o)
		t.view = k.view()
	}
	t.wantOld = func() {
		j.left.wantOld()
		j.right.wantOld()
		j.old = true
		if k != nil {
			k.old = true
		}
	}
	t.node = b.put(&graphNode{name: merge, parents: []*graphNode{leftNode, rightNode}, add: func(top *processor.Topology, parents ...string) {
		addProcessor(merge, supplier(merged(k), t.out, nil), k.specs(), nil)(top, parents...)
	}})
	return t
}

// result is the value of a key for both sides' values, if it has one.
func (j *tableJoin[K, L, R, W]) result(k K, l Maybe[L], r Maybe[R]) (w W, ok bool) {
	if !l.OK && (j.needLeft || !r.OK) || !r.OK && j.needRight {
		return w, false
	}
	w = j.join(k, l, r)
	return w, !j.null.null(&w)
}

// view computes the join of both tables as they are. It is never versioned (KIP-914).
func (j *tableJoin[K, L, R, W]) view() view[K, W] {
	left, right := j.left.view, j.right.view
	v := view[K, W]{stores: union(left.stores, right.stores), require: func() {}}
	v.open = func(ctx *processor.Context) (reader[K, W], error) {
		readLeft, err := left.open(ctx)
		if err != nil {
			return nil, err
		}
		readRight, err := right.open(ctx)
		if err != nil {
			return nil, err
		}
		return func(k K, known encoded[K]) (w W, ts int64, ok bool, err error) {
			var l Maybe[L]
			var r Maybe[R]
			var lt, rt int64
			if l.Value, lt, l.OK, err = readLeft(k, known); err != nil {
				return w, 0, false, err
			}
			if r.Value, rt, r.OK, err = readRight(k, known); err != nil {
				return w, 0, false, err
			}
			w, ok = j.result(k, l, r)
			return w, max(lt, rt), ok, nil // one that is not there has time 0
		}, nil
	}
	return v
}

// joinSide is what one side of a join of tables does with the changes of its table.
type joinSide[K, V, O, W any] struct {
	other     view[K, O]
	needOther bool
	versioned bool
	old       *bool
	result    func(k K, v Maybe[V], o Maybe[O]) (W, bool)
}

func addSide[K, V, O, W any](b *Builder, name string, parent *graphNode, j *joinSide[K, V, O, W]) *graphNode {
	s := supplier(j.operator, newOutlet[Change[K, W]](), nil)
	return b.put(&graphNode{name: name, parents: []*graphNode{parent}, add: addProcessor(name, s, nil, j.other.stores)})
}

func (j *joinSide[K, V, O, W]) operator(sc *scope[Change[K, W]]) (func(*Change[K, V]) error, error) {
	read, err := j.other.open(sc.Context)
	if err != nil {
		return nil, err
	}
	var out Change[K, W]
	return func(c *Change[K, V]) error {
		if c.Stale && j.versioned {
			sc.Drop("out of order")
			return nil
		}
		var o Maybe[O]
		var ts int64
		var err error
		if o.Value, ts, o.OK, err = read(c.Key, c.key); err != nil {
			return err
		}
		out = Change[K, W]{Key: c.Key, key: c.key, NoNew: true, NoOld: true, Timestamp: c.Timestamp, Headers: c.Headers}
		if o.OK {
			out.Timestamp = max(out.Timestamp, ts)
		} else if j.needOther || c.NoNew && c.NoOld {
			return nil
		}
		if w, ok := j.result(c.Key, Maybe[V]{c.New, !c.NoNew}, o); ok {
			out.New, out.NoNew = w, false
		}
		if *j.old {
			if w, ok := j.result(c.Key, Maybe[V]{c.Old, !c.NoOld}, o); ok {
				out.Old, out.NoOld = w, false
			}
		}
		return sc.emit(&out)
	}, nil
}

// merged hands on the results of both sides, through the store if there is one.
func merged[K, W any](k *kept[K, W]) operator[Change[K, W], Change[K, W]] {
	return func(sc *scope[Change[K, W]]) (func(*Change[K, W]) error, error) {
		if k == nil {
			return sc.emit, nil
		}
		w, err := k.keeper(sc)
		if err != nil {
			return nil, err
		}
		var own Change[K, W]
		return func(c *Change[K, W]) error {
			kb, err := w.keys.encode(c.Key, c.key)
			if err != nil {
				return err
			}
			own = *c // which is not ours to change
			return w.put(kb, &own)
		}, nil
	}
}
