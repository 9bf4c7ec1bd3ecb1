package truth

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/statemesh/statemesh/client"
	"github.com/statemesh/statemesh/examples/clicks"
	"github.com/statemesh/statemesh/internal/fakekafka"
	"github.com/statemesh/statemesh/processor/views"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// TestClicks proves the answers about clicks on the embedded broker.
func TestClicks(t *testing.T) {
	t.Parallel()
	cluster, err := fakekafka.New(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	proveClicks(t, cluster.ListenAddrs())
}

// clickRecords have no key: what they are about is in their value, the time too.
func clickRecords() iter.Seq2[record, error] {
	return func(yield func(record, error) bool) {
		for r, err := range clicks.Rows() {
			if !yield(record{value: r.Value(), timestamp: time.Now()}, err) {
				return
			}
		}
	}
}

func proveClicks(t *testing.T, brokers []string) {
	t.Helper()
	of := func(name string, typ views.Type, field string, w views.Window, key ...string) views.View {
		return views.View{
			Name: name, Topic: "clicks", Format: views.CSV, Columns: clicks.Columns(), Timestamp: "ts",
			Key: key, Type: typ, Field: field, Window: w,
		}
	}
	f := run(t, brokers, "clicks", 3, clickRecords(), []views.View{
		of("clicks_by_page", views.Count, "", views.Window{}, "page"),
		of("clicks_by_type_page", views.Count, "", views.Window{}, "type", "page"),
		of("clicks_tumbling_1h_by_type", views.Count, "", views.Window{Tumbling: time.Hour, Grace: always}, "type"),
		of("clicks_sessions_30m", views.Count, "", views.Window{Session: 30 * time.Minute, Grace: always}, "user"),
		of("bytes_by_type", views.Sum, "bytes", views.Window{}, "type"),
	})

	// One request is for the empty page. In CSV an empty column is a missing value: that request is in no row.
	var pages []string
	for _, row := range truth(t, "clicks_by_page") {
		if !strings.HasPrefix(row, ",") {
			pages = append(pages, row)
		}
	}
	wantTotal(t, "clicks.distinct_page", int64(len(pages)+1))
	same(t, "clicks_by_page", f.counts("clicks_by_page", 1), pages)
	same(t, "clicks_top10", f.top("clicks_by_type_page", "html"), truth(t, "clicks_top10"))
	same(t, "clicks_tumbling_1h_by_type", f.windows("clicks_tumbling_1h_by_type"), truth(t, "clicks_tumbling_1h_by_type"))

	sessions := f.sessions("clicks_sessions_30m")
	rows := make([]string, len(sessions))
	users := make(map[string]bool)
	var sum, longest int64
	for i, s := range sessions {
		rows[i] = s.line()
		users[s.key] = true
		sum += s.count
		longest = max(longest, s.count)
	}
	same(t, "clicks_sessions_30m", rows, truth(t, "clicks_sessions_30m"))
	same(t, "clicks_sessions_30m_by_user", perKey(sessions), truth(t, "clicks_sessions_30m_by_user"))
	wantTotal(t, "clicks.rows", sum)
	wantTotal(t, "clicks.distinct_user", int64(len(users)))
	wantTotal(t, "clicks.sessions_30m.sessions", int64(len(sessions)))
	wantTotal(t, "clicks.sessions_30m.longest", longest)

	var bytes float64
	for it, err := range client.NewView(f.Client, "bytes_by_type", serde.String(), serde.Float64()).Scan(t.Context(), client.ScanQuery{}, client.MaxStaleness(fresh)) {
		if err != nil {
			t.Fatal(err)
		}
		bytes += it.Value
	}
	wantTotal(t, "clicks.sum_bytes", int64(bytes))
}

// top reads a view of counts by type and page: the ten most requested pages of all types and of one, as
// "scope,rank,page,count".
func (f *fleet) top(view, typ string) []string {
	f.t.Helper()
	scopes := map[string]map[string]int64{"all": {}, typ: {}}
	for it, err := range client.NewView(f.Client, store.Name(view), serde.String(), serde.Int64()).Scan(f.t.Context(), client.ScanQuery{}, client.MaxStaleness(fresh)) {
		if err != nil {
			f.t.Fatal(err)
		}
		key, err := views.DecodeKey(it.Key, 2)
		if err != nil {
			f.t.Fatal(err)
		}
		scopes["all"][key[1]] += it.Value
		if key[0] == typ {
			scopes[typ][key[1]] += it.Value
		}
	}
	var rows []string
	for scope, counts := range scopes {
		pages := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
			return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
		})
		for i, page := range pages[:min(10, len(pages))] {
			rows = append(rows, line(scope, strconv.Itoa(i+1), page, strconv.FormatInt(counts[page], 10)))
		}
	}
	return rows
}
