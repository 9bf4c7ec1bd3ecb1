package history

import (
	"hash/maphash"
	"slices"
	"sort"
	"time"

	"github.com/statemesh/statemesh/store"
)

// place is one partition of an input topic.
type place struct {
	topic     string
	partition store.Partition
}

// sighting is a state of a row that an owner showed.
type sighting struct {
	epoch int64
	rank  int64
}

// row is what is known of one row. States of a row are ordered by *rank*: the value of a counter, 1 + the offset of what a
// register is set to; 0 is absent. A row only moves to higher ranks.
type row struct {
	id    rowID
	model Model
	keep  int

	// Of counters: the sum of what is under way, acknowledged, and of unknown outcome. What a row may hold is between
	// sure and sure+unknown+open.
	sure, unknown, open int64
	writing, unknowns   int // records under way, and of unknown outcome

	logs  map[place]*ladder // what acknowledged records make of the row, by offset
	split bool              // a register with records in two partitions: no order, no judgement
	last  Text              // of a register: what it was set to at the highest offset, top
	top   int64

	partition store.Partition // of the store, as answers say; -1: not known
	seen      stairs          // when which rank was known to be committed
	owner     sighting        // newest that an owner showed
	cuts      map[cutID]*stairs
	log       *Row
}

// cutID is one partition of one changelog.
type cutID struct {
	partition store.Partition
	topic     string
}

func newRow(id rowID, m Model, keep int) *row {
	return &row{id: id, model: m, keep: keep, logs: make(map[place]*ladder), cuts: make(map[cutID]*stairs), partition: -1}
}

func (r *row) String() string { return r.id.store + " " + quote(r.id.key) }

// acked notes what a record at offset o did.
func (r *row) acked(p place, o store.Offset, f *Effect) {
	r.sure += f.Add
	l := r.logs[p]
	if l == nil {
		l = &ladder{}
		r.logs[p] = l
		r.split = r.split || r.model == Register && len(r.logs) > 1
	}
	add := f.Add
	if r.model == Register {
		add = 0
		if int64(o) >= r.top {
			r.last, r.top = f.Set, int64(o)
		}
	}
	l.put(int64(o), add, r.keep)
}

// least is the rank that a state has which has read its inputs up to pos; 0 when nothing follows from it.
func (r *row) least(pos store.Position) int64 {
	var sum int64
	for p, l := range r.logs {
		o, ok := pos[p.topic][p.partition]
		if !ok {
			continue
		}
		if i, ok := l.upTo(int64(o)); ok {
			sum += r.rankOf(l, i)
		}
	}
	return sum
}

// most is the greatest rank that a state can have which has read its inputs up to pos and no further; false when nothing
// follows from it.
func (r *row) most(pos store.Position) (int64, bool) {
	var sum int64
	for p, l := range r.logs {
		o, ok := pos[p.topic][p.partition]
		if !ok {
			return 0, false
		}
		if r.model == Register {
			return int64(o) + 1, true
		}
		i, ok := l.upTo(int64(o))
		if !ok {
			return 0, false
		}
		sum += r.rankOf(l, i)
	}
	return sum + r.open + r.unknown, len(r.logs) > 0
}

// rankOf is the rank that step i of a log gives; -1 is before the first.
func (r *row) rankOf(l *ladder, i int) int64 {
	switch {
	case i < 0:
		return l.base
	case r.model == Register:
		return l.steps[i].offset + 1
	default:
		return l.steps[i].sum
	}
}

// ladder is the sum of what records have added, by offset.
type ladder struct {
	steps []step
	// base is the sum of the steps that were forgotten, all below offset from.
	base, from int64
	cut        bool
}

type step struct{ offset, sum int64 }

func (l *ladder) put(o, add int64, keep int) {
	if l.cut && o < l.from {
		l.base += add // late, and of a time that is forgotten
		for i := range l.steps {
			l.steps[i].sum += add
		}
		return
	}
	i := len(l.steps)
	for i > 0 && l.steps[i-1].offset > o { // acknowledgements come nearly in order
		l.steps[i-1].sum += add
		i--
	}
	before := l.base
	if i > 0 {
		before = l.steps[i-1].sum
	}
	l.steps = slices.Insert(l.steps, i, step{o, before + add})
	if len(l.steps) > 2*keep {
		n := len(l.steps) - keep
		l.base, l.from, l.cut = l.steps[n-1].sum, l.steps[n].offset, true
		l.steps = append(l.steps[:0], l.steps[n:]...)
	}
}

// upTo is the last step at or below o, -1 for none; false when that is forgotten.
func (l *ladder) upTo(o int64) (int, bool) {
	i := sort.Search(len(l.steps), func(i int) bool { return l.steps[i].offset > o }) - 1
	return i, i >= 0 || !l.cut
}

// stairs are ranks by when, or at which place, they were known: both grow from step to step.
type stairs struct {
	steps []stair
}

type stair struct{ at, rank int64 }

// put notes that rank is known from at on.
func (s *stairs) put(at, rank int64, keep int) {
	i := sort.Search(len(s.steps), func(i int) bool { return s.steps[i].at > at })
	if i > 0 && s.steps[i-1].rank >= rank {
		return
	}
	j := i
	for j < len(s.steps) && s.steps[j].rank <= rank {
		j++
	}
	s.steps = slices.Replace(s.steps, i, j, stair{at, rank})
	if len(s.steps) > 2*keep {
		s.steps = append(s.steps[:0], s.steps[len(s.steps)-keep:]...)
	}
}

// by is the highest step known at at.
func (s *stairs) by(at int64) (stair, bool) {
	i := sort.Search(len(s.steps), func(i int) bool { return s.steps[i].at > at })
	if i == 0 {
		return stair{}, false
	}
	return s.steps[i-1], true
}

// values are what registers were set to. By hash: 8 bytes of each are enough, two that are equal by accident are not to be
// expected in the life of the universe.
type values struct {
	seed maphash.Seed
	rank map[uint64]int64 // rank, or one of the marks below
	// waiting are answers whose value is not acknowledged yet.
	waiting map[uint64][]waiting
}

const (
	valueOpen    = -1
	valueUnknown = -2
	valueRefused = -3
	valueForeign = -4 // nobody wrote it
)

type waiting struct {
	floors []floor
	said   *verdict
}

func newValues() values {
	return values{seed: maphash.MakeSeed(), rank: make(map[uint64]int64), waiting: make(map[uint64][]waiting)}
}

func (v *values) of(r *row, value Text) uint64 {
	return maphash.Comparable(v.seed, [3]string{r.id.store, string(r.id.key), string(value)})
}

// begin notes a value, false when the row had it before.
func (v *values) begin(r *row, value Text) bool {
	h := v.of(r, value)
	if _, ok := v.rank[h]; ok {
		return false
	}
	v.rank[h] = valueOpen
	return true
}

// acked returns the answers that waited.
func (v *values) acked(r *row, value Text, rank int64) []waiting {
	h := v.of(r, value)
	v.rank[h] = rank
	w := v.waiting[h]
	delete(v.waiting, h)
	return w
}

// end marks a value that has no place in the log, and returns the answers that waited for one.
func (v *values) end(r *row, value Text, mark int64) []waiting {
	if r.model != Register {
		return nil
	}
	return v.acked(r, value, mark)
}

// wait keeps an answer until its value has a place.
func (v *values) wait(r *row, value Text, w waiting) {
	h := v.of(r, value)
	v.waiting[h] = append(v.waiting[h], w)
}

// find is the rank or the mark of a value.
func (v *values) find(r *row, value Text) int64 {
	rank, ok := v.rank[v.of(r, value)]
	if !ok {
		return valueForeign
	}
	return rank
}

// sessions are what readers have seen.
type sessions struct {
	all map[string]*session
	n   int // ranks kept
}

type session struct {
	rows  map[*row]int64
	cuts  map[cutID]int64
	under int // reads under way
	mixed bool
	used  time.Duration
}

// maxSeen bounds the ranks of all sessions.
const maxSeen = 1 << 20

func newSessions() sessions { return sessions{all: make(map[string]*session)} }

// begin reports whether the read is the only one of its session under way. Reads side by side have no order.
func (s *sessions) begin(name string) bool {
	if name == "" {
		return false
	}
	x := s.all[name]
	if x == nil {
		x = &session{rows: make(map[*row]int64), cuts: make(map[cutID]int64)}
		s.all[name] = x
	}
	x.under++
	x.mixed = x.mixed || x.under > 1
	return x.under == 1
}

// end reports whether no read of the session began meanwhile.
func (s *sessions) end(name string) bool {
	if name == "" {
		return false
	}
	x := s.all[name]
	x.under--
	alone := !x.mixed
	if x.under == 0 {
		x.mixed = false
	}
	return alone
}

// saw notes what a session has seen of a row.
func (s *sessions) saw(name string, r *row, rank int64, now time.Duration) {
	x := s.all[name]
	have, ok := x.rows[r]
	if !ok {
		s.n++
	}
	x.used = now
	x.rows[r] = max(have, rank)
	if s.n > maxSeen {
		s.forget(name)
	}
}

// forget drops what the longest unused half of the other sessions have seen.
func (s *sessions) forget(but string) {
	var times []time.Duration
	for _, x := range s.all {
		times = append(times, x.used)
	}
	slices.Sort(times)
	middle := times[len(times)/2]
	for name, x := range s.all {
		if name == but || x.used > middle {
			continue
		}
		s.n -= len(x.rows)
		clear(x.rows)
		if x.under == 0 {
			delete(s.all, name)
		}
	}
}
