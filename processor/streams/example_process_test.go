package streams_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/statemesh/statemesh/processor/streams"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/serde"
)

// Words are counted: lines are taken apart by an iterator, and grouping by the word sends them through a repartition topic.
func ExampleFlatMapValues() {
	b := streams.NewBuilder()
	lines := streams.From(b, "lines", serde.String(), serde.String())
	words := streams.FlatMapValues(lines, strings.FieldsSeq)
	counts := streams.Count(streams.GroupBy(words, func(_, word string) string { return word }), "counts")
	streams.ToStream(counts).To("counts")

	topology, err := b.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	d, err := streamstest.New(context.Background(), topology, streamstest.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = d.Close() }()
	streamstest.NewInput(d, "lines", serde.String(), serde.String()).Pipe("", "to be or not to be", 1000)
	fmt.Println(streamstest.NewOutput(d, "counts", serde.String(), serde.Int64()).ReadStrings())
	// Output: [to=1@1000 be=1@1000 or=1@1000 not=1@1000 to=2@1000 be=2@1000]
}

// changes lets through what differs from the value before, with the value before.
type changes struct {
	declared *streams.Store[*streams.KeyValue[string, string]]
	ctx      *streams.FixedKeyContext[string, string]
	last     *streams.KeyValue[string, string]
}

func (p *changes) Init(ctx *streams.FixedKeyContext[string, string]) (err error) {
	p.ctx = ctx
	p.last, err = p.declared.Open(ctx)
	return err
}

func (p *changes) Process(r streams.FixedKeyRecord[string, string]) error {
	k, _ := r.Key()
	before, ok, err := p.last.Get(k)
	if err != nil || ok && before == r.Value {
		return err
	}
	if err := p.last.Put(k, r.Value); err != nil {
		return err
	}
	return p.ctx.Forward(streams.WithValue(r, before+">"+r.Value))
}

func (p *changes) Close() error { return nil }

// A processor of one's own that keeps keys, with a store.
func ExampleProcessValues() {
	b := streams.NewBuilder()
	last := streams.KeyValueStore("last", serde.String(), serde.String())
	lights := streams.From(b, "lights", serde.String(), serde.String())
	streams.ProcessValues(lights, func() streams.FixedKeyProcessor[string, string, string] {
		return &changes{declared: last}
	}, streams.Uses(last)).To("changes")

	topology, err := b.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	d, err := streamstest.New(context.Background(), topology, streamstest.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = d.Close() }()
	in := streamstest.NewInput(d, "lights", serde.String(), serde.String()).Clock(0, time.Second)
	for _, v := range []string{"red", "red", "green", "red"} {
		in.PipeNext("north", v)
	}
	fmt.Println(streamstest.NewOutput(d, "changes", serde.String(), serde.String()).ReadStrings())
	// Output: [north=>red@0 north=red>green@2000 north=green>red@3000]
}

// A split gives each record to one stream.
func ExampleStream_Split() {
	b := streams.NewBuilder()
	orders := streams.From(b, "orders", serde.String(), serde.Int64())
	split := orders.Split(streams.Named("by-size-"))
	split.Branch(func(_ string, n int64) bool { return n >= 100 }, streams.Named("large")).To("large-orders")
	split.Default(streams.Named("small")).To("small-orders")

	topology, err := b.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	built, err := topology.Build("shop")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(built.Mermaid())
	// Output:
	// flowchart TD
	//   t0[/"orders"/]
	//   t1[/"large-orders"/]
	//   t2[/"small-orders"/]
	//   subgraph sub0["Sub-topology 0"]
	//     n0_0(["KSTREAM-SOURCE-0000000000"])
	//     n0_1["by-size-"]
	//     n0_2["by-size-large"]
	//     n0_3[["KSTREAM-SINK-0000000003"]]
	//     n0_4["by-size-small"]
	//     n0_5[["KSTREAM-SINK-0000000005"]]
	//   end
	//   t0 --> n0_0
	//   n0_0 --> n0_1
	//   n0_1 --> n0_2
	//   n0_1 --> n0_4
	//   n0_2 --> n0_3
	//   n0_3 --> t1
	//   n0_4 --> n0_5
	//   n0_5 --> t2
}
