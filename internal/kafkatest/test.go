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
	if cfg.Dir == "" {
		cfg.Dir = tb.TempDir()
	}
	b, err := Start(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		b.Stop()
		if tb.Failed() {
			tb.Logf("end of the broker's log:\n%s", b.LogTail(8192))
		}
	})
	return b
}

// MustRestart is Restart for tests.
func (b *Broker) MustRestart(tb testing.TB) {
	tb.Helper()
	if err := b.Restart(context.WithoutCancel(tb.Context())); err != nil {
		tb.Fatal(err)
	}
}
