package truth

import (
	"compress/gzip"
	"encoding/csv"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/statemesh/statemesh/examples/flights"
	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/streams"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// flight is what the joins need of one.
type flight struct{ Carrier, Dest string }

// joinTopology counts flights by what two tables say of their airline and their destination. An airport that the table lacks has no name.
func joinTopology() (*processor.Topology, error) {
	b := streams.NewBuilder()
	all := streams.From(b, flights.Topic, serde.Bytes(), serde.JSON[flight]())
	airlines := streams.TableFrom(b, "airlines", serde.String(), serde.String(), "airlines")
	airports := streams.GlobalTableFrom(b, "airports", serde.String(), serde.String(), "airports")

	byCarrier := streams.SelectKey(all, func(_ []byte, f flight) string { return f.Carrier }).WithValues(serde.JSON[flight]())
	named := streams.JoinTable(byCarrier, airlines, func(carrier string, _ flight, name string) string { return line(carrier, name) })
	streams.Count(streams.GroupBy(named, func(_ string, v string) string { return v }), "flights_by_airline_name")

	arriving := streams.LeftJoinGlobal(all, airports, func(_ []byte, f flight) (string, bool) { return f.Dest, true },
		func(_ []byte, f flight, name streams.Maybe[string]) string { return line(f.Dest, name.Value) })
	streams.Count(streams.GroupBy(arriving, func(_ []byte, v string) string { return v }), "flights_by_dest_airport")
	return b.Build()
}

// TestFlightJoinsInTheDSL proves joins of a stream with a table and with a global table on the flights of a year.
func TestFlightJoinsInTheDSL(t *testing.T) {
	t.Parallel()
	topology, err := joinTopology()
	if err != nil {
		t.Fatal(err)
	}
	d := streamstest.NewT(t, topology, streamstest.Config{
		CommitInterval: streamstest.Never, Partitions: map[string]int32{flights.Topic: 3, "airlines": 2, "airports": 2},
	})
	names(t, d, "airlines", 1)
	names(t, d, "airports", 1)
	d.Commit()
	in := streamstest.NewInput(d, flights.Topic, serde.Bytes(), serde.JSON[flight]())
	in.Clock(time.Date(2013, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli(), time.Minute)
	for r, err := range flights.Rows() {
		if err != nil {
			t.Fatal(err)
		}
		in.PipeValue(flight{r.Carrier, r.Dest})
	}
	d.Commit()
	for _, name := range []string{"flights_by_airline_name", "flights_by_dest_airport"} {
		var rows []string
		for _, r := range streamstest.NewKeyValue(d, store.Name(name), serde.String(), serde.Int64()).Rows() {
			rows = append(rows, r.Key+","+strconv.FormatInt(r.Value, 10))
		}
		same(t, name, rows, truth(t, name))
	}
}

// names fills a topic with the names in a file, by the first column.
func names(t *testing.T, d *streamstest.Driver, topic string, column int) {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", topic+".csv.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(unpacked).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	in := streamstest.NewInput(d, topic, serde.String(), serde.String())
	for _, row := range rows[1:] {
		in.PipeNext(row[0], row[column])
	}
}
