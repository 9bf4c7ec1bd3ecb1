package streamstest_test

import (
	"context"
	"fmt"
	"time"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// clicksPerPage counts the clicks of each page.
type clicksPerPage struct {
	ctx    *processor.Context
	counts store.KeyValue
}

func (c *clicksPerPage) Init(ctx *processor.Context) (err error) {
	c.ctx = ctx
	c.counts, err = ctx.Store("clicks-per-page")
	return err
}

func (c *clicksPerPage) Process(r *processor.Record) error {
	numbers := serde.Int64()
	var n int64
	if v, err := c.counts.Get(r.Key); err == nil {
		if n, err = numbers.Decode(v.Data); err != nil {
			return err
		}
	}
	b, err := numbers.Encode(n + 1)
	if err != nil {
		return err
	}
	if err := c.counts.Put(r.Key, store.Value{Data: b, Timestamp: r.Timestamp}); err != nil {
		return err
	}
	return c.ctx.Forward(processor.Record{Key: r.Key, Value: b, Timestamp: r.Timestamp})
}

func (c *clicksPerPage) Close() error { return nil }

func clicks() *processor.Topology {
	return processor.NewTopology().
		AddSource("clicks", processor.SourceOptions{}, "clicks").
		AddProcessor("count", func() processor.Processor { return &clicksPerPage{} }, "clicks").
		AddStateStore(store.Spec{Name: "clicks-per-page", Kind: store.KindTimestampedKeyValue}, "count").
		AddSink("counts", processor.SinkOptions{}, "counts", "count")
}

// In a test, NewT takes the place of New, and its t that of the errors.
func Example() {
	d, err := streamstest.New(context.Background(), clicks(), streamstest.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = d.Close() }()
	in := streamstest.NewInput(d, "clicks", serde.String(), serde.String())
	out := streamstest.NewOutput(d, "counts", serde.String(), serde.Int64())

	in.Pipe("/home", "ann", 1000)
	in.Pipe("/cart", "bob", 2000)
	in.Pipe("/home", "bob", 3000)
	for _, r := range out.ReadAll() {
		fmt.Println(r.Key, r.Value)
	}
	n, ok := streamstest.NewKeyValue(d, "clicks-per-page", serde.String(), serde.Int64()).Get("/home")
	fmt.Println("in the store:", n, ok)
	// Output:
	// /home 1
	// /cart 1
	// /home 2
	// in the store: 2 true
}

// A restart shows that everything a processor needs is in its changelog.
func ExampleDriver_Restart() {
	d, err := streamstest.New(context.Background(), clicks(), streamstest.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = d.Close() }()
	in := streamstest.NewInput(d, "clicks", serde.String(), serde.String())
	in.Pipe("/home", "ann", 1000)
	d.Restart()
	in.Pipe("/home", "ann", 2000)
	fmt.Println(streamstest.NewOutput(d, "counts", serde.String(), serde.Int64()).ReadStrings())
	// Output: [/home=1@1000 /home=2@2000]
}

// With a commit interval nothing can be read before it has passed, and record caches hold back what is overwritten meanwhile.
func ExampleDriver_AdvanceWallClock() {
	d, err := streamstest.New(context.Background(), clicks(), streamstest.Config{CommitInterval: time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = d.Close() }()
	out := streamstest.NewOutput(d, "counts", serde.String(), serde.Int64())
	streamstest.NewInput(d, "clicks", serde.String(), serde.String()).Pipe("/home", "ann", 1000)
	fmt.Println("before:", out.Len())
	d.AdvanceWallClock(time.Second)
	fmt.Println("after:", out.Len())
	// Output:
	// before: 0
	// after: 1
}

// Try returns what would fail the test.
func ExampleDriver_Try() {
	refuse := processor.NewTopology().
		AddSource("clicks", processor.SourceOptions{}, "clicks").
		AddProcessor("refuse", supply(node{process: func(*processor.Context, *processor.Record) error {
			return &processor.DeserializationError{Reason: "no click", Err: fmt.Errorf("%d bytes", 3)}
		}}), "clicks")
	d, err := streamstest.New(context.Background(), refuse, streamstest.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = d.Close() }()
	in := streamstest.NewInput(d, "clicks", serde.String(), serde.String())
	err = d.Try(func() { in.Pipe("/home", "ann", 1000) })
	fmt.Println(err)
	// Output: task 0_0: clicks-0 offset 0: processor refuse: no click: 3 bytes (deserialization.exception.handler is fail; continue or dead-letter goes on without such records)
}
