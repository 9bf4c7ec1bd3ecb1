package group

import (
	"errors"
	"math"
	"slices"

	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// The user data of this package starts with two bytes: the version that wrote it and the oldest that may read it. A
// later version only appends fields, so an older reader takes what it knows and passes over the rest; when that would
// be wrong, the second byte is raised, and an older reader gets ErrNewer. A leader writes assignments for the oldest
// version in the group.
const (
	version = 2
	oldest  = 1
	// versionCopies is the first with standbys, warm-ups, tags and hosts.
	versionCopies = 2
)

// AppendTo appends the wire form of m to dst.
func (m *Member) AppendTo(dst []byte) []byte {
	w := writer{b: append(dst, version, oldest)}
	w.text(m.ProcessID)
	w.text(m.Incarnation)
	w.text(m.Endpoint)
	w.text(m.Rack)
	w.text(m.TransactionalID)
	w.number(uint64(min(max(m.Thread, 0), math.MaxInt32)))
	w.number(uint64(min(max(m.Capacity, 0), math.MaxInt32)))
	w.number(uint64(max(m.Epoch, 0)))
	w.number(uint64(max(m.Last, 0)))
	for shift := 56; shift >= 0; shift -= 8 {
		w.b = append(w.b, byte(m.ShapeHash>>shift))
	}
	w.texts(m.Fencing)
	w.tasks(m.Incoming)
	w.held(m.Held)
	var flags byte
	if m.HeldPartial {
		flags |= flagHeldPartial
	}
	if m.Draining {
		flags |= flagDraining
	}
	w.b = append(w.b, flags)
	w.tasks(m.Standby)
	w.tasks(m.Warmup)
	w.tasks(m.Retained)
	w.tags(m.Tags)
	w.host(m.Host)
	return w.b
}

// DecodeMember reads what [Member.AppendTo] writes, also that of later versions as far as it is known. It never panics
// and never keeps b. The error is ErrMalformed or ErrNewer.
func DecodeMember(b []byte) (Member, error) {
	r, err := open(b)
	if err != nil {
		return Member{}, err
	}
	m := Member{
		ProcessID: r.text(), Incarnation: r.text(), Endpoint: r.text(), Rack: r.text(), TransactionalID: r.text(),
		Thread: r.small(math.MaxInt32, "thread"), Capacity: r.small(math.MaxInt32, "capacity"),
		Epoch: r.epoch(), Last: r.epoch(), ShapeHash: r.fixed64(),
		Fencing: r.texts(), Incoming: r.tasks(), Held: r.held(), Version: r.version,
	}
	if r.version >= versionCopies {
		flags := r.byte()
		m.HeldPartial, m.Draining = flags&flagHeldPartial != 0, flags&flagDraining != 0
		m.Standby, m.Warmup, m.Retained = r.tasks(), r.tasks(), r.tasks()
		m.Tags, m.Host = r.tags(), r.host()
	}
	if err := r.close(); err != nil {
		return Member{}, err
	}
	return m, nil
}

// AppendTo appends the wire form of a to dst.
func (a *Assignment) AppendTo(dst []byte) []byte {
	w := writer{b: append(dst, version, oldest)}
	w.number(uint64(max(a.Epoch, 0)))
	w.number(uint64(max(a.Tasks, 0)))
	w.number(uint64(max(a.HeldBudget, 0)))
	w.tasks(a.Active)
	w.tasks(a.Standby)
	w.releases(a.Releasing)
	w.tasks(a.Incoming)
	w.texts(a.Fence)
	problems := a.Problems[:min(len(a.Problems), maxTexts)]
	w.number(uint64(len(problems)))
	for _, p := range problems {
		w.b = append(w.b, byte(p.Kind))
		w.text(p.Detail)
	}
	var flags byte
	if a.Copies {
		flags |= flagCopies
	}
	if a.FollowUp {
		flags |= flagFollowUp
	}
	if a.Again {
		flags |= flagAgain
	}
	if a.Drains {
		flags |= flagDrains
	}
	w.b = append(w.b, flags)
	w.tasks(a.Warmup)
	w.tasks(a.Retained)
	w.tasks(subtract(a.Awaited, a.Warmup))
	w.number(uint64(max(a.ReadyLag, 0)))
	var keep []store.TaskID
	for _, rel := range a.Releasing {
		if rel.Keep {
			keep = append(keep, rel.Task)
		}
	}
	w.tasks(keep)
	return w.b
}

// Flags of a member and of an assignment. Unknown ones are passed over, so one can be added without a version; who must know
// whether it was understood needs another in the answer, as Draining has in Drains.
const (
	flagHeldPartial = 1 << 0
	flagDraining    = 1 << 1

	flagCopies   = 1 << 0
	flagFollowUp = 1 << 1
	flagAgain    = 1 << 2
	flagDrains   = 1 << 3
)

// DecodeAssignment reads what [Assignment.AppendTo] writes, with the promises of [DecodeMember].
func DecodeAssignment(b []byte) (Assignment, error) {
	r, err := open(b)
	if err != nil {
		return Assignment{}, err
	}
	a := Assignment{
		Epoch: r.epoch(), Tasks: r.small(math.MaxInt32, "tasks"), HeldBudget: r.small(math.MaxInt32, "budget"),
		Active: r.tasks(), Standby: r.tasks(), Releasing: r.releases(), Incoming: r.tasks(), Fence: r.texts(),
	}
	for range r.count(maxTexts, "problems") {
		a.Problems = append(a.Problems, Problem{Kind: ProblemKind(r.byte()), Detail: r.text()})
	}
	if r.version >= versionCopies {
		r.copies(&a)
	}
	if err := r.close(); err != nil {
		return Assignment{}, err
	}
	return a, nil
}

func open(b []byte) (*reader, error) {
	r := &reader{b: b}
	v, o := r.byte(), r.byte()
	switch {
	case r.err != nil:
		return nil, r.err
	case v == 0 || o == 0 || o > v:
		r.fail("version")
		return nil, r.err
	case o > version:
		return nil, ErrNewer
	}
	r.version, r.newer = int(v), v > version
	return r, nil
}

// close ends the reading. Only a newer version may have more to say.
func (r *reader) close() error {
	if r.err == nil && len(r.b) > 0 && !r.newer {
		r.fail("trailing bytes")
	}
	return r.err
}

// maxEpoch leaves room to count on from any epoch that is believed.
const maxEpoch = router.Epoch(1) << 62

func (r *reader) epoch() router.Epoch {
	e := router.Epoch(r.int64())
	if e > maxEpoch {
		r.fail("epoch")
		return 0
	}
	return e
}

// releases writes the processes that tasks go to, each with its tasks.
func (w *writer) releases(list []Release) {
	to := make(map[string][]store.TaskID)
	var names []string
	for _, rel := range list {
		if _, ok := to[rel.To]; !ok {
			names = append(names, rel.To)
		}
		to[rel.To] = append(to[rel.To], rel.Task)
	}
	slices.Sort(names)
	names = names[:min(len(names), maxTexts)]
	w.number(uint64(len(names)))
	for _, name := range names {
		w.text(name)
		w.tasks(to[name])
	}
}

func (r *reader) releases() []Release {
	var list []Release
	for range r.count(maxTexts, "releases") {
		to := r.text()
		for _, id := range r.tasks() {
			list = append(list, Release{Task: id, To: to})
		}
		if len(list) > maxTasks {
			r.fail("releases")
		}
		if r.err != nil {
			return nil
		}
	}
	slices.SortStableFunc(list, func(a, b Release) int { return a.Task.Compare(b.Task) })
	return list
}

// A copy is one number: 0 unknown, 1 active, 2 + n offset n. So no offset can be taken for a state (RB-10).
const heldOffsets = 2

func heldCode(h Held) uint64 {
	switch h.State {
	case HeldOffset:
		return heldOffsets + uint64(max(h.Offset, 0))
	case HeldActive:
		return 1
	default:
		return 0
	}
}

func (w *writer) held(list []Held) {
	best := make(map[store.TaskID]Held, len(list))
	ids := make([]store.TaskID, 0, len(list))
	for _, h := range list {
		have, ok := best[h.Task]
		if !ok {
			ids = append(ids, h.Task)
		}
		if !ok || h.Compare(have) > 0 {
			best[h.Task] = h
		}
	}
	ids = tidy(ids)
	w.groups(ids, func(from, to int) {
		w.number(uint64(to - from))
		next := int64(0)
		for _, id := range ids[from:to] {
			w.number(uint64(int64(id.Partition) - next))
			w.number(heldCode(best[id]))
			next = int64(id.Partition) + 1
		}
	})
}

func (r *reader) held() []Held {
	var list []Held
	r.groups(func(sub int32) {
		next := int64(0)
		for range r.count(maxTasks, "copies") {
			gap, code := r.int64(), r.number()
			if gap > math.MaxInt32-next || code > math.MaxInt64+heldOffsets || len(list) >= maxTasks {
				r.fail("copies")
			}
			if r.err != nil {
				return
			}
			h := Held{Task: store.TaskID{Subtopology: sub, Partition: store.Partition(next + gap)}}
			next += gap + 1
			switch code {
			case 0:
				h.State = HeldUnknown
			case 1:
				h.State = HeldActive
			default:
				h.State, h.Offset = HeldOffset, int64(code-heldOffsets)
			}
			list = append(list, h)
		}
	})
	if r.err != nil {
		return nil
	}
	return list
}

// errText is the sentinel of err, short enough for a peer's log.
func errText(err error) string {
	if errors.Is(err, ErrNewer) {
		return "written by a newer version"
	}
	return err.Error()
}
