package group

import (
	"testing"
)

// Members join one after the other and leave again: no partition is ever lost or doubled, every process reads the same
// whole map, and nothing moves that need not.
func TestJoinAndLeave(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 6)
	a := w.start("a", 1)
	one := settled(t.Context(), t, a)
	if n := counts(one); n["a"] != 12 {
		t.Fatalf("alone: %v", n)
	}
	b := w.start("b", 1)
	two := settled(t.Context(), t, a, b)
	if n := counts(two); n["a"] != 6 || n["b"] != 6 {
		t.Fatalf("two: %v", n)
	}
	c := w.start("c", 2)
	three := settled(t.Context(), t, a, b, c)
	if n := counts(three); n["a"] != 3 || n["b"] != 3 || n["c"] != 6 {
		t.Fatalf("three with four threads: %v", n)
	}
	b.leave()
	rest := settled(t.Context(), t, a, c)
	if n := counts(rest); n["a"] != 4 || n["c"] != 8 {
		t.Fatalf("after a leave: %v", n)
	}
	if one.Epoch() >= two.Epoch() || two.Epoch() >= three.Epoch() || three.Epoch() >= rest.Epoch() {
		t.Errorf("epochs %d %d %d %d", one.Epoch(), two.Epoch(), three.Epoch(), rest.Epoch())
	}
	w.check()
}
