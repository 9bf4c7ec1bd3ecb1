package streams_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/streams"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/serde"
)

// numbering puts behind each value how often its key has had one; a key that was deleted, or has the value "none", has no value.
type numbering struct {
	seen   *streams.Store[*streams.TimestampedKeyValue[string, int64]]
	closed *int

	rows *streams.TimestampedKeyValue[string, int64]
}

func (n *numbering) Init(ctx *streams.TransformContext) (err error) {
	n.rows, err = n.seen.Open(ctx)
	return err
}

func (n *numbering) Transform(k string, v streams.Maybe[string]) (streams.Maybe[string], error) {
	if v.Value == "bad" {
		return streams.Maybe[string]{}, errors.New("bad value")
	}
	had, _, err := n.rows.Get(k)
	if err != nil {
		return streams.Maybe[string]{}, err
	}
	if err := n.rows.Put(k, had.Value+1, 0); err != nil {
		return streams.Maybe[string]{}, err
	}
	return streams.Maybe[string]{Value: fmt.Sprintf("%s/%d", v.Value, had.Value+1), OK: v.OK && v.Value != "none"}, nil
}

func (n *numbering) Close() error {
	*n.closed++
	return nil
}

// numbered transforms the table of "in".
func numbered(b *streams.Builder, closed *int, opts ...streams.Option) *streams.Table[string, string] {
	seen := streams.TimestampedKeyValueStore("seen", serde.String(), serde.Int64())
	return streams.TransformTableValues(streams.TableFrom(b, "in", serde.String(), serde.String(), ""),
		func() streams.ValueTransformer[string, string, string] { return &numbering{seen: seen, closed: closed} },
		append(opts, streams.Uses(seen))...)
}

// TestTransformTableValues: each change is transformed once, deletions too, with a store that survives a restart; a result that is none deletes.
func TestTransformTableValues(t *testing.T) {
	t.Parallel()
	closed := 0
	d := drive(t, streamstest.Config{ProcessingHandler: processor.Continue}, func(b *streams.Builder) {
		streams.ToStream(numbered(b, &closed)).To("out")
	})
	in, out := streamstest.NewInput(d, "in", serde.String(), serde.String()), read(d, serde.String())
	pipe(in, "k=a@1", "k=b@2", "k@3", "k=bad@4")
	d.Restart()
	pipe(in, "k=c@5", "k=none@6", "other=d@7")
	want(t, "out", out(), "k=a/1@1", "k=b/2@2", "k=null@3", "k=c/4@5", "k=null@6", "other=d/1@7")
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if closed != 2 {
		t.Errorf("closed %d of 2", closed)
	}
}

// TestTransformedOnce: who reads the table, or wants to know what was before, is told what the transformer made, and it does not make it again.
func TestTransformedOnce(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]streams.Option{"its own store": {streams.As("numbered")}, "a store that is needed": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			closed := 0
			d := drive(t, streamstest.Config{Partitions: map[string]int32{"in": 2, "clicks": 2}}, func(b *streams.Builder) {
				table := numbered(b, &closed, opts...)
				streams.JoinTable(texts(b, "clicks"), table, func(_, click, value string) string { return click + " " + value }).To("out")
				moved := streams.GroupTable(table, func(_, v string) (string, string) { return v, "" })
				streams.ToStream(streams.CountTable(moved, "per-value", streams.CachingDisabled())).To("counts")
			})
			in, clicks := streamstest.NewInput(d, "in", serde.String(), serde.String()), streamstest.NewInput(d, "clicks", serde.String(), serde.String())
			pipe(in, "k=a@1", "k=b@2")
			pipe(clicks, "k=x@3", "k=y@4")
			want(t, "joined", read(d, serde.String())(), "k=x b/2@3", "k=y b/2@4")
			counts := streamstest.ReadMap(streamstest.NewOutput(d, "counts", serde.String(), serde.Int64()))
			if counts["a/1"] != 0 || counts["b/2"] != 1 {
				t.Errorf("counts %v: what was made first was not taken away again", counts)
			}
		})
	}
}

// TestTransformTableValuesNames: one position is used up, as upstream; a store by position is warned about.
func TestTransformTableValuesNames(t *testing.T) {
	t.Parallel()
	closed := 0
	b := streams.NewBuilder()
	table := numbered(b, &closed)
	streams.JoinTable(texts(b, "clicks"), table, func(_, c, _ string) string { return c }).To("out")
	got := describe(t, b)
	for _, want := range []string{
		"Processor: KTABLE-TRANSFORMVALUES-0000000003 (stores: [KTABLE-TRANSFORMVALUES-0000000003-STATE-STORE, seen])",
		"Source: KSTREAM-SOURCE-0000000004 (topics: [clicks])",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if w := b.Warnings(); len(w) != 1 || !strings.Contains(w[0].Node, "TRANSFORMVALUES") {
		t.Errorf("warnings %v", w)
	}
	one := &numbering{}
	streams.TransformTableValues(table, func() streams.ValueTransformer[string, string, string] { return one })
	if _, err := b.Build(); err == nil || !strings.Contains(err.Error(), "a new processor at each call") {
		t.Errorf("%v: one transformer for all tasks", err)
	}
}

// TestTransformOfAsOf: the table behind a versioned one may have versions of its own, which are joined as they were.
func TestTransformOfAsOf(t *testing.T) {
	t.Parallel()
	closed := 0
	d := drive(t, streamstest.Config{}, func(b *streams.Builder) {
		table := numbered(b, &closed, streams.As("numbered"), streams.History(time.Minute))
		streams.JoinTable(texts(b, "clicks"), table, func(_, click, value string) string { return click + " " + value }).To("out")
	})
	pipe(streamstest.NewInput(d, "in", serde.String(), serde.String()), "k=a@10", "k=b@20")
	pipe(streamstest.NewInput(d, "clicks", serde.String(), serde.String()), "k=x@15", "k=y@25")
	want(t, "joined", read(d, serde.String())(), "k=x a/1@15", "k=y b/2@25")
}
