package sink

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/changes"
)

// stated is an error of a database that has a word for it.
type stated string

func (s stated) Error() string    { return "the database says " + string(s) }
func (s stated) SQLState() string { return string(s) }

// TestKeep: a sink that ends with an error is begun again until what was in the way is gone, and says meanwhile what it is.
func TestKeep(t *testing.T) {
	k, m := newKafka(t, "compact"), newMemory()
	k.write("a=1")
	mended := make(chan struct{})
	m.open = func() error {
		select {
		case <-mended:
			return nil
		default:
			return &SchemaError{Table: "t"}
		}
	}
	answer := make(chan struct{})
	m.fail = func(Batch) error {
		select {
		case <-answer:
			return nil
		default:
			return stated("42P01")
		}
	}
	cfg := k.config(m)
	cfg.RestartBackoff, cfg.MaxRestartBackoff = time.Millisecond, 2*time.Millisecond
	reg := prometheus.NewPedanticRegistry()
	cfg.Registerer = reg
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if st := s.Status(); st.State != Idle || st.Err != nil {
		t.Errorf("%+v before it runs", st)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); s.Keep(ctx) }()
	st := eventual(t, s, func(st Status) bool { return st.State == Failed && st.Failures >= 2 })
	if _, ok := errors.AsType[*SchemaError](st.Err); !ok || st.Since.IsZero() {
		t.Errorf("%+v", st)
	}
	if have := value(t, reg, "statemesh_sink_failures_total"); have < 2 {
		t.Errorf("%v failures", have)
	}
	close(mended)
	st = eventual(t, s, func(st Status) bool { return st.State == Away })
	if !errors.Is(st.Err, stated("42P01")) || len(st.Partitions) != 1 || st.Partitions[0].Lag != -1 {
		t.Errorf("%+v", st)
	}
	if have := value(t, reg, "statemesh_sink_up"); have != 0 {
		t.Errorf("up is %v", have)
	}
	if have := value(t, reg, "statemesh_sink_errors_total", "reason", "42P01"); have < 1 {
		t.Errorf("%v errors", have)
	}
	close(answer)
	m.until(t, func() bool { return m.at[0].Next == 1 })
	eventual(t, s, func(st Status) bool { return st.State == Writing && st.Partitions[0].Lag == 0 })
	if have := value(t, reg, "statemesh_sink_up"); have != 1 {
		t.Errorf("up is %v", have)
	}
	cancel()
	<-done
	if !m.closed {
		t.Error("the target is not closed")
	}
	if st := s.Status(); st.State != Idle || len(st.Partitions) != 0 {
		t.Errorf("%+v after the end", st)
	}
}

// eventual asks for the status until it is as it should be.
func eventual(t *testing.T, s *Sink, right func(Status) bool) Status {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		st := s.Status()
		if right(st) {
			return st
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("it does not come: %+v", st)
		}
	}
}

// TestRowsAreBounded: batches of several partitions wait for each other when their rows take more memory than there is, and one that is larger
// than all goes alone.
func TestRowsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		cfg := (&kafka{brokers: []string{"localhost:1"}}).config(m)
		cfg.RowBytes = 1500 // less than two records take
		s, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		s.begin()
		in, out := make(chan int32, 3), make(chan struct{})
		m.applying = func(b Batch) { in <- b.Place.Partition; <-out }
		h := (*handler)(s)
		done := make(chan error, 3)
		for p := range int32(3) {
			if _, err := h.Begin(t.Context(), changes.Log{Topic: runTopic, Partition: p}); err != nil {
				t.Fatal(err)
			}
			go func() {
				_, err := h.Apply(t.Context(), changes.Batch{Partition: p, Next: 3, Epoch: -1, Records: []changes.Record{
					{Record: processor.Record{Key: fmt.Appendf(nil, "k%d", p), Value: []byte(`{"n":1}`)}, Offset: 0},
					{Record: processor.Record{Key: fmt.Appendf(nil, "l%d", p), Value: []byte(`{"n":1}`)}, Offset: 1},
				}})
				done <- err
			}()
		}
		for range 3 {
			synctest.Wait()
			if n := len(in); n != 1 {
				t.Fatalf("%d batches at a time", n)
			}
			<-in
			out <- struct{}{}
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}
