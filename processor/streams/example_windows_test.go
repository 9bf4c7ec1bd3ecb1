package streams_test

import (
	"context"
	"fmt"
	"time"

	"github.com/statemesh/statemesh/processor/streams"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/processor/windows"
	"github.com/statemesh/statemesh/serde"
)

// Words are counted by the minute, and each minute is told once, when nothing changes it any more.
func ExampleCountWindows() {
	b := streams.NewBuilder()
	words := streams.From(b, "words", serde.String(), serde.String())
	perMinute := streams.CountWindows(streams.WindowedBy(streams.GroupByKey(words), windows.Tumbling(time.Minute, 10*time.Second)), "per-minute")
	final := perMinute.Suppress(streams.UntilWindowCloses(streams.Buffer{}), streams.Named("final"))
	streams.ToStream(final).To("minutes")
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
	in := streamstest.NewInput(d, "words", serde.String(), serde.String())
	in.Pipe("to", "", 1_000)
	in.Pipe("be", "", 2_000)
	in.Pipe("to", "", 65_000)
	in.Pipe("to", "", 59_000) // late, within the grace
	in.Pipe("be", "", 70_000) // closes the first minute
	in.Pipe("to", "", 58_000) // too late
	out := streamstest.NewOutput(d, "minutes", serde.TimeWindowed(serde.String(), time.Minute), serde.Int64())
	for _, r := range out.ReadAll() {
		fmt.Println(r.Key.Key, r.Key.Start, r.Value)
	}
	fmt.Println(d.Dropped())
	// Output:
	// be 0 1
	// to 0 2
	// map[late:1]
}

// Clicks and orders of a visitor make one profile.
func ExampleCogroup() {
	b := streams.NewBuilder()
	clicks := streams.From(b, "clicks", serde.String(), serde.String())
	orders := streams.From(b, "orders", serde.String(), serde.Int64())

	type profile struct {
		Last  string `json:"last"`
		Spent int64  `json:"spent"`
	}
	group := streams.Cogroup(streams.GroupByKey(clicks), func(_, page string, p profile) profile {
		p.Last = page
		return p
	})
	group = streams.CogroupWith(group, streams.GroupByKey(orders), func(_ string, cents int64, p profile) profile {
		p.Spent += cents
		return p
	})
	streams.AggregateCogrouped(group, "profiles", serde.JSON[profile](), func() profile { return profile{} })
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
	streamstest.NewInput(d, "clicks", serde.String(), serde.String()).Pipe("ann", "/shoes", 1)
	streamstest.NewInput(d, "orders", serde.String(), serde.Int64()).Pipe("ann", 9900, 2)
	fmt.Println(streamstest.NewKeyValue(d, "profiles", serde.String(), serde.JSON[profile]()).Get("ann"))
	// Output:
	// {/shoes 9900} true
}
