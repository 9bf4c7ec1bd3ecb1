package streams

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// streamSide is what one side of a join of streams does with a record: look for those of the other side, and, in an outer join, wait for
// those that may still come (upstream's KStreamKStreamJoin).
type streamSide[K, V, O, W any] struct {
	side joinedSide[K, V, O]
	// before and after are those of this side, in milliseconds.
	before, after, grace int64
	// outer: a record that meets none gives a result, too.
	outer  bool
	which  whichSide
	values serde.Serde[V]
	join   func(k K, v Maybe[V], o Maybe[O]) W
	// waits makes what holds unmatched records in a task; nil for an inner join.
	waits func(sc *scope[Record[K, W]]) (*unmatched[K, W], error)
}

func (j *streamJoin[K, L, R, W]) left(others store.Name) *streamSide[K, L, R, W] {
	s := &streamSide[K, L, R, W]{
		side:   joinedSide[K, L, R]{store: others, keys: j.keys, others: j.rights},
		before: j.windows.Before.Milliseconds(), after: j.windows.After.Milliseconds(), grace: j.windows.Grace.Milliseconds(),
		outer: j.leftOuter, which: leftSide, values: j.lefts, join: j.join,
	}
	if j.unmatched != nil {
		s.waits = j.waits
	}
	return s
}

func (j *streamJoin[K, L, R, W]) right(others store.Name) *streamSide[K, R, L, W] {
	s := &streamSide[K, R, L, W]{
		side:   joinedSide[K, R, L]{store: others, keys: j.keys, others: j.lefts},
		before: j.windows.After.Milliseconds(), after: j.windows.Before.Milliseconds(), grace: j.windows.Grace.Milliseconds(),
		outer: j.rightOuter, which: rightSide, values: j.rights,
		join: func(k K, r Maybe[R], l Maybe[L]) W { return j.join(k, l, r) },
	}
	if j.unmatched != nil {
		s.waits = j.waits
	}
	return s
}

func (j *streamSide[K, V, O, W]) operator(sc *scope[Record[K, W]]) (func(*Record[K, V]) error, error) {
	w, err := sc.WindowStore(j.side.store)
	if err != nil {
		return nil, err
	}
	var u *unmatched[K, W]
	if j.waits != nil {
		if u, err = j.waits(sc); err != nil {
			return nil, err
		}
	}
	kc, vc, null := coder[K]{serde: j.side.keys}, coder[V]{serde: j.values}, nullsOf[W]()
	var out Record[K, W]
	give := func(r *Record[K, V], o Maybe[O], at int64) error {
		withKeyOf(&out, r)
		out.Timestamp = max(r.Timestamp, at)
		setValue(&out, j.join(r.Key, Maybe[V]{r.Value, true}, o), null)
		return sc.emit(&out)
	}
	meet := func(r *Record[K, V], kb []byte) (met bool, err error) {
		err = j.side.around(w, kb, r.Timestamp-j.before, later(r.Timestamp, j.after), func(o O, at int64) error {
			met = true
			if err := u.forget(j.which.other(), kb, at); err != nil {
				return err
			}
			return give(r, Maybe[O]{o, true}, at)
		})
		return met, err
	}
	return func(r *Record[K, V]) error {
		u.advance(r.Timestamp)
		if j.outer && r.NoKey && !r.NoValue {
			return give(r, Maybe[O]{}, r.Timestamp)
		}
		kb, err := joinKey(sc.Context, &kc, r)
		if err != nil || kb == nil {
			return err
		}
		if err := u.release(r.Timestamp); err != nil {
			return err
		}
		met, err := meet(r, kb)
		if err != nil || met || !j.outer {
			return err
		}
		if later(r.Timestamp, j.after+j.grace) < u.time.seen.Now() {
			return give(r, Maybe[O]{}, r.Timestamp) // nobody may come any more
		}
		vb, err := vc.encode(r.Value, r.value)
		if err != nil {
			return err
		}
		return u.hold(j.which, kb, vb, r.Timestamp)
	}, nil
}

// whichSide is the byte of a side in rows.
type whichSide byte

const (
	rightSide whichSide = 0
	leftSide  whichSide = 1
)

func (s whichSide) other() whichSide { return 1 - s }

// joinTime is what both sides of an outer join know of time in one task.
type joinTime struct {
	// seen is the time of the records of both sides.
	seen *processor.ObservedTime
	// left and right are at most the times of the oldest records that wait, math.MaxInt64 when none does.
	left, right int64
}

// joinMerge brings the results of both sides together. They find their common time in it.
type joinMerge[K, W any] struct {
	node[Record[K, W], Record[K, W]]

	time joinTime
}

func newJoinMerge[K, W any](out *outlet[Record[K, W]]) processor.Supplier {
	return func() processor.Processor {
		return &joinMerge[K, W]{
			node: node[Record[K, W], Record[K, W]]{operator: pass[Record[K, W]](), outlet: out},
			time: joinTime{left: math.MaxInt64, right: math.MaxInt64},
		}
	}
}

func (m *joinMerge[K, W]) common() *joinTime { return &m.time }

// unmatched holds the records of an outer join that have met none, in one task. Rows are keyed by time, side and key, and hold the list
// of the values, as in upstream's store (TimestampedKeyAndJoinSide, LeftOrRightValue). Nil, in an inner join, holds nothing.
type unmatched[K, W any] struct {
	kv   store.KeyValue
	time *joinTime
	// leftFor and rightFor are for how long records of a side wait: until one of the other side would be too late. Right ones wait only
	// in a full outer join.
	leftFor, rightFor int64
	full              bool
	keys              serde.Serde[K]
	// value makes the result of what was held, of a side.
	value func(k K, s whichSide, data []byte) (W, error)
	emit  func(*Record[K, W]) error
	null  nulls[W]
	lists serde.Serde[[][]byte]
	row   []byte
	item  []byte
	out   Record[K, W]
}

var errUnmatched = errors.New("store of an outer join: a row is not what was written")

// waits opens the store of unmatched records in a task, for one side.
func (j *streamJoin[K, L, R, W]) waits(sc *scope[Record[K, W]]) (*unmatched[K, W], error) {
	kv, err := sc.Store(j.unmatched.Name)
	if err != nil {
		return nil, err
	}
	grace := j.windows.Grace.Milliseconds()
	u := &unmatched[K, W]{
		kv: kv, leftFor: j.windows.After.Milliseconds() + grace, rightFor: j.windows.Before.Milliseconds() + grace,
		full: j.rightOuter, keys: j.keys,
		emit: sc.emit, null: nullsOf[W](), lists: serde.List(serde.Bytes()),
	}
	u.value = func(k K, s whichSide, data []byte) (w W, err error) {
		var l Maybe[L]
		var r Maybe[R]
		if l.OK, r.OK = s == leftSide, s == rightSide; l.OK {
			l.Value, err = j.lefts.Decode(data)
		} else {
			r.Value, err = j.rights.Decode(data)
		}
		if err != nil {
			return w, err
		}
		return j.join(k, l, r), nil
	}
	for _, c := range sc.Children() {
		if m, ok := c.Processor.(interface{ common() *joinTime }); ok {
			u.time = m.common()
		}
	}
	if u.time == nil {
		return nil, errors.New("outer join: both sides end in one node")
	}
	seen, err := sc.ObservedTime(string(j.unmatched.Name))
	if err != nil {
		return nil, err
	}
	return u, u.load(seen)
}

// streamTimeRow is where former versions kept the time, behind all rows.
var streamTimeRow = []byte{0xff}

// rows selects all rows but that one.
var rows = store.Scan{To: []byte{0xfe}}

// advance moves the time on.
func (u *unmatched[K, W]) advance(to int64) {
	if u != nil {
		u.time.seen.Observe(to)
	}
}

// load finds the time and the oldest records that wait, after a restart.
func (u *unmatched[K, W]) load(seen *processor.ObservedTime) error {
	if u.time.seen != nil {
		return nil
	}
	u.time.seen = seen
	got, err := u.kv.Get(streamTimeRow)
	switch {
	case errors.Is(err, store.ErrNotFound):
	case err != nil:
		return err
	case len(got.Data) != 8:
		return errUnmatched
	default:
		u.advance(int64(binary.BigEndian.Uint64(got.Data)))
	}
	it, err := u.kv.Scan(rows)
	if err != nil {
		return err
	}
	defer it.Close()
	for !u.time.knows(u.full) && it.Next() {
		at, s, _, err := parseUnmatched(it.Entry().Key)
		if err != nil {
			return err
		}
		u.time.waits(s, at)
	}
	return it.Err()
}

// waits takes note of a record that waits.
func (t *joinTime) waits(s whichSide, at int64) {
	if s == leftSide {
		t.left = min(t.left, at)
	} else {
		t.right = min(t.right, at)
	}
}

// knows reports whether there are records of each side that may wait.
func (t *joinTime) knows(full bool) bool {
	return t.left != math.MaxInt64 && (!full || t.right != math.MaxInt64)
}

func appendUnmatched(dst []byte, at int64, s whichSide, key []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(at))
	return append(append(dst, byte(s)), key...)
}

func parseUnmatched(row []byte) (at int64, s whichSide, key []byte, err error) {
	if len(row) < 10 || row[8] > 1 {
		return 0, 0, nil, errUnmatched
	}
	return int64(binary.BigEndian.Uint64(row)), whichSide(row[8]), row[9:], nil
}

// hold keeps a record that has met none.
func (u *unmatched[K, W]) hold(s whichSide, key, value []byte, at int64) error {
	u.row = appendUnmatched(u.row[:0], at, s, key)
	var list [][]byte
	got, err := u.kv.Get(u.row)
	switch {
	case err == nil:
		if list, err = u.lists.Decode(got.Data); err != nil {
			return err
		}
	case !errors.Is(err, store.ErrNotFound):
		return err
	}
	u.item = append(append(u.item[:0], byte(s)), value...)
	data, err := u.lists.Encode(append(list, u.item))
	if err != nil {
		return err
	}
	u.time.waits(s, at)
	return u.kv.Put(u.row, store.Value{Data: data})
}

// forget lets go of the records of a side, key and time: they have met one.
func (u *unmatched[K, W]) forget(s whichSide, key []byte, at int64) error {
	if u == nil || s == leftSide && at < u.time.left || s == rightSide && at < u.time.right {
		return nil
	}
	u.row = appendUnmatched(u.row[:0], at, s, key)
	if _, err := u.kv.Get(u.row); err != nil {
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		return err
	}
	return u.kv.Put(u.row, store.Value{})
}

// release gives the results of records that nobody can meet any more, when time has moved on to that of the record in hand. It begins at the
// oldest row of the sides that have such records, and goes on until it has found one that waits of each of them.
func (u *unmatched[K, W]) release(now int64) (err error) {
	if u == nil || now != u.time.seen.Now() {
		return nil
	}
	t, from := u.time, int64(math.MaxInt64)
	leftOver, rightOver := later(t.left, u.leftFor) < now, later(t.right, u.rightFor) < now
	if !leftOver && !rightOver {
		return nil
	}
	left, right := t.left, t.right
	defer func() {
		if err != nil {
			t.left, t.right = min(left, t.left), min(right, t.right) // not all rows were seen
		}
	}()
	if leftOver {
		from, t.left = left, math.MaxInt64
	}
	if rightOver {
		from, t.right = min(from, right), math.MaxInt64
	}
	it, err := u.kv.Scan(store.Scan{From: binary.BigEndian.AppendUint64(nil, uint64(from)), To: rows.To})
	if err != nil {
		return err
	}
	defer it.Close()
	for (leftOver && t.left == math.MaxInt64 || rightOver && t.right == math.MaxInt64) && it.Next() {
		e := it.Entry()
		at, s, key, err := parseUnmatched(e.Key)
		if err != nil {
			return err
		}
		wait := u.rightFor
		if s == leftSide {
			wait = u.leftFor
		}
		if later(at, wait) >= now {
			t.waits(s, at)
			continue
		}
		if err := u.kv.Put(e.Key, store.Value{}); err != nil { // first: see waitingRows.release
			return err
		}
		if err := u.give(at, s, key, e.Data); err != nil {
			return err
		}
	}
	return it.Err()
}

// give hands on the results of a row.
func (u *unmatched[K, W]) give(at int64, s whichSide, key, data []byte) error {
	list, err := u.lists.Decode(data)
	if err != nil {
		return err
	}
	for _, item := range list {
		if len(item) == 0 || item[0] != byte(s) {
			return errUnmatched
		}
		u.out = Record[K, W]{Timestamp: at}
		if u.out.Key, err = u.keys.Decode(key); err != nil {
			return err
		}
		u.out.key.is(key, u.keys)
		w, err := u.value(u.out.Key, s, item[1:])
		if err != nil {
			return err
		}
		setValue(&u.out, w, u.null)
		if err := u.emit(&u.out); err != nil {
			return err
		}
	}
	return nil
}
