package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/statemesh/statemesh/store"
)

// hostileVersions are keys that are prefixes of others, whose bytes look like times, or that are rows of others.
func hostileVersions() []string {
	keys := slices.Clone(hostileKeys)
	for _, key := range []string{"k", "\x00", "\xff"} {
		row := string(store.VersionKey([]byte(key), 10))
		keys = append(keys, row, row+"\x00", string(store.VersionKey([]byte(row), 10)))
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

func versionedHostile(t *testing.T, s VersionedSubject) {
	keys := hostileVersions()
	for _, key := range keys {
		putVersion(t, s.Writer, key, at{"a", 10})
		putVersion(t, s.Writer, key, at{"c", 256})
	}
	s.Commit()
	for _, key := range keys {
		if end := putVersion(t, s.Writer, key, at{"b", 255}); end != 256 {
			t.Errorf("key %x: ends at %d", key, end)
		}
	}
	versionedFaces(t, s, func(t *testing.T, f versionedFace) {
		for _, key := range keys {
			wantVersions(t, fmt.Sprintf("key %x", key), f, everyVersion(key), "a[10,255)", "b[255,256)", "c[256,)")
			for asOf, want := range map[int64]string{9: "none", 10: "a[10,255)", 255: "b[255,256)", 256: "c[256,)"} {
				v, err := f.asOf([]byte(key), asOf)
				wantVersion(t, fmt.Sprintf("key %x as of %d", key, asOf), f, want, v, err)
			}
		}
	})
}

// versionedCursors: a scan goes on behind any version, in both directions.
func versionedCursors(t *testing.T, s VersionedSubject) {
	for i := range int64(60) {
		v := at{fmt.Sprint(i), 1000 + i*5_000}
		if i%7 == 3 {
			v.value = ""
		}
		putVersions(t, s.Writer, v)
		if i%10 == 0 {
			s.Commit()
		}
	}
	versionedFaces(t, s, func(t *testing.T, f versionedFace) {
		for _, sc := range []store.VersionScan{
			everyVersion("k"), {Key: []byte("k"), From: 33_000, To: 222_000}, {Key: []byte("k"), From: 100_000, To: math.MaxInt64},
		} {
			for _, sc.Reverse = range []bool{false, true} {
				it, err := f.scan(sc)
				whole := scanned(t, f.name, it, err, orderOf[sc.Reverse])
				if len(whole) < 20 {
					t.Fatalf("%s: %d rows", f.name, len(whole))
				}
				for i, e := range whole {
					rest := sc
					rest.After = e.Cursor
					it, err := f.scan(rest)
					if d := cmp.Diff(append([]store.Entry(nil), whole[i+1:]...), scanned(t, f.name, it, err, orderOf[sc.Reverse])); d != "" {
						t.Fatalf("%s: %+v after row %d (-want +got)\n%s", f.name, sc, i, d)
					}
				}
			}
		}
	})
}

// versionedSnapshots: an iterator and a reader show the state at their opening, whatever is written meanwhile (QS-12).
func versionedSnapshots(t *testing.T, s VersionedSubject) {
	want := []string{}
	for i := range int64(50) {
		putVersions(t, s.Writer, at{"v", i * 2000})
		if i > 0 {
			want = append(want, fmt.Sprintf("v[%d,%d)", (i-1)*2000, i*2000))
		}
	}
	want = append(want, "v[98000,)")
	s.Commit()
	r := s.Reader()
	committed, err := r.Scan(t.Context(), everyVersion("k"))
	if err != nil {
		t.Fatal(err)
	}
	own, err := s.Writer.Scan(everyVersion("k"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(50) {
		putVersions(t, s.Writer, at{"overwritten", i * 2000}, at{"between", i*2000 + 1}, at{"", i*2000 + 2})
	}
	putVersions(t, s.Writer, at{"last", 3 * history})
	s.Commit()
	for name, it := range map[string]store.Iterator{"reader": committed, "writer": own} {
		got := []string{}
		for _, e := range scanned(t, name, it, nil, ascending) {
			got = append(got, showVersion(store.Version{Value: e.Value, ValidTo: e.End}))
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("QS-12: iterator of the %s (-want +got)\n%s", name, d)
		}
	}
	old := versionedReader(t.Context(), r, "old reader")
	wantVersions(t, "QS-12", old, everyVersion("k"), want...)
	wantAsOf(t, "QS-12", old, 2001, "v[2000,4000)")
	wantLatest(t, "QS-12", old, "v[98000,)")
	wantVersions(t, "QS-12", versionedReader(t.Context(), s.Reader(), "new reader"), everyVersion("k"), "last[900000,)")
}

// versionedIterators: an iterator ends with what it was opened from, and with an error.
func versionedIterators(t *testing.T, s VersionedSubject) {
	putVersions(t, s.Writer, at{"a", 10}, at{"b", 20}, at{"c", 30})
	s.Commit()
	for _, reverse := range []bool{false, true} {
		for read := range 3 {
			sc := everyVersion("k")
			sc.Reverse = reverse
			versionedEnds(t, s, sc, read)
		}
	}
	it, err := s.Writer.Scan(everyVersion("k"))
	if err != nil || !it.Next() {
		t.Fatal(err)
	}
	it.Close()
	if it.Next() {
		t.Error("an iterator goes on after Close")
	}
}

// versionedEnds ends scans after some rows, by their context and by their snapshot.
func versionedEnds(t *testing.T, s VersionedSubject, sc store.VersionScan, read int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := s.Reader()
	closing, err1 := r.Scan(t.Context(), sc)
	canceled, err2 := r.Scan(ctx, sc)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	for range read {
		if !closing.Next() || !canceled.Next() {
			t.Fatal("no rows")
		}
	}
	cancel()
	if canceled.Next() || !errors.Is(canceled.Err(), context.Canceled) {
		t.Errorf("reverse %v, after %d rows: a canceled scan goes on, %v", sc.Reverse, read, canceled.Err())
	}
	s.Close()
	if closing.Next() || !errors.Is(closing.Err(), store.ErrClosed) {
		t.Errorf("reverse %v, after %d rows: a scan of a closed snapshot goes on, %v", sc.Reverse, read, closing.Err())
	}
	for range 2 {
		canceled.Close()
		closing.Close()
	}
	closed := versionedReader(t.Context(), r, "closed")
	for what, err := range map[string]error{
		"get": second(closed.get(sc.Key)), "as of": second(closed.asOf(sc.Key, 10)), "scan": second(closed.scan(sc)),
	} {
		if !errors.Is(err, store.ErrClosed) {
			t.Errorf("%s of a closed snapshot: %v", what, err)
		}
	}
}

func versionedRefusals(t *testing.T, s VersionedSubject) {
	s.Commit()
	for _, f := range []versionedFace{versionedWriter(s.Writer), versionedReader(t.Context(), s.Reader(), "reader")} {
		for what, c := range map[string]struct{ err, target error }{
			"empty key":            {second(f.get(nil)), store.ErrInvalidKey},
			"empty key as of":      {second(f.asOf([]byte{}, 1)), store.ErrInvalidKey},
			"scan of an empty key": {second(f.scan(store.VersionScan{})), store.ErrInvalidKey},
			"before 1970":          {second(f.asOf([]byte("k"), -1)), store.ErrNotFound},
		} {
			if !errors.Is(c.err, c.target) {
				t.Errorf("%s: %s: %v, want %v", f.name, what, c.err, c.target)
			}
		}
	}
	for what, c := range map[string]struct{ err, target error }{
		"put of an empty key":    {second(s.Writer.Put(nil, store.Value{Data: []byte("v")})), store.ErrInvalidKey},
		"delete of an empty key": {second(s.Writer.Delete(nil, 1)), store.ErrInvalidKey},
		"put before 1970":        {second(s.Writer.Put([]byte("k"), store.Value{Data: []byte("v"), Timestamp: -1})), store.ErrInvalidRequest},
		"delete before 1970":     {second(s.Writer.Delete([]byte("k"), -1)), store.ErrInvalidRequest},
	} {
		if !errors.Is(c.err, c.target) {
			t.Errorf("%s: %v, want %v", what, c.err, c.target)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	cancel(cause)
	canceled := versionedReader(ctx, s.Reader(), "canceled")
	for what, err := range map[string]error{
		"get": second(canceled.get([]byte("k"))), "as of": second(canceled.asOf([]byte("k"), 1)), "scan": second(canceled.scan(everyVersion("k"))),
	} {
		if !errors.Is(err, cause) {
			t.Errorf("%s with a context that is done: %v", what, err)
		}
	}
}

func versionedFar(t *testing.T, s VersionedSubject) {
	putVersions(t, s.Writer, at{"a", 0}, at{"b", 1}, at{"c", math.MaxInt64 - 1}, at{"d", math.MaxInt64})
	versionedFaces(t, s, func(t *testing.T, f versionedFace) {
		wantLatest(t, "far", f, fmt.Sprintf("d[%d,)", int64(math.MaxInt64)))
		wantAsOf(t, "far", f, math.MaxInt64-1, fmt.Sprintf("c[%d,%d)", int64(math.MaxInt64-1), int64(math.MaxInt64)))
		wantAsOf(t, "far", f, 1, "none")
		wantAsOf(t, "far", f, math.MinInt64, "none")
		wantVersions(t, "far", f, store.VersionScan{Key: []byte("k"), From: math.MaxInt64, To: math.MaxInt64}, fmt.Sprintf("d[%d,)", int64(math.MaxInt64)))
		if got := versionsOf(t, f, everyVersion("k")); len(got) != 3 {
			t.Errorf("%s: %q", f.name, got)
		}
	})
}

// versionedOwned: what is returned belongs to the caller, and what is passed in too.
func versionedOwned(t *testing.T, s VersionedSubject) {
	key, value := []byte("k"), []byte("aaa")
	put := func(ts int64) {
		if _, err := s.Writer.Put(key, store.Value{Data: value, Timestamp: ts}); err != nil {
			t.Fatal(err)
		}
	}
	put(10)
	put(30)
	put(20)
	sc := everyVersion("k")
	it, err := s.Writer.Scan(sc)
	if err != nil {
		t.Fatal(err)
	}
	copy(value, "xxx")
	key[0], sc.Key[0] = 'x', 'x'
	for _, e := range scanned(t, "writer", it, nil, ascending) {
		copy(e.Data, "yyy")
		copy(e.Key, "y")
		copy(e.Cursor, "yyyyyyyyy")
	}
	versionedFaces(t, s, func(t *testing.T, f versionedFace) {
		for range 2 {
			for _, asOf := range []int64{10, 20, 30} {
				v, err := f.asOf([]byte("k"), asOf)
				if err != nil || string(v.Data) != "aaa" {
					t.Errorf("%s: as of %d: %q, %v", f.name, asOf, v.Data, err)
				}
				copy(v.Data, "zzz")
			}
		}
	})
}

func versionedCount(t *testing.T, s VersionedSubject) {
	rng := rand.New(rand.NewPCG(1, 1))
	m := NewVersionModel(history)
	for i := range 400 {
		key, ts := fmt.Sprint("k", rng.IntN(50)), int64(rng.IntN(history))
		v := at{"v", ts}
		data := new("v")
		if i%3 == 0 {
			v.value, data = "", nil
		}
		if got, want := putVersion(t, s.Writer, key, v), m.Put(key, ts, data); got != want {
			t.Fatalf("put %q at %d: %d, want %d", key, ts, got, want)
		}
	}
	s.Commit()
	if n, err := s.Reader().ApproximateCount(t.Context()); err != nil || n != m.Count() {
		t.Errorf("count %d, %v, want %d", n, err, m.Count())
	}
}
