package streams_test

import (
	"testing"

	"github.com/statemesh/statemesh/processor/streams"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/processor/windows"
	"github.com/statemesh/statemesh/serde"
)

// letters is how long values are together: an aggregate of another type than the records.
func letters(_ string, v string, n int64) int64 { return n + int64(len(v)) }

func nothing() int64 { return 0 }

// TestAggregateWindows: an aggregate of another type begins anew in each window, and goes on over a restart.
func TestAggregateWindows(t *testing.T) {
	t.Parallel()
	w := by(windows.Tumbling(10*ms, 0))
	d := drive(t, streamstest.Config{}, func(b *streams.Builder) {
		perKey := streams.GroupByKey(texts(b, "in"))
		sums := streams.AggregateWindows(streams.WindowedBy(perKey, windows.Tumbling(10*ms, 0)), "sums", serde.Int64(), nothing, letters)
		streams.ToStream(sums).To("out")
	})
	in, out := streamstest.NewInput(d, "in", serde.String(), serde.String()), readWindows(d, w, serde.Int64())
	pipe(in, "a=xx@1", "a=yyy@5")
	d.Restart()
	pipe(in, "a=z@9", "a=xx@12")
	want(t, "out", out(), "a[0,10]=2@1", "a[0,10]=5@5", "a[0,10]=6@9", "a[10,20]=2@12")
}

// TestAggregateSessions: what two sessions have come to is merged when a record joins them.
func TestAggregateSessions(t *testing.T) {
	t.Parallel()
	session := windows.Session{Gap: 5 * ms, Grace: 100 * ms}
	w := bySessions(session)
	d := drive(t, streamstest.Config{}, func(b *streams.Builder) {
		perKey := streams.GroupByKey(texts(b, "in"))
		merge := func(_ string, a, b int64) int64 { return a + b }
		sums := streams.AggregateSessions(streams.SessionsBy(perKey, session), "sums", serde.Int64(), nothing, letters, merge, streams.CachingDisabled())
		streams.ToStream(sums).To("out")
	})
	pipe(streamstest.NewInput(d, "in", serde.String(), serde.String()), "a=xx@0", "a=yyy@10", "a=z@5")
	want(t, "out", readWindows(d, w, serde.Int64())(), "a[0,0]=2@0", "a[10,10]=3@10", "a[0,0]=null@0", "a[10,10]=null@10", "a[0,10]=6@10")
}
