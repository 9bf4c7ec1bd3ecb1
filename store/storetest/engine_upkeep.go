package storetest

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/engine"
)

func engineDrop(t *testing.T, e engine.Engine) {
	a, b := openSpace(t, e, 0, "x"), openSpace(t, e, 1, "x")
	x := a.Stores["x"].ID
	move(t, e, EngineMove(a.ID, x, "1", map[string]string{"k": "a"}), EngineMove(b.ID, b.Stores["x"].ID, "1", map[string]string{"k": "b"}))
	if err := e.Drop(t.Context(), a.ID); err != nil {
		t.Fatal(err)
	}
	if err := e.Drop(t.Context(), a.ID); err != nil {
		t.Errorf("dropped twice: %v", err)
	}
	if sp := e.Spaces(); len(sp) != 1 || sp[0].ID != b.ID {
		t.Errorf("after the drop: %+v", sp)
	}
	if _, err := e.Snapshot(a.ID); !errors.Is(err, engine.ErrDropped) {
		t.Errorf("snapshot of a dropped key space: %v", err)
	}
	if pending, err := e.Reclaim(t.Context()); pending || err != nil {
		t.Errorf("reclaim: %t, %v", pending, err)
	}
	again := openSpace(t, e, 0, "x")
	if again.ID == a.ID || again.Record != nil {
		t.Errorf("a key space begins with another's past: %+v, before %+v", again, a)
	}
	if got, _ := EngineContent(t, e, again.ID, again.Stores["x"].ID); len(got) != 0 {
		t.Errorf("a new key space holds %v", got)
	}
	if got, record := EngineContent(t, e, b.ID, b.Stores["x"].ID); got["k"] != "b" || record != "1" {
		t.Errorf("SE-03: another task lost its data: %v %q", got, record)
	}
}

// engineExpire: what is below the floor goes and stays away; segment 0, what is above, and other stores stay.
func engineExpire(t *testing.T, e engine.Engine) {
	a, b := openSpace(t, e, 0, "x", "y"), openSpace(t, e, 1, "x")
	x, y, z := a.Stores["x"].ID, a.Stores["y"].ID, b.Stores["x"].ID
	all := []engine.Segment{0, 1, 2, 3, 7, 1 << 40}
	fill := func() {
		t.Helper()
		for _, id := range []engine.StoreID{x, y} {
			move(t, e, engine.Move{Space: a.ID, Writes: engineSegments(id, all), Record: []byte("r")})
		}
		move(t, e, engine.Move{Space: b.ID, Writes: engineSegments(z, all), Record: []byte("r")})
	}
	expire := func(below engine.Segment) {
		t.Helper()
		if err := e.Expire(a.ID, x, below); err != nil {
			t.Fatal(err)
		}
	}
	reclaim := func() {
		t.Helper()
		if pending, err := e.Reclaim(t.Context()); pending || err != nil {
			t.Fatalf("reclaim: pending %t, %v", pending, err)
		}
	}
	want := func(ofX ...engine.Segment) {
		t.Helper()
		for _, c := range []struct {
			space engine.SpaceID
			store engine.StoreID
			want  []engine.Segment
		}{{a.ID, x, ofX}, {a.ID, y, all}, {b.ID, z, all}} {
			if got := engineFilled(t, e, c.space, c.store, all); !slices.Equal(got, c.want) {
				t.Errorf("segments of store %d of space %d: %v, want %v", c.store, c.space, got, c.want)
			}
		}
	}
	expire(5) // of an empty store
	reclaim()
	fill() // leaves out what is dead
	want(0, 7, 1<<40)

	old, err := e.Snapshot(a.ID)
	if err != nil {
		t.Fatal(err)
	}
	it, err := old.Iterate(engine.Range{Store: x, Segment: 7})
	if err != nil {
		t.Fatal(err)
	}
	expire(8)
	expire(8)
	expire(2) // never lowers
	if v, err := old.Get(x, 7, []byte("k"), nil); err != nil || string(v) != "7" {
		t.Errorf("an open snapshot reads %q, %v of a segment that has just expired", v, err)
	}
	if !it.Next() || string(it.Value()) != "7" || it.Next() || it.Err() != nil {
		t.Errorf("an open iterator in a segment that has just expired: %q, %v", it.Value(), it.Err())
	}
	it.Close()
	old.Release()
	reclaim()
	want(0, 1<<40)
	fill()
	want(0, 1<<40)
	expire(1 << 63)
	expire(^engine.Segment(0))
	reclaim()
	want(0)
	if got, record := EngineContent(t, e, a.ID, x); len(got) != 1 || record != "r" {
		t.Errorf("segment 0 after all: %v, record %q", got, record)
	}
	if err := e.Drop(t.Context(), a.ID); err != nil {
		t.Fatal(err)
	}
	if err := e.Expire(a.ID, x, 9); !errors.Is(err, engine.ErrDropped) {
		t.Errorf("expire in a dropped key space: %v", err)
	}
}

// engineSegments yields one write per segment.
func engineSegments(id engine.StoreID, segments []engine.Segment) iter.Seq[engine.Write] {
	return func(yield func(engine.Write) bool) {
		for _, s := range segments {
			if !yield(engine.Write{Store: id, Segment: s, Key: []byte("k"), Value: fmt.Append(nil, s)}) {
				return
			}
		}
	}
}

// engineFilled lists those of the segments that hold something.
func engineFilled(t *testing.T, e engine.Engine, space engine.SpaceID, id engine.StoreID, segments []engine.Segment) []engine.Segment {
	t.Helper()
	snap, err := e.Snapshot(space)
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Release()
	var out []engine.Segment
	for _, s := range segments {
		rows := engineRows(t, snap, engine.Range{Store: id, Segment: s})
		if _, err := snap.Get(id, s, []byte("k"), nil); (err == nil) != (len(rows) == 1) {
			t.Errorf("segment %d: %d rows, but get: %v", s, len(rows), err)
		}
		if len(rows) > 0 {
			out = append(out, s)
		}
	}
	return out
}

// dropOften is SE-03: dropping one task's key space disturbs no other's moves.
func dropOften(t *testing.T, e engine.Engine) {
	for i := range 10 {
		sp, err := e.Open(t.Context(), store.TaskID{Subtopology: 9}, []engine.Declared{{Name: "x", Kind: store.KindKeyValue}})
		if err == nil {
			err = e.Move(t.Context(), EngineMove(sp.ID, sp.Stores["x"].ID, "r", map[string]string{"k": fmt.Sprint(i)}))
		}
		if err == nil {
			err = e.Drop(t.Context(), sp.ID)
		}
		if err == nil {
			_, err = e.Reclaim(t.Context())
		}
		if err != nil {
			t.Errorf("SE-03: %v", err)
		}
	}
}
