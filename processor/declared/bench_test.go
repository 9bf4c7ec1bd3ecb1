package declared_test

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/statemesh/statemesh/internal/configfile"
	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/declared"
	"github.com/statemesh/statemesh/processor/streams"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/processor/windows"
	"github.com/statemesh/statemesh/serde"
)

// flight is a record of the benchmarks, and late what is made of it.
type (
	flight struct {
		Carrier string  `json:"carrier"`
		Origin  string  `json:"origin"`
		Dest    string  `json:"dest"`
		Flight  int64   `json:"flight"`
		Delay   float64 `json:"delay"`
	}
	late struct {
		Carrier string  `json:"carrier"`
		Hours   float64 `json:"hours"`
	}
	person struct {
		Name string `json:"name"`
	}
	named struct {
		Name   string `json:"name"`
		Origin string `json:"origin"`
	}
)

const benchSources = `application.id: bench
bootstrap.servers: [127.0.0.1:9092]
state.dir: ./state
topology:
  in: {topic: in, format: json, key_format: string, columns: {carrier: string, origin: string, dest: string, flight: int, delay: double}}
`

// shapes are topologies, declared and in the DSL; "pass" is the driver's own work, and that of a source.
var shapes = []struct {
	name, declared string
	dsl            func(b *streams.Builder)
}{
	{"pass", "", func(b *streams.Builder) { streams.From(b, "in", serde.String(), serde.Bytes()) }},
	{
		"filter and select", "  out: {from: in, where: delay > 10.0, select: {carrier: carrier, hours: delay / 60.0}, to: out}\n",
		func(b *streams.Builder) {
			s := streams.From(b, "in", serde.String(), serde.JSON[flight]()).Filter(func(_ string, f flight) bool { return f.Delay > 10 })
			streams.MapValues(s, func(f flight) late { return late{f.Carrier, f.Delay / 60} }).WithValues(serde.JSON[late]()).To("out")
		},
	},
	{
		"count by key", "  counts: {from: in, aggregate: {n: count}}\n",
		func(b *streams.Builder) {
			streams.Count(streams.GroupByKey(streams.From(b, "in", serde.String(), serde.Bytes())), "counts")
		},
	},
	{
		"flat map and count", "  counts: {from: in, each: {place: '[origin, dest]'}, group_by: place, aggregate: {n: count}}\n",
		func(b *streams.Builder) {
			places := streams.FlatMapValues(streams.From(b, "in", serde.String(), serde.JSON[flight]()), func(f flight) iter.Seq[string] {
				return slices.Values([]string{f.Origin, f.Dest})
			})
			streams.Count(streams.GroupBy(places, func(_, place string) string { return place }), "counts")
		},
	},
	{
		"windowed count", "  counts: {from: in, window: {tumbling: 1m}, aggregate: {n: count}}\n",
		func(b *streams.Builder) {
			grouped := streams.GroupByKey(streams.From(b, "in", serde.String(), serde.Bytes()))
			streams.CountWindows(streams.WindowedBy(grouped, windows.Tumbling(time.Minute, 0)), "counts")
		},
	},
	{
		"table join", "  people: {kind: table, topic: people, format: json, key_format: string, columns: {name: string}}\n" +
			"  out: {from: in, joins: {with: people, as: p}, select: {name: p.name, origin: origin}, to: out}\n",
		func(b *streams.Builder) {
			people := streams.TableFrom(b, "people", serde.String(), serde.JSON[person](), "people")
			joined := streams.JoinTable(streams.From(b, "in", serde.String(), serde.JSON[flight]()), people,
				func(_ string, f flight, p person) named { return named{p.Name, f.Origin} })
			joined.WithValues(serde.JSON[named]()).To("out")
		},
	},
}

func fromText(text string) (*processor.Topology, error) {
	l, err := configfile.Load(configfile.Source{Path: "bench.yaml", Data: []byte(text)})
	if err != nil {
		return nil, err
	}
	return declared.Build(*l.Config.Declared)
}

func inTheDSL(build func(b *streams.Builder)) (*processor.Topology, error) {
	b := streams.NewBuilder()
	build(b)
	return b.Build()
}

// BenchmarkDeclared takes records of a thousand keys through topologies as a file declares them, beside the same in the DSL. The driver's work
// is in both.
func BenchmarkDeclared(b *testing.B) {
	for _, s := range shapes {
		run := func(way string, build func() (*processor.Topology, error)) {
			b.Run(s.name+"/"+way, func(b *testing.B) {
				topology, err := build()
				if err != nil {
					b.Fatal(err)
				}
				drive(b, topology, strings.Contains(s.declared, "topic: people"), strings.Contains(s.declared, "to: out"))
			})
		}
		run("file", func() (*processor.Topology, error) { return fromText(benchSources + s.declared) })
		run("DSL", func() (*processor.Topology, error) { return inTheDSL(s.dsl) })
	}
}

func drive(b *testing.B, topology *processor.Topology, people, writes bool) {
	b.Helper()
	d := streamstest.NewT(b, topology, streamstest.Config{CommitInterval: streamstest.Never})
	const keys = 1000
	var records [keys]streamstest.Record[[]byte, []byte]
	for i := range records {
		records[i].Key = fmt.Appendf(nil, "k%d", i)
		records[i].Value = fmt.Appendf(nil, `{"carrier":"UA","origin":"EWR","dest":"IAH","flight":%d,"delay":%d}`, i, i%20)
		if people {
			streamstest.NewInput(d, "people", serde.Bytes(), serde.Bytes()).Pipe(records[i].Key, fmt.Appendf(nil, `{"name":"Ann %d"}`, i), 1)
		}
	}
	d.Commit()
	in, read := streamstest.NewInput(d, "in", serde.Bytes(), serde.Bytes()), func() {}
	if writes {
		out := streamstest.NewOutput(d, "out", serde.Bytes(), serde.Bytes())
		read = func() { out.ReadAll() }
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r := &records[i%keys]
		if r.Timestamp = int64(i); i%keys == 0 {
			d.Commit()
			read()
		}
		in.PipeRecord(*r)
	}
}
