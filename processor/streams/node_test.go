package streams

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

type receives func(m *int) error

func (f receives) receive(m *int) error { return f(m) }

// TestEmitInTheMiddle: a child that has the node hand on something else before it returns leaves to the next child what it was to get.
func TestEmitInTheMiddle(t *testing.T) {
	t.Parallel()
	var s scope[int]
	var got []int
	memory := 1 // of the node, as an operator has it
	s.to = []receiver[int]{
		receives(func(m *int) error {
			if *m != 1 {
				return nil
			}
			memory = 2
			return s.emit(&memory)
		}),
		receives(func(m *int) error { got = append(got, *m); return nil }),
	}
	if err := s.emit(&memory); err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0] != 2 || got[1] != 1 {
		t.Errorf("the second child got %v, want 2, which came in between, and 1", got)
	}
}

// TestSharedMetrics: tasks of one process count in one metric, and without a registerer each in its own.
func TestSharedMetrics(t *testing.T) {
	t.Parallel()
	counter := func() *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "told_total", Help: "Of a test."}, []string{"store"})
	}
	reg := prometheus.NewRegistry()
	if first := shared(reg, counter()); shared(reg, counter()) != first {
		t.Error("two tasks have two metrics")
	}
	if first := shared(nil, counter()); shared(nil, counter()) == first {
		t.Error("metrics that nobody sees are one")
	}
}
