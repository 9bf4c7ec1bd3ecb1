package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/store"
)

// scanModel is what a scan has to return: computed in one plain pass.
func scanModel(all []*statemeshv1.Row, req *statemeshv1.ScanRequest) []*statemeshv1.Row {
	var out []*statemeshv1.Row
	for _, r := range all {
		k := r.GetKey()
		if len(req.GetPartitions()) > 0 && !slices.Contains(req.GetPartitions(), r.GetPartition()) ||
			req.From != nil && bytes.Compare(k, req.GetFrom()) < 0 || req.To != nil && bytes.Compare(k, req.GetTo()) > 0 ||
			!bytes.HasPrefix(k, req.GetPrefix()) {
			continue
		}
		out = append(out, r)
	}
	order := ascending
	if req.GetOrder() == statemeshv1.Order_ORDER_DESCENDING {
		order = descending
	}
	slices.SortFunc(out, order)
	return out
}

func sameRows(a, b []*statemeshv1.Row) bool {
	return slices.EqualFunc(a, b, func(a, b *statemeshv1.Row) bool {
		return bytes.Equal(a.GetKey(), b.GetKey()) && bytes.Equal(a.GetValue().GetData(), b.GetValue().GetData()) && a.GetPartition() == b.GetPartition()
	})
}

// fill stores rows, some of them under a key that another partition has too, and returns all.
func fill(m *mesh, n int, value func(i int) []byte) []*statemeshv1.Row {
	var all []*statemeshv1.Row
	for i := range n {
		key := fmt.Appendf(nil, "%c%03d\xff", 'a'+i%5, i)
		p := m.partition(key)
		add := func(p store.Partition) {
			v := value(i)
			m.owner(p).stores.put(p, key, v)
			all = append(all, &statemeshv1.Row{Key: key, Value: &statemeshv1.Value{Data: v}, Partition: int32(p)})
		}
		add(p)
		if i%7 == 0 { // a foreign partitioner was at work
			add((p + 1) % store.Partition(m.data.Stores[0].Partitions))
		}
	}
	sortRows(all)
	return all
}

// Any scan, cut into pages of any size and asked at any instance, gives the rows of the model: none missing, none twice.
func TestScanPagesEqualModel(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	m := newMesh(t, 3, 7, func(p int) int { return p % 3 }, func(id string, c *Config, _ *Deps) {
		c.ScanChunkBytes = 300
		if id == "c" {
			c.MaxScanRows = 17 // so that the server's limit ends streams too
		}
	})
	all := fill(m, 300, func(i int) []byte { return fmt.Appendf(nil, "v%d", i) })
	for range 80 {
		req := &statemeshv1.ScanRequest{Store: string(testStore)}
		if rnd.IntN(2) == 0 {
			req.Order = statemeshv1.Order_ORDER_DESCENDING
		}
		switch rnd.IntN(4) {
		case 0:
			req.Prefix = []byte{byte('a' + rnd.IntN(6))}
		case 1:
			req.From, req.To = all[rnd.IntN(len(all))].GetKey(), all[rnd.IntN(len(all))].GetKey()
		case 2:
			req.From = all[rnd.IntN(len(all))].GetKey()
		}
		if rnd.IntN(3) == 0 {
			req.Partitions = []int32{int32(rnd.IntN(3)), int32(3 + rnd.IntN(4))}
		}
		limit := int64(1 + rnd.IntN(40))
		want := scanModel(all, req)
		var got []*statemeshv1.Row
		for pages := 0; ; pages++ {
			if pages > len(all)+1 {
				t.Fatalf("%v does not end", req)
			}
			req.Limit = nil
			if rnd.IntN(4) > 0 {
				req.Limit = &limit
			}
			stream, err := m.nodes[rnd.IntN(3)].query().Scan(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			rows, last, answers, err := drainScan(stream)
			if err != nil {
				t.Fatalf("%v: %v", req, err)
			}
			if req.Limit != nil && int64(len(rows)) > limit {
				t.Fatalf("%d rows, limit %d", len(rows), limit)
			}
			if n := len(req.GetPartitions()); n > 0 && len(answers) != n || n == 0 && len(answers) != 7 {
				t.Fatalf("%v: %d answers", req, len(answers))
			}
			if last.GetEnd().GetRows() != int64(len(rows)) {
				t.Fatalf("%v: the end says %d rows of %d", req, last.GetEnd().GetRows(), len(rows))
			}
			got = append(got, rows...)
			if last.GetEnd().GetReason() == statemeshv1.EndReason_END_REASON_COMPLETE {
				break
			}
			req.ResumeToken = last.GetResumeToken()
		}
		if !sameRows(got, want) {
			t.Fatalf("%v, pages of %d: %d rows, want %d", req, limit, len(got), len(want))
		}
	}
}

// MR-07: 12 partitions on 3 instances and a fourth with none, 64 scans at once, rows of 100 KiB.
func TestScatterGather(t *testing.T) {
	t.Parallel()
	m := newMesh(t, 4, 12, func(p int) int { return p % 3 })
	big := bytes.Repeat([]byte("x"), 100<<10)
	all := fill(m, 12, func(i int) []byte { return append(fmt.Appendf(nil, "%d", i), big...) })
	want := scanModel(all, &statemeshv1.ScanRequest{})
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			stream, err := m.nodes[i%4].query().Scan(t.Context(), &statemeshv1.ScanRequest{Store: string(testStore)})
			if err != nil {
				t.Error(err)
				return
			}
			rows, _, answers, err := drainScan(stream)
			if err != nil || !sameRows(rows, want) || len(answers) != 12 {
				t.Errorf("scan %d: %d rows, want %d; %d answers; %v", i, len(rows), len(want), len(answers), err)
			}
			for p, a := range answers {
				if a.GetPartition() != int32(p) || a.GetEpoch() != 1 {
					t.Errorf("answer %d: %v", p, a)
				}
			}
		})
	}
	wg.Wait()
	for _, n := range m.nodes[:3] {
		if reads := n.stores.reads.Load(); reads != 64*4 {
			t.Errorf("%s: %d reads, want each of 4 partitions once per scan", n.id, reads)
		}
	}
	if reads := m.node("d").stores.reads.Load(); reads != 0 {
		t.Errorf("the instance without partitions was read %d times", reads)
	}
}

// A partition whose rows cannot be read breaks the scan with its error: no hole. What was sent before can be continued.
func TestScanErrorIsNoEnd(t *testing.T) {
	t.Parallel()
	m := newMesh(t, 2, 4, func(p int) int { return p % 2 }, func(_ string, c *Config, _ *Deps) { c.ScanChunkBytes = 200 })
	all := fill(m, 200, func(int) []byte { return []byte("v") })
	n := 0
	m.node("b").stores.onNext = func() error {
		if n++; n == 60 {
			return fmt.Errorf("block 3: %w", store.ErrCorrupt)
		}
		return nil
	}
	req := &statemeshv1.ScanRequest{Store: string(testStore)}
	stream, err := m.node("a").query().Scan(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	got, last, _, err := drainScan(stream)
	if e := asErr(t, err, statemeshv1.Reason_REASON_CORRUPT); !errors.Is(e, store.ErrCorrupt) {
		t.Fatal(e)
	}
	if len(got) == 0 || len(got) >= len(all) || last.GetEnd() != nil {
		t.Fatalf("%d rows of %d, end %v", len(got), len(all), last.GetEnd())
	}
	req.ResumeToken = last.GetResumeToken()
	if stream, err = m.node("b").query().Scan(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	rest, _, _, err := drainScan(stream)
	if err != nil || !sameRows(append(got, rest...), scanModel(all, req)) {
		t.Errorf("%d and %d rows, want %d: %v", len(got), len(rest), len(all), err)
	}
}

// A token works only for its scan, and damage is found.
func TestResumeTokenBelongsToItsScan(t *testing.T) {
	t.Parallel()
	m := newMesh(t, 1, 3, func(int) int { return 0 })
	fill(m, 20, func(int) []byte { return []byte("v") })
	q := m.node("a").query()
	scan := func(req *statemeshv1.ScanRequest) (*statemeshv1.ScanResponse, error) {
		req.Store = string(testStore)
		stream, err := q.Scan(t.Context(), req)
		if err != nil {
			return nil, err
		}
		_, last, _, err := drainScan(stream)
		return last, err
	}
	last, err := scan(&statemeshv1.ScanRequest{Limit: new(int64(3))})
	if err != nil {
		t.Fatal(err)
	}
	token := last.GetResumeToken()
	if _, err := scan(&statemeshv1.ScanRequest{ResumeToken: token}); err != nil {
		t.Error(err)
	}
	for name, req := range map[string]*statemeshv1.ScanRequest{
		"partitions": {Partitions: []int32{0, 1}},
		"order":      {Order: statemeshv1.Order_ORDER_DESCENDING},
		"from":       {From: []byte("a")},
		"empty to":   {To: []byte{}},
		"prefix":     {Prefix: []byte("a")},
	} {
		req.ResumeToken = token
		_, err := scan(req)
		wantErr(t, err, statemeshv1.Reason_REASON_INVALID_REQUEST)
		if t.Failed() {
			t.Log(name)
		}
	}
}

// GN-14, SE-16: readers that leave at any moment, directly and by way of another instance, leave nothing open. The
// number of readings and iterators is checked when the mesh ends.
func TestAbandonedScans(t *testing.T) {
	t.Parallel()
	m := newMesh(t, 3, 6, func(p int) int { return p % 3 }, func(_ string, c *Config, _ *Deps) { c.ScanChunkBytes = 2 << 10 })
	fill(m, 300, func(int) []byte { return make([]byte, 500) })
	const rounds = 60
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(g), 1))
			for range rounds {
				ctx, cancel := context.WithCancel(t.Context())
				stream, err := m.nodes[rnd.IntN(3)].query().Scan(ctx, &statemeshv1.ScanRequest{Store: string(testStore)})
				if err != nil {
					t.Error(err)
					cancel()
					return
				}
				if rnd.IntN(2) == 0 { // while it runs
					go cancel()
				}
				for range rnd.IntN(40) { // at some message, or at the very end
					if m, err := stream.Recv(); err != nil || m.GetEnd() != nil {
						break
					}
				}
				cancel()
			}
		})
	}
	wg.Wait()
}

// The bound holds for every message. When the commit becomes too old on the way, the scan ends and goes on at a newer one.
func TestScanEndsWhenItsCommitGetsTooOld(t *testing.T) {
	t.Parallel()
	m := newMesh(t, 1, 2, func(int) int { return 0 }, func(_ string, c *Config, _ *Deps) { c.ScanChunkBytes = 200 })
	all := fill(m, 100, func(int) []byte { return []byte("v") })
	st := m.node("a").stores
	var asked, rowsSeen int
	st.age = func() time.Duration {
		if asked++; asked > 6 { // two partitions a message
			return time.Hour
		}
		return 0
	}
	req := &statemeshv1.ScanRequest{Store: string(testStore), Options: &statemeshv1.ReadOptions{MaxStaleness: durationpb.New(time.Minute)}}
	stream, err := m.node("a").query().Scan(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	rows, last, _, err := drainScan(stream)
	if err != nil || last.GetEnd().GetReason() != statemeshv1.EndReason_END_REASON_STALE || len(rows) == 0 || len(rows) == len(all) {
		t.Fatalf("%d rows, %v, %v", len(rows), last.GetEnd(), err)
	}
	rowsSeen = len(rows)
	req.ResumeToken = last.GetResumeToken()
	// Still too old: nothing at all is sent, so a caller does not go round in circles.
	if stream, err = m.node("a").query().Scan(t.Context(), req); err == nil {
		_, _, _, err = drainScan(stream)
	}
	wantErr(t, err, statemeshv1.Reason_REASON_NOT_READY)
	asked = -1000
	if stream, err = m.node("a").query().Scan(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	rest, last, _, err := drainScan(stream)
	if err != nil || last.GetEnd().GetReason() != statemeshv1.EndReason_END_REASON_COMPLETE || rowsSeen+len(rest) != len(all) {
		t.Errorf("%d and %d rows of %d, %v, %v", rowsSeen, len(rest), len(all), last.GetEnd(), err)
	}
}

func FuzzParseToken(f *testing.F) {
	f.Add([]byte{}, uint64(0))
	f.Add(resumePoint{place: []byte("k"), partition: 3}.token(7), uint64(7))
	f.Fuzz(func(t *testing.T, b []byte, fp uint64) {
		p, err := parseToken(b, fp, 12)
		if err != nil {
			if !errors.Is(err, store.ErrInvalidRequest) {
				t.Fatal(err)
			}
			return
		}
		if p.partition < 0 || p.partition >= 12 {
			t.Fatalf("partition %d", p.partition)
		}
		if again := p.token(fp); !bytes.Equal(again, b) { // one form of each token
			t.Fatalf("% x was taken for %v, which is % x", b, p, again)
		}
	})
}
