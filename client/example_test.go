package client_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/statemesh/statemesh/client"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// exampleFleet has the flights of three carriers.
func exampleFleet() *fleet {
	f := startFleet("a", "b", "c")
	f.put("AA", 32729)
	f.put("DL", 48110)
	f.put("UA", 58665)
	return f
}

func ExampleClient_Get() {
	fleet := exampleFleet()
	defer fleet.close()
	ctx := context.Background()

	c, err := client.New(client.Config{Seeds: fleet.seeds()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = c.Close() }()

	r, err := c.Get(ctx, "flights-per-carrier", []byte("UA"), client.MaxStaleness(time.Minute))
	fmt.Printf("%x by the %s of partition %d, %v\n", r.Value.Data, r.Answer.Facts.Role, r.Answer.Partition, err)

	_, err = c.Get(ctx, "flights-per-carrier", []byte("ZZ"))
	fmt.Println(errors.Is(err, store.ErrNotFound))
	// Output:
	// 000000000000e529 by the ACTIVE of partition 10, <nil>
	// true
}

func ExampleNewView() {
	fleet := exampleFleet()
	defer fleet.close()
	ctx := context.Background()

	c, err := client.New(client.Config{Seeds: fleet.seeds()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = c.Close() }()

	carriers := client.NewView(c, "flights-per-carrier", serde.String(), serde.Int64())
	n, err := carriers.Get(ctx, "UA")
	fmt.Println(n, err)

	items, err := carriers.BatchGet(ctx, []string{"DL", "ZZ"})
	fmt.Println(items[0].Value, items[1].Found, err)

	for item, err := range carriers.Range(ctx, "A", "E") {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(item.Key, item.Value)
	}
	// Output:
	// 58665 <nil>
	// 48110 false <nil>
	// AA 32729
	// DL 48110
}

func ExampleClient_Scan() {
	fleet := exampleFleet()
	defer fleet.close()

	c, err := client.New(client.Config{Seeds: fleet.seeds()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = c.Close() }()

	for row, err := range c.Scan(context.Background(), "flights-per-carrier", client.ScanQuery{Reverse: true, Limit: 2}) {
		if err != nil {
			fmt.Println(err) // the rows before are right, but not all
			return
		}
		fmt.Printf("%s\n", row.Key)
	}
	// Output:
	// UA
	// DL
}

func ExampleClient_Owner() {
	fleet := exampleFleet()
	defer fleet.close()

	c, err := client.New(client.Config{Seeds: fleet.seeds()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = c.Close() }()

	o, err := c.Owner(context.Background(), "flights-per-carrier", []byte("UA"))
	fmt.Println(o.Active.Instance, o.Partition, err)
	// Output:
	// b 10 <nil>
}

func ExampleClient_Run() {
	fleet := exampleFleet()
	defer fleet.close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	c, err := client.New(client.Config{Seeds: fleet.seeds()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = c.Close() }()

	done := make(chan error)
	go func() { done <- c.Run(ctx) }() // follows the map, so that no call has to find out

	n, err := c.Count(ctx, "flights-per-carrier")
	fmt.Println(n.Approximate, err)
	cancel()
	fmt.Println(<-done)
	// Output:
	// 3 <nil>
	// <nil>
}

// Windows of a key with their types, read by a session: what one answer showed, no later one takes back, whoever gives it.
func ExampleNewWindowView() {
	fleet := timedFleet("ATL", "JFK")
	defer fleet.close()
	ctx := context.Background()

	c, err := client.New(client.Config{Seeds: fleet.seeds()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = c.Close() }()

	delays := client.NewWindowView(c, "delays-per-hour", serde.String(), serde.Int64())
	session := client.NewReadSession()
	for w, err := range delays.Of(ctx, "JFK", hour(21), hour(22), client.InReadSession(session), client.Wait(time.Second)) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(w.Key, w.Span.Start.Format(time.TimeOnly), w.Span.End.Format(time.TimeOnly), w.Value)
	}
	// Output:
	// JFK 21:00:00 22:00:00 121
	// JFK 22:00:00 23:00:00 122
}
