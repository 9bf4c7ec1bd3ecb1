package processor

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/statemesh/statemesh/processor/internal/commitmeta"
	"github.com/statemesh/statemesh/store"
)

// readBounded reads partition p with a bound on its age, at its owner.
func (in *instance) readBounded(p store.Partition, bound time.Duration) error {
	r, err := in.rt.Read(in.f.t.Context(), testStore, p, store.ReadOptions{MaxAge: bound, OnlyActive: true})
	if err == nil {
		r.Close()
	}
	return err
}

// TestSimRevokedTaskIsSilent: from the callback of a revocation on, a task answers nothing as its owner, though its thread has not
// heard of it yet; nor does a read that was waiting for its proof of age then. What it had last is a copy, as old as its last proof.
func TestSimRevokedTaskIsSilent(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 3)
		f.produce(truth{}, rng, 100, 20)
		a := f.start("a")
		a.waitRunning()
		f.waitCaughtUp(time.Minute)
		a.rt.streamThreads()[0].current.Load().onRevoked(map[string][]int32{testInput: {0}})
		if err := a.readBounded(0, 0); err == nil {
			t.Error("a revoked task answers")
		}
		if err := a.readBounded(1, 0); err != nil {
			t.Errorf("the other task: %v", err)
		}
		const later = 3 * time.Second
		time.Sleep(later)
		r, err := a.rt.Read(t.Context(), testStore, 0, store.ReadOptions{MaxAge: time.Minute})
		if err != nil {
			t.Fatalf("the copy that is left: %v", err)
		}
		if facts := r.Facts(); facts.Role != store.RoleStandby || facts.Age < later {
			t.Errorf("the copy that is left, %s later: %+v", later, facts)
		}
		r.Close()
		if r, err := a.rt.Read(t.Context(), testStore, 0, store.ReadOptions{MaxAge: time.Second}); err == nil {
			t.Errorf("the copy that is left answers %s later within a second: %+v", later, r.Facts())
			r.Close()
		}

		time.Sleep(10 * time.Minute) // the proof is old
		id := store.TaskID{Partition: 2}
		e := a.rt.tasks.lookup(id)
		e.age.probe = func(context.Context) error {
			a.rt.tasks.hide(id, 0)
			return nil
		}
		if err := a.readBounded(2, 50*time.Millisecond); err == nil {
			t.Error("a task that was revoked during the proof answers")
		}
	})
}

// TestSimAgeOfAnUnpublishedCommit: between the request that ends a transaction and its answer others may see what
// readers here do not: the age counts from the request, whatever the group says meanwhile.
func TestSimAgeOfAnUnpublishedCommit(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 1)
		a := f.start("a")
		a.waitRunning()
		f.produce(truth{}, rng, 10, 5)
		f.waitCaughtUp(time.Minute)
		time.Sleep(time.Second)
		var ending atomic.Bool
		f.cluster.ControlKey(int16(kmsg.EndTxn), func(kmsg.Request) (kmsg.Response, error, bool) {
			ending.Store(true)
			f.cluster.SleepControl(func() { time.Sleep(5 * time.Second) })
			return nil, nil, false
		})
		f.produce(truth{}, rng, 10, 5)
		f.eventually("a commit ends", time.Minute, func() error {
			if !ending.Load() {
				return errors.New("not yet")
			}
			return nil
		})
		time.Sleep(2 * time.Second)
		if err := a.readBounded(0, time.Second); !is[*store.NotReadyError](err) {
			t.Errorf("2s after the end was asked for, a bound of 1s: %v", err)
		}
		if err := a.readBounded(0, 4*time.Second); err != nil {
			t.Errorf("a bound of 4s: %v", err)
		}
	})
}

// TestSimForeignCommitEndsMembership: a commit whose outcome is unknown turns out to be followed by somebody else's: the
// thread gives its membership up and takes nothing of what it knows along.
func TestSimForeignCommitEndsMembership(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 1)
		tr := truth{}
		a := f.start("a")
		a.waitRunning()
		f.produce(tr, rng, 10, 5)
		f.waitCaughtUp(time.Minute)
		time.Sleep(time.Second)
		before := a.rt.streamThreads()[0].current.Load()
		f.cluster.ControlKey(int16(kmsg.EndTxn), func(req kmsg.Request) (kmsg.Response, error, bool) {
			resp := req.ResponseKind().(*kmsg.EndTxnResponse)
			resp.ErrorCode = kerr.UnknownServerError.Code
			f.cluster.ControlKey(int16(kmsg.OffsetFetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
				return foreignOffsets(req), nil, true
			})
			return resp, nil, true
		})
		f.produce(tr, rng, 10, 5)
		f.eventually("another membership", time.Minute, func() error {
			if a.rt.streamThreads()[0].current.Load() == before {
				return errors.New("still the same")
			}
			return nil
		})
		f.waitCaughtUp(time.Minute)
		f.eventually("served", time.Minute, func() error { return allServe(1, a) })
		f.check(tr, a)
	})
}

// foreignOffsets answers as if another owner had committed many times.
func foreignOffsets(req kmsg.Request) kmsg.Response {
	r := req.(*kmsg.OffsetFetchRequest)
	resp := r.ResponseKind().(*kmsg.OffsetFetchResponse)
	for _, g := range r.Groups {
		rg := kmsg.NewOffsetFetchResponseGroup()
		rg.Group = g.Group
		for _, topic := range g.Topics {
			rg.Topics = append(rg.Topics, foreignTopic(topic))
		}
		resp.Groups = append(resp.Groups, rg)
	}
	return resp
}

func foreignTopic(asked kmsg.OffsetFetchRequestGroupTopic) kmsg.OffsetFetchResponseGroupTopic {
	meta := commitmeta.Meta{Sequence: 1000, TransactionalID: "somebody"}.Encode()
	topic := kmsg.NewOffsetFetchResponseGroupTopic()
	topic.Topic = asked.Topic
	for _, p := range asked.Partitions {
		rp := kmsg.NewOffsetFetchResponseGroupTopicPartition()
		rp.Partition, rp.Offset, rp.Metadata = p, 15, &meta
		topic.Partitions = append(topic.Partitions, rp)
	}
	return topic
}

// TestSimUnknownOffsetCommit: offsets that were committed outside of a transaction, and nobody knows whether they were:
// the request may still be on its way. Only the end of the membership bars it.
func TestSimUnknownOffsetCommit(t *testing.T) {
	simulate(t, func(t *testing.T, _ *rand.Rand) {
		f := newFleet(t, true, 1)
		f.topo = pickyTopology
		a := f.start("a")
		a.waitRunning()
		f.fill(1, 3, "v")
		f.waitCaughtUp(time.Minute)
		before := a.rt.streamThreads()[0].current.Load()
		f.cluster.ControlKey(int16(kmsg.OffsetCommit), func(kmsg.Request) (kmsg.Response, error, bool) {
			return nil, errors.New("the connection breaks"), true
		})
		f.fill(1, 3, "skip")
		f.eventually("another membership", time.Minute, func() error {
			if a.rt.streamThreads()[0].current.Load() == before {
				return errors.New("still the same")
			}
			return nil
		})
		f.waitCaughtUp(time.Minute)
	})
}

// TestAgeCountsFromTheQuestion: the coordinator may have answered at any time between question and answer.
func TestAgeCountsFromTheQuestion(t *testing.T) {
	t.Parallel()
	asked := time.Unix(1000, 0)
	now := asked
	a := newAge(func() time.Time { return now }, 10*time.Second, func(context.Context) error {
		now = now.Add(time.Second)
		return nil
	})
	if at, err := a.prove(t.Context(), 5*time.Second, time.Time{}); err != nil || !at.Equal(asked) {
		t.Fatalf("proven at %s, %v; want the time of the question, %s", at, err, asked)
	}
}

// TestInputPassesOverOldRecords: a fetch that was on its way when the position was set may bring what was processed.
func TestInputPassesOverOldRecords(t *testing.T) {
	t.Parallel()
	in := newInput(store.TopicPartition{Topic: "x"})
	in.next = 5
	in.push([]*kgo.Record{{Offset: 3}, {Offset: 4}, {Offset: 5}, {Offset: 6}})
	if in.waiting() != 2 || in.peek().Offset != 5 {
		t.Fatalf("%d records wait, the first is %d; want 2 from 5", in.waiting(), in.peek().Offset)
	}
}
