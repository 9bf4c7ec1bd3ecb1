package streams_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/statemesh/statemesh/processor/streams"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/serde"
)

// blocked is a store of words, of which lists of words are a topic.
var blocked = streams.KeyValueStore("blocked", serde.String(), serde.Bool())

// blocker puts each word of a list into the store, on every instance, and whenever the store is made again.
type blocker struct {
	words *streams.KeyValue[string, bool]
}

func (p *blocker) Init(ctx *streams.Context[string, string]) (err error) {
	p.words, err = blocked.Open(ctx)
	return err
}

func (p *blocker) Process(r *streams.Record[string, string]) error {
	for word := range strings.FieldsSeq(r.Value) {
		if err := p.words.Put(word, true); err != nil {
			return err
		}
	}
	return nil
}

func (p *blocker) Close() error { return nil }

// checker marks what is blocked. It opens the same declaration and reads.
type checker struct {
	ctx   *streams.FixedKeyContext[string, string]
	words *streams.KeyValue[string, bool]
}

func (p *checker) Init(ctx *streams.FixedKeyContext[string, string]) (err error) {
	p.ctx = ctx
	p.words, err = blocked.Open(ctx)
	return err
}

func (p *checker) Process(r streams.FixedKeyRecord[string, string]) error {
	_, is, err := p.words.Get(r.Value)
	if err != nil {
		return err
	}
	return p.ctx.Forward(streams.WithValue(r, fmt.Sprintf("%s %t", r.Value, is)))
}

func (p *checker) Close() error { return nil }

// A global store that a processor fills: here of lists, a row for each of their words.
func ExampleAddGlobalStore() {
	b := streams.NewBuilder()
	text := serde.String()
	streams.AddGlobalStore(b, blocked, "lists", text, text, func() streams.Processor[string, string, string, string] { return &blocker{} })
	words := streams.From(b, "words", text, text)
	streams.ProcessValues(words, func() streams.FixedKeyProcessor[string, string, string] { return &checker{} }).To("checked")

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
	streamstest.NewInput(d, "lists", text, text).Pipe("list", "spam eggs", 1)
	in := streamstest.NewInput(d, "words", text, text)
	in.Pipe("1", "spam", 2)
	in.Pipe("2", "ham", 3)
	for _, line := range streamstest.NewOutput(d, "checked", text, text).ReadStrings() {
		fmt.Println(line)
	}
	// Output:
	// 1=spam true@2
	// 2=ham false@3
}
