package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// part is one group of figures.
type part struct {
	name string
	run  func(context.Context, *bench) error
	// broker says that the part needs one; asked that it runs only when it is named.
	broker, asked bool
}

var parts = []part{
	{name: "local", run: local},
	{name: "get", run: gets},
	{name: "store", run: inStore},
	{name: "growth", run: growth},
	{name: "remote", run: remote, broker: true},
	{name: "count", run: count, broker: true},
	{name: "restore", run: restoring, broker: true},
	{name: "snapshot", run: snapshot, broker: true},
	{name: "instance", run: resident, broker: true},
	{name: "empty", run: empty, broker: true},
	{name: "memory", run: memory, broker: true},
	{name: "failover", run: failover, broker: true},
	{name: "scale", run: scaleOut, broker: true},
	{name: "peers", run: peers, broker: true, asked: true},
}

// bench is one run.
type bench struct {
	records int // per count and restore
	keys    int
	brokers []string
	dir     string
	table   *table
	// listen, memoryLimit, standbys and view are those of -serve.
	listen      string
	memoryLimit int64
	standbys    int
	view        string
	// profiles is a directory for profiles of the measured parts; empty: none are taken.
	profiles string
	log      io.Writer
	// peerOnly and guaranteeOnly restrict part peers; empty: all.
	peerOnly, guaranteeOnly string
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(stderr)
	records := fs.Int("records", 2_000_000, "records to count and to restore")
	keys := fs.Int("keys", 100_000, "distinct keys among them")
	brokers := fs.String("brokers", "", "host:port[,host:port] of a Kafka to use instead of starting a broker")
	profiles := fs.String("profile", "", "directory to write CPU and allocation profiles to; they cost some CPU themselves")
	only := fs.String("only", "", "parts to run, comma separated: local, get, store, growth, remote, count, restore, snapshot, instance, empty, memory, failover, scale, peers; none: all but peers")
	serve := fs.String("serve", "", "for itself: be an instance that counts this topic, with its state in -dir, until standard input ends")
	serveDir := fs.String("dir", "", "state directory of -serve")
	listen := fs.String("listen", "127.0.0.1:0", "address of -serve")
	standbys := fs.Int("standbys", 0, "standbys of -serve")
	view := fs.String("view", "counts", "what -serve makes of its topic: counts, or rows, the latest value of each key")
	peer := fs.String("peer", "", "part peers: this topology alone; with -serve: run it, with -out and -guarantee, under the name that -serve gives")
	out := fs.String("out", "", "topic that -peer writes")
	guarantee := fs.String("guarantee", "", "part peers: this processing guarantee alone; with -serve: that of -peer")
	limit := fs.Int64("memory", 0, "memory limit of -serve in bytes; 0: the default")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(35) // as statemesh serve; the floors are measured under it, too
	}
	if *serve != "" {
		b := &bench{
			brokers: strings.Split(*brokers, ","), dir: *serveDir, profiles: *profiles, listen: *listen, memoryLimit: *limit,
			standbys: *standbys, view: *view,
		}
		if *peer != "" {
			return b.servePeer(ctx, *serve, *peer, *out, *guarantee, os.Stdin)
		}
		return b.serve(ctx, *serve, os.Stdin)
	}
	wanted, err := choose(*only)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "statemesh-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	b := &bench{records: *records, keys: *keys, dir: dir, log: stderr, table: newTable(stdout), profiles: *profiles, peerOnly: *peer, guaranteeOnly: *guarantee}
	kind := "none"
	if *brokers != "" {
		b.brokers, kind = strings.Split(*brokers, ","), "given"
	} else if slices.ContainsFunc(wanted, func(p part) bool { return p.broker }) {
		br, err := startBroker(ctx, dir)
		if err != nil {
			return err
		}
		defer br.stop()
		b.brokers, kind = br.addrs, br.kind
	}
	_, _ = fmt.Fprintf(stdout, "%s, %d cores, broker: %s, %d records over %d keys\n", runtime.Version(), runtime.NumCPU(), kind, b.records, b.keys)
	for _, p := range wanted {
		_, _ = fmt.Fprintf(stderr, "bench: %s\n", p.name)
		if err := p.run(ctx, b); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", p.name, err), b.table.print()) // what there is
		}
	}
	return b.table.print()
}

func choose(only string) ([]part, error) {
	if only == "" {
		return slices.DeleteFunc(slices.Clone(parts), func(p part) bool { return p.asked }), nil
	}
	var out []part
	for name := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(parts, func(p part) bool { return p.name == name })
		if i < 0 {
			return nil, fmt.Errorf("-only %q: no such part", name)
		}
		out = append(out, parts[i])
	}
	return out, nil
}
