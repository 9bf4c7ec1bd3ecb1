package statemesh_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/statemesh/statemesh"
	"github.com/statemesh/statemesh/client"
	"github.com/statemesh/statemesh/serde"
)

// A fleet is restarted, one instance after another, while a session reads every key: no read fails, none goes backwards, and each
// instance leaves only when others have its tasks.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "in", 4)
	config := func() (c statemesh.Config) {
		c = b.config(t)
		c.Processor.NumStandbyReplicas = 1
		c.Processor.SessionTimeout, c.Processor.HeartbeatInterval = 0, 0 // as users have them: nobody waits for either
		c.DrainTimeout = time.Minute                                     // a slow machine is no reason to leave
		return c
	}
	configs := []statemesh.Config{config(), config(), config()}
	var fleet []*node
	var seeds []string
	for _, c := range configs {
		n := startNode(t, c)
		fleet = append(fleet, n)
		seeds = append(seeds, n.Endpoint())
	}
	var keys []string
	for i := range 20 {
		keys = append(keys, fmt.Sprintf("key-%02d", i))
	}
	b.produce(t, "in", keys...)
	settled := func() {
		t.Helper()
		eventually(t, func() error {
			for _, n := range fleet {
				if len(n.Tasks()) == 0 {
					return errors.New("an instance has nothing")
				}
				for _, s := range n.Standbys() {
					if !s.Exact || s.Warmup {
						return fmt.Errorf("copy of %s is not whole", s.ID)
					}
				}
			}
			return nil
		})
	}
	settled()
	for _, n := range fleet {
		for _, k := range keys {
			eventually(t, func() error { return wantCount(t, n, "count", k, 1) })
		}
	}
	cl, err := client.New(client.Config{Seeds: seeds, Application: "app"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cl.Close() }()
	ctx, stop := context.WithCancel(t.Context())
	var reads sync.WaitGroup
	reads.Go(func() { readForward(ctx, t, cl, keys) })
	for i := range fleet {
		if err := fleet[i].stop(); err != nil {
			t.Fatal(err)
		}
		b.produce(t, "in", keys...)
		fleet[i] = startNode(t, configs[i])
		settled()
	}
	stop()
	reads.Wait()
	for _, k := range keys {
		eventually(t, func() error { return wantCount(t, fleet[0], "count", k, 4) })
	}
}

// readPause leaves the machine to the instances.
const readPause = 5 * time.Millisecond

// readForward reads all keys until ctx ends, each with the token of the answer before.
func readForward(ctx context.Context, t *testing.T, cl *client.Client, keys []string) {
	session := client.NewReadSession()
	last := make(map[string]int64)
	pace := time.NewTicker(readPause)
	defer pace.Stop()
	for n := 0; ; n++ {
		for _, k := range keys {
			if ctx.Err() != nil {
				t.Logf("%d rounds of reads", n)
				return
			}
			r, err := cl.Get(ctx, "count", []byte(k), client.InReadSession(session), client.MaxStaleness(time.Minute))
			if ctx.Err() != nil {
				continue
			}
			var got int64
			if err == nil {
				got, err = serde.Int64().Decode(r.Value.Data)
			}
			if err != nil || got < last[k] {
				t.Errorf("read of %s: %d after %d, %v", k, got, last[k], err)
			}
			last[k] = max(got, last[k])
			select {
			case <-pace.C:
			case <-ctx.Done():
			}
		}
	}
}

// lines are what is logged.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

// has reports why the log has no line with a text.
func (l *lines) has(text string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !strings.Contains(l.text.String(), text) {
		return fmt.Errorf("%q is not in the log: %s", text, l.text.String())
	}
	return nil
}

// What is logged of a stop that gives tasks away.
const (
	logGiving   = "giving tasks away"
	logLeftThem = "leaving before other instances have taken over"
)

// Hurry ends the wait of a stop, also one that has not begun.
func TestHurriedStop(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "in", 2)
	startNode(t, b.config(t))
	c := b.config(t)
	var log lines
	c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	n := startNode(t, c)
	n.Hurry()
	n.Hurry() // once more is no more
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	if err := log.has(logLeftThem); err != nil {
		t.Error(err)
	}
}

// Hurry ends the wait of a stop that is giving tasks away: nobody can take them, for no member of the group gets an answer when it joins.
func TestHurryDuringTheStop(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "in", 2)
	startNode(t, b.config(t))
	c := b.config(t)
	c.DrainTimeout = time.Hour
	var log lines
	c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	n := startNode(t, c)
	eventually(t, func() error { // before that there is nothing to give away, and nobody who takes it
		if m := n.Map(); len(n.Tasks()) == 0 || m == nil || len(m.Instances()) != 2 {
			return errors.New("it has nothing, or knows of nobody")
		}
		return nil
	})
	release := b.holdJoins()
	defer release()
	stopped := make(chan error, 1)
	go func() { stopped <- n.stop() }()
	eventually(t, func() error { return log.has(logGiving) })
	select {
	case err := <-stopped:
		t.Fatalf("stopped while it gave tasks away: %v", err)
	default:
	}
	n.Hurry()
	eventually(t, func() error { return log.has(logLeftThem) })
	release()
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
}
