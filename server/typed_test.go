package server

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

func int64Value(n int64) *statemeshv1.TypedValue {
	return &statemeshv1.TypedValue{Kind: &statemeshv1.TypedValue_Int64Value{Int64Value: n}}
}

func stringValue(s string) *statemeshv1.TypedValue {
	return &statemeshv1.TypedValue{Kind: &statemeshv1.TypedValue_StringValue{StringValue: s}}
}

const typed = statemeshv1.Format_FORMAT_TYPED

// A store that declares formats takes keys and gives values in them, wherever it is asked, in every query and direction.
func TestTyped(t *testing.T) {
	t.Parallel()
	info := infoOf(store.KindWindow)
	info.KeyFormat, info.ValueFormat = "string", "int64"
	for _, kind := range []store.Kind{store.KindTimestampedKeyValue, store.KindWindow} {
		info.Kind = kind
		m := newMeshOf(t, info, 3, 4, func(p int) int { return p % 2 }, withCache)
		w := &world{mesh: m, kind: kind}
		var want []string
		for i := range 20 {
			key := fmt.Appendf(nil, "k%02d", i)
			e := entriesOf(kind, key, i)[0]
			e.Data = binary.BigEndian.AppendUint64(nil, uint64(i))
			w.add(w.partition(key), e)
			want = append(want, fmt.Sprintf("%s=%d", key, i))
		}
		instant := instantOf(kind, &w.rows[7].e)
		for _, n := range m.nodes {
			q := n.query()
			resp, err := q.Get(t.Context(), &statemeshv1.GetRequest{Store: string(testStore), TypedKey: stringValue("k07"), Instant: instant, Format: typed})
			if err != nil || resp.GetValue().GetTyped().GetInt64Value() != 7 || resp.GetValue().Data != nil {
				t.Errorf("%s: %v, %v", n.id, resp, err)
			}
			many, err := q.BatchGet(t.Context(), &statemeshv1.BatchGetRequest{Store: string(testStore), Format: typed, Lookups: []*statemeshv1.Lookup{
				{TypedKey: stringValue("k08"), Instant: instant}, {TypedKey: stringValue("none"), Instant: instant}, {Key: []byte("k00"), Instant: instant},
			}})
			if err != nil || len(many.GetResults()) != 3 || many.GetResults()[0].GetValue().GetTyped().GetInt64Value() != 8 ||
				many.GetResults()[1].GetValue() != nil || many.GetResults()[2].GetValue().GetTyped().GetKind() == nil {
				t.Errorf("%s: %v, %v", n.id, many, err)
			}
			for _, order := range []statemeshv1.Order{statemeshv1.Order_ORDER_ASCENDING, statemeshv1.Order_ORDER_DESCENDING} {
				req := w.all()
				req.TypedFrom, req.TypedTo, req.Format, req.Order, req.Limit = stringValue("k03"), stringValue("k18"), typed, order, new(int64(5))
				expect := slices.Clone(want[3:19])
				if order == statemeshv1.Order_ORDER_DESCENDING {
					slices.Reverse(expect)
				}
				var got []string
				for len(got) < len(expect) { // a page at a time
					rows, last := w.scan(t, n.id, req)
					for _, r := range rows {
						if r.Key != nil || r.GetValue().Data != nil {
							t.Fatalf("bytes and typed: %v", r)
						}
						got = append(got, fmt.Sprintf("%s=%d", r.GetTypedKey().GetStringValue(), r.GetValue().GetTyped().GetInt64Value()))
					}
					if req.ResumeToken = last.GetResumeToken(); len(rows) == 0 {
						break
					}
				}
				if !slices.Equal(got, expect) {
					t.Errorf("%s %s: %v, want %v", n.id, order, got, expect)
				}
			}
		}
		// Bytes that are not in the format: said where, not what; nothing of it is sent.
		bad := entriesOf(kind, []byte("k05"), 5)[0]
		bad.Data = []byte("canary")
		w.owner(w.partition(bad.Key)).stores.add(w.partition(bad.Key), bad)
		_, err := m.node("b").query().Get(t.Context(), &statemeshv1.GetRequest{
			Store: string(testStore), Key: bad.Key, Instant: instant, Format: typed, Options: &statemeshv1.ReadOptions{Cache: statemeshv1.CacheMode_CACHE_MODE_BYPASS},
		})
		if err := asErr(t, err, statemeshv1.Reason_REASON_INVALID_REQUEST); strings.Contains(err.Error(), "canary") {
			t.Error(err)
		}
	}
}

// What a store does not declare, or two forms of one key, is refused.
func TestTypedRefused(t *testing.T) {
	t.Parallel()
	bad := statemeshv1.Reason_REASON_INVALID_REQUEST
	for _, c := range []struct {
		keys, values string
		req          *statemeshv1.GetRequest
		want         statemeshv1.Reason
	}{
		{"", "", &statemeshv1.GetRequest{Key: []byte("k"), Format: typed}, bad},
		{"bytes", "bytes", &statemeshv1.GetRequest{Key: []byte("k"), Format: typed}, bad},
		{"bytes", "int64", &statemeshv1.GetRequest{TypedKey: stringValue("k")}, bad},
		{"string", "", &statemeshv1.GetRequest{TypedKey: stringValue("k"), Key: []byte("k")}, bad},
		{"string", "", &statemeshv1.GetRequest{TypedKey: int64Value(7)}, bad},
		{"string", "", &statemeshv1.GetRequest{TypedKey: &statemeshv1.TypedValue{}}, bad},
		{"string", "", &statemeshv1.GetRequest{TypedKey: stringValue("")}, statemeshv1.Reason_REASON_INVALID_KEY},
		{"of-a-later-version", "", &statemeshv1.GetRequest{TypedKey: stringValue("k")}, bad},
		{"string", "of-a-later-version", &statemeshv1.GetRequest{Key: []byte("k"), Format: typed}, bad},
		{"string", "", &statemeshv1.GetRequest{Key: []byte("k"), Format: 9}, bad},
	} {
		m := newMeshOf(t, router.StoreInfo{Kind: store.KindKeyValue, KeyFormat: c.keys, ValueFormat: c.values}, 1, 1, func(int) int { return 0 })
		c.req.Store = string(testStore)
		_, err := m.node("a").query().Get(t.Context(), c.req)
		wantErr(t, err, c.want)
	}
}

// Requests about kinds that contradict themselves, or have fields in any depth that this server does not know.
func TestHostileKinds(t *testing.T) {
	t.Parallel()
	unknown := protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1)
	with := func(m protoreflect.ProtoMessage) { m.ProtoReflect().SetUnknown(unknown) }
	key := []byte("k07")
	w := map[family]*world{}
	for _, kind := range []store.Kind{store.KindKeyValue, store.KindWindow, store.KindSession, store.KindVersioned} {
		w[familyOf(kind)] = newWorld(t, kind)
	}
	get := func(fam family, in *statemeshv1.Instant) func(context.Context, string) error {
		return func(ctx context.Context, at string) error {
			_, err := w[fam].node(at).query().Get(ctx, &statemeshv1.GetRequest{Store: string(testStore), Key: key, Instant: in})
			return err
		}
	}
	batch := func(fam family, change func(*statemeshv1.BatchGetRequest)) func(context.Context, string) error {
		return func(ctx context.Context, at string) error {
			req := &statemeshv1.BatchGetRequest{Store: string(testStore)}
			change(req)
			_, err := w[fam].node(at).query().BatchGet(ctx, req)
			return err
		}
	}
	scan := func(fam family, change func(*statemeshv1.ScanRequest)) func(context.Context, string) error {
		return func(ctx context.Context, at string) error {
			req := w[fam].all()
			change(req)
			stream, err := w[fam].node(at).query().Scan(ctx, req)
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		}
	}
	withInstant := &statemeshv1.Instant{Of: &statemeshv1.Instant_AsOfMs{AsOfMs: 1}}
	with(withInstant)
	session := func(from, to int64, change func(*statemeshv1.SessionBounds)) *statemeshv1.Instant {
		b := &statemeshv1.SessionBounds{StartMs: from, EndMs: to}
		change(b)
		return &statemeshv1.Instant{Of: &statemeshv1.Instant_Session{Session: b}}
	}
	plain := func(*statemeshv1.SessionBounds) {}
	selection := func(sel *statemeshv1.WindowSelection) func(*statemeshv1.ScanRequest) {
		return func(r *statemeshv1.ScanRequest) { r.Selection = &statemeshv1.ScanRequest_Windows{Windows: sel} }
	}
	unknownSelection := &statemeshv1.WindowSelection{}
	with(unknownSelection)
	lookup := &statemeshv1.Lookup{Key: key, Instant: absent(store.KindWindow)}
	unknownLookup := &statemeshv1.Lookup{Key: key, Instant: absent(store.KindWindow)}
	with(unknownLookup)
	wrong := new((int32(w[windows].partition(key)) + 1) % worldPartitions)
	bad := statemeshv1.Reason_REASON_INVALID_REQUEST
	for name, c := range map[string]struct {
		call func(context.Context, string) error
		want statemeshv1.Reason
	}{
		"instant of nothing":      {get(windows, &statemeshv1.Instant{}), bad},
		"negative window":         {get(windows, wire.FromInstant(wire.Instant{Of: wire.WindowInstant, Start: -1})), bad},
		"negative session":        {get(sessions, session(-1, 5, plain)), bad},
		"session end first":       {get(sessions, session(6, 5, plain)), bad},
		"negative as-of":          {get(versions, wire.FromInstant(wire.Instant{Of: wire.AsOfInstant, Start: -1})), bad},
		"unknown in instant":      {get(versions, withInstant), bad},
		"unknown in session":      {get(sessions, session(5, 6, func(b *statemeshv1.SessionBounds) { with(b) })), bad},
		"keys and lookups":        {batch(windows, func(r *statemeshv1.BatchGetRequest) { r.Keys, r.Lookups = [][]byte{key}, []*statemeshv1.Lookup{lookup} }), bad},
		"keys of windows":         {batch(windows, func(r *statemeshv1.BatchGetRequest) { r.Keys = [][]byte{key} }), statemeshv1.Reason_REASON_WRONG_STORE_KIND},
		"unknown in lookup":       {batch(windows, func(r *statemeshv1.BatchGetRequest) { r.Lookups = []*statemeshv1.Lookup{unknownLookup} }), bad},
		"nil lookup":              {batch(windows, func(r *statemeshv1.BatchGetRequest) { r.Lookups = []*statemeshv1.Lookup{lookup, {}} }), statemeshv1.Reason_REASON_WRONG_STORE_KIND},
		"too many lookups":        {batch(windows, func(r *statemeshv1.BatchGetRequest) { r.Lookups = slices.Repeat([]*statemeshv1.Lookup{lookup}, 10_001) }), statemeshv1.Reason_REASON_TOO_LARGE},
		"negative from":           {scan(windows, selection(&statemeshv1.WindowSelection{StartFromMs: new(int64(-1))})), bad},
		"negative to":             {scan(windows, selection(&statemeshv1.WindowSelection{StartToMs: new(int64(-1))})), bad},
		"unknown in selection":    {scan(windows, selection(unknownSelection)), bad},
		"prefix of windows":       {scan(windows, func(r *statemeshv1.ScanRequest) { r.Prefix = []byte("k") }), bad},
		"key and bounds":          {scan(windows, func(r *statemeshv1.ScanRequest) { r.Key, r.From = key, key }), bad},
		"empty key":               {scan(windows, func(r *statemeshv1.ScanRequest) { r.Key = []byte{} }), statemeshv1.Reason_REASON_INVALID_KEY},
		"key in another place":    {scan(windows, func(r *statemeshv1.ScanRequest) { r.Key, r.Partitions = key, []int32{*wrong} }), statemeshv1.Reason_REASON_WRONG_PARTITION},
		"key in two places":       {scan(windows, func(r *statemeshv1.ScanRequest) { r.Key, r.Partitions = key, []int32{0, 1} }), bad},
		"versions without key":    {scan(versions, func(r *statemeshv1.ScanRequest) { r.Key = nil }), bad},
		"key of a key-value scan": {scan(keyValues, func(r *statemeshv1.ScanRequest) { r.Key = key }), bad},
		"session bound below 0": {scan(sessions, func(r *statemeshv1.ScanRequest) {
			r.Selection = &statemeshv1.ScanRequest_Sessions{Sessions: &statemeshv1.SessionSelection{LatestStartMs: new(int64(-1))}}
		}), bad},
		"version bound below 0": {scan(versions, func(r *statemeshv1.ScanRequest) {
			r.Selection = &statemeshv1.ScanRequest_Versions{Versions: &statemeshv1.VersionSelection{FromMs: new(int64(-1))}}
		}), bad},
		"token of other times": {scan(windows, func(r *statemeshv1.ScanRequest) {
			first := w[windows].all()
			first.Limit = new(int64(1))
			_, last := w[windows].scan(t, "a", first)
			selection(&statemeshv1.WindowSelection{StartToMs: new(int64(10))})(r)
			r.ResumeToken = last.GetResumeToken()
		}), bad},
	} {
		for _, at := range []string{"a", "c"} {
			wantErr(t, c.call(t.Context(), at), c.want)
			if t.Failed() {
				t.Log(name)
			}
		}
	}
}

// An exact count has the limits of a scan: its rows, and its slot.
func TestExactCountIsLimited(t *testing.T) {
	t.Parallel()
	w := newWorld(t, store.KindWindow, func(_ string, c *Config, _ *Deps) { c.MaxScanRows = 10 })
	for _, n := range w.nodes {
		_, err := n.query().Count(t.Context(), &statemeshv1.CountRequest{Store: string(testStore), Exact: true})
		e, ok := errors.AsType[*store.TooLargeError](asErr(t, err, statemeshv1.Reason_REASON_TOO_LARGE))
		if !ok || e.Limit != 10 || e.Setting != "server.max.scan.rows" {
			t.Errorf("%s: %v", n.id, err)
		}
	}
	full := newWorld(t, store.KindWindow, func(_ string, c *Config, _ *Deps) { c.MaxScans = 1 })
	a := full.node("a")
	if err := a.srv.limits.scans.acquire(); err != nil {
		t.Fatal(err)
	}
	_, err := a.query().Count(t.Context(), &statemeshv1.CountRequest{Store: string(testStore), Exact: true})
	wantErr(t, err, statemeshv1.Reason_REASON_OVERLOADED)
	if _, err := a.query().Count(t.Context(), &statemeshv1.CountRequest{Store: string(testStore)}); err != nil {
		t.Error(err) // an estimate needs none
	}
	a.srv.limits.scans.release()
	if _, err := a.query().Count(t.Context(), &statemeshv1.CountRequest{Store: string(testStore), Exact: true}); err != nil {
		t.Error(err)
	}
}
