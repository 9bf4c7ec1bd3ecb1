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

// run drives an example: it pipes records of text and returns what comes out.
func run(b *streams.Builder, pipe func(d *streamstest.Driver)) string {
	topology, err := b.Build()
	if err != nil {
		return err.Error()
	}
	d, err := streamstest.New(context.Background(), topology, streamstest.Config{})
	if err != nil {
		return err.Error()
	}
	defer func() { _ = d.Close() }()
	pipe(d)
	return strings.Join(streamstest.NewOutput(d, "out", serde.String(), serde.String()).ReadStrings(), "\n")
}

func pipeTo(d *streamstest.Driver, topic, key, value string, at int64) {
	streamstest.NewInput(d, topic, serde.String(), serde.String()).Pipe(key, value, at)
}

func ExampleLeftJoinTable() {
	b := streams.NewBuilder()
	clicks := streams.From(b, "clicks", serde.String(), serde.String()) // by user
	users := streams.TableFrom(b, "users", serde.String(), serde.String(), "users")
	streams.LeftJoinTable(clicks, users, func(user, page string, name streams.Maybe[string]) string {
		if !name.OK {
			return page + " by " + user
		}
		return page + " by " + name.Value
	}).To("out")
	fmt.Println(run(b, func(d *streamstest.Driver) {
		pipeTo(d, "clicks", "u1", "/home", 1)
		pipeTo(d, "users", "u1", "Ann", 2)
		pipeTo(d, "clicks", "u1", "/cart", 3)
	}))
	// Output:
	// u1=/home by u1@1
	// u1=/cart by Ann@3
}

func ExampleLeftJoinStreams() {
	b := streams.NewBuilder()
	orders := streams.From(b, "orders", serde.String(), serde.String())
	payments := streams.From(b, "payments", serde.String(), serde.String())
	within := streams.JoinWindows{After: time.Hour, Grace: time.Minute}
	streams.LeftJoinStreams(orders, payments, within, func(_, order string, payment streams.Maybe[string]) string {
		if !payment.OK {
			return order + " was not paid"
		}
		return order + " was paid by " + payment.Value
	}, streams.As("paid-orders")).To("out")
	hour := time.Hour.Milliseconds()
	fmt.Println(run(b, func(d *streamstest.Driver) {
		pipeTo(d, "orders", "o1", "tea", 0)
		pipeTo(d, "orders", "o2", "rice", 0)
		pipeTo(d, "payments", "o2", "card", 1000)
		pipeTo(d, "orders", "o3", "soap", 2*hour) // the window of o1 is over
	}))
	// Output:
	// o2=rice was paid by card@1000
	// o1=tea was not paid@0
}

func ExampleJoinForeign() {
	b := streams.NewBuilder()
	orders := streams.TableFrom(b, "orders", serde.String(), serde.String(), "") // values: customer
	customers := streams.TableFrom(b, "customers", serde.String(), serde.String(), "")
	names := streams.JoinForeign(orders, customers,
		func(_, customer string) (string, bool) { return customer, customer != "" },
		func(_, customer, name string) string { return customer + " is " + name },
		streams.Named("customer-of-order"), streams.As("names-by-order"))
	streams.ToStream(names).To("out")
	fmt.Println(run(b, func(d *streamstest.Driver) {
		pipeTo(d, "orders", "o1", "c1", 1)
		pipeTo(d, "orders", "o2", "c1", 2)
		pipeTo(d, "customers", "c1", "Ann", 3)
	}))
	// Output:
	// o1=c1 is Ann@3
	// o2=c1 is Ann@3
}
