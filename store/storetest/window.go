package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/statemesh/statemesh/store"
)

// WindowSubject is a window store under test, empty when it is handed out.
type WindowSubject struct {
	Writer store.Window
	// Commit makes what was written visible to readers opened later.
	Commit func()
	// Reader opens a reader of the last commit. The subject closes it.
	Reader func() store.WindowReader
	// Close closes the snapshot of the reader that was opened last.
	Close func()
	// Expired counts the writes that were dropped because they came too late.
	Expired func() int
	// OpenIterators counts what nobody has closed.
	OpenIterators func() int64
}

// windowSpec is that of AbstractWindowBytesStoreTest.
var windowSpec = store.Spec{
	Kind: store.KindWindow, WindowSize: 3 * time.Millisecond, Retention: 120 * time.Second, SegmentInterval: time.Minute,
}

// Window runs the contract of store.Window and store.WindowReader. open returns a store with this declaration, whose
// name and place it chooses.
func Window(t *testing.T, open func(t *testing.T, spec store.Spec) WindowSubject) {
	t.Helper()
	for _, kind := range []store.Kind{store.KindWindow, store.KindTimestampedWindow} {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			for name, test := range map[string]func(*testing.T, WindowSubject){
				"vectors":      windowVectors,
				"deletes":      windowDeletes,
				"expiry":       windowExpiry,
				"values":       func(t *testing.T, s WindowSubject) { windowValues(t, s, kind) },
				"bounds":       windowBounds,
				"hostile keys": windowHostile,
				"cursors":      windowCursors,
				"snapshots":    windowSnapshots,
				"refusals":     windowRefusals,
				"far times":    windowFar,
				"iterators":    windowIterators,
				"T3-34":        windowEarly,
			} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					spec := windowSpec
					spec.Kind = kind
					runWindow(t, open(t, spec), test)
				})
			}
			t.Run("duplicates", func(t *testing.T) {
				t.Parallel()
				spec := windowSpec
				spec.Kind, spec.RetainDuplicates = kind, true
				runWindow(t, open(t, spec), windowDuplicates)
			})
		})
	}
}

func runWindow(t *testing.T, s WindowSubject, test func(*testing.T, WindowSubject)) {
	t.Helper()
	test(t, s)
	if n := s.OpenIterators(); n != 0 {
		t.Errorf("%d iterators left open", n)
	}
}

// windowFace is one of the faces of a window store.
type windowFace struct {
	name  string
	fetch func(key []byte, start int64) (store.Value, error)
	scan  func(store.WindowScan) (store.Iterator, error)
}

func windowWriter(s WindowSubject, name string) windowFace {
	return windowFace{name, s.Writer.Fetch, s.Writer.Scan}
}

func windowReader(ctx context.Context, r store.WindowReader, name string) windowFace {
	return windowFace{
		name:  name,
		fetch: func(key []byte, start int64) (store.Value, error) { return r.Fetch(ctx, key, start) },
		scan:  func(sc store.WindowScan) (store.Iterator, error) { return r.Scan(ctx, sc) },
	}
}

// windowFaces are the store as its writer sees it, before and after the commit, and as a reader does.
func windowFaces(t *testing.T, s WindowSubject, check func(t *testing.T, f windowFace)) {
	t.Helper()
	check(t, windowWriter(s, "writer"))
	s.Commit()
	check(t, windowWriter(s, "writer after commit"))
	check(t, windowReader(t.Context(), s.Reader(), "reader"))
}

func putWindow(t *testing.T, w store.Window, key []byte, start int64, value string) {
	t.Helper()
	if err := w.Put(key, start, store.Value{Data: []byte(value), Timestamp: start}); err != nil {
		t.Fatalf("put %q at %d: %v", key, start, err)
	}
}

// ascending is how rows follow each other by default; orderOf says it by whether a scan is reversed.
const ascending = -1

var orderOf = map[bool]int{false: ascending, true: 1}

// scanned reads a scan to its end and checks what holds for every one, the order too.
func scanned(t *testing.T, what string, it store.Iterator, err error, order int) []store.Entry {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	defer it.Close()
	var out []store.Entry
	for it.Next() {
		e := it.Entry()
		if e.Data == nil {
			t.Fatalf("%s: row %x has no value", what, e.Cursor)
		}
		if n := len(out); n > 0 {
			if c := slices.Compare(out[n-1].Cursor, e.Cursor); c != order {
				t.Fatalf("%s: row %x comes after %x", what, e.Cursor, out[n-1].Cursor)
			}
		}
		out = append(out, e)
	}
	if err := it.Err(); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	return out
}

// mirrored returns what read gives, and checks that the other direction is its mirror (QS-06).
func mirrored(t *testing.T, name string, reverse *bool, read func() []string) []string {
	t.Helper()
	got := read()
	*reverse = !*reverse
	back := read()
	slices.Reverse(back)
	if d := cmp.Diff(got, back); d != "" {
		t.Errorf("QS-06: %s: a scan is not the mirror of the other direction (-forward +backward)\n%s", name, d)
	}
	return got
}

// valuesOf reads the values of a scan and checks that the other direction is its mirror (QS-06).
func valuesOf(t *testing.T, f windowFace, sc store.WindowScan) []string {
	t.Helper()
	read := func() []string {
		what := fmt.Sprintf("%s: scan %+v", f.name, sc)
		it, err := f.scan(sc)
		out := []string{}
		for _, e := range scanned(t, what, it, err, orderOf[sc.Reverse]) {
			key, start, _, err := store.ParseWindowKey(e.Cursor)
			if err != nil || string(key) != string(e.Key) || start != e.Start {
				t.Fatalf("%s: row %q at %d has the cursor %x (%v)", what, e.Key, e.Start, e.Cursor, err)
			}
			if want := windowSpec.WindowEnd(e.Start); e.End != want {
				t.Fatalf("%s: window of %d ends at %d, want %d", what, e.Start, e.End, want)
			}
			out = append(out, string(e.Data))
		}
		return out
	}
	return mirrored(t, f.name, &sc.Reverse, read)
}

// windowExpiry: one line for reads and writes, to the millisecond, whatever the segments (QS-11).
func windowExpiry(t *testing.T, s WindowSubject) {
	retention := windowSpec.Retention.Milliseconds()
	key := []byte("k")
	now := 5*retention + 7
	putWindow(t, s.Writer, []byte("clock"), now, "now")
	for start, value := range map[int64]string{
		0: "", now - retention - 1: "", now - retention: "", now - retention + 1: "first", now - 1: "last",
	} {
		before := s.Expired()
		putWindow(t, s.Writer, key, start, cmpOr(value, "late"))
		if dropped := s.Expired() - before; (dropped == 1) != (value == "") {
			t.Errorf("QS-11: a put %d ms before the stream time was dropped %d times", now-start, dropped)
		}
	}
	if err := s.Writer.Put(key, now-retention, store.Value{}); err != nil {
		t.Errorf("a delete that comes too late: %v", err)
	}
	windowFaces(t, s, func(t *testing.T, f windowFace) {
		if d := cmp.Diff([]string{"first", "last"}, valuesOf(t, f, store.WindowScan{Key: key, To: math.MaxInt64})); d != "" {
			t.Errorf("QS-11: %s (-want +got)\n%s", f.name, d)
		}
		if v, err := f.fetch(key, now-retention); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("QS-11: %s: %q, %v of what was dropped", f.name, v.Data, err)
		}
	})
	// What was there goes when the time goes on, by one millisecond.
	putWindow(t, s.Writer, []byte("clock"), now+1, "later")
	windowFaces(t, s, func(t *testing.T, f windowFace) {
		if d := cmp.Diff([]string{"last"}, valuesOf(t, f, store.WindowScan{Key: key, To: math.MaxInt64})); d != "" {
			t.Errorf("QS-11: %s, a millisecond later (-want +got)\n%s", f.name, d)
		}
		if v, err := f.fetch(key, now-retention+1); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("QS-11: %s: %q, %v of what has expired", f.name, v.Data, err)
		}
		if d := cmp.Diff([]string{"now", "later"}, valuesOf(t, f, store.WindowScan{Key: []byte("clock"), To: math.MaxInt64})); d != "" {
			t.Errorf("%s: the clock (-want +got)\n%s", f.name, d)
		}
	})
	if n, err := s.Reader().ApproximateCount(t.Context()); n != 3 || err != nil {
		t.Errorf("count %d, %v; want 3", n, err)
	}
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// windowValues: empty, deleted and absent are three things (SE-14); timestamps are kept where the kind has them.
func windowValues(t *testing.T, s WindowSubject, kind store.Kind) {
	key := []byte("k")
	for start, v := range map[int64]store.Value{
		1: {Data: []byte{}, Timestamp: 77}, 2: {Data: []byte("v"), Timestamp: -5}, 3: {Data: []byte{0, 0xff}, Timestamp: math.MaxInt64},
	} {
		if err := s.Writer.Put(key, start, v); err != nil {
			t.Fatal(err)
		}
	}
	windowFaces(t, s, func(t *testing.T, f windowFace) {
		for start, want := range map[int64]store.Value{
			1: {Data: []byte{}, Timestamp: 77}, 2: {Data: []byte("v"), Timestamp: -5}, 3: {Data: []byte{0, 0xff}, Timestamp: math.MaxInt64},
		} {
			if kind == store.KindWindow {
				want.Timestamp = -1
			}
			v, err := f.fetch(key, start)
			if err != nil {
				t.Errorf("SE-14: %s: %v at %d", f.name, err, start)
			}
			if d := cmp.Diff(want, v); d != "" {
				t.Errorf("SE-14: %s at %d (-want +got)\n%s", f.name, start, d)
			}
			it, err := f.scan(store.WindowScan{Key: key, From: start, To: start})
			for _, e := range scanned(t, f.name, it, err, ascending) {
				if d := cmp.Diff(want, e.Value); d != "" {
					t.Errorf("SE-14: %s: scan at %d (-want +got)\n%s", f.name, start, d)
				}
			}
			if len(v.Data) > 0 { // SE-06: what was returned is the caller's
				v.Data[0] = 'x'
				if again, err := f.fetch(key, start); err != nil || again.Data[0] == 'x' {
					t.Errorf("SE-06: %s: a caller wrote over the value: %q, %v", f.name, again.Data, err)
				}
			}
		}
	})
}

// windowBounds: both ends are inclusive, open is not empty (QS-04).
func windowBounds(t *testing.T, s WindowSubject) {
	for _, key := range []string{"a", "b", "c"} {
		for _, start := range []int64{10, 20, 30} {
			putWindow(t, s.Writer, []byte(key), start, fmt.Sprint(key, start))
		}
	}
	b := func(s string) []byte { return []byte(s) }
	windowFaces(t, s, func(t *testing.T, f windowFace) {
		for _, v := range []struct {
			scan store.WindowScan
			want string
		}{
			{store.WindowScan{To: 100}, "[a10 a20 a30 b10 b20 b30 c10 c20 c30]"},
			{store.WindowScan{From: 10, To: 20}, "[a10 a20 b10 b20 c10 c20]"},
			{store.WindowScan{From: 11, To: 19}, "[]"},
			{store.WindowScan{From: 20, To: 20}, "[a20 b20 c20]"},
			{store.WindowScan{From: 21, To: 20}, "[]"},
			{store.WindowScan{}, "[]"},
			{store.WindowScan{Key: b("b"), From: 20, To: 100}, "[b20 b30]"},
			{store.WindowScan{Key: b("bb"), To: 100}, "[]"},
			{store.WindowScan{KeyFrom: b("b"), To: 100}, "[b10 b20 b30 c10 c20 c30]"},
			{store.WindowScan{KeyTo: b("b"), To: 100}, "[a10 a20 a30 b10 b20 b30]"},
			{store.WindowScan{KeyFrom: b("b"), KeyTo: b("b"), To: 100}, "[b10 b20 b30]"},
			{store.WindowScan{KeyFrom: b("aa"), KeyTo: b("bb"), From: 20, To: 100}, "[b20 b30]"},
			{store.WindowScan{KeyTo: []byte{}, To: 100}, "[]"},
			{store.WindowScan{KeyFrom: []byte{}, From: 30, To: 100}, "[a30 b30 c30]"},
		} {
			if got := fmt.Sprint(valuesOf(t, f, v.scan)); got != v.want {
				t.Errorf("QS-04: %s: %+v: %s, want %s", f.name, v.scan, got, v.want)
			}
		}
	})
}

// hostileKeys are prefixes of each other, or look like the times that follow a key.
var hostileKeys = []string{
	"\x00", "\x00\x00", "\x00\x00\x00\x00\x00\x00\x00\x00", "\x00\x00\x00\x00\x00\x00\x00\x01", "\x00\x01", "\x01", "a", "a\x00",
	"a\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00", "a\x00\x00\x00\x00\x00\x00\x00\x0a", "aa", "\x7f", "\x7f\xff", "\xff", "\xff\xff", "\xff\xff\xff\xff\xff\xff\xff\xff\xff",
}

// windowHostile: each key has its own windows, in every kind of scan.
func windowHostile(t *testing.T, s WindowSubject) {
	starts := []int64{0, 5, 10, 256, 70_000, 119_999}
	rows := 0
	for _, key := range hostileKeys {
		for _, start := range starts {
			putWindow(t, s.Writer, []byte(key), start, fmt.Sprintf("%x@%d", key, start))
			rows++
		}
	}
	windowFaces(t, s, func(t *testing.T, f windowFace) {
		if got := valuesOf(t, f, store.WindowScan{To: math.MaxInt64}); len(got) != rows {
			t.Errorf("%s: %d rows, want %d", f.name, len(got), rows)
		}
		for _, lo := range hostileKeys {
			want := []string{}
			for _, start := range starts[1:4] {
				want = append(want, fmt.Sprintf("%x@%d", lo, start))
			}
			if d := cmp.Diff(want, valuesOf(t, f, store.WindowScan{Key: []byte(lo), From: 1, To: 69_999})); d != "" {
				t.Errorf("%s: key %x (-want +got)\n%s", f.name, lo, d)
			}
			for _, hi := range hostileKeys {
				n := 0
				for _, key := range hostileKeys {
					if key >= lo && key <= hi {
						n += 3
					}
				}
				if got := valuesOf(t, f, store.WindowScan{KeyFrom: []byte(lo), KeyTo: []byte(hi), From: 1, To: 69_999}); len(got) != n {
					t.Errorf("%s: keys %x to %x: %d rows, want %d: %q", f.name, lo, hi, len(got), n, got)
				}
			}
		}
	})
}

// windowCursors: a scan goes on behind any row, in both directions, for one key and for many.
func windowCursors(t *testing.T, s WindowSubject) {
	for i := range 40 {
		putWindow(t, s.Writer, []byte{byte('a' + i%4)}, int64(i*2_900), fmt.Sprint(i))
	}
	windowFaces(t, s, func(t *testing.T, f windowFace) {
		for _, sc := range []store.WindowScan{
			{From: 10_000, To: 110_000}, {Key: []byte("b"), To: math.MaxInt64}, {KeyFrom: []byte("b"), KeyTo: []byte("c"), To: 60_000},
		} {
			for _, sc.Reverse = range []bool{false, true} {
				it, err := f.scan(sc)
				whole := scanned(t, f.name, it, err, orderOf[sc.Reverse])
				if len(whole) < 10 {
					t.Fatalf("%s: %d rows", f.name, len(whole))
				}
				for i, e := range whole {
					rest := sc
					rest.After = e.Cursor
					it, err := f.scan(rest)
					if d := cmp.Diff(whole[i+1:], scanned(t, f.name, it, err, orderOf[sc.Reverse])); d != "" && i+1 < len(whole) {
						t.Fatalf("%s: %+v after row %d (-want +got)\n%s", f.name, sc, i, d)
					}
				}
			}
		}
	})
}

// windowSnapshots: an iterator and a reader show the state at their opening, whatever is written meanwhile (QS-12).
func windowSnapshots(t *testing.T, s WindowSubject) {
	retention := windowSpec.Retention.Milliseconds()
	want := []string{}
	for i := range 50 {
		putWindow(t, s.Writer, []byte("k"), int64(i*2000), fmt.Sprint(i))
		want = append(want, fmt.Sprint(i))
	}
	s.Commit()
	r := s.Reader()
	all := store.WindowScan{Key: []byte("k"), To: math.MaxInt64}
	committed, err := r.Scan(t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	writers, err := s.Writer.Scan(all)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		putWindow(t, s.Writer, []byte("k"), int64(i*2000), "overwritten")
		putWindow(t, s.Writer, []byte("k"), int64(i*2000+1), "new")
	}
	putWindow(t, s.Writer, []byte("k"), 2*retention, "expires all that is older")
	s.Commit()
	for name, it := range map[string]store.Iterator{"reader": committed, "writer": writers} {
		got := []string{}
		for _, e := range scanned(t, name, it, nil, ascending) {
			got = append(got, string(e.Data))
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("QS-12: iterator of the %s (-want +got)\n%s", name, d)
		}
	}
	if d := cmp.Diff(want, valuesOf(t, windowReader(t.Context(), r, "old reader"), all)); d != "" {
		t.Errorf("QS-12: a reader of the commit before (-want +got)\n%s", d)
	}
	if v, err := r.Fetch(t.Context(), []byte("k"), 0); err != nil || string(v.Data) != "0" {
		t.Errorf("QS-12: a reader of the commit before: %q, %v", v.Data, err)
	}
	if d := cmp.Diff([]string{"expires all that is older"}, valuesOf(t, windowReader(t.Context(), s.Reader(), "new reader"), all)); d != "" {
		t.Errorf("a reader of the last commit (-want +got)\n%s", d)
	}
}

func windowRefusals(t *testing.T, s WindowSubject) {
	putWindow(t, s.Writer, []byte("k"), 10, "v")
	s.Commit()
	r := s.Reader()
	for _, f := range []windowFace{windowWriter(s, "writer"), windowReader(t.Context(), r, "reader")} {
		for what, want := range map[string]struct {
			err    error
			target error
		}{
			"empty key":      {second(f.fetch(nil, 1)), store.ErrInvalidKey},
			"negative start": {second(f.fetch([]byte("k"), -1)), store.ErrInvalidRequest},
			"scan of an empty key": {
				second(f.scan(store.WindowScan{Key: []byte{}})), store.ErrInvalidKey,
			},
			"key and key range": {
				second(f.scan(store.WindowScan{Key: []byte("k"), KeyFrom: []byte("a")})), store.ErrInvalidRequest,
			},
			"negative from": {second(f.scan(store.WindowScan{From: -1, To: 1})), store.ErrInvalidRequest},
			"negative to":   {second(f.scan(store.WindowScan{To: -1})), store.ErrInvalidRequest},
		} {
			if !errors.Is(want.err, want.target) {
				t.Errorf("%s: %s: %v, want %v", f.name, what, want.err, want.target)
			}
		}
	}
	if err := s.Writer.Put(nil, 1, store.Value{Data: []byte("v")}); !errors.Is(err, store.ErrInvalidKey) {
		t.Errorf("put of an empty key: %v", err)
	}
	if err := s.Writer.Put([]byte("k"), -1, store.Value{Data: []byte("v")}); !errors.Is(err, store.ErrInvalidRequest) {
		t.Errorf("put before 1970: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	it, err := r.Scan(ctx, store.WindowScan{To: 100})
	if err != nil {
		t.Fatal(err)
	}
	gone := errors.New("gone")
	cancel(gone)
	if it.Next() || !errors.Is(it.Err(), gone) {
		t.Errorf("a scan whose caller has gone: %v", it.Err())
	}
	it.Close()
	if _, err := r.Fetch(ctx, []byte("k"), 10); !errors.Is(err, gone) {
		t.Errorf("a fetch whose caller has gone: %v", err)
	}
	open, err := r.Scan(t.Context(), store.WindowScan{To: 100})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	if open.Next() || !errors.Is(open.Err(), store.ErrClosed) {
		t.Errorf("a scan of a closed snapshot: %v", open.Err())
	}
	open.Close()
	for what, err := range map[string]error{
		"fetch": second(r.Fetch(t.Context(), []byte("k"), 10)), "fetch of what is not there": second(r.Fetch(t.Context(), []byte("k"), 11)),
		"scan": second(r.Scan(t.Context(), store.WindowScan{To: 9})),
	} {
		if !errors.Is(err, store.ErrClosed) {
			t.Errorf("%s of a closed snapshot: %v", what, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// windowFar: the greatest times there are.
func windowFar(t *testing.T, s WindowSubject) {
	putWindow(t, s.Writer, []byte("k"), 1, "gone")
	putWindow(t, s.Writer, []byte("k"), math.MaxInt64-1, "before")
	putWindow(t, s.Writer, []byte("k"), math.MaxInt64, "last")
	windowFaces(t, s, func(t *testing.T, f windowFace) {
		for _, sc := range []store.WindowScan{{To: math.MaxInt64}, {Key: []byte("k"), To: math.MaxInt64}, {KeyTo: []byte("kk"), To: math.MaxInt64}} {
			if d := cmp.Diff([]string{"before", "last"}, valuesOf(t, f, sc)); d != "" {
				t.Errorf("%s: %+v (-want +got)\n%s", f.name, sc, d)
			}
		}
	})
}

// windowIterators: Close is idempotent (SE-16), an iterator left at once holds nothing.
func windowIterators(t *testing.T, s WindowSubject) {
	for i := range 10 {
		putWindow(t, s.Writer, []byte{byte('a' + i)}, int64(i*10_000), "v")
	}
	windowFaces(t, s, func(t *testing.T, f windowFace) {
		for _, sc := range []store.WindowScan{{To: math.MaxInt64}, {Key: []byte("c"), To: math.MaxInt64}, {From: 5, To: 4}} {
			it, err := f.scan(sc)
			if err != nil {
				t.Fatal(err)
			}
			it.Next()
			it.Close()
			it.Close()
			if it.Next() || it.Err() != nil {
				t.Errorf("SE-16: %s: a closed iterator goes on, %v", f.name, it.Err())
			}
		}
	})
}
