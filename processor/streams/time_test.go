package streams_test

import (
	"testing"
	"time"

	"github.com/statemesh/statemesh/processor/streams"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/processor/windows"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// TestJoinedTableClosesNoWindows: the records of a table move the stream time of the task, and not that of the windows behind the join.
func TestJoinedTableClosesNoWindows(t *testing.T) {
	t.Parallel()
	for name, emit := range map[string]streams.EmitStrategy{"on update": streams.OnWindowUpdate, "on close": streams.OnWindowClose} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := by(windows.Tumbling(10*ms, 0), emit)
			d := drive(t, streamstest.Config{}, func(b *streams.Builder) {
				users := streams.TableFrom(b, "users", serde.String(), serde.String(), "users")
				rows := streams.LeftJoinTable(texts(b, "in"), users, leftPlus)
				streams.ToStream(streams.CountWindows(w.on(streams.GroupByKey(rows)), "s")).To("out")
			})
			in, out := streamstest.NewInput(d, "in", serde.String(), serde.String()), readWindows(d, w, serde.Int64())
			users := streamstest.NewInput(d, "users", serde.String(), serde.String())
			pipe(in, "a=x@1")
			pipe(users, "a=u@1000")
			d.Restart()
			pipe(in, "a=x@2", "b=x@10")
			if name == "on close" {
				want(t, "out", out(), "a[0,10]=2@2")
			} else {
				want(t, "out", out(), "a[0,10]=1@1", "a[0,10]=2@2", "b[10,20]=1@10")
			}
			if got := d.Dropped(); len(got) > 0 {
				t.Errorf("dropped %v", got)
			}
		})
	}
}

// TestFinalResultOnceOverRestarts: what is late is late after a restart and after a failure, also where a record cache decides when a
// change comes.
func TestFinalResultOnceOverRestarts(t *testing.T) {
	t.Parallel()
	w := by(windows.Tumbling(10*ms, 0))
	d := drive(t, streamstest.Config{}, func(b *streams.Builder) {
		last := streams.Reduce(streams.GroupByKey(texts(b, "in")), "last", func(_, v string) string { return v })
		counts := streams.CountWindows(w.on(streams.GroupByKey(streams.ToStream(last))), "s")
		streams.ToStream(counts.Suppress(streams.UntilWindowCloses(streams.Buffer{}), streams.Named("final"))).To("out")
	})
	in, out := streamstest.NewInput(d, "in", serde.String(), serde.String()), readWindows(d, w, serde.Int64())
	pipe(in, "a=x@5", "b=x@20")
	want(t, "out", out(), "a[0,10]=1@5")
	d.Restart()
	pipe(in, "a=y@6", "b=y@30")
	want(t, "after a restart", out(), "b[20,30]=1@20")
	if got := d.Dropped()["late"]; got != 1 {
		t.Errorf("dropped %v, want one late record", d.Dropped())
	}
}

// TestTimeOfAFailureIsForgotten: a record that failed has moved no time.
func TestTimeOfAFailureIsForgotten(t *testing.T) {
	t.Parallel()
	w := by(windows.Tumbling(10*ms, 0))
	d := drive(t, streamstest.Config{CommitInterval: time.Minute}, func(b *streams.Builder) {
		counts := streams.CountWindows(w.on(streams.GroupByKey(texts(b, "in"))), "s", streams.CachingDisabled())
		failing := streams.MapValues(streams.ToStream(counts), func(n int64) int64 {
			if n == 3 {
				panic("three")
			}
			return n
		})
		failing.To("out")
	})
	in, out := streamstest.NewInput(d, "in", serde.String(), serde.String()), readWindows(d, w, serde.Int64())
	pipe(in, "a=x@1")
	d.Commit()
	if err := d.Try(func() { pipe(in, "b=x@50", "b=x@50", "b=x@50") }); err == nil {
		t.Fatal("the third record did not fail")
	}
	want(t, "out", out(), "a[0,10]=1@1", "b[50,60]=1@50", "b[50,60]=2@50")
}

// TestFinalResultOfTwoTables: a window of a join is final when the last of both tables changes it no more, also when one is ahead of the
// other, over restarts, and with the record cache on.
func TestFinalResultOfTwoTables(t *testing.T) {
	t.Parallel()
	for name, graces := range map[string][2]time.Duration{"first": {0, 10 * ms}, "second": {10 * ms, 0}} {
		for restart, again := range map[string]func(*streamstest.Driver){"": func(*streamstest.Driver) {}, " with restarts": (*streamstest.Driver).Restart} {
			t.Run(name+restart, func(t *testing.T) {
				t.Parallel()
				w := by(windows.Tumbling(10*ms, 0))
				d := drive(t, streamstest.Config{}, func(b *streams.Builder) {
					count := func(topic string, grace time.Duration) *streams.Table[serde.Windowed[string], int64] {
						return streams.CountWindows(by(windows.Tumbling(10*ms, grace)).on(streams.GroupByKey(texts(b, topic))), store.Name("counts-of-"+topic))
					}
					sum := streams.OuterJoinTables(count("l", graces[0]), count("r", graces[1]), func(_ serde.Windowed[string], l, r streams.Maybe[int64]) int64 {
						return 10*l.Value + r.Value
					})
					streams.ToStream(sum.Suppress(streams.UntilWindowCloses(streams.Buffer{}), streams.Named("final"))).To("out")
				})
				out := readWindows(d, w, serde.Int64())
				l, r := streamstest.NewInput(d, "l", serde.String(), serde.String()), streamstest.NewInput(d, "r", serde.String(), serde.String())
				late := l // the one with the grace
				if graces[1] > 0 {
					late = r
				}
				pipe(l, "a=x@1")
				pipe(r, "a=x@1")
				pipe(l, "a=x@12")
				again(d)
				pipe(late, "a=x@2")
				want(t, "before the window closes", out())
				pipe(r, "b=x@20")
				if graces[1] > 0 {
					want(t, "final", out(), "a[0,10]=12@2")
				} else {
					want(t, "final", out(), "a[0,10]=21@2")
				}
				again(d)
				pipe(l, "a=y@3")
				pipe(r, "a=y@3", "b=x@30")
				want(t, "nothing twice", out(), "a[10,20]=10@12")
			})
		}
	}
}

// TestJoinGraceAfterRestart: the time that decides what waits is moved by records that do not wait, too, and survives them.
func TestJoinGraceAfterRestart(t *testing.T) {
	t.Parallel()
	for name, restart := range map[string]bool{"": false, "restart": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := drive(t, streamstest.Config{}, func(b *streams.Builder) {
				table := streams.TableFrom(b, "table", serde.String(), serde.String(), "versions", streams.History(time.Hour))
				streams.JoinTable(texts(b, "in"), table, plus, streams.JoinGrace(10*ms)).To("out")
			})
			in, out := streamstest.NewInput(d, "in", serde.String(), serde.String()), read(d, serde.String())
			pipe(streamstest.NewInput(d, "table", serde.String(), serde.String()), "a=t@0")
			pipe(in, "a@100") // has no value, and is dropped
			if restart {
				d.Restart()
			}
			pipe(in, "a=late@50")
			want(t, "out", out(), "a=late+t@50")
		})
	}
}
