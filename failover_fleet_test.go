package statemesh_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/statemesh/statemesh"
	"github.com/statemesh/statemesh/client"
	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/views"
	"github.com/statemesh/statemesh/serde"
)

// childEnv makes this test binary an instance instead of a test, so that one can be killed.
const childEnv = "STATEMESH_TEST_INSTANCE"

func TestMain(m *testing.M) {
	spec := os.Getenv(childEnv)
	if spec == "" {
		m.Run()
		return
	}
	if err := runChild(spec); err != nil {
		panic(err)
	}
}

// childSpec is what a child is told.
type childSpec struct {
	Brokers []string
	Dir     string
	// Machine that the child believes to be on; empty: this one.
	Machine  string
	Standbys int
}

// runChild is an instance with the timeouts that users have, until its standard input ends.
func runChild(text string) error {
	var spec childSpec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return err
	}
	cfg := statemesh.Config{
		Processor: processor.Config{
			ApplicationID: "app", Kafka: processor.KafkaConfig{Brokers: spec.Brokers}, NumStreamThreads: 2,
			NumStandbyReplicas: spec.Standbys,
		},
		Views:    []views.View{{Name: "count", Topic: "in", Format: views.String, Type: views.Count}},
		StateDir: spec.Dir, Listen: "127.0.0.1:0", Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
	if spec.Machine != "" {
		cfg.Processor.Host = processor.HostID{BootID: spec.Machine, PIDNamespace: "1", PID: os.Getpid(), StartTime: 1}
	}
	in, err := statemesh.New(cfg)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	var wg sync.WaitGroup
	wg.Go(func() {
		if in.WaitState(ctx, statemesh.Serving) == nil {
			_, _ = fmt.Fprintln(os.Stdout, in.ID(), in.Endpoint())
		}
	})
	err = in.Run(ctx)
	cancel()
	wg.Wait()
	return err
}

// child is an instance in a process of its own.
type child struct {
	id, endpoint string
	cmd          *exec.Cmd
}

func startChild(t *testing.T, spec childSpec) *child {
	t.Helper()
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: exec.CommandContext(t.Context(), os.Args[0])}
	c.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	c.cmd.Stderr = t.Output()
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("a child ended before it served: %v", err)
	}
	var ok bool
	if c.id, c.endpoint, ok = strings.Cut(strings.TrimSpace(line), " "); !ok {
		t.Fatalf("a child said %q", line)
	}
	return c
}

// An instance is killed with SIGKILL. Its session would last 45 s; the others prove it dead, evict it, and own its tasks long
// before that: one survivor alone on the same machine by its process, two on machines of their own by its listener. Then it
// is started again on its state, which its own eviction does not hinder.
func TestFailoverOfKilledProcess(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		machines []string
		standbys int
	}{
		"one survivor on the machine": {[]string{"", ""}, 0},
		"two survivors elsewhere":     {[]string{"m1", "m2", "m3"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const partitions, limit = 6, 30 * time.Second
			b := startBroker(t, "in", partitions)
			specs := make([]childSpec, len(tc.machines))
			fleet := make([]*child, len(tc.machines))
			var seeds []string
			for i, machine := range tc.machines {
				specs[i] = childSpec{Brokers: b.addrs, Dir: t.TempDir(), Machine: machine, Standbys: tc.standbys}
				fleet[i] = startChild(t, specs[i])
				seeds = append(seeds, fleet[i].endpoint)
			}
			var keys []string
			for i := range 40 {
				keys = append(keys, fmt.Sprintf("key-%02d", i))
			}
			b.produce(t, "in", keys...)
			cl, err := client.New(client.Config{Seeds: seeds[1:], Application: "app"})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = cl.Close() }()
			owners := func(want int64) (map[string]int, error) {
				by := make(map[string]int)
				for _, k := range keys {
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
					r, err := cl.Get(ctx, "count", []byte(k), client.OnlyActive())
					cancel()
					if err != nil {
						return nil, err
					}
					n, err := serde.Int64().Decode(r.Value.Data)
					if err == nil && n != want {
						err = fmt.Errorf("%s: %d, want %d", k, n, want)
					}
					if err != nil {
						return nil, err
					}
					by[r.Answer.Instance]++
				}
				return by, nil
			}
			eventually(t, func() error {
				by, err := owners(1)
				if err == nil && len(by) != len(fleet) {
					err = fmt.Errorf("%d own something, want %d", len(by), len(fleet))
				}
				return err
			})
			victim := fleet[0]
			if err := victim.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			struck := time.Now()
			b.produce(t, "in", keys...)
			eventually(t, func() error {
				by, err := owners(2)
				if err == nil && by[victim.id] > 0 {
					err = errors.New("the dead one answers")
				}
				return err
			})
			took := time.Since(struck)
			if took > limit {
				t.Errorf("owned by others after %s: nobody was evicted", took)
			}
			t.Logf("every key answered by an owner %s after the kill", took)
			again := startChild(t, specs[0])
			if again.id != victim.id {
				t.Errorf("id %s, was %s", again.id, victim.id)
			}
			b.produce(t, "in", keys...)
			eventually(t, func() error {
				by, err := owners(3)
				if err == nil && by[victim.id] == 0 {
					err = errors.New("it owns nothing again")
				}
				return err
			})
		})
	}
}

// An instance that is alone is killed and started again: it need not wait for its own session, though nobody is there to evict
// its former incarnation.
func TestRestartOfKilledProcess(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "in", 2)
	spec := childSpec{Brokers: b.addrs, Dir: t.TempDir()}
	first := startChild(t, spec)
	b.produce(t, "in", "a")
	get := func(endpoint string, want int64) error {
		cl, err := client.New(client.Config{Seeds: []string{endpoint}, Application: "app"})
		if err != nil {
			return err
		}
		defer func() { _ = cl.Close() }()
		r, err := cl.Get(t.Context(), "count", []byte("a"), client.OnlyActive())
		if err != nil {
			return err
		}
		n, err := serde.Int64().Decode(r.Value.Data)
		if err == nil && n != want {
			err = fmt.Errorf("%d, want %d", n, want)
		}
		return err
	}
	eventually(t, func() error { return get(first.endpoint, 1) })
	if err := errors.Join(first.cmd.Process.Kill(), ignoreExit(first.cmd.Wait())); err != nil {
		t.Fatal(err)
	}
	struck := time.Now()
	b.produce(t, "in", "a")
	again := startChild(t, spec) // serves when it returns
	if took := time.Since(struck); took > 30*time.Second {
		t.Errorf("serves after %s: it waited for its former session", took)
	}
	if again.id != first.id {
		t.Errorf("id %s, was %s", again.id, first.id)
	}
	eventually(t, func() error { return get(again.endpoint, 2) })
}

func ignoreExit(err error) error {
	if _, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil
	}
	return err
}
