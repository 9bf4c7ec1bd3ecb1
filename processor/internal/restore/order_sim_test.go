package restore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/statemesh/statemesh/processor/internal/commitmeta"
	"github.com/statemesh/statemesh/store"
)

// TestCR03BoundIsTheHighWatermark: a dead writer's open transaction pins the last stable offset below a thousand
// records that others committed behind it. The restore fences the dead writer and has all of theirs, none of its.
func TestCR03BoundIsTheHighWatermark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		dead := w.transactional("dead")
		defer dead.Close()
		w.begin(dead, changelogTopic, 0, kv{"k0", "uncommitted", 1}, kv{"dead", "uncommitted", 1})
		w.transaction("b", kgo.TryCommit, changelogTopic, 0, series(1000, "v")...)
		r := w.restorer(nil)
		task := newMemoryTask(t, 0)
		req := w.request(task)
		req.Fence = []string{"dead"}
		start := time.Now()
		res, err := r.Restore(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("took %s: the fence should not wait for the transaction timeout", took)
		}
		have := task.content(countsStore)
		if len(have) != 1000 || !slices.Contains(have, "k0=v0@0") || slices.ContainsFunc(have, func(s string) bool { return strings.Contains(s, "uncommitted") }) {
			t.Errorf("%d entries, want the 1000 committed ones", len(have))
		}
		if res.Records != 1000 {
			t.Errorf("%d records, want 1000", res.Records)
		}
		// What the dead writer does late changes nothing.
		if err := dead.EndTransaction(t.Context(), kgo.TryCommit); err == nil {
			t.Error("the fenced writer committed")
		}
	})
}

// TestCR03NotBeforeEverythingIsDecided: without a fence the restore waits for the open transaction, and has it when it
// commits.
func TestCR03NotBeforeEverythingIsDecided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		slow := w.transactional("slow")
		defer slow.Close()
		w.begin(slow, changelogTopic, 0, kv{"slow", "1", 1})
		w.transaction("b", kgo.TryCommit, changelogTopic, 0, kv{"b", "1", 2})
		r := w.restorer(nil)
		task := newMemoryTask(t, 0)
		done := make(chan error, 1)
		w.wg.Go(func() {
			_, err := r.Restore(t.Context(), w.request(task))
			done <- err
		})
		time.Sleep(time.Minute)
		select {
		case err := <-done:
			t.Fatalf("restored before the transaction ended: %v", err)
		default:
		}
		w.end(slow, kgo.TryCommit)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		wantContent(t, task, countsStore, "b=1@2", "slow=1@1")
	})
}

// TestCR03HangingTransactionIsNamed: one that never ends is a bounded wait and an error that says where.
func TestCR03HangingTransactionIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.produce(changelogTopic, 0, kv{"a", "1", 1})
		hangs := w.transactional("hangs")
		defer hangs.Close()
		w.begin(hangs, changelogTopic, 0, kv{"x", "1", 1}, kv{"y", "1", 1})
		r := w.restorer(func(c *Config) { c.HangingTimeout = 30 * time.Second })
		task := newMemoryTask(t, 0)
		start := time.Now()
		_, err := r.Restore(t.Context(), w.request(task))
		hang, ok := errors.AsType[*HangingTransactionError](err)
		if !ok || hang.Topic != changelogTopic || hang.LastStable != 1 || hang.Bound != 3 || hang.Store != countsStore {
			t.Fatalf("error %v", err)
		}
		if took := time.Since(start); took < 30*time.Second || took > time.Minute {
			t.Errorf("gave up after %s, want 30s and a little", took)
		}
		// What was readable before it stays, as a copy in progress.
		if cp := task.Checkpoint(); !cp.Restoring || cp.Changelogs[countsStore].Next != 1 {
			t.Errorf("checkpoint %+v", cp)
		}
		wantContent(t, task, countsStore, "a=1@1")
	})
}

// TestUnstableOffsetsAreWaitedFor: an offset that an open transaction commits is decided before the bound is taken.
func TestUnstableOffsetsAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.commitOffset(0, 10, commitmeta.Meta{Sequence: 1})
		var left atomic.Int64
		left.Store(5)
		w.cluster.ControlKey(int16(kmsg.OffsetFetch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
			w.cluster.KeepControl()
			if left.Add(-1) < 0 {
				return nil, nil, false
			}
			req := kreq.(*kmsg.OffsetFetchRequest)
			if len(req.Groups) != 1 || !req.RequireStable {
				t.Errorf("request %+v: want one group, stable offsets", req)
			}
			resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
			g := kmsg.NewOffsetFetchResponseGroup()
			g.Group = req.Groups[0].Group
			topic := kmsg.NewOffsetFetchResponseGroupTopic()
			topic.Topic, topic.TopicID = inputTopic, req.Groups[0].Topics[0].TopicID
			p := kmsg.NewOffsetFetchResponseGroupTopicPartition()
			p.Offset, p.ErrorCode = -1, kerr.UnstableOffsetCommit.Code
			topic.Partitions = append(topic.Partitions, p)
			g.Topics = append(g.Topics, topic)
			resp.Groups = append(resp.Groups, g)
			return resp, nil, true
		})
		r := w.restorer(nil)
		res, err := r.Restore(t.Context(), w.request(newMemoryTask(t, 0)))
		if err != nil || res.Inputs[store.TopicPartition{Topic: inputTopic}].Next != 10 || left.Load() >= 0 {
			t.Fatalf("%+v, %v, %d unstable answers left", res, err, left.Load())
		}
		left.Store(1 << 30)
		_, err = r.Restore(t.Context(), w.request(newMemoryTask(t, 0)))
		if unstable, ok := errors.AsType[*UnstableError](err); !ok || unstable.Group != group || len(unstable.Inputs) != 1 {
			t.Errorf("error %v", err)
		}
	})
}

// TestMetadataOfTheLastCommitWins: over several inputs the highest sequence is the task's last commit; an offset
// that another program wrote counts, without a sequence.
func TestMetadataOfTheLastCommitWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		id := commitmeta.TimeID("counts")
		times := func(at int64) string { return commitmeta.EncodeTimes(800, []commitmeta.Time{{ID: id, At: at}}) }
		w.commitOffset(0, 10, commitmeta.Meta{Sequence: 8, StreamTime: 800, TransactionalID: "b", Observed: times(700)})
		w.commitOffset(1, 20, commitmeta.Meta{Sequence: 7, StreamTime: 800, TransactionalID: "b", Observed: times(600)})
		r := w.restorer(nil)
		req := w.request(newMemoryTask(t, 0))
		in0, in1 := store.TopicPartition{Topic: inputTopic}, store.TopicPartition{Topic: inputTopic, Partition: 1}
		req.Inputs = []store.TopicPartition{in0, in1}
		res, err := r.Restore(t.Context(), req)
		if err != nil || res.Observed[id] != 700 || len(res.Observed) != 1 {
			t.Fatalf("times %v, error %v", res.Observed, err)
		}
		w.commitRaw(1, 20, "by hand")
		if res, err = r.Restore(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		if res.Sequence != 8 || res.StreamTime != 800 || res.Inputs[in1].Next != 20 || res.Inputs[in1].Meta.Sequence != 0 {
			t.Errorf("result %+v", res)
		}
	})
}

// TestSequencesNeverGoBack: an operator reset the group's offsets; the local copy's sequence stays the floor.
func TestSequencesNeverGoBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.commitRaw(0, 0, "")
		r := w.restorer(nil)
		task := newMemoryTask(t, 0)
		task.cp.Sequence = 57
		res, err := r.Restore(t.Context(), w.request(task))
		if err != nil || res.Sequence != 57 || task.Checkpoint().Sequence != 57 {
			t.Errorf("sequence %d, %v; want 57", res.Sequence, err)
		}
		if len(res.Position) != 0 {
			t.Errorf("position %v of an input of which nothing is processed", res.Position)
		}
	})
}

// TestFenceIsRepeatedAndShared: the coordinator says "not yet" a few times; restores that name the same id at the same
// time send one request each time.
func TestFenceIsRepeatedAndShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var asked atomic.Int64
		w.cluster.ControlKey(int16(kmsg.InitProducerID), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
			w.cluster.KeepControl()
			if asked.Add(1) > 3 {
				return nil, nil, false
			}
			resp := kreq.ResponseKind().(*kmsg.InitProducerIDResponse)
			resp.ErrorCode = kerr.ConcurrentTransactions.Code
			return resp, nil, true
		})
		r := w.restorer(nil)
		errs := make(chan error, 2)
		for p := range 2 {
			req := w.request(newMemoryTask(t, store.Partition(p)))
			req.Fence = []string{"gone"}
			w.wg.Go(func() {
				_, err := r.Restore(t.Context(), req)
				errs <- err
			})
		}
		for range 2 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		if n := asked.Load(); n != 4 {
			t.Errorf("%d requests, want 4, three of them refused", n)
		}
	})
}

// TestFenceErrorIsNamed: a final answer at once, "not yet" for ever after a bounded wait.
func TestFenceErrorIsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		answer *kerr.Error
		atMost time.Duration
	}{
		"final":   {kerr.TransactionalIDAuthorizationFailed, time.Second},
		"not yet": {kerr.ConcurrentTransactions, 12 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: c.answer, Count: -1})
				r := w.restorer(func(c *Config) { c.FenceTimeout = 10 * time.Second })
				req := w.request(newMemoryTask(t, 0))
				req.Fence = []string{"gone"}
				start := time.Now()
				_, err := r.Restore(t.Context(), req)
				fence, ok := errors.AsType[*FenceError](err)
				if !ok || fence.TransactionalID != "gone" || !errors.Is(err, c.answer) {
					t.Fatalf("error %v", err)
				}
				if took := time.Since(start); took > c.atMost {
					t.Errorf("took %s, want at most %s", took, c.atMost)
				}
			})
		})
	}
}

// TestFenceThatWasCalledOff: who shares a fence does not suffer when the restore that sends it is interrupted.
func TestFenceThatWasCalledOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var block atomic.Bool
		block.Store(true)
		w.cluster.ControlKey(int16(kmsg.InitProducerID), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
			w.cluster.KeepControl()
			if !block.Load() {
				return nil, nil, false
			}
			resp := kreq.ResponseKind().(*kmsg.InitProducerIDResponse)
			resp.ErrorCode = kerr.ConcurrentTransactions.Code
			return resp, nil, true
		})
		r := w.restorer(nil)
		first, cancel := context.WithCancel(t.Context())
		results := make([]error, 2)
		for p, ctx := range []context.Context{first, t.Context()} {
			req := w.request(newMemoryTask(t, store.Partition(p)))
			req.Fence = []string{"gone"}
			w.wg.Go(func() { _, results[p] = r.Restore(ctx, req) })
			synctest.Wait()
		}
		time.Sleep(time.Second)
		cancel()
		synctest.Wait()
		block.Store(false)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if !errors.Is(results[0], context.Canceled) || results[1] != nil {
			t.Errorf("interrupted: %v, other: %v", results[0], results[1])
		}
	})
}
