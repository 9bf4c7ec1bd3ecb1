package history

import (
	"fmt"
	"time"

	"github.com/statemesh/statemesh/store"
)

// Calm is the kind of times without a fault.
const Calm = "calm"

// The classes of reads, by what they insist on.
const (
	classActive  = "active"  // the owner's answer
	classBounded = "bounded" // an age
	classOther   = "other"   // neither
	classDirect  = "direct"  // the answer of one instance, which may be gone
)

// Impact is what faults of one kind did. Times are in milliseconds.
type Impact struct {
	// Fault is the kind; Calm for times without any.
	Fault string `json:"fault"`
	Times int    `json:"times"`
	// Reads by class: "active" insist on the owner, "bounded" on an age, "other" on neither, "direct" on one instance,
	// which may be the one that is broken; or the class that the reader gave them.
	Reads map[string]*Served `json:"reads"`
	// WorstAge is the oldest answer that was given.
	WorstAge float64 `json:"worst_age_ms"`
	// WritePause is the longest time in which acknowledged records were there and no answer showed any of them. It is known
	// only where answers have positions of written topics, and no finer than they come.
	WritePause float64 `json:"write_pause_ms"`
}

// Served is how reads fared.
type Served struct {
	Tried  int64 `json:"tried"`
	Failed int64 `json:"failed"`
	// Slowest is the longest time to an answer.
	Slowest float64 `json:"slowest_ms"`
	// Outage is the longest time in which reads of one partition were tried and none was answered: from the begin of the
	// first that was not, to the first answer, or to the end of the last that was not if nobody asked for a second after
	// it. A single read that waited counts.
	Outage float64 `json:"outage_ms"`
}

// Break is one fault of a history.
type Break struct {
	Kind   string        `json:"kind"`
	Target string        `json:"target,omitempty"`
	From   time.Duration `json:"from_ns"`
	// Until is when it was mended; the end of the history if it was not.
	Until time.Duration `json:"until_ns"`
}

// availability is what could be read when.
type availability struct {
	recovery time.Duration
	faults   []Break
	open     map[int64]int // fault under way -> index
	impacts  map[string]*Impact
	order    []string
	groups   map[group]*trying
	progress map[place]*progress
	timeline timeline
}

// group is what fails and recovers together.
type group struct {
	store     string
	partition store.Partition
	class     string
}

// trying is a group of reads without an answer since from, the last of which ended at last. from is -1 behind an answer.
type trying struct{ from, last time.Duration }

// unasked is how long nobody may have asked for an outage to go on.
const unasked = time.Second

// progress is how far answers show that an input was read.
type progress struct {
	shown   store.Offset
	moved   time.Duration
	waiting []ack // acknowledged and not shown, by offset as they came
}

type ack struct {
	offset store.Offset
	at     time.Duration
}

func newAvailability(recovery time.Duration) availability {
	return availability{
		recovery: recovery,
		open:     make(map[int64]int),
		impacts:  make(map[string]*Impact),
		groups:   make(map[group]*trying),
		progress: make(map[place]*progress),
		timeline: newTimeline(),
	}
}

func (v *availability) fault(id int64, f *Fault, at time.Duration) {
	v.open[id] = len(v.faults)
	v.faults = append(v.faults, Break{Kind: f.Kind, Target: f.Target, From: at, Until: -1})
	v.impact(f.Kind).Times++
}

func (v *availability) mended(id int64, at time.Duration) error {
	i, ok := v.open[id]
	if !ok {
		return fmt.Errorf("%w: fault %d is mended and was not there", ErrFormat, id)
	}
	delete(v.open, id)
	v.faults[i].Until = at
	return nil
}

func (v *availability) impact(kind string) *Impact {
	m := v.impacts[kind]
	if m == nil {
		m = &Impact{Fault: kind, Reads: make(map[string]*Served)}
		v.impacts[kind] = m
		v.order = append(v.order, kind)
	}
	return m
}

// during is the impact of the newest fault that was under way when a span of time began; else of the newest that can have to
// do with it.
func (v *availability) during(from, until time.Duration) *Impact {
	for i := len(v.faults) - 1; i >= 0; i-- {
		f := &v.faults[i]
		if f.From <= from && (f.Until < 0 || f.Until >= from) {
			return v.impact(f.Kind)
		}
	}
	for i := len(v.faults) - 1; i >= 0; i-- {
		f := &v.faults[i]
		if f.From <= until && (f.Until < 0 || f.Until+v.recovery >= from) {
			return v.impact(f.Kind)
		}
	}
	return v.impact(Calm)
}

func (m *Impact) class(name string) *Served {
	s := m.Reads[name]
	if s == nil {
		s = &Served{}
		m.Reads[name] = s
	}
	return s
}

func classOf(q *Read) string {
	switch {
	case q.Class != "":
		return q.Class
	case q.Via != "":
		return classDirect
	case q.Active:
		return classActive
	case q.Bound > 0:
		return classBounded
	default:
		return classOther
	}
}

func (v *availability) trying(op *readOp, p store.Partition) *trying {
	g := group{op.q.Store, p, classOf(op.q)}
	t := v.groups[g]
	if t == nil {
		t = &trying{from: -1}
		v.groups[g] = t
	}
	return t
}

func (v *availability) failed(op *readOp, p store.Partition, at time.Duration) {
	t := v.trying(op, p)
	if t.from < 0 || op.at < t.from || op.at-t.last > unasked {
		t.from = op.at
	}
	t.last = at
	m := v.during(t.from, at)
	s := m.class(classOf(op.q))
	s.Tried++
	s.Failed++
	v.timeline.failed(at, op.q)
	s.Outage = max(s.Outage, ms(at-t.from))
}

func (v *availability) answered(op *readOp, p store.Partition, a *Answer, at time.Duration) {
	t := v.trying(op, p)
	from := op.at
	if t.from >= 0 && op.at-t.last <= unasked {
		from = min(from, t.from)
	}
	t.from = -1
	m := v.during(from, at)
	s := m.class(classOf(op.q))
	s.Tried++
	s.Slowest = max(s.Slowest, ms(at-op.at))
	s.Outage = max(s.Outage, ms(at-from))
	m.WorstAge = max(m.WorstAge, ms(a.Age))
	v.timeline.answered(at, op.q, a.Age)
	for topic, parts := range a.Position {
		for part, o := range parts {
			v.shown(place{topic, part}, o, at)
		}
	}
}

// maxAcks bounds what is remembered of acknowledgements that no answer shows.
const maxAcks = 1 << 14

func (v *availability) acked(p place, o store.Offset, at time.Duration) {
	v.timeline.write(at)
	g := v.progress[p]
	if g == nil {
		g = &progress{shown: -1}
		v.progress[p] = g
	}
	if o > g.shown && len(g.waiting) < maxAcks {
		g.waiting = append(g.waiting, ack{o, at})
	}
}

// shown notes that an answer's state has read p up to o.
func (v *availability) shown(p place, o store.Offset, at time.Duration) {
	g := v.progress[p]
	if g == nil || o <= g.shown {
		return
	}
	since := g.moved
	n := 0
	for n < len(g.waiting) && g.waiting[n].offset <= o {
		n++
	}
	if n > 0 {
		since = max(since, g.waiting[0].at)
		m := v.during(since, at)
		m.WritePause = max(m.WritePause, ms(at-since))
	}
	g.waiting = append(g.waiting[:0], g.waiting[n:]...)
	g.shown, g.moved = o, at
}

// fill puts the figures into a report.
func (v *availability) fill(r *Report, end time.Duration) {
	for i := range v.faults {
		if v.faults[i].Until < 0 {
			v.faults[i].Until = end
		}
	}
	r.Faults = v.faults
	for _, kind := range v.order {
		r.Impacts = append(r.Impacts, v.impacts[kind])
	}
	r.Timeline = v.timeline.points(end)
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
