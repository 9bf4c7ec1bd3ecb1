package streams_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/statemesh/statemesh/processor/streams"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/processor/windows"
	"github.com/statemesh/statemesh/serde"
)

// BenchmarkAggregations has the driver's own work in it: BenchmarkAggregations/none is that alone.
func BenchmarkAggregations(b *testing.B) {
	hour := windows.Tumbling(time.Hour, 0)
	for name, build := range map[string]func(*streams.Grouped[string, string]){
		"none": func(g *streams.Grouped[string, string]) {
			streams.Count(g, "s") // is given tombstones, which it drops
		},
		"count":          func(g *streams.Grouped[string, string]) { streams.Count(g, "s") },
		"windowed count": func(g *streams.Grouped[string, string]) { streams.CountWindows(streams.WindowedBy(g, hour), "s") },
		"sliding count": func(g *streams.Grouped[string, string]) {
			streams.CountWindows(streams.WindowedBy(g, windows.Sliding{Difference: time.Minute}), "s")
		},
		"sessions": func(g *streams.Grouped[string, string]) {
			streams.CountWindows(streams.SessionsBy(g, windows.Session{Gap: time.Minute}), "s")
		},
	} {
		b.Run(name, func(b *testing.B) {
			d := drive(b, streamstest.Config{CommitInterval: streamstest.Never}, func(bl *streams.Builder) {
				build(streams.GroupByKey(texts(bl, "in")))
			})
			in := streamstest.NewInput(d, "in", serde.String(), serde.String())
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if name == "none" {
					in.PipeTombstone(strconv.Itoa(i%1000), int64(i))
				} else {
					in.Pipe(strconv.Itoa(i%1000), "x", int64(i))
				}
			}
		})
	}
}
