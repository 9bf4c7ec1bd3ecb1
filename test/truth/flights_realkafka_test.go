//go:build realkafka

package truth

import (
	"iter"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/statemesh/statemesh/client"
	"github.com/statemesh/statemesh/examples/flights"
	"github.com/statemesh/statemesh/processor/views"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// flightRecords are keyed by aircraft, and bear the time of the flight: in each partition no record is late.
func flightRecords() iter.Seq2[record, error] {
	return func(yield func(record, error) bool) {
		for r, err := range flights.Rows() {
			rec := record{value: r.Value(), timestamp: time.UnixMilli(r.EventTime)}
			if r.Tailnum != "" {
				rec.key = []byte(r.Tailnum)
			}
			if !yield(rec, err) {
				return
			}
		}
	}
}

func proveFlights(t *testing.T, brokers []string) {
	t.Helper()
	of := func(name string, typ views.Type, field string, w views.Window, key ...string) views.View {
		return views.View{
			Name: name, Topic: "flights", Format: views.CSV, Columns: flights.Columns(), Key: key, Type: typ, Field: field, Window: w,
		}
	}
	f := run(t, brokers, "flights", 4, flightRecords(), []views.View{
		of("flights_by_dest", views.Count, "", views.Window{}, "dest"),
		of("flights_by_carrier", views.Count, "", views.Window{}, "carrier"),
		of("flights_by_carrier_origin", views.Count, "", views.Window{}, "carrier", "origin"),
		of("dep_delay_by_carrier", views.StatsOf, "dep_delay", views.Window{}, "carrier"),
		of("latest_by_tailnum", views.Latest, "", views.Window{}),
		of("tumbling_1h_by_origin", views.Count, "", views.Window{Tumbling: time.Hour, Grace: always}, "origin"),
		of("hopping_3h_1h_by_origin", views.Count, "", views.Window{Hopping: 3 * time.Hour, Advance: time.Hour, Grace: always}, "origin"),
		of("sessions_12h_by_tailnum", views.Count, "", views.Window{Session: 12 * time.Hour, Retention: always}),
	})
	byDest := f.counts("flights_by_dest", 1)
	same(t, "flights_by_dest", byDest, truth(t, "flights_by_dest"))
	same(t, "flights_by_carrier", f.counts("flights_by_carrier", 1), truth(t, "flights_by_carrier"))
	same(t, "flights_by_carrier_origin", f.counts("flights_by_carrier_origin", 2), truth(t, "flights_by_carrier_origin"))
	wantTotal(t, "flights.rows", sumOf(t, byDest))
	wantTotal(t, "flights.distinct_dest", int64(len(byDest)))
	delays := f.statistics("dep_delay_by_carrier")
	same(t, "dep_delay_by_carrier", delays, truth(t, "dep_delay_by_carrier"))
	proveLatest(t, f)
	proveWindows(t, f)
	proveSessions(t, f)
}

// proveLatest compares the latest flight of each aircraft; the number of the row is not in the topic.
func proveLatest(t *testing.T, f *fleet) {
	t.Helper()
	latest := f.objects("latest_by_tailnum", func(key string, at int64, o map[string]string) string {
		return line(key, strconv.FormatInt(at, 10), o["carrier"], o["flight"], o["origin"], o["dest"], o["dep_delay"])
	})
	want := truth(t, "latest_by_tailnum")
	for i, row := range want {
		want[i] = row[:strings.LastIndexByte(row, ',')]
	}
	same(t, "latest_by_tailnum", latest, want)
	wantTotal(t, "flights.distinct_tailnum", int64(len(latest)))
}

func proveWindows(t *testing.T, f *fleet) {
	t.Helper()
	tumbling := f.windows("tumbling_1h_by_origin")
	same(t, "tumbling_1h_by_origin", tumbling, truth(t, "tumbling_1h_by_origin"))
	wantTotal(t, "flights.tumbling_1h_by_origin.windows", int64(len(tumbling)))
	hopping := f.windows("hopping_3h_1h_by_origin")
	wantTotal(t, "flights.hopping_3h_1h_by_origin.windows", int64(len(hopping)))
	wantTotal(t, "flights.hopping_3h_1h_by_origin.sum", sumOf(t, hopping))
	day := func(start int64, y int, m time.Month, d int) bool {
		at := time.UnixMilli(start).UTC()
		return at.Year() == y && at.Month() == m && at.Day() == d
	}
	var sample []string
	for _, row := range hopping {
		start, err := strconv.ParseInt(strings.Split(row, ",")[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if day(start, 2013, time.January, 1) || day(start, 2013, time.March, 10) || !time.UnixMilli(start).Before(time.Date(2013, 12, 31, 0, 0, 0, 0, time.UTC)) {
			sample = append(sample, row)
		}
	}
	same(t, "hopping_3h_1h_by_origin_sample", sample, truth(t, "hopping_3h_1h_by_origin_sample"))
}

func proveSessions(t *testing.T, f *fleet) {
	t.Helper()
	sessions := f.sessions("sessions_12h_by_tailnum")
	same(t, "sessions_12h_by_tailnum", perKey(sessions), truth(t, "sessions_12h_by_tailnum"))
	want := truth(t, "sessions_12h_sample")
	sampled := make(map[string]bool)
	for _, row := range want {
		sampled[row[:strings.IndexByte(row, ',')]] = true
	}
	var sample []string
	var sum, longest int64
	for _, s := range sessions {
		sum += s.count
		longest = max(longest, s.count)
		if sampled[s.key] {
			sample = append(sample, s.line())
		}
	}
	same(t, "sessions_12h_sample", sample, want)
	wantTotal(t, "flights.sessions_12h.sessions", int64(len(sessions)))
	wantTotal(t, "flights.sessions_12h.flights", sum)
	wantTotal(t, "flights.sessions_12h.longest", longest)
}

// sumOf adds up the last fields of rows.
func sumOf(t *testing.T, rows []string) int64 {
	t.Helper()
	var sum int64
	for _, row := range rows {
		n, err := strconv.ParseInt(row[strings.LastIndexByte(row, ',')+1:], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}

// statistics reads a view of statistics as "key,n,sum,min,max,mean".
func (f *fleet) statistics(view string) []string {
	f.t.Helper()
	number := func(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
	return collect(f, client.NewView(f.Client, store.Name(view), serde.String(), serde.JSON[views.Statistics]()).Scan(f.t.Context(), client.ScanQuery{}, client.MaxStaleness(fresh)),
		func(it client.Item[string, views.Statistics]) string {
			s := it.Value
			return line(it.Key, strconv.FormatInt(s.Count, 10), strconv.FormatInt(int64(s.Sum), 10), number(s.Min), number(s.Max), number(s.Avg))
		})
}

// objects reads a view of JSON objects.
func (f *fleet) objects(view string, format func(key string, timestamp int64, object map[string]string) string) []string {
	f.t.Helper()
	return collect(f, client.NewView(f.Client, store.Name(view), serde.String(), serde.JSON[map[string]string]()).Scan(f.t.Context(), client.ScanQuery{}, client.MaxStaleness(fresh)),
		func(it client.Item[string, map[string]string]) string { return format(it.Key, it.Timestamp, it.Value) })
}
