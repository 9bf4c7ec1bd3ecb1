package history

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/statemesh/statemesh/store"
)

// bug is one thing that a fleet does wrong.
type bug int

const (
	sound bug = iota
	lostWrite
	doubleCount
	uncommittedShown
	boundIgnored
	ageOfWrongRound
	zombieIsFresh
	tokenIgnored
	absentWhenNotReady
	cacheForgetsAge
	answerOfOtherKey
	standbyShowsAborted
	atLeastIgnored
	positionAhead
	scanDropsRow
	cacheForActive
	commitLostInMove
	latestFromOldCopy
	standbyNotExact
	refusedApplied
	ackedNotWritten
	tokenTooHigh
	bugs
)

func (b bug) String() string {
	return [...]string{
		"sound", "lost write", "double count", "uncommitted shown", "bound ignored", "age of the wrong round", "zombie is fresh",
		"token ignored", "absent when not ready", "cache forgets age", "answer of other key", "standby shows aborted",
		"at least ignored", "position ahead", "scan drops row", "cache for active", "commit lost in move", "latest from old copy",
		"standby not exact", "refused applied", "acked not written", "token too high",
	}[b]
}

// The size of a model fleet.
const (
	modelParts   = 2
	modelKeys    = 5
	modelCopies  = 3 // of each partition; one of them is the owner's
	modelReaders = 5
	modelPending = 4 // writes under way
)

// fleet is a mesh in a few lines: an input log, owners that process and commit, copies that follow, caches, readers with
// sessions, in one random order of steps. What it records is right, unless it has a bug.
type fleet struct {
	rng  *rand.Rand
	bug  bug
	luck int // of so many writes one has an unknown outcome
	now  time.Duration
	ids  int64
	out  func(Event)

	parts   [modelParts]*part
	readers []*reader
	pending []*record
	// What everybody who asks for the latest knows: acknowledged offsets, and the furthest cut shown.
	acked [modelParts]int64
	cuts  [modelParts]int64
}

// record is a write on its way.
type record struct {
	id      int64
	key     int
	part    int
	offset  int64 // -1: not in the log
	outcome Kind  // what it will end as
	ended   bool
}

// part is one partition: its log, and its committed states.
type part struct {
	log     []*record
	commits []*version
	owner   int // copy
	epoch   int64
	overlay map[int]row2 // of the owner, beyond the last commit
	read    int64        // next offset to process
	copies  [modelCopies]*replica
	cache   map[int]*seen
}

// version is one commit.
type version struct {
	rows map[int]row2
	pos  int64 // last offset in it; -1: none
	next int64 // cut in the changelog
}

// row2 is both rows of a key: its count, and its name.
type row2 struct {
	count int64
	name  string
}

// replica is a copy of a partition.
type replica struct {
	at     int           // index of the commit that it has
	t0     time.Duration // it had all that was committed by then
	zombie bool          // was the owner, and does not know better
	epoch  int64
}

// seen is a reading.
type seen struct {
	v     *version
	rows  map[int]row2
	t0    time.Duration
	role  string
	epoch int64
	pos   int64
	next  int64
	copy  int
}

type reader struct {
	session string
	cuts    [modelParts]int64
	op      int64 // under way; 0: none
	q       Read
	part    int
	key     int
	got     []*seen // by partition for a scan
	least   int64   // offset asked for, -1: none
	want    [modelParts]int64
}

func newFleet(seed uint64, b bug, out func(Event)) *fleet {
	f := &fleet{rng: rand.New(rand.NewPCG(seed, 7)), bug: b, out: out}
	f.luck = 10 << f.rng.IntN(6)
	out(Event{Kind: KindHeader, Header: &Header{Version: Version, Seed: seed}})
	out(Event{Kind: KindStore, Store: &Store{Name: "counts", Model: Counter}})
	out(Event{Kind: KindStore, Store: &Store{Name: "names", Model: Register}})
	for i := range f.parts {
		p := &part{overlay: map[int]row2{}, epoch: 1, cache: map[int]*seen{}, commits: []*version{{rows: map[int]row2{}, pos: -1}}}
		for c := range p.copies {
			p.copies[c] = &replica{epoch: 1}
		}
		f.parts[i], f.acked[i] = p, -1
	}
	for i := range modelReaders {
		r := &reader{}
		if i%2 == 0 {
			r.session = fmt.Sprint("s", i)
		}
		f.readers = append(f.readers, r)
	}
	return f
}

func (f *fleet) say(e Event) {
	e.At = f.now
	f.out(e)
}

func (f *fleet) id() int64 {
	f.ids++
	return f.ids
}

// run takes steps, comes to rest and shows what is there.
func (f *fleet) run(steps int) {
	for range steps {
		f.now += time.Duration(1+f.rng.IntN(900)) * time.Microsecond
		f.step()
	}
	for _, w := range f.pending {
		f.now++
		f.append(w)
		f.end(w)
	}
	for i, p := range f.parts {
		f.process(p, len(p.log))
		f.commit(p)
		last := p.commits[len(p.commits)-1]
		for k := range modelKeys {
			if k%modelParts == i {
				r := last.rows[k]
				f.say(Event{Kind: KindFinal, Row: &Row{Store: "counts", Key: keyText(k), Found: r.count > 0, Value: countText(r.count)}})
				f.say(Event{Kind: KindFinal, Row: &Row{Store: "names", Key: keyText(k), Found: r.name != "", Value: Text(r.name)}})
			}
		}
	}
	f.say(Event{Kind: KindEnd})
}

func keyText(k int) Text { return Text(fmt.Sprint("k", k)) }

func countText(n int64) Text { return Text(strconv.FormatInt(n, 10)) }

func (f *fleet) step() {
	p := f.parts[f.rng.IntN(modelParts)]
	switch n := f.rng.IntN(100); {
	case n < 14:
		f.write()
	case n < 30 && len(f.pending) > 0:
		w := f.pending[f.rng.IntN(len(f.pending))]
		if w.offset < 0 && !w.ended {
			f.append(w)
		} else {
			f.end(w)
		}
	case n < 42:
		f.process(p, int(p.read)+1+f.rng.IntN(3))
	case n < 52:
		if f.rng.IntN(5) == 0 {
			f.abort(p)
		} else {
			f.commit(p)
		}
	case n < 60:
		f.follow(p)
	case n < 62:
		f.move(p)
	default:
		f.serve(f.readers[f.rng.IntN(len(f.readers))])
	}
}

func (f *fleet) write() {
	if len(f.pending) > modelPending {
		return
	}
	w := &record{id: f.id(), key: f.rng.IntN(modelKeys), offset: -1, outcome: KindAcked}
	w.part = w.key % modelParts
	switch f.rng.IntN(f.luck) {
	case 0:
		w.outcome = KindUnknown
	case 1, 2, 3:
		w.outcome = KindRefused
	}
	f.say(Event{Kind: KindWrite, ID: w.id, Write: &Write{Topic: "in", Effects: []Effect{
		{Store: "counts", Key: keyText(w.key), Add: 1}, {Store: "names", Key: keyText(w.key), Set: nameOf(w)},
	}}})
	f.pending = append(f.pending, w)
}

func nameOf(w *record) Text { return Text(fmt.Sprint("n", w.id)) }

// append puts a record into the log, if that is to be.
func (f *fleet) append(w *record) {
	if w.offset >= 0 || w.outcome == KindUnknown && f.rng.IntN(2) == 0 || w.outcome == KindRefused && f.bug != refusedApplied {
		f.end(w)
		return
	}
	p := f.parts[w.part]
	w.offset = int64(len(p.log))
	if f.bug == ackedNotWritten && f.rng.IntN(15) == 0 {
		p.log = append(p.log, nil)
		return
	}
	p.log = append(p.log, w)
}

// end tells the outcome of a record.
func (f *fleet) end(w *record) {
	if w.ended || w.outcome == KindAcked && w.offset < 0 {
		return
	}
	w.ended = true
	e := Event{Kind: w.outcome, ID: w.id}
	if w.outcome == KindAcked {
		e.Place = &Place{Partition: store.Partition(w.part), Offset: store.Offset(w.offset)}
		f.acked[w.part] = max(f.acked[w.part], w.offset)
	}
	f.say(e)
	f.pending = slices.DeleteFunc(slices.Clone(f.pending), func(o *record) bool { return o == w })
}

// process lets the owner read up to an offset.
func (f *fleet) process(p *part, until int) {
	last := p.commits[len(p.commits)-1]
	for ; int(p.read) < min(until, len(p.log)); p.read++ {
		w := p.log[p.read]
		if w == nil || f.bug == lostWrite && f.rng.IntN(20) == 0 {
			continue
		}
		r, ok := p.overlay[w.key]
		if !ok {
			r = last.rows[w.key]
		}
		p.overlay[w.key] = row2{count: r.count + 1, name: string(nameOf(w))}
	}
}

func (f *fleet) commit(p *part) {
	last := p.commits[len(p.commits)-1]
	if p.read == last.pos+1 {
		return
	}
	rows := maps.Clone(last.rows)
	maps.Copy(rows, p.overlay)
	v := &version{rows: rows, pos: p.read - 1, next: last.next + int64(len(p.overlay)) + 1}
	p.commits, p.overlay = append(p.commits, v), map[int]row2{}
	own := p.copies[p.owner]
	own.at, own.t0 = len(p.commits)-1, f.now
}

func (f *fleet) abort(p *part) {
	if f.bug == standbyShowsAborted && len(p.overlay) > 0 {
		c := p.copies[(p.owner+1)%modelCopies]
		p.cache[-1-c.at] = &seen{rows: maps.Clone(p.overlay)} // what a follower has read that it should not have
	}
	p.overlay, p.read = map[int]row2{}, p.commits[len(p.commits)-1].pos+1
}

// follow lets a copy learn of commits, or the owner that it still is one.
func (f *fleet) follow(p *part) {
	i := f.rng.IntN(modelCopies)
	c := p.copies[i]
	newest := len(p.commits) - 1
	switch {
	case i == p.owner:
		c.t0 = f.now
	case c.zombie: // asks, and learns that it has been replaced
		c.zombie, c.epoch = false, p.epoch
	case f.rng.IntN(3) == 0: // part of the way: what it has is no younger than it was
		if c.at < newest {
			c.at++
			if f.bug == ageOfWrongRound {
				c.t0 = f.now
			}
		}
	default:
		c.at, c.t0, c.epoch = newest, f.now, p.epoch
	}
}

// move makes another copy the owner. The old one may not know for a while.
func (f *fleet) move(p *part) {
	f.abort(p)
	f.say(Event{Kind: KindFault, ID: f.id(), Fault: &Fault{Kind: "move"}})
	p.copies[p.owner].zombie = true
	p.owner = (p.owner + 1 + f.rng.IntN(modelCopies-1)) % modelCopies
	p.epoch++
	if f.bug == commitLostInMove && len(p.commits) > 2 {
		p.commits = p.commits[:len(p.commits)-1]
		for _, c := range p.copies {
			c.at = min(c.at, len(p.commits)-1)
		}
		p.read = p.commits[len(p.commits)-1].pos + 1
		if f.rng.IntN(2) == 0 {
			p.read++ // the offsets had been committed
		}
	}
	if f.bug == doubleCount && p.read > 0 {
		p.read--
		p.commits[len(p.commits)-1].pos--
	}
	*p.copies[p.owner] = replica{at: len(p.commits) - 1, t0: f.now, epoch: p.epoch}
	f.say(Event{Kind: KindMended, ID: f.ids})
}

// serve takes one step of a reader: it asks, a copy reads, the answer arrives.
func (f *fleet) serve(r *reader) {
	switch {
	case r.op == 0:
		f.ask(r)
	case r.got == nil:
		f.look(r)
	default:
		f.answer(r)
	}
}

func (f *fleet) ask(r *reader) {
	r.key = f.rng.IntN(modelKeys)
	r.part = r.key % modelParts
	r.op, r.got, r.least = f.id(), nil, -1
	r.q = Read{Store: "counts", Key: keyText(r.key), Session: r.session}
	if f.rng.IntN(2) == 0 {
		r.q.Store = "names"
	}
	switch f.rng.IntN(4) {
	case 0:
		r.q.Active = true
	case 1, 2:
		r.q.Bound = time.Duration(1+f.rng.IntN(40)) * time.Millisecond
	}
	r.want = r.cuts
	switch n := f.rng.IntN(10); {
	case n == 0:
		r.q.Scan, r.q.Key = true, ""
	case n < 4 && f.acked[r.part] >= 0:
		r.q.Latest = true
		r.least = f.acked[r.part]
		for i := range r.want {
			r.want[i] = max(r.want[i], f.cuts[i])
		}
	case n < 6 && f.acked[r.part] >= 0:
		r.least = f.rng.Int64N(f.acked[r.part] + 1)
		r.q.AtLeast = &Mark{Inputs: store.Position{"in": {store.Partition(r.part): store.Offset(r.least)}}}
	case n == 6:
		r.q.Uncommitted = true
	}
	q := r.q
	f.say(Event{Kind: KindRead, ID: r.op, Read: &q})
}

// look reads at some copy of each partition that is asked for.
func (f *fleet) look(r *reader) {
	for i := range f.parts {
		if !r.q.Scan && i != r.part {
			continue
		}
		s := f.reading(r, i)
		if s == nil {
			if f.rng.IntN(4) == 0 {
				f.say(Event{Kind: KindFailed, ID: r.op, Reason: "no replica"})
				r.op = 0
			}
			r.got = nil
			return
		}
		r.got = append(r.got, s)
	}
}

// reading is what one copy shows, nil when it may not answer.
func (f *fleet) reading(r *reader, i int) *seen {
	p := f.parts[i]
	if s := f.cached(r, i); s != nil {
		return s
	}
	n := f.rng.IntN(modelCopies)
	c := p.copies[n]
	v := p.commits[c.at]
	s := &seen{v: v, rows: v.rows, t0: c.t0, role: "STANDBY", epoch: c.epoch, pos: v.pos, next: v.next, copy: n}
	if n == p.owner || c.zombie {
		s.role = "ACTIVE"
	}
	if f.bug == zombieIsFresh && c.zombie {
		s.t0 = f.now
	}
	own := n == p.owner
	if r.q.Active && s.role != "ACTIVE" || r.q.Uncommitted && !own {
		return nil
	}
	if f.bug == absentWhenNotReady && s.role == "STANDBY" && f.rng.IntN(8) == 0 {
		return &seen{v: v, rows: map[int]row2{}, t0: f.now, role: s.role, epoch: s.epoch, pos: -1, next: v.next}
	}
	if f.bug == tokenTooHigh {
		s.next = p.commits[len(p.commits)-1].next
	}
	latest := f.bug == latestFromOldCopy && r.q.Latest
	if s.next < r.want[i] && f.bug != tokenIgnored && !latest {
		return nil
	}
	if i == r.part && v.pos < r.least && f.bug != atLeastIgnored && !latest {
		return nil
	}
	if own && (r.q.Uncommitted || f.bug == uncommittedShown) {
		s.rows = maps.Clone(v.rows)
		maps.Copy(s.rows, p.overlay)
	}
	if f.bug == positionAhead && own {
		s.pos = p.read - 1
	}
	if bad := p.cache[-1-c.at]; bad != nil && s.role == "STANDBY" {
		s.rows = maps.Clone(v.rows)
		maps.Copy(s.rows, bad.rows)
	}
	if f.bug == standbyNotExact && s.role == "STANDBY" && c.at > 0 && f.rng.IntN(3) == 0 {
		s.rows = maps.Clone(v.rows)
		old := p.commits[c.at-1-f.rng.IntN(c.at)]
		if o, ok := old.rows[r.key]; ok {
			s.rows[r.key] = o
		}
	}
	if !r.q.Scan && !r.q.Uncommitted {
		p.cache[r.key] = s
	}
	return s
}

// cached is an answer out of a cache, nil when there is none that may serve.
func (f *fleet) cached(r *reader, i int) *seen {
	s := f.parts[i].cache[r.key]
	if s == nil || r.q.Scan || r.q.Uncommitted || f.rng.IntN(2) == 0 || r.q.Active && f.bug != cacheForActive {
		return nil
	}
	if s.next < r.want[i] || s.pos < r.least || r.q.Bound > 0 && f.now-s.t0 > r.q.Bound {
		return nil
	}
	c := *s
	c.role = "CACHE"
	if f.bug == cacheForgetsAge {
		c.t0 = f.now
	}
	return &c
}

func (f *fleet) answer(r *reader) {
	a := &Answer{Position: store.Position{}, Cuts: map[store.Partition]Cut{}}
	for j, s := range r.got {
		i := r.part
		if r.q.Scan {
			i = j
		}
		a.Age = max(a.Age, f.now-s.t0)
		a.Role, a.Epoch, a.Instance = s.role, s.epoch, fmt.Sprint("copy ", s.copy)
		a.Position["in"] = map[store.Partition]store.Offset{store.Partition(i): store.Offset(s.pos)}
		a.Cuts[store.Partition(i)] = Cut{Topic: "c", Next: store.Offset(s.next)}
		if !r.q.Scan {
			part := store.Partition(i)
			a.Partition = &part
			key := r.key
			if f.bug == answerOfOtherKey && f.rng.IntN(10) == 0 {
				key = (key + modelParts) % modelKeys
			}
			a.Found, a.Value = valueOf(r.q.Store, s.rows[key])
			continue
		}
		for k := range modelKeys {
			row := s.rows[k]
			if found, v := valueOf(r.q.Store, row); found && (f.bug != scanDropsRow || f.rng.IntN(15) > 0) {
				a.Rows = append(a.Rows, Pair{keyText(k), v})
			}
		}
	}
	if r.q.Scan {
		a.Role, a.Epoch, a.Position, a.Cuts = "", 0, nil, nil
	}
	op := r.op
	r.op = 0
	if r.q.Bound > 0 && a.Age > r.q.Bound && f.bug != boundIgnored {
		f.say(Event{Kind: KindFailed, ID: op, Reason: "too old"})
		r.got = nil
		return
	}
	for j, s := range r.got {
		i := r.part
		if r.q.Scan {
			i = j
		}
		r.cuts[i] = max(r.cuts[i], s.next)
		if r.q.Latest {
			f.cuts[i] = max(f.cuts[i], s.next)
		}
	}
	r.got = nil
	f.say(Event{Kind: KindAnswered, ID: op, Answer: a})
}

func valueOf(name string, r row2) (bool, Text) {
	if name == "names" {
		return r.name != "", Text(r.name)
	}
	return r.count > 0, countText(r.count)
}
