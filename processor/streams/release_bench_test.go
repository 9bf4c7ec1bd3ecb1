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

// BenchmarkRelease is records that are held back and let go of one after the other within one commit: each record lets go of an earlier one. The
// cost of a record must not grow with how many the commit has let go of.
func BenchmarkRelease(b *testing.B) {
	minute := windows.Tumbling(time.Minute, 0)
	for name, build := range map[string]func(*streams.Builder){
		"suppress": func(bl *streams.Builder) {
			counts := streams.Count(streams.GroupByKey(texts(bl, "in")), "s", streams.CachingDisabled())
			counts.Suppress(streams.UntilTimeLimit(time.Minute, streams.Buffer{}), streams.Named("held"))
		},
		"suppress full": func(bl *streams.Builder) {
			counts := streams.Count(streams.GroupByKey(texts(bl, "in")), "s", streams.CachingDisabled())
			counts.Suppress(streams.UntilTimeLimit(1e6*time.Hour, streams.Buffer{MaxRecords: 50, WhenFull: streams.EmitEarly}), streams.Named("held"))
		},
		"on close": func(bl *streams.Builder) {
			streams.CountWindows(streams.WindowedBy(streams.GroupByKey(texts(bl, "in")), minute).Emit(streams.OnWindowClose), "s", streams.Retention(time.Minute))
		},
		"join grace": func(bl *streams.Builder) {
			table := streams.TableFrom(bl, "table", serde.String(), serde.String(), "versions", streams.History(time.Hour))
			streams.JoinTable(texts(bl, "in"), table, plus, streams.JoinGrace(time.Minute))
		},
		"left join": func(bl *streams.Builder) {
			streams.LeftJoinStreams(texts(bl, "in"), texts(bl, "other"), streams.Within(time.Minute), leftPlus)
		},
	} {
		for _, n := range []int{5_000, 10_000, 20_000} {
			b.Run(name+"/"+strconv.Itoa(n), func(b *testing.B) {
				d := drive(b, streamstest.Config{CommitInterval: streamstest.Never}, build)
				in := streamstest.NewInput(d, "in", serde.String(), serde.String())
				at, key := int64(0), 0
				b.ReportAllocs()
				for b.Loop() {
					for range n {
						in.Pipe(strconv.Itoa(key), "x", at)
						at, key = at+time.Second.Milliseconds(), key+1
					}
					d.Commit()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/record")
			})
		}
	}
}
