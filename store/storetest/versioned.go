package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/statemesh/statemesh/store"
)

// VersionedSubject is a versioned store under test, empty when it is handed out.
type VersionedSubject struct {
	Writer store.Versioned
	// Commit makes what was written visible to readers opened later.
	Commit func()
	// Reader opens a reader of the last commit. The subject closes it.
	Reader func() store.VersionedReader
	// Close closes what Reader opened last.
	Close func()
	// Expired counts the writes that were dropped because they came too late.
	Expired func() int
	// OpenIterators counts what nobody has closed.
	OpenIterators func() int64
}

// The history and segments of RocksDBVersionedStoreTest.
const (
	history = 300_000
	segment = 100_000
)

var versionedSpec = store.Spec{
	Kind: store.KindVersioned, Retention: history * time.Millisecond, SegmentInterval: segment * time.Millisecond,
}

// Versioned runs the contract of store.Versioned and store.VersionedReader. open returns a store with this declaration,
// whose name and place it chooses.
func Versioned(t *testing.T, open func(t *testing.T, spec store.Spec) VersionedSubject) {
	t.Helper()
	short := versionedSpec
	short.Retention, short.SegmentInterval = 10*time.Millisecond, 4*time.Millisecond
	for name, c := range map[string]struct {
		spec store.Spec
		test func(*testing.T, VersionedSubject)
	}{
		"T6-71":        {versionedSpec, versionedValidity},
		"T6-72 73":     {versionedSpec, versionedOutOfOrder},
		"T6-74":        {versionedSpec, versionedTombstone},
		"T6-75":        {versionedSpec, versionedSameTime},
		"T6-81":        {versionedSpec, versionedGrace},
		"T6-84":        {versionedSpec, versionedEmpty},
		"T6-85":        {versionedSpec, versionedRange},
		"QS-09":        {short, versionedAsOf},
		"tombstones":   {versionedSpec, versionedTombstones},
		"delete":       {versionedSpec, versionedDelete},
		"segments":     {versionedSpec, versionedSegments},
		"hostile keys": {versionedSpec, versionedHostile},
		"cursors":      {versionedSpec, versionedCursors},
		"snapshots":    {versionedSpec, versionedSnapshots},
		"iterators":    {versionedSpec, versionedIterators},
		"refusals":     {versionedSpec, versionedRefusals},
		"far times":    {versionedSpec, versionedFar},
		"ownership":    {versionedSpec, versionedOwned},
		"count":        {versionedSpec, versionedCount},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, c.spec)
			c.test(t, s)
			if n := s.OpenIterators(); n != 0 {
				t.Errorf("%d iterators left open", n)
			}
		})
	}
}

// versionedFace is one of the faces of a versioned store.
type versionedFace struct {
	name string
	get  func(key []byte) (store.Version, error)
	asOf func(key []byte, asOf int64) (store.Version, error)
	scan func(store.VersionScan) (store.Iterator, error)
}

func versionedWriter(w store.Versioned) versionedFace {
	return versionedFace{"writer", w.Get, w.GetAsOf, w.Scan}
}

func versionedReader(ctx context.Context, r store.VersionedReader, name string) versionedFace {
	return versionedFace{
		name: name,
		get:  func(key []byte) (store.Version, error) { return r.Get(ctx, key) },
		asOf: func(key []byte, asOf int64) (store.Version, error) { return r.GetAsOf(ctx, key, asOf) },
		scan: func(sc store.VersionScan) (store.Iterator, error) { return r.Scan(ctx, sc) },
	}
}

// versionedFaces checks the writer before and after a commit, and a reader of it.
func versionedFaces(t *testing.T, s VersionedSubject, check func(t *testing.T, f versionedFace)) {
	t.Helper()
	check(t, versionedWriter(s.Writer))
	s.Commit()
	check(t, versionedWriter(s.Writer))
	check(t, versionedReader(t.Context(), s.Reader(), "reader"))
}

// at names a version in a table: "" is a tombstone.
type at struct {
	value string
	time  int64
}

// putVersions puts versions of "k" and returns when they end.
func putVersions(t *testing.T, w store.Versioned, versions ...at) (ends []int64) {
	t.Helper()
	for _, v := range versions {
		ends = append(ends, putVersion(t, w, "k", v))
	}
	return ends
}

func putVersion(t *testing.T, w store.Versioned, key string, v at) int64 {
	t.Helper()
	val := store.Value{Timestamp: v.time}
	if v.value != "" {
		val.Data = []byte(v.value)
	}
	end, err := w.Put([]byte(key), val)
	if err != nil {
		t.Fatalf("put %q %q at %d: %v", key, v.value, v.time, err)
	}
	return end
}

// shown is a version as text: value[from,to), with nothing for the end of the latest; "none" for none.
func shown(v store.Version, err error) string {
	switch {
	case errors.Is(err, store.ErrNotFound):
		return "none"
	case err != nil:
		return err.Error()
	case v.Data == nil:
		return "no value"
	}
	return showVersion(v)
}

func showVersion(v store.Version) string {
	if v.ValidTo == store.NoEnd {
		return fmt.Sprintf("%s[%d,)", v.Data, v.Timestamp)
	}
	return fmt.Sprintf("%s[%d,%d)", v.Data, v.Timestamp, v.ValidTo)
}

func wantVersion(t *testing.T, id string, f versionedFace, want string, v store.Version, err error) {
	t.Helper()
	if got := shown(v, err); got != want {
		t.Errorf("%s: %s: %s, want %s", id, f.name, got, want)
	}
}

func wantAsOf(t *testing.T, id string, f versionedFace, asOf int64, want string) {
	t.Helper()
	v, err := f.asOf([]byte("k"), asOf)
	wantVersion(t, fmt.Sprintf("%s as of %d", id, asOf), f, want, v, err)
}

func wantLatest(t *testing.T, id string, f versionedFace, want string) {
	t.Helper()
	v, err := f.get([]byte("k"))
	wantVersion(t, id, f, want, v, err)
}

// versionsOf reads a scan and checks that the other direction is its mirror (QS-06).
func versionsOf(t *testing.T, f versionedFace, sc store.VersionScan) []string {
	t.Helper()
	read := func() []string {
		what := fmt.Sprintf("%s: scan %+v", f.name, sc)
		it, err := f.scan(sc)
		out := []string{}
		for _, e := range scanned(t, what, it, err, orderOf[sc.Reverse]) {
			if !bytes.Equal(e.Key, sc.Key) || e.Timestamp != e.Start || !bytes.Equal(e.Cursor, store.VersionKey(e.Key, e.Start)) {
				t.Fatalf("%s: row %x from %d at %d has the cursor %x", what, e.Key, e.Start, e.Timestamp, e.Cursor)
			}
			out = append(out, showVersion(store.Version{Value: e.Value, ValidTo: e.End}))
		}
		return out
	}
	return mirrored(t, f.name, &sc.Reverse, read)
}

func wantVersions(t *testing.T, id string, f versionedFace, sc store.VersionScan, want ...string) {
	t.Helper()
	if d := cmp.Diff(append([]string{}, want...), versionsOf(t, f, sc)); d != "" {
		t.Errorf("%s: %s: %+v (-want +got)\n%s", id, f.name, sc, d)
	}
}

func everyVersion(key string) store.VersionScan {
	return store.VersionScan{Key: []byte(key), To: math.MaxInt64}
}

func versionedValidity(t *testing.T, s VersionedSubject) {
	putVersions(t, s.Writer, at{"v", 10}, at{"v2", 11})
	versionedFaces(t, s, func(t *testing.T, f versionedFace) {
		wantAsOf(t, "T6/71", f, 9, "none")
		wantAsOf(t, "T6/71", f, 10, "v[10,11)")
		wantAsOf(t, "T6/71", f, 11, "v2[11,)")
		wantLatest(t, "T6/71", f, "v2[11,)")
	})
}

func versionedOutOfOrder(t *testing.T, s VersionedSubject) {
	ends := putVersions(t, s.Writer, at{"v", 10}, at{"v2", 8}, at{"v1", 9}, at{"v4", 6})
	if d := cmp.Diff([]int64{store.NoEnd, 10, 10, 8}, ends); d != "" {
		t.Errorf("T6/72: ends (-want +got)\n%s", d)
	}
	versionedFaces(t, s, func(t *testing.T, f versionedFace) {
		wantAsOf(t, "T6/73", f, 7, "v4[6,8)")
		wantAsOf(t, "T6/72", f, 8, "v2[8,9)")
		wantAsOf(t, "T6/72", f, 9, "v1[9,10)")
		wantAsOf(t, "T6/72", f, 5, "none")
		wantLatest(t, "T6/72", f, "v[10,)")
		wantVersions(t, "T6/72", f, everyVersion("k"), "v4[6,8)", "v2[8,9)", "v1[9,10)", "v[10,)")
	})
}

func versionedTombstone(t *testing.T, s VersionedSubject) {
	if ends := putVersions(t, s.Writer, at{"v", 10}, at{"", 11}); ends[1] != store.NoEnd {
		t.Errorf("T6/74: the tombstone ends at %d", ends[1])
	}
	versionedFaces(t, s, func(t *testing.T, f versionedFace) {
		wantLatest(t, "T6/74", f, "none")
		wantAsOf(t, "T6/74", f, 10, "v[10,11)")
		wantAsOf(t, "T6/74", f, 11, "none")
		wantVersions(t, "T6/74", f, everyVersion("k"), "v[10,11)")
	})
}

func versionedSameTime(t *testing.T, s VersionedSubject) {
	putVersions(t, s.Writer, at{"v", 10}, at{"w", 10})
	versionedFaces(t, s, func(t *testing.T, f versionedFace) { wantLatest(t, "T6/75", f, "w[10,)") })
	// The same for what is not the latest: value, tombstone and back, in the same commit and later ones.
	for _, commit := range []func(){func() {}, s.Commit} {
		putVersions(t, s.Writer, at{"x", 20}, at{"y", 30})
		for _, c := range []struct {
			put  at
			want string
		}{{at{"x2", 20}, "x2[20,30)"}, {at{"", 20}, "none"}, {at{"", 20}, "none"}, {at{"x3", 20}, "x3[20,30)"}} {
			commit()
			if ends := putVersions(t, s.Writer, c.put); ends[0] != 30 {
				t.Errorf("put of %q at %d ends at %d, want 30", c.put.value, c.put.time, ends[0])
			}
			versionedFaces(t, s, func(t *testing.T, f versionedFace) {
				wantAsOf(t, "T6/75", f, 25, c.want)
				wantAsOf(t, "T6/75", f, 15, "w[10,20)")
				wantLatest(t, "T6/75", f, "y[30,)")
			})
		}
	}
	// The latest: a tombstone at its time, and a value at that of the tombstone.
	putVersions(t, s.Writer, at{"", 30})
	versionedFaces(t, s, func(t *testing.T, f versionedFace) {
		wantLatest(t, "T6/75", f, "none")
		wantAsOf(t, "T6/75", f, 29, "x3[20,30)")
	})
	if ends := putVersions(t, s.Writer, at{"z", 30}); ends[0] != store.NoEnd {
		t.Errorf("a value at the time of the last tombstone ends at %d", ends[0])
	}
	versionedFaces(t, s, func(t *testing.T, f versionedFace) {
		wantLatest(t, "T6/75", f, "z[30,)")
		wantVersions(t, "T6/75", f, everyVersion("k"), "w[10,20)", "x3[20,30)", "z[30,)")
	})
}

func versionedGrace(t *testing.T, s VersionedSubject) {
	putVersion(t, s.Writer, "other", at{"t", history + 10})
	if ends := putVersions(t, s.Writer, at{"v", 10}, at{"w", 9}); ends[0] != store.NoEnd || ends[1] != store.NotPut {
		t.Errorf("T6/81: ends %d, want %d and %d", ends, store.NoEnd, int64(store.NotPut))
	}
	if n := s.Expired(); n != 1 {
		t.Errorf("T6/81: %d writes counted as expired, want 1", n)
	}
	if v, err := s.Writer.Delete([]byte("k"), 9); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("T6/81: delete of what is too old: %s", shown(v, err))
	}
	if n := s.Expired(); n != 2 {
		t.Errorf("T6/81: %d writes counted as expired, want 2", n)
	}
	versionedFaces(t, s, func(t *testing.T, f versionedFace) { wantLatest(t, "T6/81", f, "v[10,)") })
}

func versionedEmpty(t *testing.T, s VersionedSubject) {
	for _, ts := range []int64{10, 20} {
		if _, err := s.Writer.Put([]byte("k"), store.Value{Data: []byte{}, Timestamp: ts}); err != nil {
			t.Fatal(err)
		}
	}
	versionedFaces(t, s, func(t *testing.T, f versionedFace) {
		wantLatest(t, "T6/84", f, "[20,)")
		wantAsOf(t, "T6/84", f, 15, "[10,20)")
		wantVersions(t, "T6/84", f, everyVersion("k"), "[10,20)", "[20,)")
	})
}

func versionedRange(t *testing.T, s VersionedSubject) {
	const S = segment
	putVersions(t, s.Writer, at{"v1", S - 30}, at{"v2", S - 25}, at{"", S - 20}, at{"", S - 15}, at{"v3", S - 10}, at{"v4", S - 5})
	v1, v2 := fmt.Sprintf("v1[%d,%d)", S-30, S-25), fmt.Sprintf("v2[%d,%d)", S-25, S-20)
	v3, v4 := fmt.Sprintf("v3[%d,%d)", S-10, S-5), fmt.Sprintf("v4[%d,)", S-5)
	scan := func(from, to int64, reverse bool) store.VersionScan {
		return store.VersionScan{Key: []byte("k"), From: from, To: to, Reverse: reverse}
	}
	versionedFaces(t, s, func(t *testing.T, f versionedFace) {
		wantVersions(t, "T6/85", f, scan(S-30, S-5, true), v4, v3, v2, v1)
		wantVersions(t, "T6/85", f, scan(S-30, S-5, false), v1, v2, v3, v4)
		wantVersions(t, "T6/85 from inside", f, scan(S-26, S-10, false), v1, v2, v3)
		wantVersions(t, "T6/85 from the end of one", f, scan(S-25, S-20, false), v2)
		wantVersions(t, "T6/85 gap", f, scan(S-20, S-11, false))
		wantVersions(t, "T6/85 behind", f, scan(S, math.MaxInt64, false), v4)
		wantVersions(t, "T6/85 before", f, scan(math.MinInt64, S-31, false))
		wantVersions(t, "T6/85 contradiction", f, scan(S+5, S, false))
		wantVersions(t, "T6/85 before 1970", f, scan(-5, -1, false))
		wantVersions(t, "T6/85 other key", f, everyVersion("kk"))
	})
}

// versionedAsOf has a retention of 10.
func versionedAsOf(t *testing.T, s VersionedSubject) {
	putVersions(t, s.Writer, at{"v1", 5})
	putVersion(t, s.Writer, "clock", at{"c", 100})
	versionedFaces(t, s, func(t *testing.T, f versionedFace) {
		wantAsOf(t, "QS-09: the latest version does not expire", f, 7, "v1[5,)")
		wantAsOf(t, "QS-09", f, 3, "none")
		wantVersions(t, "QS-09", f, store.VersionScan{Key: []byte("k"), From: 1, To: 7}, "v1[5,)")
	})
	if ends := putVersions(t, s.Writer, at{"a", 89}, at{"b", 90}); ends[0] != store.NotPut || ends[1] != store.NoEnd {
		t.Errorf("QS-09: ends %d: 89 is too old, 90 is not", ends)
	}
	versionedFaces(t, s, func(t *testing.T, f versionedFace) {
		wantAsOf(t, "QS-09: now it is history, and out of it", f, 89, "none")
		wantAsOf(t, "QS-09", f, 90, "b[90,)")
		wantVersions(t, "QS-09", f, everyVersion("k"), "b[90,)")
	})
	if v, err := s.Writer.Delete([]byte("k"), 95); shown(v, err) != "b[90,)" {
		t.Errorf("QS-09: delete returned %s", shown(v, err))
	}
	versionedFaces(t, s, func(t *testing.T, f versionedFace) {
		wantAsOf(t, "QS-09", f, 95, "none")
		wantAsOf(t, "QS-09", f, 94, "b[90,95)")
		wantLatest(t, "QS-09", f, "none")
	})
	putVersions(t, s.Writer, at{"c", 95}, at{"d", 95})
	versionedFaces(t, s, func(t *testing.T, f versionedFace) {
		wantAsOf(t, "QS-09: same time", f, 95, "d[95,)")
		wantAsOf(t, "QS-09: same time", f, 94, "b[90,95)")
	})
	// To the millisecond, whatever is left in a segment.
	putVersion(t, s.Writer, "clock", at{"c", 104})
	versionedFaces(t, s, func(t *testing.T, f versionedFace) {
		wantAsOf(t, "QS-09: oldest moment", f, 94, "b[90,95)")
		wantAsOf(t, "QS-09: before it", f, 93, "none")
		wantVersions(t, "QS-09: reaches into it", f, store.VersionScan{Key: []byte("k"), To: 94}, "b[90,95)")
		wantVersions(t, "QS-09: all before it", f, store.VersionScan{Key: []byte("k"), To: 93})
	})
	putVersion(t, s.Writer, "clock", at{"c", 105})
	versionedFaces(t, s, func(t *testing.T, f versionedFace) {
		wantAsOf(t, "QS-09: expired", f, 94, "none")
		wantVersions(t, "QS-09: expired", f, everyVersion("k"), "d[95,)")
	})
}

// versionedTombstones: each tombstone is a version, wherever it lies: what is put before it ends there.
func versionedTombstones(t *testing.T, s VersionedSubject) {
	for _, c := range []struct {
		name  string
		given []at
		put   at
		end   int64
		want  []string
	}{
		{"first of all", []at{{"", 20}}, at{"a", 10}, 20, []string{"a[10,20)"}},
		{"before the first value", []at{{"b", 30}, {"", 20}}, at{"a", 10}, 20, []string{"a[10,20)", "b[30,)"}},
		{"two in a row", []at{{"b", 30}, {"", 40}, {"", 50}, {"c", 60}}, at{"a", 45}, 50, []string{"b[30,40)", "a[45,50)", "c[60,)"}},
		{"two at the end", []at{{"b", 30}, {"", 40}, {"", 50}}, at{"a", 45}, 50, []string{"b[30,40)", "a[45,50)"}},
		{"value before the last", []at{{"b", 30}, {"", 50}}, at{"a", 40}, 50, []string{"b[30,40)", "a[40,50)"}},
		{"tombstone in a value", []at{{"b", 30}, {"c", 50}}, at{"", 40}, 50, []string{"b[30,40)", "c[50,)"}},
		{"tombstone in the last value", []at{{"b", 30}, {"", 50}}, at{"", 40}, 50, []string{"b[30,40)"}},
		{"tombstone over a value", []at{{"b", 30}, {"c", 40}, {"d", 50}}, at{"", 40}, 50, []string{"b[30,40)", "d[50,)"}},
		{"after the last", []at{{"b", 30}, {"", 50}}, at{"a", 60}, store.NoEnd, []string{"b[30,50)", "a[60,)"}},
		{"after the last, of an older stream time", []at{{"b", 30}, {"", 50}, {"x", 90}, {"", 90}}, at{"a", 60}, 90, []string{"b[30,50)", "a[60,90)"}},
	} {
		for when, between := range map[string]func(){"one commit": func() {}, "two commits": s.Commit} {
			key := c.name + when
			for _, v := range c.given {
				putVersion(t, s.Writer, key, v)
			}
			between()
			if end := putVersion(t, s.Writer, key, c.put); end != c.end {
				t.Errorf("%s, %s: ends at %d, want %d", c.name, when, end, c.end)
			}
			versionedFaces(t, s, func(t *testing.T, f versionedFace) {
				wantVersions(t, c.name+", "+when, f, everyVersion(key), c.want...)
			})
		}
	}
}

func versionedDelete(t *testing.T, s VersionedSubject) {
	remove := func(at int64, want string) {
		t.Helper()
		if v, err := s.Writer.Delete([]byte("k"), at); shown(v, err) != want {
			t.Errorf("delete at %d: %s, want %s", at, shown(v, err), want)
		}
	}
	remove(50, "none")
	if ends := putVersions(t, s.Writer, at{"a", 10}); ends[0] != 50 {
		t.Errorf("the tombstone where nothing was ends the version before it at %d, want 50", ends[0])
	}
	putVersions(t, s.Writer, at{"b", 20}, at{"c", 60})
	remove(15, "a[10,20)")
	remove(20, "b[20,50)")
	remove(70, "c[60,)")
	remove(71, "none")
	versionedFaces(t, s, func(t *testing.T, f versionedFace) {
		wantVersions(t, "delete", f, everyVersion("k"), "a[10,15)", "c[60,70)")
		wantAsOf(t, "delete", f, 14, "a[10,15)")
		wantAsOf(t, "delete", f, 15, "none")
		wantLatest(t, "delete", f, "none")
	})
}

// versionedSegments: a put out of order gives an older version an earlier end, which may lie in another segment.
func versionedSegments(t *testing.T, s VersionedSubject) {
	putVersions(t, s.Writer, at{"a", 10}, at{"b", 2*segment + 5})
	s.Commit()
	putVersions(t, s.Writer, at{"c", segment - 1})
	s.Commit()
	putVersions(t, s.Writer, at{"", segment})
	versionedFaces(t, s, func(t *testing.T, f versionedFace) {
		wantVersions(t, "segments", f, everyVersion("k"), "a[10,99999)", "c[99999,100000)", "b[200005,)")
		for asOf, want := range map[int64]string{
			9: "none", 10: "a[10,99999)", segment - 2: "a[10,99999)", segment - 1: "c[99999,100000)", segment: "none",
			2*segment + 4: "none", 2*segment + 5: "b[200005,)",
		} {
			wantAsOf(t, "segments", f, asOf, want)
		}
	})
	// The first two lose their segment, the store goes on.
	putVersion(t, s.Writer, "clock", at{"c", segment + history})
	s.Commit()
	putVersions(t, s.Writer, at{"d", 3 * segment})
	versionedFaces(t, s, func(t *testing.T, f versionedFace) {
		wantVersions(t, "expired", f, everyVersion("k"), "b[200005,300000)", "d[300000,)")
		wantAsOf(t, "expired", f, segment-1, "none")
		wantAsOf(t, "expired", f, segment, "none")
		wantAsOf(t, "expired", f, 2*segment+5, "b[200005,300000)")
	})
}
