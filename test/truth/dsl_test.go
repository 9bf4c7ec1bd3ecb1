package truth

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/statemesh/statemesh/examples/clicks"
	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/streams"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/processor/windows"
	"github.com/statemesh/statemesh/serde"
)

// clickTopology keeps what the views of proveClicks keep, in the DSL.
func clickTopology() (*processor.Topology, error) {
	b := streams.NewBuilder()
	requests := streams.From(b, "clicks", serde.Bytes(), serde.JSON[clicks.Row](),
		streams.TimeOf(func(r clicks.Row) time.Time { return time.UnixMilli(r.EventTime) }))
	byPage := streams.GroupBy(requests, func(_ []byte, r clicks.Row) string { return r.Page })
	byType := streams.GroupBy(requests, func(_ []byte, r clicks.Row) string { return r.Type })
	byUser := streams.GroupBy(requests, func(_ []byte, r clicks.Row) string { return r.User })
	byTypeAndPage := streams.GroupBy(requests, func(_ []byte, r clicks.Row) string { return r.Type + "\t" + r.Page })
	streams.Count(byPage, "clicks_by_page")
	streams.Count(byTypeAndPage, "clicks_by_type_page")
	streams.CountWindows(streams.WindowedBy(byType, windows.Tumbling(time.Hour, 24*time.Hour)), "clicks_tumbling_1h_by_type")
	streams.CountWindows(streams.SessionsBy(byUser, windows.Session{Gap: 30 * time.Minute, Grace: 24 * time.Hour}), "clicks_sessions_30m")
	return b.Build()
}

// TestClicksInTheDSL: the DSL gives the same answers as the views, with the record cache and without.
func TestClicksInTheDSL(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]streamstest.Config{
		"a commit after each record": {Partitions: map[string]int32{"clicks": 3}},
		"a commit at the end":        {Partitions: map[string]int32{"clicks": 3}, CommitInterval: streamstest.Never, CacheMaxBytes: 100 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topology, err := clickTopology()
			if err != nil {
				t.Fatal(err)
			}
			d := streamstest.NewT(t, topology, cfg)
			in := streamstest.NewInput(d, "clicks", serde.Bytes(), serde.JSON[clicks.Row]())
			for r, err := range clicks.Rows() {
				if err != nil {
					t.Fatal(err)
				}
				in.PipeValue(r)
			}
			d.Commit()
			proveClickStores(t, d)
		})
	}
}

func proveClickStores(t *testing.T, d *streamstest.Driver) {
	t.Helper()
	var pages []string
	for _, r := range streamstest.NewKeyValue(d, "clicks_by_page", serde.String(), serde.Int64()).Rows() {
		pages = append(pages, line(r.Key, strconv.FormatInt(r.Value, 10)))
	}
	// The one request for the empty page is in no group: no store has an empty key.
	var want []string
	for _, row := range truth(t, "clicks_by_page") {
		if !strings.HasPrefix(row, ",") {
			want = append(want, row)
		}
	}
	same(t, "clicks_by_page", pages, want)
	if n := d.Dropped()["empty key"]; n != 1 {
		t.Errorf("%d records with an empty key were dropped, want 1", n)
	}

	scopes := map[string]map[string]int64{"all": {}, "html": {}}
	for _, r := range streamstest.NewKeyValue(d, "clicks_by_type_page", serde.String(), serde.Int64()).Rows() {
		typ, page, _ := strings.Cut(r.Key, "\t")
		scopes["all"][page] += r.Value
		if typ == "html" {
			scopes["html"][page] += r.Value
		}
	}
	var top []string
	for scope, counts := range scopes {
		pages := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
			return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
		})
		for i, page := range pages[:min(10, len(pages))] {
			top = append(top, line(scope, strconv.Itoa(i+1), page, strconv.FormatInt(counts[page], 10)))
		}
	}
	same(t, "clicks_top10", top, truth(t, "clicks_top10"))

	var hours []string
	for _, r := range streamstest.NewWindow(d, "clicks_tumbling_1h_by_type", serde.String(), serde.Int64()).Rows() {
		hours = append(hours, line(r.Key, strconv.FormatInt(r.Start, 10), strconv.FormatInt(r.Value, 10)))
	}
	same(t, "clicks_tumbling_1h_by_type", hours, truth(t, "clicks_tumbling_1h_by_type"))

	var sessions []string
	for _, r := range streamstest.NewSession(d, "clicks_sessions_30m", serde.String(), serde.Int64()).Rows() {
		sessions = append(sessions, line(r.Key, strconv.FormatInt(r.Start, 10), strconv.FormatInt(r.End, 10), strconv.FormatInt(r.Value, 10)))
	}
	same(t, "clicks_sessions_30m", sessions, truth(t, "clicks_sessions_30m"))
}
