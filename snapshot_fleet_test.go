package statemesh_test

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/statemesh/statemesh"
	"github.com/statemesh/statemesh/processor/views"
)

// An instance that is new takes the state of a task from the one that has it, over their query APIs, and answers with it alone.
func TestRestoreFromAPeer(t *testing.T) {
	b := startBroker(t, "in", 1)
	cfg := b.config(t)
	cfg.Views = []views.View{{Name: "count", Topic: "in", Format: views.String, Type: views.Count}}
	cfg.Processor.NumStandbyReplicas, cfg.Processor.SnapshotMinOffsets = 1, 50
	a := startNode(t, cfg)
	keys := make([]string, 20)
	for i := range keys {
		keys[i] = fmt.Sprintf("key-%02d", i)
	}
	const rounds = 10
	for round := range int64(rounds) { // each is a commit of its own
		b.produce(t, "in", keys...)
		eventually(t, func() error { return wantCount(t, a, "count", keys[len(keys)-1], round+1) })
	}
	c := takesACopy(t, cfg)
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		eventually(t, func() error { return wantCount(t, c, "count", k, rounds) })
	}
}

// takesACopy starts an instance that gets its only copy from a peer, and waits until that answers. Where the machine is so slow that the
// peer was passed over, as one that did not answer in time, the instance has read the changelog; then another one is started.
func takesACopy(t *testing.T, cfg statemesh.Config) *node {
	t.Helper()
	const most = 5
	for range most {
		reg := prometheus.NewRegistry()
		cfg.StateDir, cfg.Registerer = t.TempDir(), reg
		c := startNode(t, cfg)
		eventually(t, func() error {
			for _, s := range c.Status().Standbys {
				if s.Ready {
					return nil
				}
			}
			return fmt.Errorf("no copy that answers: %+v", c.Status().Standbys)
		})
		ended := func(outcome string) float64 { return counter(t, reg, "statemesh_restore_copies_total", outcome) }
		for _, wrong := range []string{"slower", "refused", "broken", "expired", "failed"} {
			if n := ended(wrong); n > 0 {
				t.Fatalf("%v copies ended as %s", n, wrong)
			}
		}
		switch taken := ended("taken"); {
		case taken == 1:
			return c
		case taken > 1:
			t.Fatalf("%v copies were taken, want one", taken)
		}
		if err := c.stop(); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatalf("none of %d instances took a copy", most)
	return nil
}

// counter is the value of a counter with one label.
func counter(t *testing.T, reg *prometheus.Registry, name, label string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && len(m.GetLabel()) == 1 && m.GetLabel()[0].GetValue() == label {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}
