package history

import (
	"strconv"
	"time"

	"github.com/anishathalye/porcupine"
)

// linearizer asks whether the writes of a row and the reads that asked for the latest have an order that explains them. A
// row is searched stretch by stretch, between moments at which nothing is under way: there its state is known.
type linearizer struct {
	o       CheckOptions
	violate func(rule Rule, at time.Duration, id int64, format string, args ...any)
	left    time.Duration // for all searches
	rows    map[*row]*stretch
	sum     Linear
}

// Limits of one search. It takes microseconds for each operation, or longer than anybody waits; each write that may come at any
// time doubles it.
const (
	mostSearch  = 500 * time.Millisecond
	mostEndless = 10
)

// Linear counts what became of the reads that asked for the latest.
type Linear struct {
	// Stretches searched, and the operations in them.
	Stretches  int64 `json:"stretches"`
	Operations int64 `json:"operations"`
	Reads      int64 `json:"reads"`
	// Unknown reads were not judged: their stretch was too long, or time was up.
	Unknown int64 `json:"unknown"`
}

// stretch is what happens to one row from a quiet moment on.
type stretch struct {
	begin state // what the row was
	ops   []operation
	open  map[int64]int // operation -> index in ops; -1: dropped
	reads int64
	long  bool // too long: dropped, until it is quiet again
}

// state of a row: the sum of a counter, or the value and rank of a register.
type state struct {
	sum   int64
	value Text
}

// operation is a write, or a read with its answer.
type operation struct {
	id        int64
	at, until time.Duration
	write     *Effect // nil: a read
	bad       bool    // a read of something that is no value: an illegal step
	is        state
	drop      bool // a read that failed, a write that never was
}

func newLinearizer(o CheckOptions, violate func(Rule, time.Duration, int64, string, ...any)) linearizer {
	return linearizer{o: o, violate: violate, left: o.LinearTime, rows: make(map[*row]*stretch)}
}

// call begins an operation: a write, or with nil a read.
func (l *linearizer) call(r *row, id int64, f *Effect, at time.Duration) {
	s := l.rows[r]
	if s == nil {
		s = &stretch{open: make(map[int64]int)}
		l.rows[r] = s
	}
	if f == nil {
		s.reads++
		l.sum.Reads++
	}
	if s.long {
		s.open[id] = -1
		return
	}
	s.open[id] = len(s.ops)
	s.ops = append(s.ops, operation{id: id, at: at, until: -1, write: f})
	if len(s.ops) > l.o.LinearOps {
		s.long, s.ops = true, nil
		for id := range s.open {
			s.open[id] = -1
		}
	}
}

// answer ends a read.
func (l *linearizer) answer(r *row, id int64, a *Answer, at time.Duration) {
	s := l.rows[r]
	if i := s.open[id]; i >= 0 {
		op := &s.ops[i]
		op.is.value = a.Value
		if !a.Found {
			op.is.value = ""
		}
		if r.model == Counter && a.Found {
			n, err := strconv.ParseInt(string(a.Value), 10, 64)
			op.bad, op.is = err != nil, state{sum: n}
		}
	}
	l.close(r, s, id, at)
}

// end ends a write, or a read that failed.
func (l *linearizer) end(r *row, id int64, how Kind, at time.Duration) {
	s := l.rows[r]
	i := s.open[id]
	if how == KindUnknown {
		return // under way for ever: it is never quiet again
	}
	if i >= 0 && how != KindAcked {
		s.ops[i].drop = true
	}
	l.close(r, s, id, at)
}

func (l *linearizer) close(r *row, s *stretch, id int64, at time.Duration) {
	if i := s.open[id]; i >= 0 {
		s.ops[i].until = at
	}
	delete(s.open, id)
	if len(s.open) == 0 {
		l.quiet(r, s, at)
	}
}

// quiet searches a stretch that is over and begins the next one.
func (l *linearizer) quiet(r *row, s *stretch, at time.Duration) {
	l.search(r, s, at)
	s.begin = state{sum: r.sure, value: r.last}
	s.ops, s.reads, s.long = s.ops[:0], 0, false
}

// finish searches what was under way when the history ended.
func (l *linearizer) finish(at time.Duration) {
	for r, s := range l.rows {
		l.search(r, s, at)
	}
}

func (l *linearizer) search(r *row, s *stretch, at time.Duration) {
	if s.reads == 0 {
		return
	}
	if s.long || r.split || l.left <= 0 {
		l.sum.Unknown += s.reads
		return
	}
	ops, endless := s.told(r, at)
	if len(ops) == 0 {
		return
	}
	if endless > mostEndless {
		l.sum.Unknown += s.reads
		return
	}
	l.sum.Stretches++
	l.sum.Operations += int64(len(ops))
	began := time.Now()
	result := explain(r, s.begin, ops, min(l.left, mostSearch))
	l.left -= time.Since(began)
	switch result {
	case porcupine.Illegal:
		l.violate(RuleLinear, at, ops[0].id, "%s: %d operations from %s on have no order that explains them", r, len(ops), seconds(ops[0].at))
	case porcupine.Unknown:
		l.sum.Unknown += s.reads
	default:
	}
}

// told are the operations of a stretch that say something. A write without an end may come at any time up to the end of all;
// one of a register that no read shows can come last, where it explains and contradicts nothing. Endless counts the rest.
func (s *stretch) told(r *row, at time.Duration) (ops []*operation, endless int) {
	shown := make(map[Text]struct{})
	if r.model == Register {
		for i := range s.ops {
			if op := &s.ops[i]; op.write == nil && op.until >= 0 && !op.drop {
				shown[op.is.value] = struct{}{}
			}
		}
	}
	for i := range s.ops {
		op := &s.ops[i]
		if op.drop || op.write == nil && op.until < 0 {
			continue // without an answer a read says nothing
		}
		if op.until < 0 {
			if _, ok := shown[op.write.Set]; r.model == Register && !ok {
				continue
			}
			op.until = at + 1
			endless++
		}
		ops = append(ops, op)
	}
	return ops, endless
}

// explain looks for an order of the operations.
func explain(r *row, begin state, ops []*operation, limit time.Duration) porcupine.CheckResult {
	history := make([]porcupine.Operation, len(ops))
	for i, op := range ops {
		history[i] = porcupine.Operation{Input: op, Output: op, Call: int64(op.at), Return: int64(op.until)}
	}
	return porcupine.CheckOperationsTimeout(modelOf(r, begin), history, limit)
}

// modelOf is a row that begins as begin.
func modelOf(r *row, begin state) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return begin },
		Step: func(st, in, _ any) (bool, any) {
			now, op := st.(state), in.(*operation)
			switch {
			case op.write == nil:
				return !op.bad && op.is == now, now
			case r.model == Counter:
				return true, state{sum: now.sum + op.write.Add}
			default:
				return true, state{value: op.write.Set}
			}
		},
	}
}
