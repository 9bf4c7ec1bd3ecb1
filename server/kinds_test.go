package server

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// placed is a row and where it is.
type placed struct {
	p store.Partition
	e store.Entry
}

// world is a mesh with a store of one kind: instances a and b own every other partition, c owns none.
type world struct {
	*mesh

	kind store.Kind
	rows []placed // in order
}

const worldPartitions = 4

var worldKinds = []store.Kind{
	store.KindTimestampedKeyValue, store.KindWindow, store.KindTimestampedWindow, store.KindSession, store.KindVersioned,
}

// entriesOf are the rows of one key.
func entriesOf(kind store.Kind, key []byte, i int) []store.Entry {
	text := func(n int) string { return fmt.Sprintf("%s/%d", key, n) }
	switch familyOf(kind) {
	case windows:
		return []store.Entry{
			windowEntry(key, 0, text(0)), windowEntry(key, 10, ""), windowEntry(key, int64(1000+i), text(2)),
			windowEntry(key, math.MaxInt64-3, text(3)),
		}
	case sessions:
		return []store.Entry{
			sessionEntry(key, 0, 0, text(0)), sessionEntry(key, 5, int64(20+i), ""), sessionEntry(key, 100, 150, text(2)),
			sessionEntry(key, 120, 150, text(3)),
		}
	case versions:
		return []store.Entry{
			versionEntry(key, 0, 10, text(0)), versionEntry(key, 10, int64(20+i), ""), versionEntry(key, 100, store.NoEnd, text(2)),
		}
	default:
		return []store.Entry{{Key: key, Cursor: key, Value: store.Value{Data: []byte(text(0)), Timestamp: 42}}}
	}
}

func infoOf(kind store.Kind) router.StoreInfo {
	info := router.StoreInfo{Kind: kind}
	if familyOf(kind) == windows {
		info.WindowSize = fakeWindowSize * time.Millisecond
	}
	return info
}

func newWorld(tb testing.TB, kind store.Kind, adjust ...func(string, *Config, *Deps)) *world {
	tb.Helper()
	w := &world{kind: kind, mesh: newMeshOf(tb, infoOf(kind), 3, worldPartitions, func(p int) int { return p % 2 }, adjust...)}
	for i := range 25 {
		key := fmt.Appendf(nil, "k%02d", i)
		for _, e := range entriesOf(kind, key, i) {
			w.add(w.partition(key), e)
		}
	}
	return w
}

func (w *world) add(p store.Partition, e store.Entry) {
	w.owner(p).stores.add(p, e)
	w.rows = append(w.rows, placed{p, e})
	slices.SortFunc(w.rows, func(a, b placed) int { return cmp.Or(bytes.Compare(a.e.Cursor, b.e.Cursor), cmp.Compare(a.p, b.p)) })
}

// want are the rows that keep accepts, in the direction of the scan.
func (w *world) want(reverse bool, keep func(*placed) bool) []placed {
	var out []placed
	for i := range w.rows {
		if keep(&w.rows[i]) {
			out = append(out, w.rows[i])
		}
	}
	if reverse {
		slices.SortFunc(out, func(a, b placed) int { return cmp.Or(bytes.Compare(b.e.Cursor, a.e.Cursor), cmp.Compare(a.p, b.p)) })
	}
	return out
}

// all is the scan of everything; a versioned store has none.
func (w *world) all() *statemeshv1.ScanRequest {
	req := &statemeshv1.ScanRequest{Store: string(testStore)}
	switch familyOf(w.kind) {
	case windows:
		req.Selection = &statemeshv1.ScanRequest_Windows{Windows: &statemeshv1.WindowSelection{}}
	case sessions:
		req.Selection = &statemeshv1.ScanRequest_Sessions{Sessions: &statemeshv1.SessionSelection{}}
	case versions:
		req.Selection = &statemeshv1.ScanRequest_Versions{Versions: &statemeshv1.VersionSelection{}}
		req.Key = []byte("k07")
	default:
	}
	return req
}

func (w *world) inAll(r *placed) bool {
	return familyOf(w.kind) != versions || string(r.e.Key) == "k07"
}

// checkRow compares a row of an answer.
func (w *world) checkRow(tb testing.TB, got *statemeshv1.Row, want *placed) {
	tb.Helper()
	v, has := wire.ToValue(got.GetValue())
	e := &want.e
	if !bytes.Equal(got.GetKey(), e.Key) || !has || !bytes.Equal(v.Data, e.Data) || v.Timestamp != e.Timestamp || store.Partition(got.GetPartition()) != want.p {
		tb.Fatalf("row %v, want %+v", got, want)
	}
	span, timed := wire.ToSpan(got.GetSpan())
	if timed != (familyOf(w.kind) != keyValues) || timed && (span != wire.Span{Start: e.Start, End: e.End} || !bytes.Equal(got.GetCursor(), e.Cursor)) {
		tb.Fatalf("row %v: span %v, want %+v", got, span, want)
	}
}

func (w *world) scan(tb testing.TB, at string, req *statemeshv1.ScanRequest) (rows []*statemeshv1.Row, last *statemeshv1.ScanResponse) {
	tb.Helper()
	stream, err := w.node(at).query().Scan(tb.Context(), req)
	if err != nil {
		tb.Fatal(err)
	}
	rows, last, _, err = drainScan(stream)
	if err != nil {
		tb.Fatalf("scan %v at %s: %v", req, at, err)
	}
	return rows, last
}

func (w *world) checkScan(tb testing.TB, at string, req *statemeshv1.ScanRequest, want []placed) {
	tb.Helper()
	rows, last := w.scan(tb, at, req)
	if len(rows) != len(want) || last.GetEnd().GetRows() != int64(len(want)) {
		tb.Fatalf("scan %v at %s: %d rows, want %d", req, at, len(rows), len(want))
	}
	for i := range want {
		w.checkRow(tb, rows[i], &want[i])
	}
}

// instantOf names a row.
func instantOf(kind store.Kind, e *store.Entry) *statemeshv1.Instant {
	switch familyOf(kind) {
	case windows:
		return wire.FromInstant(wire.Instant{Of: wire.WindowInstant, Start: e.Start})
	case sessions:
		return wire.FromInstant(wire.Instant{Of: wire.SessionInstant, Start: e.Start, End: e.End})
	case versions:
		if e.End == store.NoEnd {
			return nil
		}
		return wire.FromInstant(wire.Instant{Of: wire.AsOfInstant, Start: e.End - 1})
	default:
		return nil
	}
}

// absent names nothing that is there.
func absent(kind store.Kind) *statemeshv1.Instant {
	switch familyOf(kind) {
	case windows:
		return wire.FromInstant(wire.Instant{Of: wire.WindowInstant, Start: 11})
	case sessions:
		return wire.FromInstant(wire.Instant{Of: wire.SessionInstant, Start: 101, End: 150})
	case versions:
		return wire.FromInstant(wire.Instant{Of: wire.AsOfInstant, Start: 99})
	default:
		return nil
	}
}

// Every kind, every query, at an owner, at the other one, and at one that holds nothing: the same answers as a look at all
// rows gives.
func TestKindsAnswerEverywhere(t *testing.T) {
	t.Parallel()
	for _, kind := range worldKinds {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, kind, withCache)
			for _, at := range []string{"a", "b", "c", "c"} { // the second time out of c's cache
				w.checkPoints(t, at)
				w.checkBatch(t, at)
				w.checkCounts(t, at)
				for _, reverse := range []bool{false, true} {
					w.checkScans(t, at, reverse)
				}
			}
		})
	}
}

func (w *world) checkPoints(t *testing.T, at string) {
	t.Helper()
	q := w.node(at).query()
	for i := range w.rows {
		e := &w.rows[i].e
		resp, err := q.Get(t.Context(), &statemeshv1.GetRequest{Store: string(testStore), Key: e.Key, Instant: instantOf(w.kind, e)})
		if err != nil {
			t.Fatalf("get %q %v at %s: %v", e.Key, instantOf(w.kind, e), at, err)
		}
		w.checkRow(t, &statemeshv1.Row{
			Key: e.Key, Value: resp.GetValue(), Span: resp.GetSpan(), Partition: resp.GetAnswer().GetPartition(), Cursor: cursorIf(w.kind, e),
		}, &w.rows[i])
	}
	for _, key := range []string{"k07", "no such"} {
		_, err := q.Get(t.Context(), &statemeshv1.GetRequest{Store: string(testStore), Key: []byte(key), Instant: absent(w.kind)})
		if familyOf(w.kind) == keyValues && key == "k07" {
			continue
		}
		absence, ok := errors.AsType[*wire.AbsentError](asErr(t, err, statemeshv1.Reason_REASON_KEY_NOT_FOUND))
		if !ok || absence.Answer.Partition != w.partition([]byte(key)) {
			t.Errorf("%v", err)
		}
	}
}

func cursorIf(kind store.Kind, e *store.Entry) []byte {
	if familyOf(kind) == keyValues {
		return nil
	}
	return e.Cursor
}

func (w *world) checkBatch(t *testing.T, at string) {
	t.Helper()
	req := &statemeshv1.BatchGetRequest{Store: string(testStore)}
	for i := range w.rows {
		e := &w.rows[i].e
		req.Lookups = append(req.Lookups,
			&statemeshv1.Lookup{Key: e.Key, Instant: instantOf(w.kind, e)}, &statemeshv1.Lookup{Key: []byte("none"), Instant: absent(w.kind)})
	}
	before := w.node("b").stores.reads.Load()
	resp, err := w.node(at).query().BatchGet(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if n := w.node("b").stores.reads.Load() - before; n != worldPartitions/2 {
		t.Errorf("b opened %d readings for its %d partitions", n, worldPartitions/2)
	}
	if len(resp.GetResults()) != len(req.GetLookups()) || len(resp.GetAnswers()) != worldPartitions {
		t.Fatalf("%d results, %d answers", len(resp.GetResults()), len(resp.GetAnswers()))
	}
	for i := range w.rows {
		r, none := resp.GetResults()[2*i], resp.GetResults()[2*i+1]
		w.checkRow(t, &statemeshv1.Row{
			Key: w.rows[i].e.Key, Value: r.GetValue(), Span: r.GetSpan(), Partition: r.GetPartition(), Cursor: cursorIf(w.kind, &w.rows[i].e),
		}, &w.rows[i])
		if none.GetValue() != nil || none.GetSpan() != nil {
			t.Fatalf("what is not there: %v", none)
		}
	}
}

func (w *world) checkCounts(t *testing.T, at string) {
	t.Helper()
	for _, exact := range []bool{false, true} {
		resp, err := w.node(at).query().Count(t.Context(), &statemeshv1.CountRequest{Store: string(testStore), Exact: exact})
		if exact && familyOf(w.kind) == versions {
			wantErr(t, err, statemeshv1.Reason_REASON_WRONG_STORE_KIND)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		byPart := make([]int64, worldPartitions)
		for i := range w.rows {
			byPart[w.rows[i].p]++
		}
		if resp.GetApproximateCount() != int64(len(w.rows)) || (resp.ExactCount != nil) != exact || exact && resp.GetExactCount() != int64(len(w.rows)) {
			t.Errorf("exact %v: %v, want %d", exact, resp, len(w.rows))
		}
		if len(resp.GetPartitions()) != worldPartitions || len(resp.GetAnswers()) != worldPartitions {
			t.Fatalf("%v", resp)
		}
		for p, n := range resp.GetPartitions() {
			if int(n.GetPartition()) != p || n.GetRows() != byPart[p] || (n.ApproximateBytes != nil) != (familyOf(w.kind) == windows) {
				t.Errorf("partition %d: %v, want %d", p, n, byPart[p])
			}
		}
	}
}

func (w *world) checkScans(t *testing.T, at string, reverse bool) {
	t.Helper()
	run := func(change func(*statemeshv1.ScanRequest), keep func(*placed) bool) {
		t.Helper()
		req := w.all()
		change(req)
		if reverse {
			req.Order = statemeshv1.Order_ORDER_DESCENDING
		}
		want := w.want(reverse, func(r *placed) bool { return keep(r) })
		if limit := req.GetLimit(); limit > 0 {
			want = want[:min(len(want), int(limit))]
		}
		w.checkScan(t, at, req, want)
	}
	run(func(*statemeshv1.ScanRequest) {}, w.inAll)
	run(func(r *statemeshv1.ScanRequest) { r.Limit = new(int64(3)) }, w.inAll)
	fam := familyOf(w.kind)
	if fam != versions {
		run(func(r *statemeshv1.ScanRequest) { r.From, r.To = []byte("k03"), []byte("k11") },
			func(r *placed) bool { return inKeys(r.e.Key, nil, []byte("k03"), []byte("k11")) })
		run(func(r *statemeshv1.ScanRequest) { r.From, r.To = []byte("z"), []byte("a") }, func(*placed) bool { return false })
		run(func(r *statemeshv1.ScanRequest) { r.Partitions = []int32{1, 2} }, func(r *placed) bool { return r.p == 1 || r.p == 2 })
	}
	key := []byte("k07")
	switch fam {
	case windows:
		for _, s := range []store.WindowScan{
			{To: 10},
			{From: 1, To: 1010},
			{From: 5, To: 4},
			{From: math.MaxInt64 - 3, To: math.MaxInt64},
			{Key: key, To: math.MaxInt64},
			{Key: key, From: 10, To: 10},
			{KeyFrom: key, From: 1000, To: 2000},
		} {
			run(func(r *statemeshv1.ScanRequest) {
				r.Selection = &statemeshv1.ScanRequest_Windows{Windows: wire.FromWindowSelection(&s)}
				r.Key, r.From, r.To = s.Key, s.KeyFrom, s.KeyTo
			}, func(r *placed) bool { return inWindows(&r.e, &s) })
		}
	case sessions:
		const open = math.MaxInt64
		for _, s := range []store.SessionScan{
			{EarliestEnd: 150, LatestEnd: open, LatestStart: 110},
			{EarliestEnd: 1, LatestEnd: 30, LatestStart: open},
			{Key: key, LatestEnd: open, LatestStart: open},
			{Key: key, EarliestEnd: 140, LatestEnd: 160, LatestStart: 200},
			{KeyTo: key, LatestEnd: 0, LatestStart: 0},
			{EarliestEnd: 9, LatestEnd: 3, LatestStart: open},
		} {
			run(func(r *statemeshv1.ScanRequest) {
				r.Selection = &statemeshv1.ScanRequest_Sessions{Sessions: wire.FromSessionSelection(&s)}
				r.Key, r.From, r.To = s.Key, s.KeyFrom, s.KeyTo
			}, func(r *placed) bool { return inSessions(&r.e, &s) })
		}
	case versions:
		for _, s := range []store.VersionScan{
			{Key: key, To: math.MaxInt64}, {Key: key, From: 10, To: 10}, {Key: key, From: 27, To: 99}, {Key: key, To: 9}, {Key: key, From: 9, To: 3},
		} {
			run(func(r *statemeshv1.ScanRequest) {
				r.Selection = &statemeshv1.ScanRequest_Versions{Versions: wire.FromVersionSelection(&s)}
			}, func(r *placed) bool { return s.From <= s.To && inVersions(&r.e, &s) })
		}
	default:
		run(func(r *statemeshv1.ScanRequest) { r.Prefix = []byte("k1") }, func(r *placed) bool { return r.e.Key[1] == '1' })
	}
}

// A scan that stops behind any row goes on at another instance, after every partition has moved, without losing or
// doubling one: also where a foreign partitioner put a key into two partitions.
func TestKindsResumeAfterMoveAtEveryRow(t *testing.T) {
	t.Parallel()
	for _, kind := range worldKinds {
		for _, reverse := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/reverse=%v", kind, reverse), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, kind)
				if familyOf(kind) != versions { // which are read in the partition of the key alone
					for i := range 3 {
						key := fmt.Appendf(nil, "k%02d", 5+i)
						for _, e := range entriesOf(kind, key, 5+i) {
							w.add((w.partition(key)+1+store.Partition(i))%worldPartitions, e)
						}
					}
				}
				req := w.all()
				if reverse {
					req.Order = statemeshv1.Order_ORDER_DESCENDING
				}
				want := w.want(reverse, w.inAll)
				at, epoch := []string{"a", "b", "c"}, router.Epoch(1)
				for n := range want {
					first := proto.CloneOf(req)
					first.Limit = new(int64(n + 1))
					rows, last := w.scan(t, at[n%3], first)
					if last.GetEnd().GetReason() != statemeshv1.EndReason_END_REASON_LIMIT {
						t.Fatalf("after %d rows: %v", len(rows), last.GetEnd())
					}
					epoch++
					w.moveAll(epoch)
					rest := proto.CloneOf(req)
					rest.ResumeToken = last.GetResumeToken()
					more, _ := w.scan(t, at[(n+1)%3], rest)
					rows = append(rows, more...)
					if len(rows) != len(want) {
						t.Fatalf("broken off after %d rows: %d in all, want %d", n+1, len(rows), len(want))
					}
					for i := range want {
						w.checkRow(t, rows[i], &want[i])
					}
				}
			})
		}
	}
}

// moveAll gives what a owns to b and the other way round.
func (w *world) moveAll(epoch router.Epoch) {
	a, b := w.node("a").stores, w.node("b").stores
	a.mu.Lock()
	b.mu.Lock()
	a.parts, b.parts = b.parts, a.parts
	b.mu.Unlock()
	a.mu.Unlock()
	w.data.Epoch = epoch
	w.data.Instances = slices.Clone(w.data.Instances)
	w.data.Instances[0].Active, w.data.Instances[1].Active = w.data.Instances[1].Active, w.data.Instances[0].Active
	for _, n := range w.nodes {
		w.publish(n, w.data)
	}
}

// A store answers the queries of its kind; the error of any other names it and the query.
func TestWrongStoreKind(t *testing.T) {
	t.Parallel()
	window, session, asOf := absent(store.KindWindow), absent(store.KindSession), absent(store.KindVersioned)
	instants := map[string]*statemeshv1.Instant{"get": nil, "window fetch": window, "session fetch": session, "as-of get": asOf}
	scans := map[string]*statemeshv1.ScanRequest{
		"scan":         {},
		"window scan":  {Selection: &statemeshv1.ScanRequest_Windows{Windows: &statemeshv1.WindowSelection{}}},
		"session scan": {Selection: &statemeshv1.ScanRequest_Sessions{Sessions: &statemeshv1.SessionSelection{}}},
		"version scan": {Selection: &statemeshv1.ScanRequest_Versions{Versions: &statemeshv1.VersionSelection{}}, Key: []byte("k07")},
	}
	mine := map[family][]string{
		keyValues: {"get", "scan"}, windows: {"window fetch", "window scan"}, sessions: {"session fetch", "session scan"},
		versions: {"get", "as-of get", "version scan"},
	}
	for _, kind := range worldKinds {
		w := newWorld(t, kind)
		check := func(query string, err error) {
			t.Helper()
			if slices.Contains(mine[familyOf(kind)], query) {
				if err != nil && !errors.Is(wire.FromStatus(err), store.ErrNotFound) {
					t.Errorf("%s of a %s store: %v", query, kind, err)
				}
				return
			}
			e, ok := errors.AsType[*store.WrongKindError](asErr(t, err, statemeshv1.Reason_REASON_WRONG_STORE_KIND))
			if !ok || e.Kind != kind || e.Query != query || e.Store != testStore {
				t.Errorf("%s of a %s store: %v", query, kind, err)
			}
		}
		for _, at := range []string{"a", "c"} {
			q := w.node(at).query()
			for query, in := range instants {
				_, err := q.Get(t.Context(), &statemeshv1.GetRequest{Store: string(testStore), Key: []byte("k07"), Instant: in})
				check(query, err)
				_, err = q.BatchGet(t.Context(), &statemeshv1.BatchGetRequest{
					Store: string(testStore), Lookups: []*statemeshv1.Lookup{{Key: []byte("k07"), Instant: in}},
				})
				check(query, err)
			}
			for query, req := range scans {
				req.Store = string(testStore)
				stream, err := q.Scan(t.Context(), req)
				if err == nil {
					_, err = stream.Recv()
				}
				if errors.Is(err, io.EOF) {
					err = nil
				}
				check(query, err)
			}
		}
	}
}
