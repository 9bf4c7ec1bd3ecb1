// Command embed is a program with one instance of an application inside: it counts words. It brings its own broker, so
// that it runs anywhere; give it the addresses of a Kafka to use that one.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/statemesh/statemesh"
	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/views"
	"github.com/statemesh/statemesh/serde"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "embed:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, brokers []string, out io.Writer) error {
	brokers, done, err := prepare(ctx, brokers, strings.Fields("the cat and the dog and the bird"))
	if err != nil {
		return err
	}
	defer done()

	// The instance: what it reads, what it keeps, where it keeps it.
	dir, err := os.MkdirTemp("", "embed-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	mesh, err := statemesh.New(statemesh.Config{
		Processor: processor.Config{ApplicationID: "embed", Kafka: processor.KafkaConfig{Brokers: brokers}},
		Views:     []views.View{{Name: "counts", Topic: topic, Format: views.String, Key: []string{"value"}, Type: views.Count}},
		StateDir:  dir,
		Listen:    "127.0.0.1:0",
		Logger:    slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		defer stop() // nobody waits for an answer of an instance that has ended
		ended <- mesh.Run(ctx)
	}()
	if err := mesh.WaitState(ctx, statemesh.Serving); err != nil {
		stop()
		return <-ended
	}

	// Ask it. Any other instance, or a client elsewhere, would get the same answer.
	n, err := awaitCount(ctx, mesh, "the", 3)
	_, _ = fmt.Fprintln(out, "the:", n)
	stop()
	return errors.Join(err, <-ended)
}

// awaitCount reads until the count is at least want: a record is visible once its commit is, a tenth of a second later.
func awaitCount(ctx context.Context, mesh *statemesh.Instance, word string, want int64) (int64, error) {
	for {
		r, err := mesh.Get(ctx, "counts", []byte(word))
		if err == nil {
			n, err := serde.Int64().Decode(r.Value.Data)
			if err != nil || n >= want {
				return n, err
			}
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return 0, errors.Join(context.Cause(ctx), err)
		}
	}
}
