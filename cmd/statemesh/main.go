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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the process at once, but not one that belongs to the first: timeout(1) signals a child twice.
	context.AfterFunc(ctx, func() { time.AfterFunc(time.Second, stop) })
	os.Exit(cli.Run(ctx, cli.Process{Args: os.Args[1:], Env: os.Environ(), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Version: version}))
}
