package assignor

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/statemesh/statemesh/store"
)

// world is a fleet with disks and changelogs: what processes follow they catch up with, in time.
type world struct {
	rng   *rand.Rand
	shape Shape
	opts  Options
	kind  kind
	ends  map[store.TaskID]int64
	fleet []*machine
	next  int
	plan  Plan
}

// machine is one process.
type machine struct {
	name    string
	rack    string
	tags    map[string]string
	members []string
	each    int // capacity of a member
	disk    map[store.TaskID]int64
	owned   map[string][]store.TaskID // by member
	due     map[string][]store.TaskID // promised, by member
	copies  Copies
	serving map[store.TaskID]bool
	drains  bool
}

func newRandomWorld(rng *rand.Rand) *world {
	w := &world{rng: rng, kind: kind(rng.IntN(3)), ends: make(map[store.TaskID]int64)}
	w.shape = randomShape(rng, w.kind)
	w.opts = Options{Standbys: rng.IntN(3), MaxWarmups: 1 + rng.IntN(4), AcceptableLag: int64(rng.IntN(3) * 50)}
	if rng.IntN(3) == 0 {
		w.opts.RackAwareTags = []string{"zone", "cluster"}
	}
	for _, task := range w.shape.Tasks {
		if task.Stateful {
			w.ends[task.ID] = rng.Int64N(1000)
		}
	}
	return w
}

func (w *world) join() {
	m := &machine{
		name: fmt.Sprintf("p%02d", w.next), rack: fmt.Sprintf("r%d", w.rng.IntN(3)), each: 1,
		tags: map[string]string{"zone": fmt.Sprintf("z%d", w.rng.IntN(2)), "cluster": fmt.Sprintf("c%d", w.rng.IntN(3))},
		disk: make(map[store.TaskID]int64),
	}
	if w.kind == mixed {
		m.each = 1 + w.rng.IntN(3)
	}
	w.next++
	for i := range 1 + w.rng.IntN(3) {
		m.members = append(m.members, fmt.Sprintf("%s-%d", m.name, i))
	}
	w.start(m)
}

func (w *world) start(m *machine) {
	m.owned, m.due, m.serving, m.copies = make(map[string][]store.TaskID), make(map[string][]store.TaskID), make(map[store.TaskID]bool), Copies{}
	m.drains = false // it survives nothing
	w.fleet = append(w.fleet, m)
}

// report is what the members say when they join.
func (w *world) report() []Member {
	var ms []Member
	for _, m := range w.fleet {
		for i, id := range m.members {
			x := Member{ID: id, Process: m.name, Capacity: m.each, Owned: m.owned[id], Expected: m.due[id]}
			if i == 0 {
				x.Draining = m.drains
				x.Rack, x.Tags, x.Standby, x.Warmup, x.Retained = m.rack, m.tags, m.copies.Standby, m.copies.Warmup, m.copies.Retained
				for _, task := range w.shape.Tasks {
					switch offset, ok := m.disk[task.ID]; {
					case m.serving[task.ID]:
						x.Held = append(x.Held, Held{Task: task.ID, State: HeldActive})
					case ok:
						x.Held = append(x.Held, Held{Task: task.ID, State: HeldOffset, Offset: offset})
					}
				}
			}
			ms = append(ms, x)
		}
	}
	w.rng.Shuffle(len(ms), func(i, j int) { ms[i], ms[j] = ms[j], ms[i] })
	return ms
}

func (w *world) assign(ms []Member) Plan {
	opts := w.opts
	opts.Ends = w.ends
	return Assign(w.shape, ms, opts)
}

func (w *world) machineOf(member string) *machine {
	for _, m := range w.fleet {
		if slices.Contains(m.members, member) {
			return m
		}
	}
	return nil
}

// owner is who has each task, and who it was promised to.
func (w *world) owner() (owner, due map[store.TaskID]*machine) {
	owner, due = make(map[store.TaskID]*machine), make(map[store.TaskID]*machine)
	for _, m := range w.fleet {
		for _, id := range m.members {
			for _, t := range m.owned[id] {
				owner[t] = m
			}
			for _, t := range m.due[id] {
				due[t] = m
			}
		}
	}
	return owner, due
}

// adopt does what the plan says, in two phases as the group does: what must move is let go of and promised.
func (w *world) adopt(p Plan) (moving bool) {
	was := make(map[store.TaskID]string)
	for _, m := range w.fleet {
		for _, id := range m.members {
			for _, t := range m.owned[id] {
				was[t] = id
			}
		}
		m.copies = Copies{}
	}
	for _, c := range p.Processes {
		for _, m := range w.fleet {
			if m.name == c.Process {
				m.copies = c
			}
		}
	}
	for _, m := range w.fleet {
		m.owned, m.due = make(map[string][]store.TaskID), make(map[string][]store.TaskID)
	}
	for _, pl := range p.Members {
		m := w.machineOf(pl.Member)
		for _, t := range pl.Active {
			if from, ok := was[t]; ok && from != pl.Member {
				m.due[pl.Member] = append(m.due[pl.Member], t)
				moving = true
				old := w.machineOf(from)
				delete(old.serving, t)
				if old != m && slices.Contains(old.copies.Standby, t) { // it is kept, and gets a role with the next placement
					old.copies.Standby = slices.DeleteFunc(slices.Clone(old.copies.Standby), func(x store.TaskID) bool { return x == t })
					old.copies.Retained = append(slices.Clone(old.copies.Retained), t)
				}
			} else {
				m.owned[pl.Member] = append(m.owned[pl.Member], t)
			}
		}
	}
	w.plan = p
	return moving
}

// progress lets the logs grow a little and everybody read: all of it when whole.
func (w *world) progress(whole bool) {
	for t := range w.ends {
		if !whole && w.rng.IntN(4) == 0 {
			w.ends[t] += w.rng.Int64N(100)
		}
	}
	for _, m := range w.fleet {
		read := func(t store.TaskID) {
			end, ok := w.ends[t]
			if !ok {
				return
			}
			offset := m.disk[t]
			if whole || w.rng.IntN(3) == 0 {
				offset = end
			} else {
				offset += w.rng.Int64N(end - min(offset, end) + 1)
			}
			m.disk[t] = offset
		}
		for _, ids := range m.owned {
			for _, t := range ids {
				if m.serving[t] {
					m.disk[t] = w.ends[t]
					continue
				}
				if read(t); m.disk[t] == w.ends[t] {
					m.serving[t] = true
				}
			}
		}
		for _, ids := range [][]store.TaskID{m.copies.Standby, m.copies.Warmup, m.copies.Retained} {
			for _, t := range ids {
				read(t)
			}
		}
	}
}

// event changes the fleet.
func (w *world) event() {
	switch r := w.rng.IntN(10); {
	case r < 3 || len(w.fleet) == 0:
		w.join()
	case r < 6: // a crash or a leave: with or without its disk
		i := w.rng.IntN(len(w.fleet))
		gone := w.fleet[i]
		w.fleet = slices.Delete(w.fleet, i, i+1)
		if w.rng.IntN(2) == 0 && len(w.fleet) > 0 {
			defer w.start(gone) // it is back before the next placement, and owns nothing
		}
	case r < 8:
		m := w.fleet[w.rng.IntN(len(w.fleet))]
		m.drains = !m.drains
	}
}

// open are the machines that can be given something: those that do not drain, or all.
func (w *world) open() []*machine {
	open := slices.DeleteFunc(slices.Clone(w.fleet), func(m *machine) bool { return m.drains })
	if len(open) == 0 {
		return w.fleet
	}
	return open
}

// caughtUp says it as the contract does.
func (w *world) caughtUp(m *machine, t store.TaskID) bool {
	return m.serving[t] || w.ends[t]-m.disk[t] <= w.opts.AcceptableLag
}

func (w *world) check(t *testing.T, p Plan) {
	t.Helper()
	checkOnce(t, w.shape, p)
	at := make(map[store.TaskID][]string) // processes with a copy
	now := make(map[store.TaskID]*machine)
	for _, pl := range p.Members {
		for _, id := range pl.Active {
			now[id] = w.machineOf(pl.Member)
			at[id] = append(at[id], now[id].name)
		}
	}
	standbys, warm, all := make(map[store.TaskID]int), 0, make(map[store.TaskID][]*machine)
	for _, c := range p.Processes {
		for _, m := range w.fleet {
			if m.name == c.Process {
				for _, id := range slices.Concat(c.Standby, c.Warmup, c.Retained) {
					all[id] = append(all[id], m)
				}
			}
		}
		for _, id := range c.Standby {
			standbys[id]++
		}
		warm += len(c.Warmup)
		for _, ids := range [][]store.TaskID{c.Standby, c.Warmup, c.Retained, c.Awaited} {
			if !slices.IsSortedFunc(ids, store.TaskID.Compare) {
				t.Fatalf("unsorted: %v", ids)
			}
		}
		for _, id := range c.Awaited {
			if !slices.Contains(c.Standby, id) && !slices.Contains(c.Warmup, id) {
				t.Fatalf("%s awaits %s without a copy", c.Process, id)
			}
		}
		for _, id := range c.Warmup {
			if !slices.Contains(c.Awaited, id) {
				t.Fatalf("warm-up %s of %s is not awaited", id, c.Process)
			}
		}
		for _, id := range slices.Concat(c.Standby, c.Warmup, c.Retained) {
			at[id] = append(at[id], c.Process)
		}
	}
	missing := 0
	for _, task := range w.shape.Tasks {
		slices.Sort(at[task.ID])
		if n := len(at[task.ID]); n != len(slices.Compact(at[task.ID])) {
			t.Fatalf("task %s: two copies in one process", task.ID)
		}
		if !task.Stateful {
			if len(at[task.ID]) != 1 {
				t.Fatalf("task %s has no state and is followed", task.ID)
			}
			continue
		}
		if n := standbys[task.ID]; n > w.opts.Standbys || len(at[task.ID]) > 2*(w.opts.Standbys+1)+1 {
			t.Fatalf("task %s: %d standbys, %d copies", task.ID, n, len(at[task.ID]))
		}
		missing += w.opts.Standbys - standbys[task.ID]
	}
	if warm > w.opts.MaxWarmups {
		t.Fatalf("%d warm-ups, at most %d", warm, w.opts.MaxWarmups)
	}
	if missing != p.Missing || missing > 0 && len(w.open()) > w.opts.Standbys+warm+1 {
		t.Fatalf("%d standbys missing of %d processes, it says %d", missing, len(w.fleet), p.Missing)
	}
	w.checkMoves(t, p, now, all)
	w.checkDrains(t, p, now)
}

// checkDrains checks that who drains gets nothing that it did not have, but a task that nobody else could run at once.
func (w *world) checkDrains(t *testing.T, p Plan, now map[store.TaskID]*machine) {
	t.Helper()
	open := w.open()
	owner, due := w.owner()
	for id, m := range now {
		if slices.Contains(open, m) || owner[id] == m || due[id] == m {
			continue
		}
		if _, stateful := w.ends[id]; !stateful || !w.caughtUp(m, id) || slices.ContainsFunc(open, func(o *machine) bool { return w.caughtUp(o, id) }) {
			t.Fatalf("task %s goes to %s, which drains\n%+v", id, m.name, p)
		}
	}
	for _, c := range p.Processes {
		for _, m := range w.fleet {
			if m.name != c.Process || slices.Contains(open, m) {
				continue
			}
			had := slices.Concat(m.copies.Standby, m.copies.Warmup, m.copies.Retained)
			for _, id := range slices.Concat(c.Standby, c.Warmup, c.Retained) {
				if owner[id] != m && !slices.Contains(had, id) {
					t.Fatalf("%s drains and is given a copy of %s\n%+v", m.name, id, p)
				}
			}
		}
	}
}

// checkMoves checks that no task leaves a place where it runs for one where it could not, and that no copy that has caught
// up is given up for one that has not.
func (w *world) checkMoves(t *testing.T, p Plan, now map[store.TaskID]*machine, copies map[store.TaskID][]*machine) {
	t.Helper()
	owner, due := w.owner()
	for _, task := range w.shape.Tasks {
		if !task.Stateful {
			continue
		}
		id := task.ID
		if to := due[id]; to != nil {
			if now[id] != to && slices.Contains(w.fleet, to) && !w.caughtUp(now[id], id) {
				t.Fatalf("task %s: promised to %s, goes to %s which is behind", id, to.name, now[id].name)
			}
		} else if from := owner[id]; from != nil && now[id] != from && !w.caughtUp(now[id], id) {
			t.Fatalf("task %s: goes from %s to %s which is behind", id, from.name, now[id].name)
		}
		could, could2 := 0, 0 // copies that answer, and those of them that the active is not going to be made of
		for _, m := range w.fleet {
			followed := slices.Contains(slices.Concat(m.copies.Standby, m.copies.Warmup, m.copies.Retained), id)
			if m.serving[id] || followed && w.caughtUp(m, id) {
				could++
				if m != now[id] {
					could2++
				}
			}
		}
		can := 0
		for _, m := range copies[id] {
			if w.caughtUp(m, id) {
				can++
			}
		}
		if !now[id].serving[id] && could2 > 0 && can == 0 {
			t.Fatalf("task %s: its active does not run yet, and who could answer is let go of\n%+v", id, p)
		}
		if w.caughtUp(now[id], id) {
			can++
		}
		if can < min(could, w.opts.Standbys+1) {
			t.Fatalf("task %s: %d copies had caught up, %d of those that stay have\n%+v", id, could, can, p)
		}
		if from := owner[id]; from != nil && from.serving[id] && now[id] != from && !slices.Contains(copies[id], from) {
			t.Fatalf("task %s: %s, which runs it, is let go of\n%+v", id, from.name, p)
		}
	}
}

// settledPlan checks what must hold when everybody has caught up and nothing is to move.
func (w *world) settledPlan(t *testing.T, p Plan) {
	t.Helper()
	m, active := &fleetModel{shape: w.shape}, p
	active.Members = nil // of those that do not drain
	open := w.open()
	for _, pl := range p.Members {
		x := w.machineOf(pl.Member)
		if slices.Contains(open, x) {
			m.members = append(m.members, Member{ID: pl.Member, Process: x.name, Capacity: x.each})
			active.Members = append(active.Members, pl)
		} else if len(pl.Active) > 0 {
			t.Fatalf("%s drains and still has %v", x.name, pl.Active)
		}
	}
	for _, x := range w.fleet {
		if n := len(x.copies.Standby); n > 0 && !slices.Contains(open, x) && len(open) > w.opts.Standbys {
			t.Fatalf("%s drains and still follows %v, of %d others", x.name, x.copies.Standby, len(open))
		}
	}
	if !open[0].drains { // when all drain, each keeps what it has
		checkBalance(t, m, active, w.kind)
	}
	w.checkStandbys(t, p)
}

// checkStandbys tries every move of one standby to another process: none may bring it further apart from its like, and of
// those that leave it as far apart none may make loads more even.
func (w *world) checkStandbys(t *testing.T, p Plan) {
	t.Helper()
	where, load := make(map[store.TaskID][]*machine), make(map[*machine]int64)
	active, weight := make(map[store.TaskID]*machine), make(map[store.TaskID]int64)
	for _, task := range w.shape.Tasks {
		weight[task.ID] = int64(max(task.Weight, 1))
	}
	for _, pl := range p.Members {
		for _, id := range pl.Active {
			active[id] = w.machineOf(pl.Member)
		}
	}
	for _, m := range w.fleet {
		for _, id := range m.copies.Standby {
			where[id] = append(where[id], m)
			load[m] += weight[id]
		}
	}
	places := func(m *machine) []string {
		if len(w.opts.RackAwareTags) == 0 {
			return []string{m.rack}
		}
		return []string{m.tags["zone"], m.tags["cluster"]}
	}
	shared := func(id store.TaskID, m, without *machine) []int {
		n := make([]int, len(places(m)))
		for _, o := range append(slices.Clone(where[id]), active[id]) {
			for i, v := range places(o) {
				if o != without && v == places(m)[i] {
					n[i]++
				}
			}
		}
		return n
	}
	for id, ms := range where {
		for _, from := range ms {
			for _, to := range w.open() {
				if to == active[id] || slices.Contains(ms, to) {
					continue
				}
				near := slices.Compare(shared(id, to, from), shared(id, from, from))
				if near < 0 {
					t.Fatalf("standby %s is nearer to its like in %s than it would be in %s\n%+v", id, from.name, to.name, p)
				}
				c := func(m *machine) int64 { return int64(m.each * len(m.members)) }
				if near == 0 && (2*load[from]-weight[id])*c(to) > (2*load[to]+weight[id])*c(from) {
					t.Fatalf("standby %s would be better in %s (%d) than in %s (%d)\n%+v", id, to.name, load[to], from.name, load[from], p)
				}
			}
		}
	}
}

// Fleets with histories: whatever comes and goes, tasks are once active, replicas apart, warm-ups few, and nothing that
// could answer is given up; left alone, the fleet settles, in as many rounds as its warm-ups need, and then rests.
func TestLagProperties(t *testing.T) {
	t.Parallel()
	rng := newRand(t)
	for range 150 {
		w := newRandomWorld(rng)
		for range 1 + rng.IntN(5) {
			w.join()
		}
		for range 12 {
			w.event()
			if len(w.fleet) == 0 {
				continue
			}
			for again := true; again; {
				p := w.assign(w.report())
				w.check(t, p)
				again = w.adopt(p)
				if again && rng.IntN(3) == 0 { // something happens between the phases
					w.event()
					again = len(w.fleet) > 0
				}
			}
			w.progress(false)
		}
		if len(w.fleet) == 0 {
			w.join()
		}
		w.settle(t)
	}
}

// settle lets the fleet come to rest, and checks that it does.
func (w *world) settle(t *testing.T) {
	t.Helper()
	limit := 2*len(w.shape.Tasks) + 10 // each round of two phases moves a warm-up's task at least
	for round := 0; ; round++ {
		if round > limit {
			t.Fatalf("unsettled after %d rounds: %+v", round, w.plan)
		}
		before := w.plan
		p := w.assign(w.report())
		w.check(t, p)
		moving := w.adopt(p)
		if !moving {
			w.progress(true)
		}
		if !moving && p.Waiting == 0 && p.Retained == 0 && same(before, p) {
			break
		}
	}
	w.settledPlan(t, w.plan)
	if again := w.assign(w.report()); !same(w.plan, again) {
		t.Fatalf("at rest, yet it changes\n%s", diff(w.plan, again))
	}
}

func same(a, b Plan) bool { return diff(a, b) == "" }

func diff(a, b Plan) string {
	return cmp.Diff(a, b, cmpopts.EquateEmpty(), cmpopts.SortSlices(func(x, y Placement) bool { return x.Member < y.Member }))
}
