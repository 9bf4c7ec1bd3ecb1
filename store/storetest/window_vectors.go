package storetest

import (
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/statemesh/statemesh/store"
)

// windowVectors are T3/15 to T3/30.
func windowVectors(t *testing.T, s WindowSubject) {
	const start = 59_996
	k := int32Key
	for i, v := range []string{"zero", "one", "two", "", "four", "five"} {
		if v != "" {
			putWindow(t, s.Writer, k(int32(i)), start+int64(i), v)
		}
	}
	putWindow(t, s.Writer, k(3), start+2, "three")
	all := func(from, to int64) store.WindowScan { return store.WindowScan{From: start + from, To: start + to} }
	keys := func(lo, hi []byte, from, to int64) store.WindowScan {
		return store.WindowScan{KeyFrom: lo, KeyTo: hi, From: start + from, To: start + to}
	}
	backward := all(1, 4)
	backward.Reverse = true
	type vector struct {
		id   string
		scan store.WindowScan
		want []string
	}
	check := func(t *testing.T, f windowFace, vectors []vector) {
		t.Helper()
		for _, v := range vectors {
			if d := cmp.Diff(v.want, valuesOf(t, f, v.scan)); d != "" {
				t.Errorf("%s: %s (-want +got)\n%s", v.id, f.name, d)
			}
		}
	}
	first := []vector{
		{"T3/22", all(1, 4), []string{"one", "two", "three", "four"}},
		{"T3/23", all(0, 3), []string{"zero", "one", "two", "three"}},
		{"T3/24", backward, []string{"four", "three", "two", "one"}},
		{"T3/25", keys(k(0), k(1), -3, 3), []string{"zero", "one"}},
		{"T3/26", keys(k(1), k(3), -3, 3), []string{"one", "two", "three"}},
		{"T3/27", keys(k(0), k(5), 2, 8), []string{"two", "three", "four", "five"}},
		{"T3/28", keys(k(4), k(5), 2, 3), []string{}},
		{"T3/29", keys(nil, k(2), -3, 3), []string{"zero", "one", "two"}},
		{"T3/30", keys(k(2), nil, 2, 8), []string{"two", "three", "four", "five"}},
		{"all", store.WindowScan{To: math.MaxInt64}, []string{"zero", "one", "two", "three", "four", "five"}},
		{"from above to", keys(k(5), k(4), 0, 9), []string{}},
		{"key from above key to", keys(k(3), k(1), 0, 9), []string{}},
	}
	windowFaces(t, s, func(t *testing.T, f windowFace) { check(t, f, first) })

	more := []string{"two+1", "two+2", "two+3", "two+4", "two+5", "two+6"}
	for i, v := range more {
		putWindow(t, s.Writer, k(2), start+3+int64(i), v)
	}
	one := func(from, to int64) store.WindowScan {
		return store.WindowScan{Key: k(2), From: start + from, To: start + to}
	}
	second := []vector{
		{"T3/15", one(-5, 1), []string{}},
		{"T3/16", one(-4, 2), []string{"two"}},
		{"T3/17", one(-3, 3), []string{"two", "two+1"}},
		{"T3/18", one(2, 8), append([]string{"two"}, more...)},
		{"T3/19", one(3, 9), more},
		{"T3/20", one(9, 15), []string{}},
	}
	windowFaces(t, s, func(t *testing.T, f windowFace) {
		check(t, f, second)
		for at, want := range map[int64]string{3: "two+1", 8: "two+6"} {
			if v, err := f.fetch(k(2), start+at); err != nil || string(v.Data) != want {
				t.Errorf("T3/21: %s: %q, %v; want %q", f.name, v.Data, err, want)
			}
		}
		if v, err := f.fetch(k(2), start+9); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("T3/21: %s: %q, %v for a window that is not there", f.name, v.Data, err)
		}
	})
}

// windowDeletes is T3/31, over every layer.
func windowDeletes(t *testing.T, s WindowSubject) {
	key := []byte("k")
	putWindow(t, s.Writer, key, 100, "within a commit")
	if err := s.Writer.Put(key, 100, store.Value{Timestamp: 1}); err != nil {
		t.Fatal(err)
	}
	putWindow(t, s.Writer, key, 200, "over a commit")
	putWindow(t, s.Writer, key, 300, "stays")
	s.Commit()
	if err := s.Writer.Put(key, 200, store.Value{Timestamp: 1}); err != nil {
		t.Fatal(err)
	}
	windowFaces(t, s, func(t *testing.T, f windowFace) {
		if d := cmp.Diff([]string{"stays"}, valuesOf(t, f, store.WindowScan{Key: key, To: 1000})); d != "" {
			t.Errorf("T3/31: %s (-want +got)\n%s", f.name, d)
		}
		for _, start := range []int64{100, 200} {
			if v, err := f.fetch(key, start); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("T3/31: %s: %q, %v at %d", f.name, v.Data, err, start)
			}
		}
	})
}

// windowEarly is T3/34.
func windowEarly(t *testing.T, s WindowSubject) {
	retention := windowSpec.Retention.Milliseconds()
	putWindow(t, s.Writer, int32Key(1), 0, "one")
	putWindow(t, s.Writer, int32Key(1), 4*retention, "four")
	windowFaces(t, s, func(t *testing.T, f windowFace) {
		if got := valuesOf(t, f, store.WindowScan{Key: int32Key(1), To: 10}); len(got) > 0 {
			t.Errorf("T3/34: %s: %q", f.name, got)
		}
	})
}

// windowDuplicates is T3/32 and what belongs to it.
func windowDuplicates(t *testing.T, s WindowSubject) {
	key := int32Key(0)
	for _, v := range []string{"zero", "zero", "zero+", "zero++"} {
		putWindow(t, s.Writer, key, 60_000, v)
	}
	if err := s.Writer.Put(key, 60_000, store.Value{Timestamp: 1}); err != nil {
		t.Errorf("a nil is ignored: %v", err)
	}
	if err := s.Writer.Put(key, 500_000, store.Value{}); err != nil {
		t.Errorf("a nil is ignored: %v", err)
	}
	putWindow(t, s.Writer, key, 60_001, "next")
	windowFaces(t, s, func(t *testing.T, f windowFace) {
		want := []string{"zero", "zero", "zero+", "zero++"}
		if d := cmp.Diff(want, valuesOf(t, f, store.WindowScan{Key: key, From: 60_000, To: 60_000})); d != "" {
			t.Errorf("T3/32: %s (-want +got)\n%s", f.name, d)
		}
		if d := cmp.Diff(append(want, "next"), valuesOf(t, f, store.WindowScan{To: math.MaxInt64})); d != "" {
			t.Errorf("T3/32: %s, all (-want +got)\n%s", f.name, d)
		}
		if v, err := f.fetch(key, 60_000); err != nil || string(v.Data) != "zero" {
			t.Errorf("%s: the first is %q, %v", f.name, v.Data, err)
		}
		if _, err := f.fetch(key, 60_002); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: %v of a window that is not there", f.name, err)
		}
	})
	s.Commit()
	putWindow(t, s.Writer, key, 60_000, "after a commit")
	windowFaces(t, s, func(t *testing.T, f windowFace) {
		if got := valuesOf(t, f, store.WindowScan{Key: key, From: 60_000, To: 60_000}); len(got) != 5 || got[4] != "after a commit" {
			t.Errorf("T3/32: %s after another commit: %q", f.name, got)
		}
	})
}
