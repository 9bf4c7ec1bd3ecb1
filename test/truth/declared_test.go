package truth

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/statemesh/statemesh/examples/clicks"
	"github.com/statemesh/statemesh/examples/flights"
	"github.com/statemesh/statemesh/internal/configfile"
	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/declared"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/processor/views"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// object is a row that a declared table answers with.
type object map[string]json.RawMessage

// text is a column as the truth writes it; missing ones are empty.
func (o object) text(column string) string {
	raw := o[column]
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

// declaredIn is the topology of a configuration file.
func declaredIn(path string) (*processor.Topology, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	l, err := configfile.Load(configfile.Source{Path: filepath.Base(path), Data: data})
	if err != nil {
		return nil, err
	}
	return declared.Build(*l.Config.Declared)
}

// fromFile starts the topology of a configuration file.
func fromFile(t *testing.T, path string, cfg streamstest.Config) *streamstest.Driver {
	t.Helper()
	topology, err := declaredIn(path)
	if err != nil {
		t.Fatal(err)
	}
	cfg.CommitInterval = streamstest.Never
	return streamstest.NewT(t, topology, cfg)
}

// keyed are the rows of a table: key, and the columns named.
func keyed(t *testing.T, d *streamstest.Driver, table string, parts int, columns ...string) (rows []string) {
	t.Helper()
	for _, r := range streamstest.NewKeyValue(d, store.Name(table), serde.String(), serde.JSON[object]()).Rows() {
		fields := []string{r.Key}
		if parts > 1 {
			var err error
			if fields, err = views.DecodeKey(r.Key, parts); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range columns {
			fields = append(fields, r.Value.text(c))
		}
		rows = append(rows, line(fields...))
	}
	return rows
}

func startsOf(d *streamstest.Driver, table, column string) (rows []string) {
	for _, r := range streamstest.NewWindow(d, store.Name(table), serde.String(), serde.JSON[object]()).Rows() {
		rows = append(rows, line(r.Key, strconv.FormatInt(r.Start, 10), r.Value.text(column)))
	}
	return rows
}

func visitsOf(t *testing.T, d *streamstest.Driver, table, column string) (all []session) {
	t.Helper()
	for _, r := range streamstest.NewSession(d, store.Name(table), serde.String(), serde.JSON[object]()).Rows() {
		n, err := strconv.ParseInt(r.Value.text(column), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, session{r.Key, r.Start, r.End, n})
	}
	return all
}

// TestFlightsFromAFile: a configuration file gives the same answers as the views and the DSL, joins included.
func TestFlightsFromAFile(t *testing.T) {
	t.Parallel()
	d := fromFile(t, filepath.Join("testdata", "flights.yaml"), streamstest.Config{
		Partitions: map[string]int32{flights.Topic: 3, "airlines": 3, "airports": 2},
	})
	names(t, d, "airlines", 1)
	names(t, d, "airports", 1)
	d.Commit()
	in := streamstest.NewInput(d, flights.Topic, serde.Bytes(), serde.Bytes())
	for r, err := range flights.Rows() {
		if err != nil {
			t.Fatal(err)
		}
		in.PipeValue(r.Value())
	}
	d.Commit()

	for name, parts := range map[string]int{"flights_by_dest": 1, "flights_by_carrier": 1, "flights_by_carrier_origin": 2, "flights_by_dest_airport": 2} {
		same(t, name, keyed(t, d, name, parts, "flights"), truth(t, name))
	}
	same(t, "dep_delay_by_carrier", keyed(t, d, "dep_delay_by_carrier", 1, "n", "sum", "min", "max", "mean"), truth(t, "dep_delay_by_carrier"))
	var airlines []string
	for _, r := range streamstest.NewKeyValue(d, "flights_by_airline_name", serde.String(), serde.JSON[object]()).Rows() {
		airlines = append(airlines, r.Key+","+r.Value.text("flights"))
	}
	same(t, "flights_by_airline_name", airlines, truth(t, "flights_by_airline_name"))

	var latest []string
	for _, r := range streamstest.NewKeyValue(d, "latest_by_tailnum", serde.String(), serde.JSON[object]()).Rows() {
		var last struct {
			DepDelay json.Number `json:"dep_delay"`
		}
		if err := json.Unmarshal(r.Value["last"], &last); err != nil {
			t.Fatal(err)
		}
		v := r.Value
		latest = append(latest, line(r.Key, v.text("event_time"), v.text("carrier"), v.text("flight"), v.text("origin"), v.text("dest"), last.DepDelay.String()))
	}
	var want []string
	for _, row := range truth(t, "latest_by_tailnum") {
		want = append(want, row[:strings.LastIndexByte(row, ',')]) // the number of the row is in no record
	}
	same(t, "latest_by_tailnum", latest, want)

	same(t, "tumbling_1h_by_origin", startsOf(d, "tumbling_1h_by_origin", "flights"), truth(t, "tumbling_1h_by_origin"))
	hopping := make(map[string]bool)
	for _, row := range startsOf(d, "hopping_3h_1h_by_origin", "flights") {
		hopping[row] = true
	}
	wantTotal(t, "flights.hopping_3h_1h_by_origin.windows", int64(len(hopping)))
	for _, row := range truth(t, "hopping_3h_1h_by_origin_sample") {
		if !hopping[row] {
			t.Errorf("hopping_3h_1h_by_origin: no %s", row)
		}
	}

	sessions := visitsOf(t, d, "sessions_12h_by_tailnum", "flights")
	same(t, "sessions_12h_by_tailnum", perKey(sessions), truth(t, "sessions_12h_by_tailnum"))
	have := make(map[string]bool, len(sessions))
	for _, s := range sessions {
		have[s.line()] = true
	}
	for _, row := range truth(t, "sessions_12h_sample") {
		if !have[row] {
			t.Errorf("sessions_12h_by_tailnum: no %s", row)
		}
	}
	wantTotal(t, "flights.sessions_12h.sessions", int64(len(sessions)))
}

// TestClicksFromAFile: the case study's file gives the right answers about clicks.
func TestClicksFromAFile(t *testing.T) {
	t.Parallel()
	d := fromFile(t, filepath.Join("..", "..", "examples", "clickstream", "mesh.yaml"), streamstest.Config{
		Partitions: map[string]int32{"clicks": 3, "pages": 2}, ProcessingHandler: processor.Continue,
	})
	in := streamstest.NewInput(d, "clicks", serde.Bytes(), serde.Bytes())
	for r, err := range clicks.Rows() {
		if err != nil {
			t.Fatal(err)
		}
		in.PipeValue(r.Value())
	}
	d.Commit()

	var pages []string
	for _, row := range truth(t, "clicks_by_page") {
		if !strings.HasPrefix(row, ",") { // the empty page is a missing value in CSV
			pages = append(pages, row)
		}
	}
	same(t, "clicks_by_page", keyed(t, d, "clicks_by_page", 1, "clicks"), pages)
	same(t, "clicks_tumbling_1h_by_type", startsOf(d, "clicks_by_hour", "clicks"), truth(t, "clicks_tumbling_1h_by_type"))
	sessions := visitsOf(t, d, "sessions", "clicks")
	var rows []string
	for _, s := range sessions {
		rows = append(rows, s.line())
	}
	same(t, "clicks_sessions_30m", rows, truth(t, "clicks_sessions_30m"))
	same(t, "clicks_sessions_30m_by_user", perKey(sessions), truth(t, "clicks_sessions_30m_by_user"))

	var top []string
	for scope, table := range map[string]store.Name{"all": "top_pages", "html": "top_html"} {
		for _, r := range streamstest.NewKeyValue(d, table, serde.String(), serde.JSON[topPages]()).Rows() {
			for i, p := range r.Value.Pages {
				top = append(top, line(scope, strconv.Itoa(i+1), p.Value, strconv.FormatInt(p.By, 10)))
			}
		}
	}
	same(t, "clicks_top10", top, truth(t, "clicks_top10"))
}

// topPages is a row of top_pages and top_html.
type topPages struct {
	Pages []struct {
		Value string `json:"value"`
		By    int64  `json:"by"`
	} `json:"pages"`
}
