package sink

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"
)

// State of a sink.
type State string

// The states.
const (
	// Idle: it does not run.
	Idle State = "idle"
	// Opening: the database is asked whether it takes the rows.
	Opening State = "opening"
	// Writing: changes are written as they come.
	Writing State = "writing"
	// Away: the database does not answer, or not as it should, and is tried again. A table that was dropped is the same.
	Away State = "away"
	// Failed: it has ended with an error, and [Sink.Keep] begins it again after a pause.
	Failed State = "failed"
)

// Status of a sink at a moment.
type Status struct {
	State State
	// Err is why it is Away or Failed, else nil; Since is when that began.
	Err   error
	Since time.Time
	// Failures counts how often it has ended with an error.
	Failures int
	// Partitions that this instance writes, by number.
	Partitions []PartitionStatus
}

// PartitionStatus is one partition in a [Status].
type PartitionStatus struct {
	Partition int32
	// Lag counts offsets of the topic that are left to apply; -1 before it is known.
	Lag int64
}

// life is what a status is made of. Sink.mu guards it.
type life struct {
	running, opened bool
	failed          trouble // err is nil unless the last run ended with one
	failures        int
	// troubles with the database by partition; opening stands for none.
	troubles map[int32]trouble
	lags     map[int32]int64
}

// trouble is an error and since when there is one.
type trouble struct {
	err   error
	since time.Time
}

// opening stands for a partition where there is none yet.
const opening int32 = -1

// Status of the sink. It may be asked at any time.
func (s *Sink) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &s.life
	st := Status{State: Writing, Failures: l.failures}
	for p := range s.parts {
		lag, known := l.lags[p]
		if !known {
			lag = -1
		}
		st.Partitions = append(st.Partitions, PartitionStatus{Partition: p, Lag: lag})
	}
	slices.SortFunc(st.Partitions, func(a, b PartitionStatus) int { return cmp.Compare(a.Partition, b.Partition) })
	switch {
	case l.failed.err != nil:
		st.State, st.Err, st.Since = Failed, l.failed.err, l.failed.since
	case !l.running:
		st.State = Idle
	case len(l.troubles) > 0:
		first := l.troubles[slices.Min(slices.Collect(maps.Keys(l.troubles)))]
		st.State, st.Err, st.Since = Away, first.err, first.since
	case !l.opened:
		st.State = Opening
	}
	return st
}

// up is 1 while changes are written, else 0.
func (s *Sink) up() float64 {
	if s.Status().State == Writing {
		return 1
	}
	return 0
}

func (s *Sink) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.life = life{running: true, failures: s.life.failures, troubles: make(map[int32]trouble), lags: make(map[int32]int64)}
}

func (s *Sink) opened() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.life.opened = true
}

// end takes note of what has ended the sink; nil: whoever runs it.
func (s *Sink) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.life.running, s.life.troubles = false, nil
	if err != nil {
		s.life.failed = trouble{err, time.Now()}
		s.life.failures++
		s.metrics.failures.Inc()
	}
}

// answers takes note of the database having done what it was asked for.
func (s *Sink) answers(partition int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.life.troubles, partition)
}

// troubled takes note of the database not having done it.
func (s *Sink) troubled(partition int32, err error) {
	s.metrics.errors.WithLabelValues(troubleOf(err)).Inc()
	s.mu.Lock()
	defer s.mu.Unlock()
	t, there := s.life.troubles[partition]
	if !there {
		t.since = time.Now()
	}
	t.err = err
	s.life.troubles[partition] = t
}

// lag takes note of how far behind a partition is; -1: it was given up.
func (s *Sink) lag(partition int32, offsets int64) {
	s.metrics.setLag(partition, offsets)
	s.mu.Lock()
	defer s.mu.Unlock()
	if offsets >= 0 {
		s.life.lags[partition] = offsets
		return
	}
	delete(s.parts, partition)
	delete(s.life.lags, partition)
	delete(s.life.troubles, partition)
}

// troubleOf is the label of what is the matter with a database: its SQLSTATE where it has said one.
func troubleOf(err error) string {
	type stated interface {
		error
		SQLState() string
	}
	switch e, ok := errors.AsType[stated](err); {
	case ok:
		return e.SQLState()
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	default:
		return "unreachable"
	}
}
