package kafkatest

import (
	"context"
	"testing"
)

// Run starts a broker for the time of a test, in a directory of the test. When the test fails the end of the broker's
// log is shown.
func Run(tb testing.TB, properties map[string]string) *Broker {
	tb.Helper()
	return RunConfig(tb, Config{Properties: properties})
}

// RunConfig is Run with every choice; Dir defaults to one of the test's.
func RunConfig(tb testing.TB, cfg Config) *Broker {
	tb.Helper()
	if cfg.Nodes > 1 {
		tb.Fatalf("kafkatest Nodes: %d; RunCluster runs more than one", cfg.Nodes)
	}
	return RunCluster(tb, cfg).nodes[0]
}

// RunCluster is RunConfig for Config.Nodes of them.
func RunCluster(tb testing.TB, cfg Config) *Cluster {
	tb.Helper()
	if cfg.Dir == "" {
		cfg.Dir = tb.TempDir()
	}
	c, err := StartCluster(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		c.Stop()
		if !tb.Failed() {
			return
		}
		for _, b := range c.nodes {
			tb.Logf("end of the log of node %d:\n%s", b.id, b.LogTail(8192))
		}
	})
	return c
}

// MustRestart is Restart for tests.
func (b *Broker) MustRestart(tb testing.TB) {
	tb.Helper()
	if err := b.Restart(context.WithoutCancel(tb.Context())); err != nil {
		tb.Fatal(err)
	}
}
