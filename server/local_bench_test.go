package server

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/store"
)

// BenchmarkCopy compares a get of a partition of which the instance that is asked has a copy: answered by that, by a hop to the
// owner that may be hedged, and by one that may not.
func BenchmarkCopy(b *testing.B) {
	for _, c := range []struct {
		name  string
		after time.Duration
		bound time.Duration
	}{{"local copy", 0, time.Minute}, {"hop", -1, 0}, {"hop that may be hedged", 0, 0}} {
		b.Run(c.name, func(b *testing.B) {
			m := withCopies(b, 2, 1, func(_ string, conf *Config, _ *Deps) { conf.HedgeDelay = c.after })
			q, key := m.node("b").query(), m.keyIn(store.Partition(0))
			var opts *statemeshv1.ReadOptions
			if c.bound > 0 {
				opts = &statemeshv1.ReadOptions{MaxStaleness: durationpb.New(c.bound)}
			}
			b.ReportAllocs()
			begin := cpuTime(b)
			for b.Loop() {
				if _, err := q.Get(b.Context(), get(key, func(r *statemeshv1.GetRequest) { r.Options = opts })); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(cpuTime(b)-begin)/float64(b.N), "cpu-ns/op")
		})
	}
}
