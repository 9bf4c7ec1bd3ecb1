package streams_test

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/streams"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/processor/windows"
	"github.com/statemesh/statemesh/serde"
)

// edgeDriver runs what build makes of the topic "in", which it may send to "out".
func edgeDriver(t *testing.T, build func(b *streams.Builder, in *streams.Stream[string, string])) (
	d *streamstest.Driver, in *streamstest.Input[string, string],
) {
	t.Helper()
	b := streams.NewBuilder()
	build(b, streams.From(b, "in", serde.String(), serde.String()))
	topology, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	d = streamstest.NewT(t, topology, streamstest.Config{})
	return d, streamstest.NewInput(d, "in", serde.String(), serde.String())
}

// TestWindowAtTheEndOfTime: the search for the windows of the last millisecond that there is ends.
func TestWindowAtTheEndOfTime(t *testing.T) {
	t.Parallel()
	for name, w := range map[string]windows.Time{
		"tumbling": windows.Tumbling(10*time.Millisecond, 0), "hopping": windows.Hopping(10*time.Millisecond, 3*time.Millisecond, 0),
	} {
		d, in := edgeDriver(t, func(_ *streams.Builder, s *streams.Stream[string, string]) {
			streams.CountWindows(streams.WindowedBy(streams.GroupByKey(s), w), "c")
		})
		in.Pipe("a", "1", math.MaxInt64-1)
		in.Pipe("a", "1", math.MaxInt64)
		if n := d.Dropped()["late"] + len(streamstest.NewWindow(d, "c", serde.String(), serde.Int64()).Rows()); n == 0 {
			t.Errorf("%s: neither kept nor dropped", name)
		}
	}
}

// TestFlatMapKeepsTheError: a sequence that does not end when it is told to takes no error away.
func TestFlatMapKeepsTheError(t *testing.T) {
	t.Parallel()
	bad := errors.New("bad word")
	d, in := edgeDriver(t, func(_ *streams.Builder, s *streams.Stream[string, string]) {
		words := streams.FlatMapValues(s, func(line string) iter.Seq[string] {
			return func(yield func(string) bool) {
				for w := range strings.FieldsSeq(line) {
					yield(w)
				}
			}
		})
		streams.Process(words, func() streams.Processor[string, string, string, string] { return &refusing{word: "bad", err: bad} }).To("out")
	})
	err := d.Try(func() { in.Pipe("k", "bad good", 1) })
	if e, ok := errors.AsType[*processor.TaskError](err); !ok || !errors.Is(e, bad) {
		t.Errorf("%v, want %v", err, bad)
	}
	if got := streamstest.NewOutput(d, "out", serde.String(), serde.String()).ReadStrings(); len(got) > 0 {
		t.Errorf("%v went on", got)
	}
}

// refusing hands on all words but one.
type refusing struct {
	ctx  *streams.Context[string, string]
	word string
	err  error
}

func (p *refusing) Init(ctx *streams.Context[string, string]) error { p.ctx = ctx; return nil }
func (p *refusing) Close() error                                    { return nil }
func (p *refusing) Process(r *streams.Record[string, string]) error {
	if r.Value == p.word {
		return p.err
	}
	return p.ctx.Forward(*r)
}

// TestFilteredValueIsNone: a join sees neither the value that a filter of its table has left out nor its time.
func TestFilteredValueIsNone(t *testing.T) {
	t.Parallel()
	d, in := edgeDriver(t, func(b *streams.Builder, s *streams.Stream[string, string]) {
		open := streams.TableFrom(b, "right", serde.String(), serde.String(), "right").Filter(func(_, v string) bool { return v != "secret" })
		streams.LeftJoinTable(s, open, func(_, l string, r streams.Maybe[string]) string { return fmt.Sprintf("%s+%q", l, r.Value) }).To("out")

		left := streams.TableFrom(b, "left", serde.String(), serde.String(), "left", streams.CachingDisabled())
		third := streams.TableFrom(b, "third", serde.String(), serde.String(), "third", streams.CachingDisabled())
		both := streams.LeftJoinTables(left, open, func(_, l string, r streams.Maybe[string]) string { return l + r.Value })
		streams.ToStream(streams.JoinTables(third, both, func(_, x, j string) string { return x + j })).To("tables")
	})
	streamstest.NewInput(d, "right", serde.String(), serde.String()).Pipe("k", "secret", 900)
	in.Pipe("k", "l", 2)
	if got, want := streamstest.NewOutput(d, "out", serde.String(), serde.String()).ReadStrings(), []string{`k=l+""@2`}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	streamstest.NewInput(d, "left", serde.String(), serde.String()).Pipe("k", "l", 5)
	streamstest.NewInput(d, "third", serde.String(), serde.String()).Pipe("k", "x", 6)
	if got, want := streamstest.NewOutput(d, "tables", serde.String(), serde.String()).ReadStrings(), []string{"k=xl@6"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestHeldRecordFailsOnce: a record that was held back and fails when it is let go of costs one record of those that come, under a handler
// that goes on, and not each of them.
func TestHeldRecordFailsOnce(t *testing.T) {
	t.Parallel()
	for name, join := range map[string]func(b *streams.Builder, s *streams.Stream[string, string]) *streams.Stream[string, string]{
		"grace": func(b *streams.Builder, s *streams.Stream[string, string]) *streams.Stream[string, string] {
			right := streams.TableFrom(b, "right", serde.String(), serde.String(), "right", streams.History(time.Hour))
			return streams.LeftJoinTable(s, right, func(_, l string, _ streams.Maybe[string]) string { return l },
				streams.JoinGrace(10*time.Millisecond), streams.Named("join"))
		},
		"outer": func(b *streams.Builder, s *streams.Stream[string, string]) *streams.Stream[string, string] {
			right := streams.From(b, "right", serde.String(), serde.String())
			return streams.LeftJoinStreams(s, right, streams.Within(10*time.Millisecond),
				func(_, l string, _ streams.Maybe[string]) string { return l }, streams.As("join"))
		},
	} {
		b := streams.NewBuilder()
		joined := join(b, streams.From(b, "in", serde.String(), serde.String()))
		streams.Process(joined, func() streams.Processor[string, string, string, string] {
			return &refusing{word: "bad", err: errors.New("bad")}
		}).To("out")
		topology, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		d := streamstest.NewT(t, topology, streamstest.Config{ProcessingHandler: processor.DeadLetter})
		in := streamstest.NewInput(d, "in", serde.String(), serde.String())
		in.Pipe("k", "bad", 0)
		for i := range 6 {
			in.Pipe("k", fmt.Sprint(i+1), int64(100*(i+1)))
		}
		if n := len(d.DeadLetters()); n != 1 {
			t.Errorf("%s: %d dead letters, want 1", name, n)
		}
		if n := streamstest.NewOutput(d, "out", serde.String(), serde.String()).Len(); n < 4 {
			t.Errorf("%s: %d results", name, n)
		}
	}
}

// TestOldValueOfOneChangedInPlace: a table tells the old value also where the aggregator has made the new one in its place.
func TestOldValueOfOneChangedInPlace(t *testing.T) {
	t.Parallel()
	for _, opts := range [][]streams.Option{nil, {streams.CachingDisabled()}} {
		d, in := edgeDriver(t, func(_ *streams.Builder, s *streams.Stream[string, string]) {
			sums := streams.Aggregate(streams.GroupByKey(s), "sums", serde.JSON[map[string]int64](), func() map[string]int64 { return map[string]int64{} },
				func(_, _ string, a map[string]int64) map[string]int64 { a["n"]++; return a }, opts...)
			perN := streams.GroupTable(sums, func(_ string, a map[string]int64) (string, int64) { return fmt.Sprint(a["n"]), 1 })
			streams.CountTable(perN, "keys")
		})
		for i := range int64(3) {
			in.Pipe("k", "v", i)
		}
		got := streamstest.Map(streamstest.NewKeyValue(d, "keys", serde.String(), serde.Int64()))
		if fmt.Sprint(got) != "map[1:0 2:0 3:1]" {
			t.Errorf("%d options: %v", len(opts), got)
		}
	}
}

// TestForeignKeyOfNil: a foreign key of nil is none.
func TestForeignKeyOfNil(t *testing.T) {
	t.Parallel()
	d, _ := edgeDriver(t, func(b *streams.Builder, _ *streams.Stream[string, string]) {
		l := streams.TableFrom(b, "l", serde.String(), serde.String(), "l")
		r := streams.TableFrom(b, "r", serde.Bytes(), serde.String(), "r")
		streams.LeftJoinForeign(l, r, func(_, v string) ([]byte, bool) {
			if v == "none" {
				return nil, true
			}
			return []byte(v), true
		}, func(_, l string, r streams.Maybe[string]) string { return l + "+" + r.Value }, streams.As("j"))
	})
	l := streamstest.NewInput(d, "l", serde.String(), serde.String())
	l.Pipe("k", "x", 1)
	l.Pipe("k", "none", 2)
	if got := streamstest.Map(streamstest.NewKeyValue(d, "j", serde.String(), serde.String())); fmt.Sprint(got) != "map[k:none+]" {
		t.Errorf("%v", got)
	}
}

// TestLateChangeInAPlainStore: what is late to a versioned table is the value of a plain store behind it, as upstream, and groups of that
// follow the store.
func TestLateChangeInAPlainStore(t *testing.T) {
	t.Parallel()
	d := drive(t, streamstest.Config{}, func(b *streams.Builder) {
		versions := streams.TableFrom(b, "in", serde.String(), serde.String(), "versions", streams.History(time.Hour))
		plain := versions.Filter(func(_, _ string) bool { return true }, streams.As("plain"), streams.CachingDisabled())
		groups := streams.GroupTable(plain, func(k, v string) (string, string) { return v, k }, streams.Named("by-value"))
		streams.CountTable(groups, "counts")
	})
	pipe(streamstest.NewInput(d, "in", serde.String(), serde.String()), "k=a@10", "k=b@5")
	value, _ := streamstest.NewKeyValue(d, "plain", serde.String(), serde.String()).Get("k")
	counts := streamstest.NewKeyValue(d, "counts", serde.String(), serde.Int64())
	a, _ := counts.Get("a")
	b, _ := counts.Get("b")
	if value != "b" || a != 0 || b != 1 {
		t.Errorf("the store has %q, counted are %d of a and %d of b", value, a, b)
	}
}
