package group

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// replicas lists where the map has the copies of a task, the active first.
func replicas(s *router.Snapshot, id store.TaskID) (active string, standbys []string) {
	for _, in := range s.Instances() {
		for _, x := range in.Active {
			if x == id {
				active = in.ID
			}
		}
		for _, x := range in.Standby {
			if x == id {
				standbys = append(standbys, in.ID)
			}
		}
	}
	return active, standbys
}

// Instances come, leave and die: after each change the group comes to rest by itself, every stateful task with one standby
// elsewhere, and no map on the way lacks the copies that there were.
func TestStandbysSim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSimWorld(t, 6)
		resting := func(ps ...*process) {
			t.Helper()
			time.Sleep(2 * time.Minute)
			if changed, why := agreed(ps); changed != nil {
				t.Fatalf("no common map: %s", why)
			}
			s := ps[0].table.Load()
			n := counts(s)
			for _, p := range ps {
				if n[p.id] < 12/len(ps)-1 {
					t.Errorf("%s has %d of 12 tasks", p.id, n[p.id])
				}
				for _, th := range p.threads {
					if a := th.last(); len(a.Awaited)+len(a.Warmup)+len(a.Retained) > 0 || a.FollowUp {
						t.Errorf("%s is not at rest: %+v", th.txn, a)
					}
				}
			}
			for p := range store.Partition(6) {
				active, standbys := replicas(s, task(0, p))
				if want := min(1, len(ps)-1); active == "" || len(standbys) != want || want > 0 && standbys[0] == active {
					t.Errorf("task %s is with %q, standbys %v", task(0, p), active, standbys)
				}
			}
			if t.Failed() {
				t.Log(w.logs.String())
				t.FailNow()
			}
		}
		a := w.start("a", 1, withCopies(1))
		resting(a)
		b := w.start("b", 1, withCopies(1))
		resting(a, b)
		s := &severable{dial: w.dial}
		c := w.start("c", 1, withCopies(1), func(p *process) { p.dial, p.cut = s.Dial, s.Cut })
		resting(a, b, c)
		a.leave()
		resting(b, c)
		d := w.start("d", 1, withCopies(1))
		resting(b, c, d)
		was := d.table.Load()
		c.vanish()
		resting(b, d)
		for p := range store.Partition(6) {
			before, standbys := replicas(was, task(0, p))
			if now, _ := replicas(d.table.Load(), task(0, p)); before == "c" && now != standbys[0] {
				t.Errorf("task %s was with c, its standby is %v, now it is with %s", task(0, p), standbys, now)
			}
		}
		w.check()
	})
}
