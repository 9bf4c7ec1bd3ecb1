package store_test

import (
	"maps"
	"testing"

	"github.com/statemesh/statemesh/store"
)

func TestPositionOnlyGrows(t *testing.T) {
	t.Parallel()
	pos := store.Position{}
	pos.Set("a", 0, 0)
	pos.Set("a", 0, 5)
	pos.Set("a", 0, 3)
	pos.Set("b", 1, -1)
	pos.Merge(store.Position{"a": {0: 4, 1: 2}, "c": {0: 9}})
	want := store.Position{"a": {0: 5, 1: 2}, "b": {1: -1}, "c": {0: 9}}
	if !maps.EqualFunc(pos, want, maps.Equal) {
		t.Errorf("have %v, want %v", pos, want)
	}
}

func TestPositionCloneIsApart(t *testing.T) {
	t.Parallel()
	pos := store.Position{"a": {0: 1}}
	c := pos.Clone()
	c.Set("a", 0, 2)
	c.Set("b", 0, 2)
	if pos["a"][0] != 1 || len(pos) != 1 {
		t.Errorf("a change of the clone shows in %v", pos)
	}
	if c := store.Position(nil).Clone(); c == nil {
		t.Error("the clone of nothing cannot be written to")
	}
}

func TestPositionMeets(t *testing.T) {
	t.Parallel()
	pos := store.Position{"a": {0: 5, 1: 0}, "b": {0: 7}}
	for name, tc := range map[string]struct {
		bound store.Position
		p     store.Partition
		want  bool
	}{
		"no bound":                      {nil, 0, true},
		"reached":                       {store.Position{"a": {0: 5}}, 0, true},
		"behind":                        {store.Position{"a": {0: 6}}, 0, false},
		"behind in one of two topics":   {store.Position{"a": {0: 1}, "b": {0: 8}}, 0, false},
		"another partition is behind":   {store.Position{"a": {0: 5, 1: 9}}, 0, true},
		"a topic that was never read":   {store.Position{"c": {0: 0}}, 0, false},
		"a partition never read":        {store.Position{"b": {1: 0}}, 1, false},
		"the bound lacks the partition": {store.Position{"b": {0: 100}}, 1, true},
	} {
		if got := pos.Meets(tc.bound, tc.p); got != tc.want {
			t.Errorf("%s: %v meets %v in partition %d: %t", name, pos, tc.bound, tc.p, got)
		}
	}
}

// T9/103, T9/104 (upstream's PositionTest).
func TestPositionVectors(t *testing.T) {
	t.Parallel()
	pos := store.Position{}
	for i, step := range []struct{ set, want store.Offset }{{5, 5}, {4, 5}, {6, 6}} {
		if pos.Set("topic", 3, step.set); pos["topic"][3] != step.want {
			t.Errorf("T9/103 step %d: have %d, want %d", i, pos["topic"][3], step.want)
		}
	}
	pos = store.Position{"topic": {0: 5}, "topic1": {0: 5, 7: 0}}
	pos.Merge(store.Position{"topic": {0: 7}, "topic1": {8: 1}, "topic2": {9: 5}})
	if want := (store.Position{"topic": {0: 7}, "topic1": {0: 5, 7: 0, 8: 1}, "topic2": {9: 5}}); !maps.EqualFunc(pos, want, maps.Equal) {
		t.Errorf("T9/104: have %v, want %v", pos, want)
	}
}
