package statemesh_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/statemesh/statemesh"
	"github.com/statemesh/statemesh/client"
	"github.com/statemesh/statemesh/internal/fakekafka"
	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/views"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// broker is a fake Kafka with one topic.
type broker struct {
	cluster *kfake.Cluster
	addrs   []string
	cl      *kgo.Client
}

func startBroker(t *testing.T, topic string, partitions int32) *broker {
	t.Helper()
	c, err := fakekafka.New(kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	if _, err := kadm.NewClient(cl).CreateTopic(t.Context(), partitions, 1, nil, topic); err != nil {
		t.Fatal(err)
	}
	return &broker{addrs: c.ListenAddrs(), cl: cl, cluster: c}
}

// holdJoins leaves members that join a group without an answer until release is called.
func (b *broker) holdJoins() (release func()) {
	held := make(chan struct{})
	b.cluster.ControlKey(int16(kmsg.JoinGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
		b.cluster.KeepControl()
		b.cluster.SleepControl(func() { <-held })
		return nil, nil, false
	})
	return sync.OnceFunc(func() { close(held) })
}

func (b *broker) produce(t *testing.T, topic string, keys ...string) {
	t.Helper()
	records := make([]*kgo.Record, len(keys))
	for i, k := range keys {
		records[i] = &kgo.Record{Topic: topic, Key: []byte(k), Value: fmt.Appendf(nil, "v-%s", k)}
	}
	if err := b.cl.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func (b *broker) config(t *testing.T) statemesh.Config {
	t.Helper()
	return statemesh.Config{
		Processor: processor.Config{
			ApplicationID: "app", Kafka: processor.KafkaConfig{Brokers: b.addrs}, NumStreamThreads: 1,
			SessionTimeout: 3 * time.Second, HeartbeatInterval: 200 * time.Millisecond, TransactionTimeout: 2 * time.Second,
		},
		Views: []views.View{
			{Name: "count", Topic: "in", Format: views.String, Type: views.Count},
			{Name: "by-value", Topic: "in", Format: views.String, Key: []string{"value"}, Type: views.Count},
		},
		StateDir: t.TempDir(), Listen: "127.0.0.1:0",
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)).With("test", t.Name()),
	}
}

// node is an instance that runs.
type node struct {
	*statemesh.Instance

	stop func() error // ends Run and returns its error; further calls return the same
}

func startNode(t *testing.T, cfg statemesh.Config) *node {
	t.Helper()
	inst, err := statemesh.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var runErr error
	done := make(chan struct{})
	go func() { defer close(done); runErr = inst.Run(ctx) }()
	n := &node{Instance: inst, stop: sync.OnceValue(func() error { cancel(); <-done; return runErr })}
	t.Cleanup(func() { _ = n.stop() })
	if err := inst.WaitState(t.Context(), statemesh.Serving); err != nil {
		cancel()
		<-done
		t.Fatalf("%v; run: %v", err, runErr)
	}
	return n
}

// eventually asks until the answer is right or the test's time is up: what was produced is visible after a commit.
func eventually(t *testing.T, ask func() error) {
	t.Helper()
	deadline, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		err := ask()
		if err == nil {
			return
		}
		select {
		case <-deadline.Done():
			t.Fatal(err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// wantCount checks a count by way of one instance.
func wantCount(t *testing.T, n *node, name store.Name, key string, want int64) error {
	t.Helper()
	r, err := n.Get(t.Context(), name, []byte(key), client.NoCache())
	if err != nil {
		return fmt.Errorf("%s of %s by %s: %w", name, key, n.Endpoint(), err)
	}
	got, err := serde.Int64().Decode(r.Value.Data)
	if err == nil && got != want {
		err = fmt.Errorf("%s of %s by %s: %d, want %d", name, key, n.Endpoint(), got, want)
	}
	return err
}

// Any key, of any view, from any instance; also when one instance has left and another has come.
func TestAnyKeyFromAnyInstance(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	t.Run("fleet", func(t *testing.T) {
		b := startBroker(t, "in", 4)
		var keys []string
		for i := range 40 {
			keys = append(keys, fmt.Sprintf("key-%02d", i))
		}
		b.produce(t, "in", keys...)
		fleet := []*node{startNode(t, b.config(t)), startNode(t, b.config(t)), startNode(t, b.config(t))}
		check := func(want int64) {
			t.Helper()
			for _, n := range fleet {
				for _, k := range keys {
					eventually(t, func() error { return wantCount(t, n, "count", k, want) })
					eventually(t, func() error { return wantCount(t, n, "by-value", "v-"+k, want) })
				}
			}
		}
		check(1)
		if err := fleet[0].stop(); err != nil {
			t.Fatalf("stop: %v", err)
		}
		if got := fleet[0].State(); got != statemesh.Stopped {
			t.Errorf("state after the stop: %s", got)
		}
		b.produce(t, "in", keys...)
		fleet = append(fleet[1:], startNode(t, b.config(t)))
		check(2)

		var rows []string
		for row, err := range fleet[0].Scan(t.Context(), "count", client.ScanQuery{}) {
			if err != nil {
				t.Fatal(err)
			}
			rows = append(rows, string(row.Key))
		}
		if len(rows) != len(keys) || rows[0] != "key-00" || rows[39] != "key-39" {
			t.Errorf("scan: %d rows %v, want all keys in order", len(rows), rows)
		}
		if _, err := fleet[0].Get(t.Context(), "count", []byte("nobody")); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("unknown key: %v, want ErrNotFound", err)
		}
		if _, err := fleet[0].Get(t.Context(), "nope", []byte("k")); !errors.Is(err, store.ErrUnknownStore) {
			t.Errorf("unknown store: %v, want ErrUnknownStore", err)
		}
		for _, n := range fleet {
			if err := n.stop(); err != nil {
				t.Error(err)
			}
		}
	})
}

// The id outlives a restart, so that tasks come back to where their state is.
func TestRestartKeepsID(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "in", 2)
	cfg := b.config(t)
	n := startNode(t, cfg)
	id, endpoint := n.ID(), n.Endpoint()
	if id == "" || strings.HasSuffix(endpoint, ":0") {
		t.Fatalf("id %q at %q: want an id and the real port (CF-01)", id, endpoint)
	}
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	if again := startNode(t, cfg); again.ID() != id {
		t.Errorf("id after the restart: %s, was %s", again.ID(), id)
	}
}

// An instance that cannot start says why, gives back what it had opened, and is FAILED for those who wait.
func TestFailedStart(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "in", 1)
	n := startNode(t, b.config(t))
	cfg := b.config(t)
	cfg.Listen = n.Endpoint()
	second, err := statemesh.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := second.Get(t.Context(), "count", []byte("a")); err == nil {
		t.Error("an instance that was not started answers")
	}
	if err := second.Run(t.Context()); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("address in use: %v", err)
	}
	if second.State() != statemesh.Failed || second.WaitState(t.Context(), statemesh.Serving) == nil || second.WaitOpen(t.Context()) == nil {
		t.Errorf("state %s", second.State())
	}
	if err := second.Run(t.Context()); err == nil {
		t.Error("ran twice")
	}
	// Its directory is free again (SE-09 is about the lock).
	cfg.Listen = "127.0.0.1:0"
	third := startNode(t, cfg)
	b.produce(t, "in", "a")
	eventually(t, func() error { return wantCount(t, third, "count", "a", 1) })
}

// A fatal error of the processing ends the instance in order, with the culprit named.
func TestPoisonRecord(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "in", 1)
	cfg := b.config(t)
	cfg.Views = []views.View{{Name: "v", Topic: "in", Format: views.JSON, Type: views.Table}}
	n := startNode(t, cfg)
	b.produce(t, "in", "a") // its value is no JSON
	if err := n.WaitState(t.Context(), statemesh.Failed); err != nil {
		t.Fatal(err)
	}
	if err := n.stop(); err == nil || !strings.Contains(err.Error(), "invalid json") || !strings.Contains(err.Error(), "in") {
		t.Errorf("run: %v, want it to name the topic and the reason", err)
	}
}
