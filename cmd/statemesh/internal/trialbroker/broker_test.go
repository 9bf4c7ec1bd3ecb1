package trialbroker_test

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/statemesh/statemesh/cmd/statemesh/internal/trialbroker"
)

func start(t *testing.T, cfg trialbroker.Config) *trialbroker.Broker {
	t.Helper()
	b, err := trialbroker.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func client(t *testing.T, b *trialbroker.Broker, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(b.Addr()))...)
	if err != nil {
		t.Fatal(err)
	}
	return cl
}

// What was produced before a restart is there after it, on the same address.
func TestRestartKeepsData(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	dir := t.TempDir()
	b := start(t, trialbroker.Config{DataDir: dir})
	addr := b.Addr()
	cl := client(t, b)
	if _, err := kadm.NewClient(cl).CreateTopic(t.Context(), 1, 1, nil, "in"); err != nil {
		t.Fatal(err)
	}
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "in", Value: []byte("v")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	cl.Close()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}

	b = start(t, trialbroker.Config{Listen: addr, DataDir: dir})
	cl = client(t, b, kgo.ConsumeTopics("in"))
	got := cl.PollFetches(t.Context()).Records()
	cl.Close()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || string(got[0].Value) != "v" {
		t.Fatalf("after the restart: %v, want the one record", got)
	}
}

// A client may not create a topic by asking for it: a misspelt topic would look like an empty one.
func TestNoTopicByAccident(t *testing.T) {
	t.Parallel()
	b := start(t, trialbroker.Config{})
	defer func() { _ = b.Close() }()
	cl := client(t, b, kgo.AllowAutoTopicCreation(), kgo.UnknownTopicRetries(0))
	defer cl.Close()
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "nope"}).FirstErr(); err == nil {
		t.Fatal("produced to a topic that nobody created")
	}
}

func TestStartRefuses(t *testing.T) {
	t.Parallel()
	held := t.TempDir()
	b := start(t, trialbroker.Config{DataDir: held})
	t.Cleanup(func() { _ = b.Close() })
	for name, c := range map[string]struct {
		cfg  trialbroker.Config
		want string
	}{
		"CF-01 wildcard v4":   {trialbroker.Config{Listen: "0.0.0.0:0"}, "concrete host"},
		"CF-01 wildcard v6":   {trialbroker.Config{Listen: "[::]:0"}, "concrete host"},
		"CF-01 no host":       {trialbroker.Config{Listen: ":9092"}, "concrete host"},
		"no port":             {trialbroker.Config{Listen: "localhost"}, "want host:port"},
		"port out of range":   {trialbroker.Config{Listen: "127.0.0.1:70000"}, "not 0 to 65535"},
		"address in use":      {trialbroker.Config{Listen: b.Addr()}, "in use"},
		"SE-09 held data dir": {trialbroker.Config{DataDir: held}, "another broker holds it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if b, err := trialbroker.Start(t.Context(), c.cfg); err == nil {
				_ = b.Close()
				t.Fatal("started")
			} else if !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%v; want it to say %q", err, c.want)
			}
		})
	}
}
