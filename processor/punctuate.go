package processor

import (
	"math"
	"slices"
	"time"
)

// schedule holds the punctuations of a task, by clock. It belongs to the stream thread.
type schedule struct {
	entries []*punctuation
	// nextStream and nextWall are the earliest due times, in Unix milliseconds; math.MaxInt64: none.
	nextStream, nextWall int64
}

type punctuation struct {
	node      *nodeRun
	typ       PunctuationType
	interval  int64 // milliseconds
	due       int64 // Unix milliseconds
	fn        func(int64) error
	cancelled bool
}

func newSchedule() schedule { return schedule{nextStream: math.MaxInt64, nextWall: math.MaxInt64} }

func (s *schedule) add(n *nodeRun, every time.Duration, typ PunctuationType, fn func(int64) error, t *task) func() {
	p := &punctuation{node: n, typ: typ, interval: every.Milliseconds(), fn: fn}
	if typ == WallClockTime {
		p.due = t.env.now().UnixMilli() + p.interval
	} // else 0: upstream aligns stream time to 0 and fires with the first record
	s.entries = append(s.entries, p)
	s.rearm()
	return func() {
		p.cancelled = true
		s.entries = slices.DeleteFunc(s.entries, func(o *punctuation) bool { return o == p })
		s.rearm()
	}
}

func (s *schedule) rearm() {
	s.nextStream, s.nextWall = math.MaxInt64, math.MaxInt64
	for _, p := range s.entries {
		if p.typ == StreamTime {
			s.nextStream = min(s.nextStream, p.due)
		} else {
			s.nextWall = min(s.nextWall, p.due)
		}
	}
}

// fire calls what is due at time now (milliseconds) by the clock typ, once each: missed intervals are not repeated.
func (s *schedule) fire(typ PunctuationType, now int64) error {
	for _, p := range slices.Clone(s.entries) {
		if p.typ != typ || p.cancelled || p.due > now {
			continue
		}
		p.due += ((now-p.due)/p.interval + 1) * p.interval
		if err := p.fn(now); err != nil {
			s.rearm()
			return p.node.wrap(err)
		}
	}
	s.rearm()
	return nil
}
