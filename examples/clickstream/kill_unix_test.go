//go:build unix

package main

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh"
	"github.com/statemesh/statemesh/examples/clicks"
	"github.com/statemesh/statemesh/internal/childproc"
	"github.com/statemesh/statemesh/internal/fakekafka"
	"github.com/statemesh/statemesh/internal/postgrestest"
)

// instanceEnv has a test binary run one instance: brokers, PostgreSQL and state directory, one a line.
const instanceEnv = "CLICKSTREAM_TEST_INSTANCE"

// instances there are, each with one thread: so many members has each group.
const instances = 2

func TestMain(m *testing.M) {
	if args := os.Getenv(instanceEnv); args != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		if err := instance(ctx, strings.Split(args, "\n")); err != nil {
			slog.New(slog.NewTextHandler(os.Stderr, nil)).ErrorContext(ctx, "instance ended", "error", err)
			os.Exit(1)
		}
		return
	}
	m.Run()
}

func instance(ctx context.Context, args []string) error {
	loaded, err := load(strings.Split(args[0], ","), args[1], args[2], "session.timeout.ms=3s", "heartbeat.interval.ms=300ms", "transaction.timeout.ms=2s",
		"shutdown.timeout.ms=1s", "rebalance.timeout.ms=5s")
	if err != nil {
		return err
	}
	loaded.Config.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	inst, err := statemesh.New(loaded.Config)
	if err != nil {
		return err
	}
	return inst.Run(ctx)
}

// TestPostgresWhileKilled kills instances and the database while they work, and takes their transactions away: the tables hold exactly what was
// committed in the end.
func TestPostgresWhileKilled(t *testing.T) {
	t.Parallel()
	s := postgrestest.Run(t)
	want, err := compute()
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := fakekafka.New(kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	brokers := cluster.ListenAddrs()
	if err := feed(t.Context(), brokers); err != nil {
		t.Fatal(err)
	}
	db, err := openTables(t.Context(), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer db.close()

	dir := t.TempDir()
	begin := func(i int) *childproc.Process {
		log, err := os.OpenFile(filepath.Join(dir, "log"+strconv.Itoa(i)), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = log.Close() }()
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), os.Args[0])
		cmd.Env = append(os.Environ(), instanceEnv+"="+strings.Join([]string{strings.Join(brokers, ","), s.URL(), filepath.Join(dir, strconv.Itoa(i))}, "\n"))
		cmd.Stdout, cmd.Stderr = log, log
		p, err := childproc.Launch(cmd)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	fleet := [instances]*childproc.Process{begin(0), begin(1)}
	defer func() {
		for i, p := range fleet {
			p.End(syscall.SIGTERM)
			if t.Failed() {
				t.Logf("end of the log of instance %d:\n%s", i, childproc.LogTail(filepath.Join(dir, "log"+strconv.Itoa(i)), 8192))
			}
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	var watch sync.WaitGroup
	defer func() { cancel(); watch.Wait() }()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	groups := func(ctx context.Context) []string {
		all, _ := kadm.NewClient(cl).ListGroups(ctx) // asked for again soon
		return all.Groups()
	}
	const stuck = 20 * time.Second // the rebalance timeout of sinks is 11s, with this shutdown.timeout.ms
	warden := fakekafka.Warden{Cluster: cluster, Client: cl, Groups: groups, Members: instances, Stuck: stuck, Log: t.Logf}
	watch.Go(func() { warden.Run(ctx) })
	fenced := make(chan int, 1)
	watch.Go(func() {
		n, err := fence(ctx, brokers, 5)
		if err != nil {
			t.Error(err)
		}
		fenced <- n
	})
	midway := 0
	for round := range 4 {
		n := written(t, db, int64((round+1)*clicks.Count/6), fleet)
		if n > 0 && n < clicks.Count {
			midway++
		}
		if round == 2 {
			s.Kill()
			s.MustRestart(t)
			db.pool.Reset()
			continue
		}
		fleet[round%2].End(syscall.SIGKILL)
		fleet[round%2] = begin(round % 2)
	}
	var out strings.Builder
	err = db.prove(t.Context(), want, &out)
	cancel()
	if n := <-fenced; n == 0 {
		t.Error("no transaction was open when it was looked for")
	}
	if err != nil {
		t.Fatal(err)
	}
	if midway == 0 {
		t.Error("everything was written before the first kill")
	}
	t.Logf("%d kills midway; %s", midway, &out)
}

// written waits until the table of pages counts so many requests, and returns how many it counts.
func written(t *testing.T, db *tables, least int64, fleet [instances]*childproc.Process) (n int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for n < least {
		var there bool // there is no table at first
		if err := db.pool.QueryRow(ctx, "select to_regclass('clickstream.pages') is not null").Scan(&there); err == nil && there {
			_ = db.pool.QueryRow(ctx, "select coalesce(sum(clicks), 0)::bigint from clickstream.pages").Scan(&n)
		}
		select {
		case <-fleet[0].Done():
			t.Fatal("an instance has ended by itself")
		case <-fleet[1].Done():
			t.Fatal("an instance has ended by itself")
		case <-ctx.Done():
			t.Fatalf("%d requests are counted in the database, want %d", n, least)
		case <-time.After(5 * time.Millisecond):
		}
	}
	return n
}
