package history

import (
	"cmp"
	"fmt"
	"iter"
	"time"

	"github.com/statemesh/statemesh/store"
)

// CheckOptions bound the work of a judgement. Zero means the default.
type CheckOptions struct {
	// Keep is how many steps are remembered of what was seen of a row. Default 1024: enough to look back a minute at a row
	// that changes 17 times a second. What is forgotten is not held against answers that speak of so long ago.
	Keep int
	// LinearTime is what all searches for linear orders together may take, by the clock. Default 1 minute. Negative: none
	// is made, and every read that asked for the latest is reported as not judged.
	LinearTime time.Duration
	// LinearOps is the longest stretch of a row without a quiet moment that is searched, in operations. Default 400.
	LinearOps int
	// Recovery is how long after a fault has been mended what goes wrong is still put down to it. Default 10s.
	Recovery time.Duration
	// Violations is how many are described; all are counted. Default 100.
	Violations int
}

func (o CheckOptions) withDefaults() CheckOptions {
	o.Keep = cmp.Or(o.Keep, 1024)
	o.LinearTime = cmp.Or(o.LinearTime, time.Minute)
	o.LinearOps = cmp.Or(o.LinearOps, 400)
	o.Recovery = cmp.Or(o.Recovery, 10*time.Second)
	o.Violations = cmp.Or(o.Violations, 100)
	return o
}

// Check judges a history. The error says that it cannot be judged; violations are in the report.
func Check(events iter.Seq2[Event, error], o CheckOptions) (*Report, error) {
	c := NewChecker(o)
	for e, err := range events {
		if err != nil {
			return nil, err
		}
		if err := c.Add(e); err != nil {
			return nil, err
		}
	}
	return c.Report(), nil
}

// Checker judges a history as it comes. Not safe for concurrent use.
type Checker struct {
	o      CheckOptions
	report Report
	now    time.Duration
	lastID int64

	models   map[string]Model
	rows     map[rowID]*row
	byStore  map[string][]*row
	writes   map[int64]*writeOp // under way
	reads    map[int64]*readOp  // under way
	sessions sessions
	values   values // of registers

	avail  availability
	linear linearizer
	finals []finalRow
	done   bool
}

type rowID struct {
	store string
	key   Text
}

type writeOp struct {
	w  *Write
	at time.Duration
}

type readOp struct {
	id    int64
	q     *Read
	at    time.Duration
	known sighting // of the owner, when the read began: see RuleEpoch
	alone bool     // the only one of its session so far
}

type finalRow struct {
	row *row
	is  *Row
}

// NewChecker returns one that has seen nothing.
func NewChecker(o CheckOptions) *Checker {
	o = o.withDefaults()
	c := &Checker{
		o:       o,
		models:  make(map[string]Model),
		rows:    make(map[rowID]*row),
		byStore: make(map[string][]*row),
		writes:  make(map[int64]*writeOp),
		reads:   make(map[int64]*readOp),
	}
	c.report = newReport(o.Violations)
	c.sessions = newSessions()
	c.values = newValues()
	c.avail = newAvailability(o.Recovery)
	c.linear = newLinearizer(o, c.violate)
	return c
}

// Add judges the next event.
func (c *Checker) Add(e Event) error {
	if c.done {
		return fmt.Errorf("%w: an event behind the report", ErrFormat)
	}
	if e.At < c.now {
		return fmt.Errorf("%w: %s at %s comes after %s", ErrFormat, e.Kind, e.At, c.now)
	}
	c.now = e.At
	c.report.Events++
	switch e.Kind {
	case KindHeader:
		c.report.Started, c.report.Seed, c.report.Note = e.Header.Started, e.Header.Seed, e.Header.Note
	case KindStore:
		if have, ok := c.models[e.Store.Name]; ok && have != e.Store.Model {
			return fmt.Errorf("%w: store %s is declared as %s and as %s", ErrFormat, e.Store.Name, have, e.Store.Model)
		}
		c.models[e.Store.Name] = e.Store.Model
	case KindWrite:
		return c.write(&e)
	case KindAcked, KindUnknown, KindRefused:
		return c.written(&e)
	case KindRead:
		return c.read(&e)
	case KindAnswered, KindFailed:
		return c.ended(&e)
	case KindFault:
		if err := c.begins(&e); err != nil {
			return err
		}
		c.avail.fault(e.ID, e.Fault, e.At)
	case KindMended:
		return c.avail.mended(e.ID, e.At)
	case KindFinal, KindLog:
		return c.rest(&e)
	case KindEnd:
		c.report.Ended = true
	}
	return nil
}

// Report ends the judgement. Call it once.
func (c *Checker) Report() *Report {
	c.done = true
	c.report.Writes.Unknown += int64(len(c.writes))
	c.report.Reads.Open = int64(len(c.reads))
	for _, op := range c.writes {
		for i := range op.w.Effects {
			f := &op.w.Effects[i]
			r := c.rows[rowID{f.Store, f.Key}]
			r.unknowns++
			r.unknown += f.Add
			r.open -= f.Add
		}
	}
	c.linear.finish(c.now)
	c.judgeRest()
	c.report.Length = c.now
	c.report.Rows = len(c.rows)
	c.report.Linear = c.linear.sum
	c.avail.fill(&c.report, c.now)
	c.report.close()
	return &c.report
}

// begins checks the id of what begins.
func (c *Checker) begins(e *Event) error {
	if e.ID <= c.lastID {
		return fmt.Errorf("%w: id %d comes after %d", ErrFormat, e.ID, c.lastID)
	}
	c.lastID = e.ID
	return nil
}

// rowOf finds or makes a row.
func (c *Checker) rowOf(name string, key Text) (*row, error) {
	id := rowID{name, key}
	if r := c.rows[id]; r != nil {
		return r, nil
	}
	m, ok := c.models[name]
	if !ok {
		return nil, fmt.Errorf("%w: store %s was not declared", ErrFormat, name)
	}
	r := newRow(id, m, c.o.Keep)
	c.rows[id] = r
	c.byStore[name] = append(c.byStore[name], r)
	return r, nil
}

func (c *Checker) write(e *Event) error {
	if err := c.begins(e); err != nil {
		return err
	}
	for i := range e.Write.Effects {
		f := &e.Write.Effects[i]
		r, err := c.rowOf(f.Store, f.Key)
		if err != nil {
			return err
		}
		switch {
		case r.model == Counter && f.Add < 1:
			return fmt.Errorf("%w: write %d adds %d to counter %s", ErrFormat, e.ID, f.Add, r)
		case r.model == Register && f.Add != 0:
			return fmt.Errorf("%w: write %d adds to register %s", ErrFormat, e.ID, r)
		case r.model == Register && !c.values.begin(r, f.Set):
			return fmt.Errorf("%w: write %d sets %s to a value that it had before", ErrFormat, e.ID, r)
		}
		r.open += f.Add
		r.writing++
		c.linear.call(r, e.ID, f, e.At)
	}
	c.report.Writes.Begun++
	c.writes[e.ID] = &writeOp{w: e.Write, at: e.At}
	return nil
}

func (c *Checker) written(e *Event) error {
	op := c.writes[e.ID]
	if op == nil {
		return fmt.Errorf("%w: %s of write %d, which is not under way", ErrFormat, e.Kind, e.ID)
	}
	delete(c.writes, e.ID)
	switch e.Kind {
	case KindAcked:
		c.report.Writes.Acked++
		c.avail.acked(place{op.w.Topic, e.Place.Partition}, e.Place.Offset, e.At)
	case KindUnknown:
		c.report.Writes.Unknown++
	default:
		c.report.Writes.Refused++
	}
	for i := range op.w.Effects {
		f := &op.w.Effects[i]
		r := c.rows[rowID{f.Store, f.Key}]
		r.writing--
		r.open -= f.Add
		switch e.Kind {
		case KindAcked:
			r.acked(place{op.w.Topic, e.Place.Partition}, e.Place.Offset, f)
			if r.model == Register {
				c.settleValue(r, f.Set, int64(e.Place.Offset)+1, e.At)
			}
		case KindUnknown:
			r.unknown += f.Add
			r.unknowns++
			c.values.end(r, f.Set, valueUnknown)
		default:
			for _, w := range c.values.end(r, f.Set, valueRefused) {
				c.refusedValue(r, w.said, f.Set)
			}
		}
		c.linear.end(r, e.ID, e.Kind, e.At)
	}
	return nil
}

// settleValue learns the rank of a value of a register, and judges the answers that had it before.
func (c *Checker) settleValue(r *row, value Text, rank int64, at time.Duration) {
	for _, w := range c.values.acked(r, value, rank) {
		c.hold(r, rank, w.floors, w.said)
		later := *w.said
		later.at = at // it is known from now on only
		c.learn(r, rank, &later)
	}
}

func (c *Checker) read(e *Event) error {
	if err := c.begins(e); err != nil {
		return err
	}
	q := e.Read
	op := &readOp{id: e.ID, q: q, at: e.At, alone: c.sessions.begin(q.Session)}
	if _, ok := c.models[q.Store]; !ok {
		return fmt.Errorf("%w: store %s was not declared", ErrFormat, q.Store)
	}
	if !q.Scan {
		r, err := c.rowOf(q.Store, q.Key)
		if err != nil {
			return err
		}
		op.known = r.owner
		if q.Latest {
			c.linear.call(r, e.ID, nil, e.At)
		}
	}
	c.report.Reads.Tried++
	c.reads[e.ID] = op
	return nil
}

func (c *Checker) ended(e *Event) error {
	op := c.reads[e.ID]
	if op == nil {
		return fmt.Errorf("%w: %s of read %d, which is not under way", ErrFormat, e.Kind, e.ID)
	}
	delete(c.reads, e.ID)
	r := c.rows[rowID{op.q.Store, op.q.Key}]
	var part store.Partition = -1
	if r != nil && !op.q.Scan {
		part = r.partition
	}
	alone := c.sessions.end(op.q.Session) && op.alone
	if e.Kind == KindFailed {
		c.report.Reads.Failed++
		c.report.Failures[e.Reason]++
		c.avail.failed(op, part, e.At)
		if op.q.Latest && !op.q.Scan {
			c.linear.end(r, e.ID, KindFailed, e.At)
		}
		return nil
	}
	a := e.Answer
	c.avail.answered(op, part, a, e.At)
	c.report.Reads.Answered++
	if op.q.Scan {
		return c.judgeScan(verdictOf(op, a, e.At, alone))
	}
	if !a.Found {
		c.report.Reads.Absent++
	}
	if a.Partition != nil {
		r.partition = *a.Partition
	}
	v := verdictOf(op, a, e.At, alone)
	c.judgeClaims(v)
	var value *Text
	if a.Found {
		value = &a.Value
	}
	c.judge(r, v, value)
	c.raise(v)
	if op.q.Latest {
		c.linear.answer(r, e.ID, a, e.At)
	}
	return nil
}

func (c *Checker) rest(e *Event) error {
	r, err := c.rowOf(e.Row.Store, e.Row.Key)
	if err != nil {
		return err
	}
	if e.Kind == KindLog {
		r.log = e.Row
		return nil
	}
	c.finals = append(c.finals, finalRow{r, e.Row})
	return nil
}
