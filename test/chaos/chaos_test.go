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
	length    = flag.Duration("chaos.for", time.Minute, "how long faults are made")
	seed      = flag.Uint64("chaos.seed", 0, "seed of the schedule of faults; 0 takes a new one")
	brokerToo = flag.Bool("chaos.broker", true, "kill and pause the broker too")
)

// TestChaosCountsExactly runs one schedule to its end. A broker that breaks its own promise on the way (see void) ends a
// run without a verdict; the next seed is taken then.
func TestChaosCountsExactly(t *testing.T) {
	first := *seed
	if first == 0 {
		first = uint64(time.Now().UnixNano())
	}
	const tries = 4
	for s := first; s < first+tries; s++ {
		verdict := false
		t.Run(fmt.Sprintf("seed=%d", s), func(t *testing.T) {
			t.Logf("replay the schedule with -chaos.seed=%d", s)
			run(t, s)
			verdict = true
		})
		if verdict || t.Failed() {
			return
		}
	}
	t.Errorf("no verdict in %d runs", tries)
}

func run(t *testing.T, seed uint64) {
	ctx := t.Context()
	rng := rand.New(rand.NewPCG(seed, 1))

	var fleet []*instance
	var endpoints, links []string
	binary := build(ctx, t)
	config := filepath.Join(t.TempDir(), "mesh.yaml")
	for n := range 3 {
		i := newInstance(t, n, binary, config)
		fleet, endpoints, links = append(fleet, i), append(endpoints, i.endpoint), append(links, i.link.addr)
	}
	broker := kafkatest.RunConfig(t, kafkatest.Config{Links: links})
	makeTopic(ctx, t, broker.Brokers())
	if err := os.WriteFile(config, fmt.Appendf(nil, mesh, strings.Join(broker.Brokers(), ",")), 0o644); err != nil {
		t.Fatal(err)
	}
	for n, i := range fleet {
		i.link.run(t, broker.Behind(n))
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

	h := newHistory()
	work, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	var produced error
	wg.Go(func() { produced = h.produce(work, broker.Brokers(), rand.New(rand.NewPCG(seed, 2))) })
	for r := range 4 {
		wg.Go(func() { h.read(work, c, endpoints, rand.New(rand.NewPCG(seed, uint64(10+r)))) })
	}
	havoc(work, t, rng, fleet, broker)
	stop()
	wg.Wait()
	if produced != nil {
		t.Fatalf("produce: %v", produced)
	}
	settle(ctx, t, h, c, fleet, endpoints, broker)
	checkLogs(ctx, t, h, broker.Brokers())
	for _, f := range h.faults {
		t.Error(f)
	}
	report(t, h, fleet)
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
			_, err := c.Get(ctx, "counts", []byte("key-0000"), client.Via(i.endpoint))
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

// settle waits until every instance gives the exact count of every key.
func settle(ctx context.Context, t *testing.T, h *history, c *client.Client, fleet []*instance, endpoints []string, broker *kafkatest.Broker) {
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
			void(t, broker)
			t.Fatalf("not exact when calm: %v", err)
		case <-tick.C:
		}
	}
}

func exact(ctx context.Context, h *history, c *client.Client, endpoints []string) error {
	for _, endpoint := range endpoints {
		for _, r := range h.rows {
			want := r.acked.Load()
			call, cancel := context.WithTimeout(ctx, 5*time.Second)
			res, err := c.Get(call, r.view, r.key, client.NoCache(), client.Via(endpoint))
			cancel()
			if errors.Is(err, store.ErrNotFound) && want == 0 {
				continue
			}
			if err != nil {
				return fmt.Errorf("%s %s at %s: %w", r.view, r.key, endpoint, err)
			}
			got, err := number(r.view, res.Value.Data)
			if err != nil {
				return err
			}
			if got != want {
				return fmt.Errorf("%s %s at %s: %d, want %d", r.view, r.key, endpoint, got, want)
			}
		}
	}
	return nil
}

func report(t *testing.T, h *history, fleet []*instance) {
	t.Helper()
	for _, i := range fleet {
		t.Logf("instance %d: %d memberships lost, %d copies rebuilt", i.number,
			i.logged("membership lost, joining anew"), i.logged("local copy dropped"))
	}
	var records int64
	for _, r := range h.counts {
		records += r.acked.Load()
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
