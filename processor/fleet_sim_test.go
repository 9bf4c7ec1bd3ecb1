package processor

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/statemesh/statemesh/internal/fakekafka"
)

// kill takes an instance's network away and leaves it as a zombie; what its disk holds at this moment is the state
// directory of its successor.
func (in *instance) kill(successor string) {
	in.f.t.Helper()
	in.f.happened(in.dir, "kill")
	in.cut.off()
	copyDir(in.f.t, in.dir, filepath.Join(in.f.dir, successor))
}

func TestSimRestart(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 3)
		tr := truth{}
		for range 3 {
			f.produce(tr, rng, 200, 50)
			in := f.start("a")
			in.waitRunning()
			f.produce(tr, rng, 200, 50)
			f.waitCaughtUp(time.Minute)
			f.check(tr, in)
			if err := in.stop(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestSimScale lets instances come and go while records flow (PL-11, CR-13): planned moves lose and repeat nothing.
func TestSimScale(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 6)
		tr := truth{}
		a := f.start("a")
		f.produce(tr, rng, 300, 50)
		b := f.start("b")
		for range 20 {
			f.produce(tr, rng, 50, 50)
			time.Sleep(100 * time.Millisecond)
		}
		c := f.start("c")
		for range 20 {
			f.produce(tr, rng, 50, 50)
			time.Sleep(100 * time.Millisecond)
		}
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		f.produce(tr, rng, 50, 50)
		f.waitCaughtUp(2 * time.Minute)
		a.waitRunning()
		c.waitRunning()
		f.check(tr, a, c)
	})
}

// TestSimKill kills an instance at a random moment; its successor with the same disk, and a fresh one, go on. The killed
// one comes back as a zombie and changes nothing (CR-08, CR-18).
func TestSimKill(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 4)
		tr := truth{}
		a, b := f.start("a"), f.start("b")
		a.waitRunning()
		b.waitRunning()
		for range 10 {
			f.produce(tr, rng, 50, 50)
			time.Sleep(time.Duration(rng.IntN(60)) * time.Millisecond)
		}
		a.kill("c")
		for range 10 {
			f.produce(tr, rng, 50, 50)
			time.Sleep(time.Duration(rng.IntN(60)) * time.Millisecond)
		}
		c := f.start("c")
		f.produce(tr, rng, 100, 50)
		f.reap(b, c) // a may have been killed in a join
		f.waitCaughtUp(3 * time.Minute)
		a.cut.mend()
		time.Sleep(time.Duration(rng.IntN(5000)) * time.Millisecond)
		f.produce(tr, rng, 100, 50)
		time.Sleep(time.Minute)
		f.waitCaughtUp(3 * time.Minute)
		f.eventually("all run", 2*time.Minute, func() error { return allServe(4, a, b, c) })
		f.check(tr, a, b, c)
	})
}

// TestSimUnknownEnd loses the outcome of one commit in ten: half of them are refused with UNKNOWN_SERVER_ERROR, half take
// effect and the answer is lost (PL-01).
func TestSimUnknownEnd(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 3)
		tr := truth{}
		in := f.start("a")
		in.waitRunning()
		var failures atomic.Int64
		f.cluster.ControlKey(int16(kmsg.EndTxn), func(req kmsg.Request) (kmsg.Response, error, bool) {
			f.cluster.KeepControl()
			e := req.(*kmsg.EndTxnRequest)
			if !e.Commit || rng.IntN(10) != 0 {
				return nil, nil, false
			}
			failures.Add(1)
			if rng.IntN(2) == 0 { // it takes effect, and the answer is lost
				f.happened("broker", "answer lost: EndTxn")
				in.cut.off()
				in.cut.on()
				return nil, nil, false
			}
			f.happened("broker", "refused with UNKNOWN_SERVER_ERROR: EndTxn")
			resp := e.ResponseKind().(*kmsg.EndTxnResponse)
			resp.ErrorCode = kerr.UnknownServerError.Code
			return resp, nil, true
		})
		for range 100 {
			f.produce(tr, rng, 20, 50)
			time.Sleep(100 * time.Millisecond)
		}
		f.reap(in)
		f.waitCaughtUp(2 * time.Minute)
		if failures.Load() == 0 {
			t.Fatal("no commit failed")
		}
		f.check(tr, in)
	})
}

// reap does what kfake leaves undone: a member whose connection broke before its join was answered never heartbeats and
// has no session that could time out (facts: Kafka starts the session with the answer).
func (f *fleet) reap(instances ...*instance) {
	f.t.Helper()
	f.mu.Lock()
	var wait time.Duration
	for _, in := range f.all {
		// Who is dead and has a session is out by itself, and a join that waited for somebody has ended.
		wait = max(wait, in.rt.cfg.SessionTimeout+in.rt.cfg.RebalanceTimeout)
	}
	f.mu.Unlock()
	time.Sleep(min(wait, 45*time.Second))
	synctest.Wait() // what the instances have done by now is there to be read
	alive := make(map[string]bool)
	for _, in := range instances {
		for _, id := range in.members() {
			alive[id] = true
		}
	}
	info := f.cluster.GroupInfo(testApp)
	if info == nil {
		return
	}
	for _, m := range info.Members {
		if alive[m.MemberID] {
			continue
		}
		if err := fakekafka.Remove(f.t.Context(), f.client, testApp, m.MemberID); err != nil {
			f.t.Fatal(err)
		}
	}
}

// settled waits until the group has come to rest with these instances in it. A session goes on in kfake while a join waits, and ends
// that one without an answer (Kafka's session begins with the answer): who waits for it hears of it when the request times out, and
// cannot leave in order before. Members that nobody is any more are removed if it does not come to rest.
func (f *fleet) settled(instances ...*instance) {
	f.t.Helper()
	for begun := time.Now(); f.unsettled(instances) != nil && time.Since(begun) < 2*time.Minute; {
		time.Sleep(100 * time.Millisecond)
	}
	if f.unsettled(instances) != nil {
		f.reap(instances...)
	}
	f.eventually("the group at rest", 2*stuck, func() error { return f.unsettled(instances) })
}

// stuck is how long a rebalance lasts that kfake does not end: Kafka ends it with the rebalance timeout, 60s and less here.
const stuck = 75 * time.Second

// unsettled says why the group is not at rest with these instances.
func (f *fleet) unsettled(instances []*instance) error {
	synctest.Wait()
	info := f.cluster.GroupInfo(testApp)
	if info == nil || info.State != "Stable" {
		return fmt.Errorf("group %+v", info)
	}
	for _, in := range instances {
		for _, id := range in.members() {
			if !slices.ContainsFunc(info.Members, func(m kfake.GroupMember) bool { return m.MemberID == id }) {
				return fmt.Errorf("%s: %s is not in the group", in.dir, id)
			}
		}
	}
	return nil
}

// members are the ids by which the group knows the threads, as far as they have one.
func (in *instance) members() (ids []string) {
	for _, t := range in.rt.streamThreads() {
		if m := t.current.Load(); m != nil {
			id, _ := m.client.GroupMetadata()
			ids = append(ids, id)
		}
	}
	return ids
}
