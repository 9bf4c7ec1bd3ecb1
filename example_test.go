package statemesh_test

import (
	"context"
	"fmt"
	"os"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh"
	"github.com/statemesh/statemesh/internal/fakekafka"
	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/views"
	"github.com/statemesh/statemesh/serde"
)

// An instance that counts the orders of each customer, asked for one of them.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	brokers, closeBroker := ordersOf("ann", "bob", "ann", "ann")
	defer closeBroker()
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()

	mesh, err := statemesh.New(statemesh.Config{
		Processor: processor.Config{ApplicationID: "shop", Kafka: processor.KafkaConfig{Brokers: brokers}},
		Views:     []views.View{{Name: "orders-by-customer", Topic: "orders", Format: views.String, Type: views.Count}},
		StateDir:  dir,
		Listen:    "127.0.0.1:0",
	})
	if err != nil {
		panic(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- mesh.Run(ctx) }()
	if err := mesh.WaitState(ctx, statemesh.Serving); err != nil {
		panic(err)
	}

	for n := int64(0); n < 3; { // a record is visible once its commit is
		if r, err := mesh.Get(ctx, "orders-by-customer", []byte("ann")); err == nil {
			n, _ = serde.Int64().Decode(r.Value.Data)
		}
	}
	fmt.Println("ann has 3 orders")

	stop()
	fmt.Println("stopped:", <-ended)
	// Output:
	// ann has 3 orders
	// stopped: <nil>
}

// ordersOf starts a broker with a topic of orders, one for each name.
func ordersOf(customers ...string) (brokers []string, done func()) {
	broker, err := fakekafka.New(kfake.NumBrokers(1))
	if err != nil {
		panic(err)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(broker.ListenAddrs()...))
	if err != nil {
		panic(err)
	}
	defer cl.Close()
	if _, err := kadm.NewClient(cl).CreateTopic(context.Background(), 2, 1, nil, "orders"); err != nil {
		panic(err)
	}
	for _, c := range customers {
		if err := cl.ProduceSync(context.Background(), &kgo.Record{Topic: "orders", Key: []byte(c), Value: []byte("shoes")}).FirstErr(); err != nil {
			panic(err)
		}
	}
	return broker.ListenAddrs(), broker.Close
}
