// Command statemesh runs an instance, asks a running one, and has what a first run needs: a trial broker, a way to
// produce records, and a demo that checks itself. See docs/cli.md.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/statemesh/statemesh/cmd/statemesh/internal/cli"
)

// version is stamped at build time (-ldflags "-X main.version=v1.2.3").
var version string

func main() {
	ctx, again := signals()
	os.Exit(cli.Run(ctx, cli.Process{
		Args: os.Args[1:], Env: os.Environ(), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Version: version, Again: again,
	}))
}

// interrupted is why a context ended, for those who ask for its cause.
type interrupted struct{ by os.Signal }

func (i interrupted) Error() string { return i.by.String() + " signal received" }

func (i interrupted) Is(err error) bool { return err == context.Canceled }

// twin is how soon a second signal may come that belongs to the first: timeout(1) signals a child twice.
const twin = time.Second

// signals returns a context, which ends with the first SIGINT or SIGTERM, and a channel, which the second closes. The third ends the
// process.
func signals() (context.Context, <-chan struct{}) {
	ctx, cancel := context.WithCancelCause(context.Background())
	again := make(chan struct{})
	came := make(chan os.Signal, 1)
	signal.Notify(came, os.Interrupt, syscall.SIGTERM)
	go func() {
		cancel(interrupted{<-came})
		for first := time.Now(); time.Since(first) < twin; {
			<-came
		}
		close(again)
		signal.Stop(came)
	}()
	return ctx, again
}
