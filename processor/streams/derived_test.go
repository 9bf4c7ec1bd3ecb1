package streams_test

import (
	"strings"
	"testing"
	"time"

	"github.com/statemesh/statemesh/processor/streams"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/serde"
)

// TestGroupedJoin: results of a join of tables leave the group that they were in, whether the join has a store or not.
func TestGroupedJoin(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]streams.Option{"a view": nil, "a store": {streams.As("joined")}} {
		b := newJoinBench(t, streamstest.Config{}, func(b *streams.Builder) {
			l, r := tables(b)
			joined := streams.JoinTables(l, r, plus, opts...)
			groups := streams.GroupTable(joined, func(k, v string) (string, string) { return v, k })
			counts := streams.CountTable(groups, "counts", streams.CachingDisabled())
			streams.ToStream(streams.MapTableValues(counts, func(_ string, n int64) string { return strings.Repeat("I", int(n)) })).To("out")
		})
		pipe(b.left, "k=a@1")
		pipe(b.right, "k=b@2")
		pipe(b.left, "k=c@3")
		pipe(b.right, "k@4")
		want(t, name, b.out.ReadStrings(), "a+b=I@2", "a+b=@3", "c+b=I@3", "c+b=@4")
	}
}

// TestDerivedAsOf: a table that is computed from a versioned one is joined as that one was.
func TestDerivedAsOf(t *testing.T) {
	t.Parallel()
	b := newJoinBench(t, streamstest.Config{}, func(b *streams.Builder) {
		versions := streams.TableFrom(b, "right", serde.String(), serde.String(), "versions", streams.History(time.Second))
		few := streams.MapTableValues(versions.Filter(func(_, v string) bool { return v != "hidden" }), func(_, v string) string { return v + "!" })
		streams.LeftJoinTable(texts(b, "left"), few, leftPlus).To("out")
	})
	pipe(b.right, "k=a@10", "k=hidden@20", "k=b@30")
	pipe(b.left, "k=x@15", "k=y@25", "k=z@35")
	want(t, "out", b.out.ReadStrings(), "k=x+a!@15", "k=y+null@25", "k=z+b!@35")
}

// TestLateVersions: a version that is not the newest changes no group and no join on a foreign key, and is counted (KIP-914).
func TestLateVersions(t *testing.T) {
	t.Parallel()
	b := newJoinBench(t, streamstest.Config{}, func(b *streams.Builder) {
		l, r := scope{Builder: b}.tables(streams.History(time.Second))
		streams.ToStream(streams.JoinForeign(l, r, foreignKey, plus)).To("out")
		groups := streams.GroupTable(l, func(k, v string) (string, string) { return v, k })
		streams.ToStream(streams.CountTable(groups, "counts", streams.CachingDisabled())).To("counts")
	})
	pipe(b.right, "a=A@20", "a=older@10")
	pipe(b.left, "1=a:x@20", "1=a:older@10")
	want(t, "joined", b.out.ReadStrings(), "1=a:x+A@20")
	want(t, "counts", streamstest.NewOutput(b.d, "counts", serde.String(), serde.Int64()).ReadStrings(), "a:x=1@20")
	if n := b.d.Dropped()["out of order"]; n != 3 {
		t.Errorf("dropped %v, want 3 out of order: a foreign row, a left row, and that of the group", b.d.Dropped())
	}
}

// TestWaitingRecordsKeepTheirHeaders: what a record with a grace brings is there when it is joined, over a restart, too.
func TestWaitingRecordsKeepTheirHeaders(t *testing.T) {
	t.Parallel()
	b := newJoinBench(t, streamstest.Config{}, func(b *streams.Builder) {
		versions := streams.TableFrom(b, "right", serde.String(), serde.String(), "versions", streams.History(time.Second))
		streams.JoinTable(texts(b, "left"), versions, plus, streams.JoinGrace(10*time.Millisecond), streams.Named("joined")).To("out")
	})
	pipe(b.right, "k=a@10")
	record := streamstest.Record[string, string]{Key: "k", Value: "x", Timestamp: 15}
	record.Headers = append(record.Headers, header("who", "ann"), header("empty", ""))
	b.left.PipeRecord(record)
	b.d.Restart()
	pipe(b.left, "other=y@100")
	r, ok := b.out.Read()
	who, has := r.Header("who")
	if !ok || r.String() != "k=x+a@15" || string(who) != "ann" || !has || len(r.Headers) != 2 {
		t.Errorf("%s with %v", r, r.Headers)
	}
	if v, has := r.Header("none"); has {
		t.Errorf("a header that there is not: %q", v)
	}
}

// TestEmptyKeys: no store has a row for an empty key, so tables drop and count it.
func TestEmptyKeys(t *testing.T) {
	t.Parallel()
	d := drive(t, streamstest.Config{}, func(b *streams.Builder) {
		users := streams.TableFrom(b, "users", serde.String(), serde.String(), "users")
		users.Filter(func(_, _ string) bool { return true }, streams.As("kept"))
		groups := streams.GroupTable(users, func(_, v string) (string, string) { return "", v })
		streams.CountTable(groups, "counts")
		streams.JoinStreams(texts(b, "in"), texts(b, "other"), streams.Within(time.Second), plus, streams.As("j")).To("out")
	})
	pipe(streamstest.NewInput(d, "users", serde.String(), serde.String()), "=x@1", "u=x@1")
	pipe(streamstest.NewInput(d, "in", serde.String(), serde.String()), "=x@1")
	if n := d.Dropped()["empty key"]; n != 3 {
		t.Errorf("dropped %v, want 3: a row, a row of a group, a record of a join", d.Dropped())
	}
}

// TestJoinsWithoutKeys: a record without a key meets no row: it is dropped and counted, unless the join has results for records that meet none.
func TestJoinsWithoutKeys(t *testing.T) {
	t.Parallel()
	b := newJoinBench(t, streamstest.Config{}, func(b *streams.Builder) {
		l, r := texts(b, "left"), streams.TableFrom(b, "right", serde.String(), serde.String(), "")
		streams.JoinTable(l, r, plus).To("inner")
		streams.LeftJoinTable(l, r, leftPlus).To("out")
	})
	b.left.PipeRecord(streamstest.Record[string, string]{NullKey: true, Value: "x", Timestamp: 1})
	want(t, "left", b.out.ReadStrings(), "null=x+null@1")
	if n := b.d.Dropped()["null key"]; n != 1 {
		t.Errorf("dropped %v", b.d.Dropped())
	}
}

// TestUnsaidOfJoins: a grace that cannot be is refused, and stores of a join by position are warned about.
func TestUnsaidOfJoins(t *testing.T) {
	t.Parallel()
	b := streams.NewBuilder()
	l, r := sources(b)
	streams.JoinStreams(l, r, streams.Within(time.Second), plus).To("out")
	if w := b.Warnings(); len(w) != 1 || !strings.Contains(w[0].Text, "give them a name with As") {
		t.Errorf("warnings %v", w)
	}
	versions := streams.TableFrom(b, "table", serde.String(), serde.String(), "versions", streams.History(time.Second))
	streams.JoinTable(l, versions, plus, streams.JoinGrace(-time.Second), streams.Named("joined")).To("out")
	if _, err := b.Build(); err == nil || !strings.Contains(err.Error(), "JoinGrace is at least 0") {
		t.Errorf("%v, want a grace that cannot be", err)
	}
}

// TestMergeTakesSerdes: a merged stream is written as the second is where nobody has said how the first one is.
func TestMergeTakesSerdes(t *testing.T) {
	t.Parallel()
	d := drive(t, streamstest.Config{}, func(b *streams.Builder) {
		unsaid := streams.Map(texts(b, "in"), func(k, v string) (page, page) { return page{k}, page{v} })
		said := streams.From(b, "other", pages(), pages())
		unsaid.Merge(said).To("out")
	})
	pipe(streamstest.NewInput(d, "in", serde.String(), serde.String()), "a=x@1")
	pipe(streamstest.NewInput(d, "other", serde.String(), serde.String()), "b=y@2")
	want(t, "out", read(d, serde.String())(), "a=x@1", "b=y@2")
}

// TestNamesOfAggregations: what Named says is part of all names that upstream makes of it, and no name is given twice.
func TestNamesOfAggregations(t *testing.T) {
	t.Parallel()
	b := streams.NewBuilder()
	add := func(_ string, v, a string) string { return a + v }
	group := streams.Cogroup(streams.GroupByKey(texts(b, "in")), add)
	streams.AggregateCogrouped(group, "profiles", serde.String(), func() string { return "" }, streams.Named("profile"))
	users := streams.TableFrom(b, "users", serde.String(), serde.String(), "users", streams.Named("table"))
	groups := streams.GroupTable(users, func(k, v string) (string, string) { return v, k }, streams.Named("by-value"))
	streams.CountTable(groups, "counts", streams.Named("counting"))
	got := describe(t, b)
	for _, want := range []string{
		"Processor: profile-cogroup-agg-0 (stores: [profiles])", "Processor: profile-cogroup-merge", "Source: table-source (topics: [users])",
		"Processor: table (stores: [users])", "Processor: by-value ", "(topic: app-by-value-repartition)", "Processor: counting (stores: [counts])",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	streams.From(b, "again", serde.String(), serde.String(), streams.Named("table"))
	if _, err := b.Build(); err == nil || !strings.Contains(err.Error(), "the name is taken by another operator") {
		t.Errorf("%v, want a name that is taken", err)
	}
}
