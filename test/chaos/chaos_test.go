//go:build chaos

package chaos

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/client"
	"github.com/statemesh/statemesh/internal/kafkatest"
	"github.com/statemesh/statemesh/store"
)

var (
	length = flag.Duration("chaos.for", time.Minute, "how long faults are made")
	seed   = flag.Uint64("chaos.seed", 0, "seed of the schedule of faults; 0 takes a new one")
)

const mesh = `application.id: chaos
bootstrap.servers: [%s]
session.timeout.ms: 6s
heartbeat.interval.ms: 500ms
transaction.timeout.ms: 5s
views:
  - name: counts
    topic: events
    format: bytes
    type: count
    key_format: string
`

func TestChaosCountsExactly(t *testing.T) {
	ctx := t.Context()
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	t.Logf("replay the schedule with -chaos.seed=%d", *seed)
	rng := rand.New(rand.NewPCG(*seed, 1))

	broker := kafkatest.Run(t, nil)
	makeTopic(ctx, t, broker.Brokers())
	config := filepath.Join(t.TempDir(), "mesh.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, mesh, strings.Join(broker.Brokers(), ",")), 0o644); err != nil {
		t.Fatal(err)
	}
	binary := build(ctx, t)
	var fleet []*instance
	var endpoints []string
	for n := range 3 {
		i := newInstance(t, n, binary, config)
		fleet, endpoints = append(fleet, i), append(endpoints, i.endpoint)
		if err := i.start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			i.end(syscall.SIGKILL)
			if t.Failed() {
				t.Logf("instance %d:\n%s", i.number, i.tail())
			}
		})
	}
	c, err := client.New(client.Config{Seeds: endpoints})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	serving(ctx, t, c, fleet)

	h := &history{}
	work, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	var produced error
	wg.Go(func() { produced = h.produce(work, broker.Brokers(), rand.New(rand.NewPCG(*seed, 2))) })
	for r := range 4 {
		wg.Go(func() { h.read(work, c, endpoints, rand.New(rand.NewPCG(*seed, uint64(10+r)))) })
	}
	havoc(work, t, rng, fleet, broker)
	stop()
	wg.Wait()
	if produced != nil {
		t.Fatalf("produce: %v", produced)
	}
	settle(ctx, t, h, c, fleet, endpoints)
	for _, f := range h.faults {
		t.Error(f)
	}
	report(t, h)
}

// serving waits until every instance knows the map; one that ends before has not understood its configuration.
func serving(ctx context.Context, t *testing.T, c *client.Client, fleet []*instance) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for _, i := range fleet {
		for {
			_, err := c.Get(ctx, view, keyOf(0), client.Via(i.endpoint))
			if err == nil || errors.Is(err, store.ErrNotFound) {
				break
			}
			if i.died() {
				t.Fatalf("instance %d ended at its start", i.number)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				t.Fatalf("instance %d does not serve: %v", i.number, err)
			}
		}
	}
}

// havoc makes faults for as long as the flag says, then mends everything.
func havoc(ctx context.Context, t *testing.T, rng *rand.Rand, fleet []*instance, broker *kafkatest.Broker) {
	t.Helper()
	wait := func(d time.Duration) {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	wait(5 * time.Second) // something is there to lose
	begin := time.Now()
	for time.Since(begin) < *length && ctx.Err() == nil {
		i := fleet[rng.IntN(len(fleet))]
		pause := time.Duration(rng.IntN(2000)) * time.Millisecond
		at := time.Since(begin).Round(time.Millisecond)
		switch p := rng.IntN(100); {
		case p < 40:
			t.Logf("%s: kill instance %d, again after %s", at, i.number, pause)
			i.end(syscall.SIGKILL)
			wait(pause)
			restart(t, i)
		case p < 70:
			pause += time.Duration(rng.IntN(9000)) * time.Millisecond // often past the session timeout: a zombie
			t.Logf("%s: pause instance %d for %s", at, i.number, pause)
			i.signal(syscall.SIGSTOP)
			wait(pause)
			i.signal(syscall.SIGCONT)
		case p < 90:
			t.Logf("%s: stop instance %d, again after %s", at, i.number, pause)
			i.end(syscall.SIGTERM)
			wait(pause)
			restart(t, i)
		default:
			t.Logf("%s: kill the broker", at)
			broker.Kill()
			broker.MustRestart(t)
		}
		if i.died() {
			t.Errorf("instance %d ended by itself", i.number)
			restart(t, i)
		}
		wait(time.Duration(500+rng.IntN(3000)) * time.Millisecond)
	}
}

func restart(t *testing.T, i *instance) {
	t.Helper()
	if i.died() {
		i.end(syscall.SIGKILL)
	}
	if err := i.start(); err != nil {
		t.Errorf("instance %d: %v", i.number, err)
	}
}

// settle waits until every instance gives the exact count of every key.
func settle(ctx context.Context, t *testing.T, h *history, c *client.Client, fleet []*instance, endpoints []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		err := exact(ctx, h, c, endpoints)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			for _, i := range fleet {
				t.Logf("instance %d ended by itself: %v", i.number, i.died())
			}
			t.Fatalf("not exact when calm: %v", err)
		case <-tick.C:
		}
	}
}

func exact(ctx context.Context, h *history, c *client.Client, endpoints []string) error {
	for _, endpoint := range endpoints {
		for i := range keys {
			want := h.acked[i].Load()
			call, cancel := context.WithTimeout(ctx, 5*time.Second)
			r, err := c.Get(call, view, keyOf(i), client.NoCache(), client.Via(endpoint))
			cancel()
			if errors.Is(err, store.ErrNotFound) && want == 0 {
				continue
			}
			if err != nil {
				return fmt.Errorf("key %d at %s: %w", i, endpoint, err)
			}
			got, err := client.Int64().Decode(r.Value.Data)
			if err != nil {
				return err
			}
			if got != want {
				return fmt.Errorf("key %d at %s: counted %d, want %d", i, endpoint, got, want)
			}
		}
	}
	return nil
}

func report(t *testing.T, h *history) {
	t.Helper()
	var records int64
	for i := range keys {
		records += h.acked[i].Load()
	}
	t.Logf("%d records counted exactly; %d answers checked, %d requests refused", records, h.answers.Load(), h.refused.Load())
	h.refusals.Range(func(kind, n any) bool {
		t.Logf("refused: %5d %s", n.(*atomic.Int64).Load(), kind)
		return true
	})
	if records == 0 || h.answers.Load() == 0 {
		t.Error("nothing happened")
	}
}

func makeTopic(ctx context.Context, t *testing.T, brokers []string) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	resp, err := kadm.NewClient(cl).CreateTopic(ctx, 6, 1, nil, topic)
	if err = errors.Join(err, resp.Err); err != nil {
		t.Fatal(err)
	}
}
