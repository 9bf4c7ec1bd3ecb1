package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/statemesh/statemesh/store"
)

// SessionSubject is a session store under test, empty when it is handed out.
type SessionSubject struct {
	Writer store.Session
	// Commit makes what was written visible to readers opened later.
	Commit func()
	// Reader opens a reader of the last commit. The subject closes it.
	Reader func() store.SessionReader
	// Expired counts the writes that were dropped because they came too late.
	Expired func() int
	// OpenIterators counts what nobody has closed.
	OpenIterators func() int64
}

// sessionSpec is that of AbstractSessionBytesStoreTest.
var sessionSpec = store.Spec{Kind: store.KindSession, Retention: 10 * time.Second, SegmentInterval: time.Second}

// Session runs the contract of store.Session and store.SessionReader. open returns a store with this declaration, whose
// name and place it chooses.
func Session(t *testing.T, open func(t *testing.T, spec store.Spec) SessionSubject) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, SessionSubject){
		"T5-55 56":     sessionFind,
		"T5-57":        sessionOverlap,
		"T5-58 59":     sessionByEnd,
		"T5-63 to 67":  sessionMerges,
		"QS-07":        sessionSearch,
		"removal":      sessionRemoval,
		"expiry":       sessionExpiry,
		"hostile keys": sessionHostile,
		"cursors":      sessionCursors,
		"snapshots":    sessionSnapshots,
		"refusals":     sessionRefusals,
		"far times":    sessionFar,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, sessionSpec)
			test(t, s)
			if n := s.OpenIterators(); n != 0 {
				t.Errorf("%d iterators left open", n)
			}
		})
	}
}

// sessionFace is one of the faces of a session store.
type sessionFace struct {
	name  string
	fetch func(key []byte, start, end int64) (store.Value, error)
	scan  func(store.SessionScan) (store.Iterator, error)
}

func sessionReader(ctx context.Context, r store.SessionReader, name string) sessionFace {
	return sessionFace{
		name:  name,
		fetch: func(key []byte, start, end int64) (store.Value, error) { return r.Fetch(ctx, key, start, end) },
		scan:  func(sc store.SessionScan) (store.Iterator, error) { return r.Scan(ctx, sc) },
	}
}

func sessionFaces(t *testing.T, s SessionSubject, check func(t *testing.T, f sessionFace)) {
	t.Helper()
	check(t, sessionFace{"writer", s.Writer.Fetch, s.Writer.Scan})
	s.Commit()
	check(t, sessionFace{"writer after commit", s.Writer.Fetch, s.Writer.Scan})
	check(t, sessionReader(t.Context(), s.Reader(), "reader"))
}

// find is upstream's findSessions.
func find(key string, earliestEnd, latestStart int64) store.SessionScan {
	return store.SessionScan{Key: []byte(key), EarliestEnd: earliestEnd, LatestEnd: math.MaxInt64, LatestStart: latestStart}
}

// everySession is upstream's fetch of one key, or of all.
func everySession(key string) store.SessionScan {
	sc := store.SessionScan{LatestEnd: math.MaxInt64, LatestStart: math.MaxInt64}
	if key != "" {
		sc.Key = []byte(key)
	}
	return sc
}

func putSession(t *testing.T, w store.Session, key string, start, end int64) {
	t.Helper()
	if err := w.Put([]byte(key), start, end, store.Value{Data: fmt.Appendf(nil, "%s[%d,%d]", key, start, end), Timestamp: end}); err != nil {
		t.Fatalf("put %q [%d,%d]: %v", key, start, end, err)
	}
}

// sessionsOf reads the values of a scan and checks that the other direction is its mirror (QS-06).
func sessionsOf(t *testing.T, f sessionFace, sc store.SessionScan) []string {
	t.Helper()
	read := func() []string {
		what := fmt.Sprintf("%s: scan %+v", f.name, sc)
		it, err := f.scan(sc)
		out := []string{}
		for _, e := range scanned(t, what, it, err, orderOf[sc.Reverse]) {
			key, start, end, err := store.ParseSessionKey(e.Cursor)
			if err != nil || string(key) != string(e.Key) || start != e.Start || end != e.End || e.Timestamp != -1 {
				t.Fatalf("%s: row %q [%d,%d] at %d has the cursor %x (%v)", what, e.Key, e.Start, e.End, e.Timestamp, e.Cursor, err)
			}
			out = append(out, string(e.Data))
		}
		return out
	}
	return mirrored(t, f.name, &sc.Reverse, read)
}

func wantSessions(t *testing.T, id string, f sessionFace, sc store.SessionScan, want ...string) {
	t.Helper()
	if d := cmp.Diff(append([]string{}, want...), sessionsOf(t, f, sc)); d != "" {
		t.Errorf("%s: %s (-want +got)\n%s", id, f.name, d)
	}
}

func sessionFind(t *testing.T, s SessionSubject) {
	for _, w := range [][2]int64{{10, 10}, {500, 1000}, {1500, 2000}, {2500, 3000}} {
		putSession(t, s.Writer, "a", w[0], w[1])
	}
	putSession(t, s.Writer, "aa", 0, 1)
	putSession(t, s.Writer, "b", 600, 700)
	sessionFaces(t, s, func(t *testing.T, f sessionFace) {
		wantSessions(t, "T5/55", f, find("a", 0, 1000), "a[10,10]", "a[500,1000]")
		wantSessions(t, "T5/56", f, find("a", 400, 600), "a[500,1000]")
		wantSessions(t, "fetch", f, everySession("a"), "a[10,10]", "a[500,1000]", "a[1500,2000]", "a[2500,3000]")
		wantSessions(t, "a bound before 1970", f, find("a", -5, 10), "a[10,10]")
		wantSessions(t, "a start before 1970", f, find("a", -5, -1))
		wantSessions(t, "key range", f, store.SessionScan{
			KeyFrom: []byte("a"), KeyTo: []byte("aa"), EarliestEnd: 0, LatestEnd: math.MaxInt64, LatestStart: 10,
		}, "a[10,10]", "aa[0,1]")
		if v, err := f.fetch([]byte("a"), 500, 1000); err != nil || string(v.Data) != "a[500,1000]" {
			t.Errorf("%s: fetch session: %q, %v", f.name, v.Data, err)
		}
		for _, w := range [][2]int64{{500, 999}, {501, 1000}, {1000, 1000}} {
			if v, err := f.fetch([]byte("a"), w[0], w[1]); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("%s: fetch of a session that is not there: %q, %v", f.name, v.Data, err)
			}
		}
	})
}

func sessionOverlap(t *testing.T, s SessionSubject) {
	for _, w := range [][2]int64{{0, 100}, {101, 200}, {201, 300}, {301, 400}, {401, 500}} {
		putSession(t, s.Writer, "k", w[0], w[1])
	}
	sessionFaces(t, s, func(t *testing.T, f sessionFace) {
		wantSessions(t, "T5/57", f, find("k", 150, 300), "k[101,200]", "k[201,300]")
	})
}

func sessionByEnd(t *testing.T, s SessionSubject) {
	putSession(t, s.Writer, "a", 0, 0)
	putSession(t, s.Writer, "b", 10, 20)
	putSession(t, s.Writer, "c", 30, 40)
	sessionFaces(t, s, func(t *testing.T, f sessionFace) {
		byEnd := func(id string, from, to int64, want ...string) {
			t.Helper()
			wantSessions(t, id, f, store.SessionScan{EarliestEnd: from, LatestEnd: to, LatestStart: math.MaxInt64}, want...)
		}
		byEnd("T5/58", 0, 20, "a[0,0]", "b[10,20]")
		byEnd("T5/59", 0, 19, "a[0,0]")
		byEnd("T5/59", 1, 20, "b[10,20]")
		byEnd("T5/59", 19, 41, "b[10,20]", "c[30,40]")
		byEnd("T5/59", 0, 40, "a[0,0]", "b[10,20]", "c[30,40]")
		byEnd("upside down", 40, 0)
	})
}

// add counts a record into a session the way a session aggregation does: it merges what lies within gap. It returns what
// it would have emitted.
func add(t *testing.T, w store.Session, key string, at, gap int64) (emitted []string) {
	t.Helper()
	it, err := w.Scan(find(key, at-gap, at+gap))
	start, end, n := at, at, 1
	for _, e := range scanned(t, "find", it, err, ascending) {
		if err := w.Remove([]byte(key), e.Start, e.End); err != nil {
			t.Fatal(err)
		}
		if e.Start != at || e.End != at { // else it is the same session again
			emitted = append(emitted, fmt.Sprintf("[%d,%d]=null", e.Start, e.End))
		}
		start, end = min(start, e.Start), max(end, e.End)
		count := 0
		if _, err := fmt.Sscan(string(e.Data), &count); err != nil {
			t.Fatal(err)
		}
		n += count
	}
	if err := w.Put([]byte(key), start, end, store.Value{Data: fmt.Append(nil, n), Timestamp: at}); err != nil {
		t.Fatal(err)
	}
	return append(emitted, fmt.Sprintf("[%d,%d]=%d", start, end, n))
}

// sessionMerges are T5/63 to T5/67, as far as they concern the store.
func sessionMerges(t *testing.T, s SessionSubject) {
	const gap = 300
	want := func(id, key string, sessions ...string) {
		t.Helper()
		it, err := s.Writer.Scan(everySession(key))
		got := []string{}
		for _, e := range scanned(t, id, it, err, ascending) {
			got = append(got, fmt.Sprintf("[%d,%d]=%s", e.Start, e.End, e.Data))
		}
		if d := cmp.Diff(sessions, got); d != "" {
			t.Errorf("%s (-want +got)\n%s", id, d)
		}
	}
	add(t, s.Writer, "63", 0, gap)
	add(t, s.Writer, "63", gap+1, gap)
	want("T5/63", "63", "[0,0]=1", fmt.Sprintf("[%d,%d]=1", gap+1, gap+1))
	s.Commit()
	add(t, s.Writer, "63", gap/2, gap)
	want("T5/64", "63", fmt.Sprintf("[0,%d]=3", gap+1))
	add(t, s.Writer, "65", 0, gap)
	s.Commit()
	add(t, s.Writer, "65", 100, gap)
	want("T5/65", "65", "[0,100]=2")
	emitted := append(add(t, s.Writer, "66", 0, gap), add(t, s.Writer, "66", 5, gap)...)
	if d := cmp.Diff([]string{"[0,0]=1", "[0,0]=null", "[0,5]=2"}, emitted); d != "" {
		t.Errorf("T5/66 (-want +got)\n%s", d)
	}
	add(t, s.Writer, "67", 7, gap)
	add(t, s.Writer, "67", 7, gap)
	want("T5/67", "67", "[7,7]=2")
	s.Commit()
	f := sessionReader(t.Context(), s.Reader(), "reader")
	wantSessions(t, "T5/64 committed", f, everySession("63"), "3")
	wantSessions(t, "T5/65 committed", f, everySession("65"), "2")
}

// sessionSearch is QS-07: the search is by end and start over rows ordered by end, then start.
func sessionSearch(t *testing.T, s SessionSubject) {
	for _, w := range [][2]int64{{0, 1}, {1, 2}, {1, 5}, {4, 5}, {4, 6}, {5, 6}} {
		if err := s.Writer.Put([]byte("k"), w[0], w[1], store.Value{Data: []byte("1")}); err != nil {
			t.Fatal(err)
		}
	}
	sessionFaces(t, s, func(t *testing.T, f sessionFace) {
		it, err := f.scan(find("k", 2, 4))
		var got []string
		for _, e := range scanned(t, "QS-07", it, err, ascending) {
			got = append(got, fmt.Sprintf("[%d,%d]", e.Start, e.End))
		}
		if d := cmp.Diff([]string{"[1,2]", "[1,5]", "[4,5]", "[4,6]"}, got); d != "" {
			t.Errorf("QS-07: %s (-want +got)\n%s", f.name, d)
		}
	})
	add(t, s.Writer, "k", 3, 1)
	sessionFaces(t, s, func(t *testing.T, f sessionFace) {
		it, err := f.scan(everySession("k"))
		var got []string
		for _, e := range scanned(t, "QS-07", it, err, ascending) {
			got = append(got, fmt.Sprintf("[%d,%d]", e.Start, e.End))
		}
		if d := cmp.Diff([]string{"[0,1]", "[1,6]", "[5,6]"}, got); d != "" {
			t.Errorf("QS-07: %s after the merge (-want +got)\n%s", f.name, d)
		}
	})
}

func sessionRemoval(t *testing.T, s SessionSubject) {
	putSession(t, s.Writer, "k", 0, 100)
	putSession(t, s.Writer, "k", 0, 101)
	putSession(t, s.Writer, "k", 1, 100)
	s.Commit()
	if err := s.Writer.Remove([]byte("k"), 0, 100); err != nil {
		t.Fatal(err)
	}
	if err := s.Writer.Put([]byte("k"), 1, 100, store.Value{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Writer.Remove([]byte("k"), 7, 8); err != nil {
		t.Errorf("removal of a session that is not there: %v", err)
	}
	if err := s.Writer.Put([]byte("k"), 50, 60, store.Value{Data: []byte{}}); err != nil {
		t.Fatal(err)
	}
	sessionFaces(t, s, func(t *testing.T, f sessionFace) {
		wantSessions(t, "removal, SE-14", f, everySession("k"), "", "k[0,101]")
	})
}

// sessionExpiry: by the end, to the millisecond, for reads and writes (QS-11).
func sessionExpiry(t *testing.T, s SessionSubject) {
	retention := sessionSpec.Retention.Milliseconds()
	now := 3*retention + 5
	putSession(t, s.Writer, "clock", 0, now)
	for end, late := range map[int64]bool{now - retention - 1: true, now - retention: true, now - retention + 1: false, now: false} {
		before := s.Expired()
		putSession(t, s.Writer, "k", 0, end)
		if dropped := s.Expired() - before; (dropped == 1) != late {
			t.Errorf("QS-11: a put that ends %d ms before the stream time was dropped %d times", now-end, dropped)
		}
	}
	before := s.Expired()
	if err := s.Writer.Remove([]byte("k"), 0, 5); err != nil || s.Expired() != before {
		t.Errorf("removal of an expired session: %v, counted %d times", err, s.Expired()-before)
	}
	first, last := fmt.Sprintf("k[0,%d]", now-retention+1), fmt.Sprintf("k[0,%d]", now)
	sessionFaces(t, s, func(t *testing.T, f sessionFace) {
		wantSessions(t, "QS-11", f, everySession("k"), first, last)
	})
	putSession(t, s.Writer, "clock", 0, now+1)
	sessionFaces(t, s, func(t *testing.T, f sessionFace) {
		wantSessions(t, "QS-11, a millisecond later", f, everySession("k"), last)
		if v, err := f.fetch([]byte("k"), 0, now-retention+1); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("QS-11: %s: %q, %v of what has expired", f.name, v.Data, err)
		}
	})
	if n, err := s.Reader().ApproximateCount(t.Context()); n != 3 || err != nil {
		t.Errorf("count %d, %v; want 3", n, err)
	}
}

func sessionHostile(t *testing.T, s SessionSubject) {
	times := [][2]int64{{0, 0}, {0, 255}, {200, 256}, {256, 256}, {3000, 9000}}
	for _, key := range hostileKeys {
		for _, w := range times {
			putSession(t, s.Writer, key, w[0], w[1])
		}
	}
	sessionFaces(t, s, func(t *testing.T, f sessionFace) {
		if got := sessionsOf(t, f, everySession("")); len(got) != len(hostileKeys)*len(times) {
			t.Errorf("%s: %d rows, want %d", f.name, len(got), len(hostileKeys)*len(times))
		}
		for _, lo := range hostileKeys {
			wantSessions(t, fmt.Sprintf("key %x", lo), f, find(lo, 1, 255), lo+"[0,255]", lo+"[200,256]")
			for _, hi := range hostileKeys {
				n := 0
				for _, key := range hostileKeys {
					if key >= lo && key <= hi {
						n += 2
					}
				}
				sc := store.SessionScan{KeyFrom: []byte(lo), KeyTo: []byte(hi), EarliestEnd: 1, LatestEnd: 8999, LatestStart: 255}
				if got := sessionsOf(t, f, sc); len(got) != n {
					t.Errorf("%s: keys %x to %x: %d rows, want %d: %q", f.name, lo, hi, len(got), n, got)
				}
			}
		}
	})
}

func sessionCursors(t *testing.T, s SessionSubject) {
	for i := range int64(40) {
		putSession(t, s.Writer, string(rune('a'+i%4)), i*100, i*200)
	}
	sessionFaces(t, s, func(t *testing.T, f sessionFace) {
		for _, sc := range []store.SessionScan{
			everySession(""), everySession("b"), {KeyFrom: []byte("b"), KeyTo: []byte("c"), EarliestEnd: 500, LatestEnd: 7000, LatestStart: 3500},
		} {
			for _, sc.Reverse = range []bool{false, true} {
				it, err := f.scan(sc)
				whole := scanned(t, f.name, it, err, orderOf[sc.Reverse])
				if len(whole) < 10 {
					t.Fatalf("%s: %d rows", f.name, len(whole))
				}
				for i, e := range whole[:len(whole)-1] {
					rest := sc
					rest.After = e.Cursor
					it, err := f.scan(rest)
					if d := cmp.Diff(whole[i+1:], scanned(t, f.name, it, err, orderOf[sc.Reverse])); d != "" {
						t.Fatalf("%s: %+v after row %d (-want +got)\n%s", f.name, sc, i, d)
					}
				}
			}
		}
	})
}

// sessionSnapshots: an iterator and a reader show the state at their opening (QS-12).
func sessionSnapshots(t *testing.T, s SessionSubject) {
	want := []string{}
	for i := range int64(50) {
		putSession(t, s.Writer, "k", i*100, i*100+50)
		want = append(want, fmt.Sprintf("k[%d,%d]", i*100, i*100+50))
	}
	s.Commit()
	r := s.Reader()
	committed, err := r.Scan(t.Context(), everySession("k"))
	if err != nil {
		t.Fatal(err)
	}
	own, err := s.Writer.Scan(everySession("k"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(50) {
		if err := s.Writer.Remove([]byte("k"), i*100, i*100+50); err != nil {
			t.Fatal(err)
		}
		putSession(t, s.Writer, "k", i*100, i*100+60)
	}
	putSession(t, s.Writer, "k", 0, 3*sessionSpec.Retention.Milliseconds())
	s.Commit()
	for name, it := range map[string]store.Iterator{"reader": committed, "writer": own} {
		got := []string{}
		for _, e := range scanned(t, name, it, nil, ascending) {
			got = append(got, string(e.Data))
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("QS-12: iterator of the %s (-want +got)\n%s", name, d)
		}
	}
	wantSessions(t, "QS-12", sessionReader(t.Context(), r, "old reader"), everySession("k"), want...)
	wantSessions(t, "QS-12", sessionReader(t.Context(), s.Reader(), "new reader"), everySession("k"), "k[0,30000]")
}

func sessionRefusals(t *testing.T, s SessionSubject) {
	s.Commit()
	for _, f := range []sessionFace{{"writer", s.Writer.Fetch, s.Writer.Scan}, sessionReader(t.Context(), s.Reader(), "reader")} {
		for what, c := range map[string]struct{ err, target error }{
			"empty key":            {second(f.fetch(nil, 1, 1)), store.ErrInvalidKey},
			"negative start":       {second(f.fetch([]byte("k"), -1, 1)), store.ErrInvalidRequest},
			"end before start":     {second(f.fetch([]byte("k"), 2, 1)), store.ErrInvalidRequest},
			"scan of an empty key": {second(f.scan(store.SessionScan{Key: []byte{}})), store.ErrInvalidKey},
			"key and key range":    {second(f.scan(store.SessionScan{Key: []byte("k"), KeyTo: []byte("z")})), store.ErrInvalidRequest},
		} {
			if !errors.Is(c.err, c.target) {
				t.Errorf("%s: %s: %v, want %v", f.name, what, c.err, c.target)
			}
		}
	}
	for what, c := range map[string]struct{ err, target error }{
		"put of an empty key":    {s.Writer.Put(nil, 1, 1, store.Value{Data: []byte("v")}), store.ErrInvalidKey},
		"put before 1970":        {s.Writer.Put([]byte("k"), -1, 1, store.Value{Data: []byte("v")}), store.ErrInvalidRequest},
		"put of an end first":    {s.Writer.Put([]byte("k"), 2, 1, store.Value{Data: []byte("v")}), store.ErrInvalidRequest},
		"remove of an end first": {s.Writer.Remove([]byte("k"), 2, 1), store.ErrInvalidRequest},
	} {
		if !errors.Is(c.err, c.target) {
			t.Errorf("%s: %v, want %v", what, c.err, c.target)
		}
	}
}

func sessionFar(t *testing.T, s SessionSubject) {
	putSession(t, s.Writer, "k", 1, 1)
	putSession(t, s.Writer, "k", 0, math.MaxInt64)
	putSession(t, s.Writer, "k", math.MaxInt64, math.MaxInt64)
	sessionFaces(t, s, func(t *testing.T, f sessionFace) {
		want := []string{fmt.Sprintf("k[0,%d]", int64(math.MaxInt64)), fmt.Sprintf("k[%d,%[1]d]", int64(math.MaxInt64))}
		wantSessions(t, "far", f, everySession("k"), want...)
		wantSessions(t, "far", f, everySession(""), want...)
		wantSessions(t, "far", f, find("k", 0, 5), want[0])
	})
}
