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

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/processor/internal/commitmeta"
	"github.com/statemesh/statemesh/store"
)

// runningStandby is a standby in the hands of a test.
type runningStandby struct {
	*Standby
	t         *testing.T
	published atomic.Int64
	cancel    context.CancelFunc
	done      chan error
}

// standby follows until the test ends, or stop.
func (w *world) standby(r *Restorer, req StandbyRequest) *runningStandby {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	begun := make(chan *Standby, 1)
	s := &runningStandby{t: w.t, cancel: cancel, done: make(chan error, 1)}
	req.Begun = func(f *Standby) { begun <- f }
	req.Published = func() { s.published.Add(1) }
	w.wg.Go(func() { s.done <- r.Standby(ctx, req) })
	w.t.Cleanup(cancel)
	s.Standby = <-begun
	return s
}

func (s *runningStandby) stop() {
	s.t.Helper()
	s.cancel()
	if err := <-s.done; !errors.Is(err, context.Canceled) {
		s.t.Errorf("standby ended: %v", err)
	}
}

func (w *world) standbyRequest(task Task) StandbyRequest {
	return StandbyRequest{Task: task, Changelogs: w.request(task).Changelogs}
}

// rounds run until the test ends.
func (w *world) rounds(set func(*RoundsConfig)) *Rounds {
	w.t.Helper()
	cfg := RoundsConfig{Client: w.direct, Group: group}
	if set != nil {
		set(&cfg)
	}
	r, err := NewRounds(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.wg.Go(func() { _ = r.Run(ctx) })
	w.t.Cleanup(cancel)
	return r
}

const aMoment = 2 * time.Second // longer than any fetch, round or retry

// TestStandbyPublishesWholeCommits: what a transaction writes shows all at once, or not at all, in the order of the log; a
// position that only passes markers or aborted data is published too.
func TestStandbyPublishesWholeCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.produce(changelogTopic, 0, kv{"a", "1", 1})
		r := w.restorer(nil)
		task := newMemoryTask(t, 0)
		s := w.standby(r, w.standbyRequest(task))
		time.Sleep(aMoment)
		wantContent(t, task, countsStore, "a=1@1")
		if !s.Exact() || s.Lag() != 0 || task.Checkpoint().Restoring {
			t.Fatalf("exact %t, lag %d", s.Exact(), s.Lag())
		}
		one := w.transactional("one")
		defer one.Close()
		w.begin(one, changelogTopic, 0, kv{"a", "2", 2}, kv{"b", "1", 2})
		time.Sleep(aMoment)
		wantContent(t, task, countsStore, "a=1@1")
		w.end(one, kgo.TryCommit)
		time.Sleep(aMoment)
		wantContent(t, task, countsStore, "a=2@2", "b=1@2")
		pos := task.Checkpoint().Changelogs[countsStore]
		if cut := s.Token(countsStore, pos); pos.Next != 4 || cut.Next != 3 || cut.TopicID != pos.TopicID {
			t.Errorf("position %d, token %d; want 4 with the marker, 3 without", pos.Next, cut.Next)
		}
		w.begin(one, changelogTopic, 0, kv{"a", "bad", 3})
		w.end(one, kgo.TryAbort)
		time.Sleep(aMoment)
		wantContent(t, task, countsStore, "a=2@2", "b=1@2")
		if pos := task.Checkpoint().Changelogs[countsStore]; pos.Next != 6 {
			t.Errorf("position %d, want 6: behind what was aborted", pos.Next)
		}
		for _, cp := range task.commits[1:] {
			if cp.Restoring {
				t.Errorf("a commit that is not exact: %+v", cp)
			}
		}
		before := len(task.commits)
		time.Sleep(time.Minute)
		if len(task.commits) != before {
			t.Errorf("%d commits while nothing happened", len(task.commits)-before)
		}
		s.stop()
	})
}

// TestStandbyFollowsManyStoresApart: stores publish for themselves, and positions of all are in each checkpoint (CR-17).
func TestCR17StandbyOfTwoStores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r := w.restorer(nil)
		task := newMemoryTask(t, 1)
		s := w.standby(r, w.standbyRequest(task))
		time.Sleep(aMoment)
		if !s.Exact() {
			t.Fatal("an empty changelog is exact")
		}
		one := w.transactional("one")
		defer one.Close()
		w.begin(one, changelogTopic, 1, kv{"a", "1", 1}) // and hangs
		w.produce(otherTopic, 1, kv{"s", "1", 1})
		w.produce(changelogTopic, 0, kv{"x", "of another task", 1})
		time.Sleep(aMoment)
		wantContent(t, task, countsStore)
		wantContent(t, task, seenStore, "s=1@1")
		w.end(one, kgo.TryCommit)
		time.Sleep(aMoment)
		wantContent(t, task, countsStore, "a=1@1")
		cp := task.Checkpoint()
		if len(cp.Changelogs) != 2 || cp.Changelogs[countsStore].Next != 2 || cp.Changelogs[seenStore].Next != 1 {
			t.Errorf("positions %+v", cp.Changelogs)
		}
	})
}

// TestCR10PromotionInPlace: a standby is promoted: the restore reads what is behind the published cut and nothing twice, what
// waits unpublished is neither lost nor doubled, and the copy answers all the time.
func TestCR10PromotionInPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.produce(changelogTopic, 0, series(100, "v")...)
		r := w.restorer(nil)
		task := newMemoryTask(t, 0)
		s := w.standby(r, w.standbyRequest(task))
		time.Sleep(aMoment)
		// Two producers interleave: the second's commit is read, and waits for the first's.
		one, two := w.transactional("one"), w.transactional("two")
		defer one.Close()
		defer two.Close()
		w.begin(one, changelogTopic, 0, kv{"a", "one", 1})
		w.begin(two, changelogTopic, 0, kv{"b", "two", 1})
		w.more(one, changelogTopic, 0, kv{"c", "one", 1})
		w.end(one, kgo.TryCommit)
		time.Sleep(aMoment)
		if have := task.content(countsStore); len(have) != 100 {
			t.Fatalf("%d entries published, want the first 100", len(have))
		}
		s.stop()
		w.end(two, kgo.TryCommit)
		before := len(task.commits)
		task.restored[countsStore] = 0
		res, err := r.Restore(t.Context(), w.request(task))
		if err != nil {
			t.Fatal(err)
		}
		if res.Records != 3 || task.restored[countsStore] != 3 || res.Rebuilt != "" {
			t.Errorf("the restore read %d records, want the 3 behind the cut: %+v", res.Records, res)
		}
		if have := task.content(countsStore); len(have) != 103 {
			t.Errorf("%d entries", len(have))
		}
		for _, cp := range task.commits[before:] {
			if cp.Restoring {
				t.Error("the copy did not answer while it was promoted")
			}
		}
	})
}

// TestCR09RolesInTurn: standby and owner ten times in turn, with writes between: nothing is read twice, and after each
// transition the checkpoint is at the applied position.
func TestCR09RolesInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r := w.restorer(nil)
		task := newMemoryTask(t, 0)
		written := 0
		write := func() {
			w.transaction("x", kgo.TryCommit, changelogTopic, 0, kv{string(rune('a' + written)), "1", 1})
			written++
		}
		for range 10 {
			s := w.standby(r, w.standbyRequest(task))
			write()
			time.Sleep(aMoment)
			s.stop()
			if cp := task.Checkpoint(); cp.Changelogs[countsStore].Next != store.Offset(2*written) || cp.Restoring {
				t.Fatalf("as a standby: %+v after %d writes", cp, written)
			}
			write()
			res, err := r.Restore(t.Context(), w.request(task))
			if err != nil || res.Records != 1 || res.Rebuilt != "" {
				t.Fatalf("promoted: %+v, %v", res, err)
			}
		}
		if n := task.restored[countsStore]; n != written || task.wipes != 0 {
			t.Errorf("%d records applied, %d wipes; want %d and none", n, task.wipes, written)
		}
	})
}

// TestStandbyRebuilds: a topic that was made anew, a log that starts behind the copy, one that is cut under it, and a copy
// that is older than deletions are kept: it is dropped, rebuilt, and answers again.
func TestCR07StandbyRebuilds(t *testing.T) {
	old := func(t *testing.T, w *world, r *Restorer, task *memoryTask) {
		s := w.standby(r, w.standbyRequest(task))
		time.Sleep(aMoment)
		if !s.Exact() {
			t.Fatal("not exact")
		}
		s.stop()
	}
	for name, c := range map[string]struct {
		change func(t *testing.T, w *world) (retention time.Duration)
		want   []string
	}{
		"recreated": {func(t *testing.T, w *world) time.Duration {
			if err := errors.Join(w.cluster.DeleteTopic(changelogTopic),
				w.cluster.CreateTopic(changelogTopic, 2, map[string]string{"cleanup.policy": "compact"})); err != nil {
				t.Fatal(err)
			}
			w.produce(changelogTopic, 0, series(30, "new")...)
			return 0
		}, nil},
		"log starts behind it": {func(t *testing.T, w *world) time.Duration {
			w.produce(changelogTopic, 0, kv{"k0", "", 50}, kv{"k1", "", 51})
			w.produce(changelogTopic, 0, kv{"last", "1", 52})
			if err := w.cluster.DeleteRecords(changelogTopic, 0, 12); err != nil {
				t.Fatal(err)
			}
			return 0
		}, []string{"last=1@52"}},
		"too old": {func(t *testing.T, w *world) time.Duration {
			time.Sleep(25 * time.Hour)
			w.produce(changelogTopic, 0, kv{"last", "1", 52})
			return 24 * time.Hour
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.produce(changelogTopic, 0, series(10, "old")...)
				r := w.restorer(nil)
				task := newMemoryTask(t, 0)
				old(t, w, r, task)
				retention := c.change(t, w)
				req := w.standbyRequest(task)
				log := req.Changelogs[countsStore]
				log.Retention = retention
				req.Changelogs[countsStore] = log
				s := w.standby(r, req)
				time.Sleep(aMoment)
				if !s.Exact() || task.wipes != 1 {
					t.Errorf("exact %t, %d wipes", s.Exact(), task.wipes)
				}
				if have := task.content(countsStore); c.want != nil && !slices.Equal(have, c.want) || name == "recreated" && strings.Contains(strings.Join(have, " "), "old") {
					t.Errorf("content %v", have)
				}
			})
		})
	}
}

// TestStandbyTruncatedUnderIt: what the standby has still to read is deleted while it reads.
func TestStandbyTruncatedUnderIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for range 20 {
			w.produce(changelogTopic, 0, series(30, "a")...)
		}
		r := w.restorer(func(c *Config) { c.FetchBytes, c.PartitionBytes = 1024, 1024 })
		task := &moving{memoryTask: newMemoryTask(t, 0), every: 1}
		task.move = func() {
			if task.calls != 1 {
				return
			}
			if err := w.cluster.DeleteRecords(changelogTopic, 0, 595); err != nil {
				t.Error(err)
			}
		}
		s := w.standby(r, w.standbyRequest(task))
		time.Sleep(aMoment)
		if have := task.content(countsStore); !s.Exact() || task.wipes != 1 || len(have) != 5 {
			t.Errorf("exact %t, %d wipes, %v", s.Exact(), task.wipes, have)
		}
	})
}

// TestStandbyAge: an idle copy stays fresh, also when nobody writes any more; under a transaction that hangs it ages; and when
// that has ended it is fresh again, with the inputs that were committed then.
func TestStandbyAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r, rounds := w.restorer(nil), w.rounds(nil)
		task := newMemoryTask(t, 0)
		req := w.standbyRequest(task)
		in := store.TopicPartition{Topic: inputTopic}
		req.Watched = rounds.Watch(task.ID(), []store.TopicPartition{in}, req.Changelogs)
		defer req.Watched.Close()
		age := func() time.Duration {
			t.Helper()
			p, ok := req.Watched.Proof(task.Checkpoint().Changelogs)
			if !ok {
				t.Fatal("nothing is proven")
			}
			return time.Since(p.At)
		}
		const fresh = 500 * time.Millisecond
		if _, ok := req.Watched.Proof(nil); ok {
			t.Error("a proof of nothing")
		}
		w.standby(r, req)
		time.Sleep(aMoment)
		if a := age(); a > fresh {
			t.Errorf("idle and %s old", a)
		}
		owner := w.transactional("owner")
		defer owner.Close()
		w.begin(owner, changelogTopic, 0, kv{"a", "1", 1})
		w.end(owner, kgo.TryCommit)
		w.commitOffset(0, 7, commitmeta.Meta{Sequence: 3, StreamTime: 30})
		time.Sleep(aMoment)
		p, _ := req.Watched.Proof(task.Checkpoint().Changelogs)
		if p.Inputs[in] != 7 || p.Position[inputTopic][0] != 6 || p.Sequence != 3 || p.StreamTime != 30 {
			t.Errorf("proof %+v", p)
		}
		w.begin(owner, changelogTopic, 0, kv{"a", "2", 2})
		time.Sleep(time.Minute) // the owner is gone, and nothing ends its transaction
		if a := age(); a < time.Minute-fresh || a > time.Minute+fresh {
			t.Errorf("%s old under a transaction that hangs for a minute", a)
		}
		w.end(owner, kgo.TryCommit)
		time.Sleep(aMoment)
		wantContent(t, task, countsStore, "a=2@2")
		time.Sleep(time.Minute) // the owner is gone, in between two transactions
		if a := age(); a > fresh {
			t.Errorf("%s old although all is there", a)
		}
		cp := task.Checkpoint()
		if cp.Sequence != 3 || cp.StreamTime != 30 || cp.Inputs[in] != 7 || cp.Position[inputTopic][0] != 6 {
			t.Errorf("checkpoint %+v: not what the rounds know", cp)
		}
	})
}

// TestStandbyOfASourceTopic: a store that is fed from an input shows what the group has committed, and nothing beyond.
func TestStandbyOfASourceTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for _, kvs := range [][]kv{{{"a", "1", 1}, {"b", "1", 1}}, {{"a", "2", 2}}, {{"a", "3", 3}, {"c", "3", 3}}} {
			w.produce(inputTopic, 0, kvs...)
		}
		r, rounds := w.restorer(nil), w.rounds(nil)
		task := newMemoryTask(t, 0)
		log := w.changelog(inputTopic)
		log.Replay = func(rs []Record) error {
			for _, x := range rs {
				if err := task.Restore(countsStore, []store.Change{{Key: x.Key, Value: x.Value, Timestamp: x.Timestamp}}); err != nil {
					return err
				}
			}
			return nil
		}
		in := store.TopicPartition{Topic: inputTopic}
		req := StandbyRequest{Task: task, Changelogs: map[store.Name]Changelog{countsStore: log}}
		if err := r.Standby(t.Context(), req); err == nil || !strings.Contains(err.Error(), inputTopic) {
			t.Fatalf("nobody says where the group stands: %v", err)
		}
		req.Watched = rounds.Watch(task.ID(), []store.TopicPartition{in}, req.Changelogs)
		defer req.Watched.Close()
		s := w.standby(r, req)
		time.Sleep(aMoment)
		wantContent(t, task, countsStore)
		for _, c := range []struct {
			next int64
			want []string
		}{{1, []string{"a=1@1"}}, {3, []string{"a=2@2", "b=1@1"}}, {4, []string{"a=3@3", "b=1@1"}}, {5, []string{"a=3@3", "b=1@1", "c=3@3"}}} {
			w.commitOffset(0, c.next, commitmeta.Meta{Sequence: store.Sequence(c.next)})
			time.Sleep(aMoment)
			wantContent(t, task, countsStore, c.want...)
			if pos := task.Checkpoint().Changelogs[countsStore]; pos.Next != store.Offset(c.next) || !s.Exact() || s.Lag() != 0 {
				t.Errorf("position %d, exact %t, lag %d at offset %d", pos.Next, s.Exact(), s.Lag(), c.next)
			}
			if p, ok := req.Watched.Proof(task.Checkpoint().Changelogs); !ok || time.Since(p.At) > 500*time.Millisecond || p.Inputs[in] != store.Offset(c.next) {
				t.Errorf("proof %+v %t", p, ok)
			}
		}
		if n := task.restored[countsStore]; n != 5 {
			t.Errorf("%d records applied, want 5: each once", n)
		}
		s.stop()
		// It is promoted with the end of the topic still to be processed: nothing is missing up to there, so it answers.
		w.produce(inputTopic, 0, kv{"a", "4", 4})
		w.produce(inputTopic, 0, kv{"a", "5", 5})
		w.commitOffset(0, 6, commitmeta.Meta{Sequence: 6})
		res, err := r.Restore(t.Context(), Request{Task: task, Inputs: []store.TopicPartition{in}, Changelogs: req.Changelogs})
		if err != nil || res.Records != 1 || len(res.Exact) != 0 || task.Checkpoint().Restoring {
			t.Errorf("promoted: %+v, %v, restoring %t", res, err, task.Checkpoint().Restoring)
		}
		wantContent(t, task, countsStore, "a=4@4", "b=1@1", "c=3@3")
	})
}
