package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/statemesh/statemesh"
	"github.com/statemesh/statemesh/client"
	"github.com/statemesh/statemesh/internal/configfile"
)

//go:embed mesh.yaml
var mesh []byte

// options of the command line.
type options struct {
	brokers   string
	postgres  string
	instances int
	keep      bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o options
	flag.StringVar(&o.brokers, "brokers", "", "Kafka to use, host:port,...; empty: a broker of its own")
	flag.StringVar(&o.postgres, "postgres", "", "URL of a PostgreSQL to write the results to; its schema clickstream is made anew")
	flag.IntVar(&o.instances, "instances", 2, "how many instances run")
	flag.BoolVar(&o.keep, "keep", false, "go on serving until it is interrupted, for `statemesh get` and scan")
	flag.Parse()
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "clickstream:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, out io.Writer) (err error) {
	want, err := compute()
	if err != nil {
		return err
	}
	var given []string
	if o.brokers != "" {
		given = strings.Split(o.brokers, ",")
	}
	brokers, done, err := prepare(ctx, given)
	if err != nil {
		return err
	}
	defer done()
	dir, err := os.MkdirTemp("", "clickstream-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	db, err := openTables(ctx, o.postgres)
	if err != nil {
		return err
	}
	defer db.close()

	f := &fleet{brokers: brokers, postgres: o.postgres}
	defer func() { err = errors.Join(err, f.stop()) }()
	for i := range o.instances {
		if err := f.start(ctx, filepath.Join(dir, fmt.Sprint(i))); err != nil {
			return err
		}
	}
	c, err := client.New(client.Config{Seeds: f.endpoints, Timeout: time.Minute})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := prove(ctx, c, f.endpoints, want, out); err != nil {
		return err
	}
	if err := db.prove(ctx, want, out); err != nil {
		return err
	}
	if err := dashboard(ctx, c, out); err != nil || !o.keep {
		return err
	}
	_, _ = fmt.Fprintf(out, "\nserving at %s until interrupted\n", strings.Join(f.endpoints, ", "))
	<-ctx.Done()
	return nil
}

// fleet is the instances of this process; each would be a process of its own elsewhere.
type fleet struct {
	brokers   []string
	postgres  string
	endpoints []string
	stops     []func() error
}

func (f *fleet) start(ctx context.Context, dir string) error {
	loaded, err := load(f.brokers, f.postgres, dir)
	if err != nil {
		return err
	}
	loaded.Config.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	inst, err := statemesh.New(loaded.Config)
	if err != nil {
		return err
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- inst.Run(life) }()
	f.stops = append(f.stops, func() error {
		stop()
		return <-ended
	})
	if err := inst.WaitState(ctx, statemesh.Serving); err != nil {
		return err
	}
	f.endpoints = append(f.endpoints, inst.Endpoint())
	return nil
}

// load reads mesh.yaml as an instance of this program needs it, with the lines about PostgreSQL if there is one.
func load(brokers []string, postgres, dir string, more ...string) (*configfile.Loaded, error) {
	data, set := mesh, append([]string{
		"bootstrap.servers=" + strings.Join(brokers, ","), "state.dir=" + dir, "listen=127.0.0.1:0", "application.server=127.0.0.1:0",
		"num.stream.threads=1",
	}, more...)
	if postgres != "" {
		data = bytes.ReplaceAll(mesh, []byte("# postgres"), []byte("postgres"))
		set = append(set, "postgres.url="+postgres)
	}
	return configfile.Load(configfile.Source{Path: "mesh.yaml", Data: data, Set: set})
}

// stop ends all instances and waits for them.
func (f *fleet) stop() (err error) {
	for _, stop := range f.stops {
		err = errors.Join(err, stop())
	}
	return err
}
