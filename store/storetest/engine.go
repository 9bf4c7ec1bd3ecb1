package storetest

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/engine"
)

// Engine runs the contract of engine.Engine. open returns an empty engine that the test may close.
func Engine(t *testing.T, open func(t *testing.T) engine.Engine) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, engine.Engine){
		"spaces":            engineSpaces,
		"moves":             engineMoves,
		"snapshots":         engineSnapshots,
		"ranges":            engineRanges,
		"drop":              engineDrop,
		"expire":            engineExpire,
		"size":              engineSize,
		"close":             engineClose,
		"many writes":       engineLargeMove,
		"readers and moves": engineConcurrent,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := open(t)
			test(t, e)
			if err := e.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
}

// EngineMove is a move of one store of plain strings: a value of "-" deletes.
func EngineMove(space engine.SpaceID, id engine.StoreID, record string, kv map[string]string) engine.Move {
	return engine.Move{Space: space, Writes: EngineWrites(id, kv), Record: []byte(record)}
}

// EngineWrites yields kv in the order of its keys: a value of "-" deletes.
func EngineWrites(id engine.StoreID, kv map[string]string) iter.Seq[engine.Write] {
	return func(yield func(engine.Write) bool) {
		for _, k := range slices.Sorted(maps.Keys(kv)) {
			w := engine.Write{Store: id, Key: []byte(k), Value: []byte(kv[k])}
			if kv[k] == "-" {
				w.Value = nil
			}
			if !yield(w) {
				return
			}
		}
	}
}

// EngineContent reads everything of a store, and the record, as the engine has it now.
func EngineContent(tb testing.TB, e engine.Engine, space engine.SpaceID, id engine.StoreID) (map[string]string, string) {
	tb.Helper()
	snap, err := e.Snapshot(space)
	if err != nil {
		tb.Fatal(err)
	}
	defer snap.Release()
	record := ""
	for _, sp := range e.Spaces() {
		if sp.ID == space {
			record = string(sp.Record)
		}
	}
	return content(tb, snap, engine.Range{Store: id}), record
}

func content(tb testing.TB, snap engine.Snapshot, r engine.Range) map[string]string {
	tb.Helper()
	out := make(map[string]string)
	for _, row := range engineRows(tb, snap, r) {
		out[row[0]] = row[1]
	}
	return out
}

func engineRows(tb testing.TB, snap engine.Snapshot, r engine.Range) [][2]string {
	tb.Helper()
	it, err := snap.Iterate(r)
	if err != nil {
		tb.Fatal(err)
	}
	defer it.Close()
	var out [][2]string
	for it.Next() {
		out = append(out, [2]string{string(it.Key()), string(it.Value())})
	}
	if err := it.Err(); err != nil {
		tb.Fatal(err)
	}
	return out
}

func openSpace(tb testing.TB, e engine.Engine, task int32, names ...store.Name) engine.Space {
	tb.Helper()
	var declared []engine.Declared
	for _, n := range names {
		declared = append(declared, engine.Declared{Name: n, Kind: store.KindKeyValue})
	}
	sp, err := e.Open(tb.Context(), store.TaskID{Partition: store.Partition(task)}, declared)
	if err != nil {
		tb.Fatal(err)
	}
	return sp
}

func move(tb testing.TB, e engine.Engine, m ...engine.Move) {
	tb.Helper()
	if err := e.Move(tb.Context(), m...); err != nil {
		tb.Fatal(err)
	}
}

// engineSpaces: ids are given out once; what is not declared goes; what is fresh or of another kind begins empty.
func engineSpaces(t *testing.T, e engine.Engine) {
	if n := len(e.Spaces()); n != 0 {
		t.Fatalf("%d key spaces in an empty engine", n)
	}
	a, b := openSpace(t, e, 0, "x", "y"), openSpace(t, e, 1, "x")
	if a.ID == b.ID || a.Stores["x"].ID == a.Stores["y"].ID {
		t.Fatalf("ids twice: %+v %+v", a, b)
	}
	if again := openSpace(t, e, 0, "x", "y"); !cmp.Equal(a, again) {
		t.Errorf("opened again: %s", cmp.Diff(a, again))
	}
	x, y := a.Stores["x"].ID, a.Stores["y"].ID
	move(t, e, EngineMove(a.ID, x, "r1", map[string]string{"k": "x"}), EngineMove(b.ID, b.Stores["x"].ID, "rb", map[string]string{"k": "b"}))
	move(t, e, EngineMove(a.ID, y, "r2", map[string]string{"k": "y"}))

	a = openSpace(t, e, 0, "x")
	if got, record := EngineContent(t, e, a.ID, a.Stores["x"].ID); got["k"] != "x" || record != "r2" {
		t.Errorf("x: %v %q", got, record)
	}
	a = openSpace(t, e, 0, "x", "y")
	if id := a.Stores["y"].ID; id == y || id == x {
		t.Errorf("the id %d of a dropped store is used again", id)
	}
	if got, _ := EngineContent(t, e, a.ID, a.Stores["y"].ID); len(got) != 0 {
		t.Errorf("a store that was dropped is back with %v", got)
	}
	fresh, err := e.Open(t.Context(), a.Task, []engine.Declared{{Name: "x", Kind: store.KindKeyValue, Fresh: true}, {Name: "y", Kind: store.KindTimestampedKeyValue}})
	if err != nil {
		t.Fatal(err)
	}
	if fresh.Stores["x"].ID == x || fresh.Stores["y"].ID == a.Stores["y"].ID || fresh.ID != a.ID {
		t.Errorf("fresh: %+v, before: %+v", fresh, a)
	}
	if got, _ := EngineContent(t, e, a.ID, fresh.Stores["x"].ID); len(got) != 0 {
		t.Errorf("a fresh store holds %v", got)
	}
	if got, _ := EngineContent(t, e, b.ID, b.Stores["x"].ID); got["k"] != "b" {
		t.Errorf("another task's store: %v", got)
	}
	if _, err := e.Reclaim(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, _ := EngineContent(t, e, b.ID, b.Stores["x"].ID); got["k"] != "b" {
		t.Errorf("another task's store after Reclaim: %v", got)
	}
}

func engineMoves(t *testing.T, e engine.Engine) {
	a, b := openSpace(t, e, 0, "x"), openSpace(t, e, 1, "x")
	x, y := a.Stores["x"].ID, b.Stores["x"].ID
	move(t, e, EngineMove(a.ID, x, "1", map[string]string{"a": "1", "b": "", "c": "1"}))
	move(t, e, EngineMove(a.ID, x, "2", map[string]string{"a": "2", "c": "-", "d": "-"}), EngineMove(b.ID, y, "3", map[string]string{"z": "3"}))
	got, record := EngineContent(t, e, a.ID, x)
	if d := cmp.Diff(map[string]string{"a": "2", "b": ""}, got); d != "" || record != "2" {
		t.Errorf("record %q (-want +got)\n%s", record, d)
	}
	move(t, e, EngineMove(a.ID, x, "only a record", nil))
	if got, record := EngineContent(t, e, a.ID, x); len(got) != 2 || record != "only a record" {
		t.Errorf("after a move without writes: %v %q", got, record)
	}
	// One of a set of moves cannot be made: none is.
	err := e.Move(t.Context(), EngineMove(a.ID, x, "4", map[string]string{"a": "4"}), EngineMove(999, 1, "4", map[string]string{"a": "4"}))
	if !errors.Is(err, engine.ErrDropped) {
		t.Errorf("move to a key space that is not there: %v", err)
	}
	if got, record := EngineContent(t, e, a.ID, x); got["a"] != "2" || record != "only a record" {
		t.Errorf("half of a set of moves was made: %v %q", got, record)
	}
}

func engineSnapshots(t *testing.T, e engine.Engine) {
	a := openSpace(t, e, 0, "x")
	x := a.Stores["x"].ID
	move(t, e, EngineMove(a.ID, x, "1", map[string]string{"a": "1", "b": "1"}))
	old, err := e.Snapshot(a.ID)
	if err != nil {
		t.Fatal(err)
	}
	it, err := old.Iterate(engine.Range{Store: x})
	if err != nil || !it.Next() {
		t.Fatalf("iterate: %v", err)
	}
	move(t, e, EngineMove(a.ID, x, "2", map[string]string{"a": "-", "b": "2", "c": "2"}))
	if v, err := old.Get(x, 0, []byte("a"), []byte("got ")); err != nil || string(v) != "got 1" {
		t.Errorf("get in an old snapshot: %q, %v", v, err)
	}
	if _, err := old.Get(x, 0, []byte("c"), nil); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("get of what came later: %v", err)
	}
	old.Release()
	old.Release()
	if _, err := old.Get(x, 0, []byte("a"), nil); !errors.Is(err, store.ErrClosed) {
		t.Errorf("get after Release: %v", err)
	}
	if _, err := old.Iterate(engine.Range{Store: x}); !errors.Is(err, store.ErrClosed) {
		t.Errorf("iterate after Release: %v", err)
	}
	if string(it.Key()) != "a" || !it.Next() || string(it.Key()) != "b" || string(it.Value()) != "1" || it.Next() || it.Err() != nil {
		t.Errorf("an iterator does not outlive its snapshot: %q %q %v", it.Key(), it.Value(), it.Err())
	}
	it.Close()
	it.Close()
}

func engineRanges(t *testing.T, e engine.Engine) {
	a, b := openSpace(t, e, 0, "x", "y"), openSpace(t, e, 1, "x")
	x, y := a.Stores["x"].ID, a.Stores["y"].ID
	keys := []string{"\x00", "a", "b", "b\x00", "\xff", "\xff\xff"}
	kv := make(map[string]string)
	for _, k := range keys {
		kv[k] = "v"
	}
	segments := func(id engine.StoreID) iter.Seq[engine.Write] {
		return func(yield func(engine.Write) bool) {
			for seg := range engine.Segment(3) {
				for w := range EngineWrites(id, kv) {
					w.Segment = seg
					if !yield(w) {
						return
					}
				}
			}
		}
	}
	for _, id := range []engine.StoreID{x, y} {
		move(t, e, engine.Move{Space: a.ID, Writes: segments(id), Record: []byte("r")})
	}
	move(t, e, engine.Move{Space: b.ID, Writes: segments(b.Stores["x"].ID), Record: []byte("r")})
	snap, err := e.Snapshot(a.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Release()
	for _, c := range []struct {
		from, to []byte
		want     []string
	}{
		{nil, nil, keys},
		{[]byte("a"), nil, keys[1:]},
		{nil, []byte("b"), keys[:2]},
		{[]byte("a"), []byte("b\x00"), keys[1:3]},
		{[]byte("c"), []byte("d"), nil},
		{[]byte("b"), []byte("a"), nil},
		{nil, []byte("\xff\xff\xff"), keys},
		{[]byte("\xff\xff\xff"), nil, nil},
	} {
		for _, reverse := range []bool{false, true} {
			want := slices.Clone(c.want)
			if reverse {
				slices.Reverse(want)
			}
			var got []string
			for _, row := range engineRows(t, snap, engine.Range{Store: x, Segment: 1, From: c.from, To: c.to, Reverse: reverse}) {
				got = append(got, row[0])
			}
			if !slices.Equal(want, got) {
				t.Errorf("%q to %q, reverse %t: want %q, got %q", c.from, c.to, reverse, want, got)
			}
		}
	}
}

func engineClose(t *testing.T, e engine.Engine) {
	a := openSpace(t, e, 0, "x")
	x := a.Stores["x"].ID
	move(t, e, EngineMove(a.ID, x, "1", map[string]string{"k": "a"}))
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	_, opened := e.Open(t.Context(), store.TaskID{}, nil)
	_, snap := e.Snapshot(a.ID)
	moved := e.Move(t.Context(), EngineMove(a.ID, x, "1", nil))
	for i, err := range []error{opened, snap, moved, e.Expire(a.ID, x, 1)} {
		if !errors.Is(err, store.ErrClosed) {
			t.Errorf("call %d after Close: %v", i, err)
		}
	}
}

// engineLargeMove is SE-04: a move of more than fits one transaction of the engine is one move.
func engineLargeMove(t *testing.T, e engine.Engine) {
	a := openSpace(t, e, 0, "x")
	x := a.Stores["x"].ID
	const n = 60_000
	writes := func(value string) iter.Seq[engine.Write] {
		return func(yield func(engine.Write) bool) {
			for i := range n {
				if !yield(engine.Write{Store: x, Key: fmt.Appendf(nil, "%08d", i), Value: []byte(value)}) {
					return
				}
			}
		}
	}
	move(t, e, engine.Move{Space: a.ID, Writes: writes("1"), Record: []byte("1")})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			snap, err := e.Snapshot(a.ID)
			if err != nil {
				t.Error(err)
				return
			}
			first, err1 := snap.Get(x, 0, []byte("00000000"), nil)
			last, err2 := snap.Get(x, 0, fmt.Appendf(nil, "%08d", n-1), nil)
			snap.Release()
			if err1 != nil || err2 != nil || string(first) != string(last) {
				t.Errorf("SE-04: a reader sees half a move: %q %v, %q %v", first, err1, last, err2)
				return
			}
		}
	})
	for _, value := range []string{"2", "3", "4"} {
		move(t, e, engine.Move{Space: a.ID, Writes: writes(value), Record: []byte(value)})
	}
	close(stop)
	wg.Wait()
}

// engineConcurrent moves, drops and reads at once; every snapshot must be what one move made.
func engineConcurrent(t *testing.T, e engine.Engine) {
	var wg sync.WaitGroup
	for task := range int32(3) {
		sp := openSpace(t, e, task, "x")
		wg.Go(func() { moveAndCount(t, e, sp) })
		wg.Go(func() { readWholeMoves(t, e, sp) })
	}
	wg.Go(func() { dropOften(t, e) })
	wg.Wait()
}

// moveAndCount makes moves of which the n-th, from 0, sets a and b to n and adds a key.
func moveAndCount(t *testing.T, e engine.Engine, sp engine.Space) {
	for i := range 40 {
		v := fmt.Sprint(i)
		kv := map[string]string{"a": v, "b": v, fmt.Sprint("own", i): v}
		if err := e.Move(t.Context(), EngineMove(sp.ID, sp.Stores["x"].ID, v, kv)); err != nil {
			t.Error(err)
			return
		}
	}
}

// readWholeMoves reads beside moveAndCount.
func readWholeMoves(t *testing.T, e engine.Engine, sp engine.Space) {
	x := sp.Stores["x"].ID
	for range 200 {
		snap, err := e.Snapshot(sp.ID)
		if err != nil {
			t.Error(err)
			return
		}
		got := content(t, snap, engine.Range{Store: x})
		a, err := snap.Get(x, 0, []byte("a"), nil)
		snap.Release()
		if errors.Is(err, store.ErrNotFound) && len(got) == 0 {
			continue // before the first move
		}
		var n int
		if _, serr := fmt.Sscan(got["a"], &n); serr != nil || err != nil || string(a) != got["a"] || got["b"] != got["a"] || len(got) != n+3 {
			t.Errorf("a reader sees the state of no move: a=%s b=%s and %d keys, %v %v", got["a"], got["b"], len(got), err, serr)
			return
		}
	}
}
