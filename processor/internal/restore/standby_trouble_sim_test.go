package restore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/statemesh/statemesh/processor/internal/commitmeta"
	"github.com/statemesh/statemesh/store"
)

// TestStandbyErrorsThatPass: leaders move, brokers do not know yet, answers are corrupt: the standby goes on.
func TestStandbyErrorsThatPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r, rounds := w.restorer(nil), w.rounds(nil)
		task := newMemoryTask(t, 0)
		req := w.standbyRequest(task)
		req.Watched = rounds.Watch(task.ID(), nil, req.Changelogs)
		s := w.standby(r, req)
		time.Sleep(aMoment)
		for i, e := range []*kerr.Error{
			kerr.NotLeaderForPartition, kerr.UnknownLeaderEpoch, kerr.FencedLeaderEpoch, kerr.KafkaStorageError, kerr.UnknownTopicOrPartition,
			kerr.OffsetNotAvailable, kerr.CorruptMessage, kerr.UnknownServerError,
		} {
			h := w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch, kmsg.ListOffsets}, Topic: changelogTopic, Err: e, Count: 3})
			if err := w.cluster.MoveTopicPartition(changelogTopic, 0, int32(i%2)); err != nil {
				t.Fatal(err)
			}
			w.produce(changelogTopic, 0, kv{"a", fmt.Sprint(i), int64(i)})
			time.Sleep(5 * time.Second)
			wantContent(t, task, countsStore, fmt.Sprintf("a=%d@%d", i, i))
			p, ok := req.Watched.Proof(task.Checkpoint().Changelogs)
			if !ok || time.Since(p.At) > 500*time.Millisecond || !s.Exact() || h.Hits() != 3 {
				t.Errorf("%s: exact %t, %s old, %d faults", e.Message, s.Exact(), time.Since(p.At), h.Hits())
			}
		}
		if task.wipes != 0 || task.restored[countsStore] != 8 {
			t.Errorf("%d wipes, %d records", task.wipes, task.restored[countsStore])
		}
	})
}

// TestStandbyEndsWithAnError: what does not pass is the caller's: a topic that is gone, one that may not be read, a store that
// refuses, brokers that are away for too long. What was published stays, and none of a chunk that failed.
func TestStandbyEndsWithAnError(t *testing.T) {
	for name, c := range map[string]struct {
		fail func(w *world, task *memoryTask)
		is   func(err error) bool
	}{
		"topic gone": {func(w *world, _ *memoryTask) {
			if err := w.cluster.DeleteTopic(changelogTopic); err != nil {
				w.t.Fatal(err)
			}
		}, func(err error) bool {
			gone, ok := errors.AsType[*TopicChangedError](err)
			return ok && gone.Topic == changelogTopic
		}},
		"not allowed": {func(w *world, _ *memoryTask) {
			w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: changelogTopic, Err: kerr.TopicAuthorizationFailed, Count: -1})
		}, func(err error) bool { return errors.Is(err, kerr.TopicAuthorizationFailed) }},
		"away": {func(w *world, _ *memoryTask) {
			w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: changelogTopic, Err: kerr.NotLeaderForPartition, Count: -1})
		}, func(err error) bool {
			stall, ok := errors.AsType[*StalledError](err)
			return ok && stall.Topic == changelogTopic && stall.Next == 1
		}},
		"store refuses": {func(w *world, task *memoryTask) {
			task.mu.Lock()
			task.fail = errFull
			task.mu.Unlock()
			w.produce(changelogTopic, 0, kv{"b", "1", 1})
		}, func(err error) bool { return errors.Is(err, errFull) }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.produce(changelogTopic, 0, kv{"a", "1", 1})
				r := w.restorer(nil)
				task := newMemoryTask(t, 0)
				s := w.standby(r, w.standbyRequest(task))
				time.Sleep(aMoment)
				c.fail(w, task)
				if err := <-s.done; !c.is(err) || !strings.Contains(err.Error(), "standby of task 0_0") {
					t.Errorf("ended with %v", err)
				}
				wantContent(t, task, countsStore, "a=1@1")
				if cp := task.Checkpoint(); cp.Restoring || cp.Changelogs[countsStore].Next != 1 || task.UncommittedBytes() != 0 || task.wipes != 0 {
					t.Errorf("checkpoint %+v, %d bytes uncommitted", cp, task.UncommittedBytes())
				}
				if time.Sleep(aMoment); r.Bytes() != 0 {
					t.Errorf("%d bytes in use", r.Bytes())
				}
			})
		})
	}
}

var errFull = errors.New("full")

// TestCR01StandbyIsCutOff: a fresh copy that is cut off again and again on its way goes on from where it was, and is not read
// by anybody before it is exact.
func TestCR01StandbyIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		const total = 1000
		want := writeLong(w, changelogTopic, 0, total)
		r := w.restorer(func(c *Config) { c.FetchBytes, c.PartitionBytes = 2048, 2048 })
		task := newMemoryTask(t, 0)
		for range 100 {
			ctx, cancel := context.WithCancel(t.Context())
			left := 150
			err := make(chan error, 1)
			req := w.standbyRequest(&interrupting{memoryTask: task, left: left, cancel: cancel})
			var s *Standby
			req.Begun = func(f *Standby) { s = f }
			go func() { err <- r.Standby(ctx, req) }()
			time.Sleep(aMoment)
			cp := task.Checkpoint()
			if cp.Restoring == s.Exact() {
				t.Fatalf("restoring %t, exact %t", cp.Restoring, s.Exact())
			}
			cancel()
			if e := <-err; !errors.Is(e, context.Canceled) {
				t.Fatal(e)
			}
			if !task.Checkpoint().Restoring {
				break
			}
			if int(task.Checkpoint().Changelogs[countsStore].Next) > task.restored[countsStore] {
				t.Fatalf("checkpoint at %d, %d records applied", task.Checkpoint().Changelogs[countsStore].Next, task.restored[countsStore])
			}
		}
		if have := task.content(countsStore); !slices.Equal(have, want) || task.wipes != 0 {
			t.Errorf("%d entries, want %d; %d wipes", len(have), len(want), task.wipes)
		}
		if n := task.restored[countsStore]; n > total+300 {
			t.Errorf("%d records applied for %d", n, total)
		}
	})
}

// TestM8StandbyOfACleanedLog: the cleaner takes values that the standby has not read yet. It answers with what it had, until
// it has the newer ones; no state that never was is shown.
func TestM8StandbyOfACleanedLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		if err := w.cluster.CreateTopic("short-changelog", 1, map[string]string{"cleanup.policy": "compact", "retention.ms": "-1"}); err != nil {
			t.Fatal(err)
		}
		r := w.restorer(nil)
		task := newMemoryTask(t, 0)
		req := w.standbyRequest(task)
		req.Changelogs = map[store.Name]Changelog{countsStore: w.changelog("short-changelog")}
		w.produce("short-changelog", 0, kv{"first", "1", 1}) // keeps the log's start where it is
		s := w.standby(r, req)
		time.Sleep(aMoment)
		s.stop()
		w.produce("short-changelog", 0, kv{"a", "1", 1}, kv{"b", "1", 1})
		w.produce("short-changelog", 0, kv{"c", "1", 2})
		w.produce("short-changelog", 0, kv{"a", "2", 3})
		w.produce("short-changelog", 0, kv{"d", "1", 4})
		w.cluster.Compact()
		var states []string
		small := w.restorer(func(c *Config) { c.FetchBytes, c.PartitionBytes = 1024, 1024 })
		req.Task = &watching{memoryTask: task, commit: func() { states = append(states, strings.Join(task.content(countsStore), " ")) }}
		s = w.standby(small, req)
		time.Sleep(aMoment)
		if !s.Exact() || task.wipes != 0 {
			t.Errorf("exact %t, %d wipes", s.Exact(), task.wipes)
		}
		wantContent(t, task, countsStore, "a=2@3", "b=1@1", "c=1@2", "d=1@4", "first=1@1")
		for _, state := range states {
			if strings.Contains(state, "b=1@1") && !strings.Contains(state, "a=") {
				t.Errorf("a state that never was: %s", state)
			}
		}
	})
}

// watching sees each commit.
type watching struct {
	*memoryTask
	commit func()
}

func (w *watching) Commit(cp store.Checkpoint) {
	w.memoryTask.Commit(cp)
	if !cp.Restoring {
		w.commit()
	}
}

// TestTooMuchWaits: a transaction that is larger than what may wait is applied before it has ended, and shows when it has.
// What commits meanwhile in another store waits for it.
func TestTooMuchWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.produce(changelogTopic, 0, kv{"a", "1", 1})
		w.produce(otherTopic, 0, kv{"s", "1", 1})
		r := w.restorer(nil)
		task := newMemoryTask(t, 0)
		req := w.standbyRequest(task)
		req.PendingBytes = 2000
		s := w.standby(r, req)
		time.Sleep(aMoment)
		one, two := w.transactional("one"), w.transactional("two")
		defer one.Close()
		defer two.Close()
		w.begin(two, changelogTopic, 0, kv{"x", "two", 2})
		w.begin(one, changelogTopic, 0, kv{"y", "one", 2})
		w.more(two, changelogTopic, 0, series(1000, "big")...)
		w.end(two, kgo.TryCommit) // up to one's data it may be read, and is no whole commit
		w.more(one, changelogTopic, 0, series(1000, "bigger")...)
		w.end(one, kgo.TryCommit)
		time.Sleep(aMoment)
		if have := task.content(countsStore); len(have) != 1003 || !s.Exact() || s.Lag() != 0 {
			t.Errorf("%d entries, exact %t, lag %d", len(have), s.Exact(), s.Lag())
		}
		for _, cp := range task.commits {
			if n := cp.Changelogs[countsStore].Next; cp.Restoring || n != 0 && n != 1 && n != 2005 {
				t.Errorf("a commit at %d, restoring %t", n, cp.Restoring)
			}
		}
		if n := r.standbys.waiting.Load(); n != 0 {
			t.Errorf("%d bytes wait", n)
		}
	})
}

// TestAnsweringCopyIsCutOff: a standby that has begun to apply what is no cut ends: the copy answers with what is published,
// and nothing else is left in it.
func TestAnsweringCopyIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.produce(changelogTopic, 0, kv{"a", "1", 1})
		r := w.restorer(nil)
		task := newMemoryTask(t, 0)
		req := w.standbyRequest(task)
		req.PendingBytes = 100
		s := w.standby(r, req)
		time.Sleep(aMoment)
		one, two := w.transactional("one"), w.transactional("two")
		defer one.Close()
		defer two.Close()
		w.begin(two, changelogTopic, 0, series(1000, "big")...)
		w.begin(one, changelogTopic, 0, kv{"y", "one", 2})
		w.more(two, changelogTopic, 0, kv{"z", "two", 2})
		w.end(two, kgo.TryCommit) // may be read up to one's data
		time.Sleep(aMoment)
		if task.UncommittedBytes() == 0 || !s.Exact() {
			t.Fatalf("%d bytes applied, exact %t", task.UncommittedBytes(), s.Exact())
		}
		s.stop()
		if cp := task.Checkpoint(); cp.Restoring || cp.Changelogs[countsStore].Next != 1 || task.UncommittedBytes() != 0 {
			t.Errorf("checkpoint %+v, %d bytes uncommitted", cp, task.UncommittedBytes())
		}
		wantContent(t, task, countsStore, "a=1@1")
	})
}

// TestWaitingStandbysLeaveRoom: however many standbys wait for a transaction that hangs, others still read.
func TestWaitingStandbysLeaveRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		const n = 12
		if err := w.cluster.CreateTopic("many-changelog", n, nil); err != nil {
			t.Fatal(err)
		}
		one, two := w.transactional("one"), w.transactional("two")
		defer one.Close()
		defer two.Close()
		r := w.restorer(func(c *Config) { c.BufferBytes, c.CommitBytes = 1<<20, 1<<30 })
		var all []*runningStandby
		var tasks []*memoryTask
		for p := range int32(n) {
			task := newMemoryTask(t, store.Partition(p))
			req := StandbyRequest{Task: task, Changelogs: map[store.Name]Changelog{countsStore: w.changelog("many-changelog")}, PendingBytes: 1 << 20}
			all, tasks = append(all, w.standby(r, req)), append(tasks, task)
		}
		time.Sleep(aMoment)
		rng := rand.New(rand.NewPCG(1, 2))
		value := func() string { // nothing that compresses
			b := make([]byte, 1000)
			for i := range b {
				b[i] = byte(rng.IntN(256))
			}
			return string(b)
		}
		if err := errors.Join(one.BeginTransaction(), two.BeginTransaction()); err != nil {
			t.Fatal(err)
		}
		for p := range int32(n) {
			var kvs []kv
			for i := range 100 {
				kvs = append(kvs, kv{fmt.Sprint("k", i), value(), 1})
			}
			w.more(one, "many-changelog", p, kvs...)
			w.more(two, "many-changelog", p, kv{"two", "1", 1})
			w.more(one, "many-changelog", p, kv{"more", "1", 1})
		}
		w.end(one, kgo.TryCommit)
		time.Sleep(aMoment)
		if waits := r.standbys.waiting.Load(); waits > 1<<18 || waits < 1<<17 {
			t.Errorf("%d bytes wait, of %d that may", waits, 1<<18)
		}
		w.produce(changelogTopic, 0, series(100, "v")...)
		task := newMemoryTask(t, 0)
		if _, err := r.Restore(t.Context(), w.request(task)); err != nil || len(task.content(countsStore)) != 100 {
			t.Errorf("a restore beside them: %v", err)
		}
		w.end(two, kgo.TryCommit)
		time.Sleep(aMoment)
		for p, s := range all {
			if have := tasks[p].content(countsStore); len(have) != 102 || !s.Exact() {
				t.Errorf("partition %d: %d entries, exact %t", p, len(have), s.Exact())
			}
		}
		if n := r.standbys.waiting.Load(); n != 0 || r.Bytes() > int64(r.cfg.FetchBytes)*2 {
			t.Errorf("%d bytes wait, %d in use", n, r.Bytes())
		}
	})
}

// TestRestingStandbyStaysYoung: a copy whose changelog rests for longer than deletions are kept is no old copy, after a stop
// or a kill.
func TestRestingStandbyStaysYoung(t *testing.T) {
	for _, kill := range []bool{false, true} {
		t.Run(fmt.Sprint("kill ", kill), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.produce(changelogTopic, 0, kv{"a", "1", 1})
				r := w.restorer(nil)
				task := newMemoryTask(t, 0)
				req := w.standbyRequest(task)
				log := req.Changelogs[countsStore]
				log.Retention = time.Hour
				req.Changelogs[countsStore] = log
				s := w.standby(r, req)
				time.Sleep(90 * time.Minute)
				cp := task.Checkpoint()
				s.stop()
				if kill {
					task.cp = cp
				}
				w.produce(changelogTopic, 0, kv{"b", "1", 1})
				s = w.standby(r, req)
				time.Sleep(aMoment)
				if task.wipes != 0 || !s.Exact() {
					t.Errorf("%d wipes, exact %t", task.wipes, s.Exact())
				}
			})
		})
	}
}

// TestPromotionIsCutOff: a copy that answers goes on to while it is promoted, also when that takes long or is cut off.
func TestPromotionIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.produce(changelogTopic, 0, kv{"a", "1", 1})
		r := w.restorer(func(c *Config) { c.FetchBytes, c.PartitionBytes, c.CommitInterval = 1024, 1024, time.Second })
		task := newMemoryTask(t, 0)
		s := w.standby(r, w.standbyRequest(task))
		time.Sleep(aMoment)
		s.stop()
		for range 20 {
			w.produce(changelogTopic, 0, series(30, "v")...)
		}
		ctx, cancel := context.WithCancel(t.Context())
		slow := &moving{memoryTask: task, every: 30, move: func() { time.Sleep(300 * time.Millisecond) }}
		cut := &interrupting{memoryTask: task, left: 200, cancel: cancel}
		before := len(task.commits)
		if _, err := r.Restore(ctx, w.request(cut)); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if cp := task.Checkpoint(); cp.Restoring || cp.Changelogs[countsStore].Next != 1 || task.UncommittedBytes() != 0 {
			t.Errorf("cut off: %+v", cp)
		}
		if _, err := r.Restore(t.Context(), w.request(slow)); err != nil {
			t.Fatal(err)
		}
		for _, cp := range task.commits[before:] {
			if cp.Restoring {
				t.Error("the copy did not answer while it was promoted")
			}
		}
		if have := task.content(countsStore); len(have) != 31 {
			t.Errorf("%d entries", len(have))
		}
	})
}

// TestManyStandbys: five hundred share the fetches and the rounds; what they cost when nothing happens does not grow with them.
func TestManyStandbys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		const n = 500
		if err := w.cluster.CreateTopic("many-changelog", n, nil); err != nil {
			t.Fatal(err)
		}
		reg := prometheus.NewRegistry()
		r := w.restorer(func(c *Config) { c.Registerer = reg })
		rounds := w.rounds(func(c *RoundsConfig) { c.Registerer = reg })
		before := runtime.NumGoroutine()
		tasks, watched := make([]*memoryTask, n), make([]*Watched, n)
		for p := range n {
			tasks[p] = newMemoryTask(t, store.Partition(p))
			req := StandbyRequest{Task: tasks[p], Changelogs: map[store.Name]Changelog{countsStore: w.changelog("many-changelog")}}
			watched[p] = rounds.Watch(tasks[p].ID(), []store.TopicPartition{{Topic: inputTopic}}, req.Changelogs)
			req.Watched = watched[p]
			w.standby(r, req)
		}
		time.Sleep(5 * time.Second)
		if each := float64(runtime.NumGoroutine()-before) / n; each > 1.1 {
			t.Errorf("%.1f goroutines each", each)
		}
		var requests atomic.Int64
		w.cluster.Control(func(kmsg.Request) (kmsg.Response, error, bool) {
			w.cluster.KeepControl()
			requests.Add(1)
			return nil, nil, false
		})
		time.Sleep(10 * time.Second)
		// Per second: 4 fetches and 5 ListOffsets to each of 2 brokers, 5 OffsetFetch, and now and then who leads.
		if got := requests.Load() / 10; got < 20 || got > 26 {
			t.Errorf("%d requests a second when nothing happens, want 23", got)
		}
		for p := range int32(n) {
			if p%10 == 0 {
				w.produce("many-changelog", p, kv{"a", "1", 1})
			}
		}
		time.Sleep(aMoment)
		for p, task := range tasks {
			proof, ok := watched[p].Proof(task.Checkpoint().Changelogs)
			if have := task.content(countsStore); len(have) != (10-p%10)/10 || !ok || time.Since(proof.At) > 500*time.Millisecond {
				t.Errorf("partition %d: %v, proof %+v %t", p, have, proof, ok)
			}
		}
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		have := map[string]float64{}
		for _, f := range families {
			m := f.GetMetric()[0]
			have[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
		for name, want := range map[string]float64{
			"inexact_tasks": 0, "lag_offsets": 0, "waiting_bytes": 0, "tasks": n, "records_total": 50, "rebuilds_total": 0, "skipped_records_total": 0,
		} {
			if got, ok := have["statemesh_standby_"+name]; !ok || got != want {
				t.Errorf("statemesh_standby_%s: %v %t, want %v", name, got, ok, want)
			}
		}
		if have["statemesh_standby_rounds_total"] < 50 {
			t.Errorf("%v rounds", have["statemesh_standby_rounds_total"])
		}
	})
}

// TestStandbyPace: many commits in a row are fetched together, and a restore does not wait for that.
func TestStandbyPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r := w.restorer(nil)
		task := newMemoryTask(t, 0)
		req := w.standbyRequest(task)
		delete(req.Changelogs, seenStore)
		w.standby(r, req)
		time.Sleep(aMoment)
		var fetches atomic.Int64
		w.cluster.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
			w.cluster.KeepControl()
			fetches.Add(1)
			return nil, nil, false
		})
		cl := w.client(append(w.kafka.Opts(), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
		defer cl.Close()
		for i := range 1000 {
			w.more(cl, changelogTopic, 0, kv{"a", fmt.Sprint(i), int64(i)})
			time.Sleep(time.Millisecond)
		}
		time.Sleep(aMoment)
		wantContent(t, task, countsStore, "a=999@999")
		if n := fetches.Load(); n > 80 {
			t.Errorf("%d fetches for a second of commits, want 50", n)
		}
	})
}

// TestDemotedInPlace: an owner that becomes a standby in place is proven from its own last commit on.
func TestDemotedInPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r, rounds := w.restorer(nil), w.rounds(nil)
		task := newMemoryTask(t, 0)
		if _, err := r.Restore(t.Context(), w.request(task)); err != nil {
			t.Fatal(err)
		}
		w.transaction("owner", kgo.TryCommit, changelogTopic, 0, kv{"a", "1", 1})
		w.commitOffset(0, 5, commitmeta.Meta{Sequence: 9, StreamTime: 7})
		// As an owner commits: its position is behind its last record, and before the marker.
		if err := task.Restore(countsStore, []store.Change{{Key: []byte("a"), Value: []byte("1"), Timestamp: 1}}); err != nil {
			t.Fatal(err)
		}
		cp := task.Checkpoint()
		cp.Changelogs[countsStore] = store.LogPosition{TopicID: cp.Changelogs[countsStore].TopicID, LeaderEpoch: -1, Next: 1}
		cp.Sequence, cp.Inputs = 9, map[store.TopicPartition]store.Offset{{Topic: inputTopic}: 5}
		task.Commit(cp)
		req := w.standbyRequest(task)
		req.Watched = rounds.Watch(task.ID(), []store.TopicPartition{{Topic: inputTopic}}, req.Changelogs)
		s := w.standby(r, req)
		if !s.Exact() && s.Lag() != 1<<63-1 {
			t.Error("an owner's copy is exact")
		}
		time.Sleep(aMoment)
		p, ok := req.Watched.Proof(task.Checkpoint().Changelogs)
		if !ok || time.Since(p.At) > 500*time.Millisecond || p.Sequence != 9 || !s.Exact() {
			t.Errorf("proof %+v %t, exact %t", p, ok, s.Exact())
		}
		if cp := task.Checkpoint(); cp.Changelogs[countsStore].Next != 2 || cp.Sequence != 9 || task.restored[countsStore] != 1 {
			t.Errorf("checkpoint %+v, %d records applied", cp, task.restored[countsStore])
		}
		for _, cp := range task.commits[1:] {
			if cp.Restoring {
				t.Error("not readable in between")
			}
		}
	})
}
