package kafkatest

import (
	"context"
	"testing"
)

// Run starts a broker for the time of a test, in a directory of the test. When the test fails the end of the broker's
// log is shown.
func Run(t testing.TB, properties map[string]string) *Broker {
	t.Helper()
	return RunConfig(t, Config{Properties: properties})
}

// RunConfig is Run with every choice; Dir defaults to one of the test's.
func RunConfig(t testing.TB, cfg Config) *Broker {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	b, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.Stop()
		if t.Failed() {
			t.Logf("end of the broker's log:\n%s", b.LogTail(8192))
		}
	})
	return b
}

// MustRestart is Restart for tests.
func (b *Broker) MustRestart(t testing.TB) {
	t.Helper()
	if err := b.Restart(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
}
