package restore

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/statemesh/statemesh/processor/internal/commitmeta"
	"github.com/statemesh/statemesh/store"
)

// TestCR04AbortedTail: the log ends with what was aborted; the end is a position and not a record.
func TestCR04AbortedTail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.produce(changelogTopic, 0, kv{"a", "1", 1})
		w.transaction("x", kgo.TryAbort, changelogTopic, 0, series(100, "bad")...)
		r := w.restorer(nil)
		task := newMemoryTask(t, 0)
		if _, err := r.Restore(t.Context(), w.request(task)); err != nil {
			t.Fatal(err)
		}
		wantContent(t, task, countsStore, "a=1@1")
		if pos := task.Checkpoint().Changelogs[countsStore]; pos.Next != 102 {
			t.Errorf("position %d, want 102: behind the abort marker", pos.Next)
		}
	})
}

// TestCR04MissingChangelog: an error that names the topic, at once.
func TestCR04MissingChangelog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r := w.restorer(nil)
		req := w.request(newMemoryTask(t, 0))
		if err := w.cluster.DeleteTopic(changelogTopic); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		_, err := r.Restore(t.Context(), req)
		if gone, ok := errors.AsType[*TopicChangedError](err); !ok || gone.Topic != changelogTopic || known(gone.Have) {
			t.Errorf("error %v", err)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("took %s", took)
		}
	})
}

// TestCR04TruncatedWhileReading: records that the restore has still to read are deleted under it; it starts again on an
// empty copy and ends with what there is.
func TestCR04TruncatedWhileReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for _, batch := range [][]kv{series(10, "a"), series(10, "b"), {{"last", "1", 99}}} {
			w.produce(changelogTopic, 0, batch...)
		}
		r := w.restorer(func(c *Config) { c.FetchBytes, c.PartitionBytes, c.BufferBytes = 1024, 1024, 1<<20 })
		task := newMemoryTask(t, 0)
		req := w.request(task)
		cut := false
		req.Progress = func(p Progress) {
			if p.Phase == Restoring && !cut { // the bound is known, nothing is fetched yet
				cut = true
				if err := w.cluster.DeleteRecords(changelogTopic, 0, 20); err != nil {
					t.Error(err)
				}
			}
		}
		res, err := r.Restore(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		wantContent(t, task, countsStore, "last=1@99")
		if !strings.Contains(res.Rebuilt, "no longer has offset 0") || task.wipes != 1 {
			t.Errorf("rebuilt %q, %d wipes", res.Rebuilt, task.wipes)
		}
	})
}

// TestCR05Tombstones: deletions delete, whatever batches the records come in.
func TestCR05Tombstones(t *testing.T) {
	all := []kv{{"k1", "v1", 1}, {"k2", "v2", 2}, {"k1", "", 3}, {"k3", "", 4}, {"k2", "v2b", 5}, {"k2", "", 6}, {"k2", "v2c", 7}}
	for split := range len(all) {
		t.Run(fmt.Sprint("split at ", split), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				if split > 0 {
					w.produce(changelogTopic, 0, all[:split]...)
				}
				r := w.restorer(nil)
				task := newMemoryTask(t, 0)
				if _, err := r.Restore(t.Context(), w.request(task)); err != nil {
					t.Fatal(err)
				}
				w.produce(changelogTopic, 0, all[split:]...)
				if _, err := r.Restore(t.Context(), w.request(task)); err != nil {
					t.Fatal(err)
				}
				wantContent(t, task, countsStore, "k2=v2c@7")
				if task.restored[countsStore] != len(all) {
					t.Errorf("%d records applied, want %d: each once", task.restored[countsStore], len(all))
				}
			})
		})
	}
}

// TestCR07RecreatedChangelog: a topic of the same name with fewer, as many or more records is another log. The copy is
// dropped, also that of the other stores of the task; and the caller must have looked first.
func TestCR07RecreatedChangelog(t *testing.T) {
	for name, n := range map[string]int{"empty": 0, "fewer": 3, "as many": 10, "more": 30} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.produce(changelogTopic, 0, series(10, "old")...)
				w.produce(otherTopic, 0, kv{"s", "1", 1})
				r := w.restorer(nil)
				task := newMemoryTask(t, 0)
				before := w.request(task)
				if _, err := r.Restore(t.Context(), before); err != nil {
					t.Fatal(err)
				}
				if err := errors.Join(w.cluster.DeleteTopic(changelogTopic),
					w.cluster.CreateTopic(changelogTopic, 2, map[string]string{"cleanup.policy": "compact"})); err != nil {
					t.Fatal(err)
				}
				if n > 0 {
					w.produce(changelogTopic, 0, series(n, "new")...)
				}
				_, err := r.Restore(t.Context(), before)
				if changed, ok := errors.AsType[*TopicChangedError](err); !ok || changed.Want != before.Changelogs[countsStore].ID || !known(changed.Have) {
					t.Fatalf("restore of the topic that was: %v", err)
				}
				if task.wipes != 0 {
					t.Error("the copy was dropped although the topic is not what the caller asked for")
				}
				res, err := r.Restore(t.Context(), w.request(task))
				if err != nil {
					t.Fatal(err)
				}
				if !strings.Contains(res.Rebuilt, "recreated") || task.wipes != 1 {
					t.Errorf("rebuilt %q, %d wipes", res.Rebuilt, task.wipes)
				}
				if have := task.content(countsStore); len(have) != n || strings.Contains(strings.Join(have, " "), "old") {
					t.Errorf("store: %v, want %d new entries", have, n)
				}
				wantContent(t, task, seenStore, "s=1@1")
			})
		})
	}
}

// TestCR07LogStartsBehindTheCopy: what was deleted between may have been deletions.
func TestCR07LogStartsBehindTheCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.produce(changelogTopic, 0, kv{"gone", "1", 1}, kv{"stays", "1", 1})
		r := w.restorer(nil)
		task := newMemoryTask(t, 0)
		if _, err := r.Restore(t.Context(), w.request(task)); err != nil {
			t.Fatal(err)
		}
		w.produce(changelogTopic, 0, kv{"gone", "", 2})
		w.produce(changelogTopic, 0, kv{"stays", "2", 3})
		if err := w.cluster.DeleteRecords(changelogTopic, 0, 3); err != nil {
			t.Fatal(err)
		}
		res, err := r.Restore(t.Context(), w.request(task))
		if err != nil {
			t.Fatal(err)
		}
		wantContent(t, task, countsStore, "stays=2@3")
		if !strings.Contains(res.Rebuilt, "log starts at 3, local copy at 2") {
			t.Errorf("rebuilt %q", res.Rebuilt)
		}
	})
}

// TestLogStartAtTheBound: everything below the bound was deleted; that counts as reached.
func TestLogStartAtTheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.produce(changelogTopic, 0, series(5, "v")...)
		if err := w.cluster.DeleteRecords(changelogTopic, 0, 5); err != nil {
			t.Fatal(err)
		}
		r := w.restorer(nil)
		task := newMemoryTask(t, 0)
		if _, err := r.Restore(t.Context(), w.request(task)); err != nil {
			t.Fatal(err)
		}
		if pos := task.Checkpoint().Changelogs[countsStore]; pos.Next != 5 {
			t.Errorf("position %d, want 5", pos.Next)
		}
	})
}

// TestM8CompactedLog: records, whole batches and an aborted transaction are cleaned away, the offsets have holes. The
// position still reaches the bound, and an empty copy and one from before the cleaning end the same.
func TestM8CompactedLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		if err := w.cluster.CreateTopic("short-changelog", 1, map[string]string{
			"cleanup.policy": "compact", "delete.retention.ms": "0", "retention.ms": "-1",
		}); err != nil {
			t.Fatal(err)
		}
		r := w.restorer(nil)
		restore := func(task *memoryTask) {
			t.Helper()
			req := w.request(task)
			req.Changelogs = map[store.Name]Changelog{countsStore: w.changelog("short-changelog")}
			if _, err := r.Restore(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			wantContent(t, task, countsStore, "a=3@5", "c=1@2")
			if pos := task.Checkpoint().Changelogs[countsStore]; pos.Next != 9 {
				t.Errorf("position %d, want the bound 9", pos.Next)
			}
		}
		w.produce("short-changelog", 0, kv{"a", "1", 1}, kv{"b", "1", 1})
		old := newMemoryTask(t, 0)
		w.produce("short-changelog", 0, kv{"b", "", 2}, kv{"c", "1", 2})
		w.produce("short-changelog", 0, kv{"a", "2", 3})
		w.transaction("x", kgo.TryAbort, "short-changelog", 0, kv{"d", "bad", 4})
		w.produce("short-changelog", 0, kv{"a", "3", 5})
		w.transaction("y", kgo.TryAbort, "short-changelog", 0)
		w.produce("short-changelog", 0, kv{"e", "", 6})
		restore(old)
		time.Sleep(time.Hour)
		w.cluster.Compact()
		restore(newMemoryTask(t, 0))
		restore(old)
	})
}

// TestM8CleanedTail: the cleaner left nothing between the last record and the end. No batch leads to the bound; the
// broker's empty answer must, although the high watermark is further on.
func TestM8CleanedTail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.produce(changelogTopic, 0, kv{"a", "1", 1})
		w.produce(changelogTopic, 0, kv{"b", "1", 2}, kv{"c", "1", 3})
		id := w.changelog(changelogTopic).ID
		var empties atomic.Int64
		w.cluster.ControlKey(int16(kmsg.Fetch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
			w.cluster.KeepControl()
			empties.Add(1)
			resp := kreq.ResponseKind().(*kmsg.FetchResponse)
			topic := kmsg.NewFetchResponseTopic()
			topic.TopicID = id
			p := kmsg.NewFetchResponseTopicPartition()
			p.HighWatermark, p.LastStableOffset, p.RecordBatches = 3, 3, []byte{}
			topic.Partitions = append(topic.Partitions, p)
			resp.Topics = append(resp.Topics, topic)
			return resp, nil, true
		})
		task := newMemoryTask(t, 0)
		task.cp.Changelogs = map[store.Name]store.LogPosition{countsStore: {TopicID: id, LeaderEpoch: -1, Next: 1}}
		r := w.restorer(nil)
		req := w.request(task)
		req.Changelogs = map[store.Name]Changelog{countsStore: w.changelog(changelogTopic)}
		start := time.Now()
		if _, err := r.Restore(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		if pos := task.Checkpoint().Changelogs[countsStore]; pos.Next != 3 || empties.Load() != 1 {
			t.Errorf("position %d after %d empty answers, want the bound 3 after one", pos.Next, empties.Load())
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("took %s", took)
		}
	})
}

// TestCopyOlderThanDeletions: a copy that stood still for longer than delete.retention.ms may hold keys whose deletion
// the cleaner has taken out of the log.
func TestCopyOlderThanDeletions(t *testing.T) {
	for name, c := range map[string]struct {
		away    time.Duration
		rebuilt bool
	}{"in time": {time.Hour, false}, "too late": {25 * time.Hour, true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.produce(changelogTopic, 0, kv{"gone", "1", 1})
				r := w.restorer(nil)
				task := newMemoryTask(t, 0)
				req := w.request(task)
				log := req.Changelogs[countsStore]
				log.Retention = 24 * time.Hour
				req.Changelogs[countsStore] = log
				if _, err := r.Restore(t.Context(), req); err != nil {
					t.Fatal(err)
				}
				time.Sleep(c.away)
				w.produce(changelogTopic, 0, kv{"new", "1", 2})
				res, err := r.Restore(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				if have := strings.Contains(res.Rebuilt, "deletions are kept for 24h"); have != c.rebuilt {
					t.Errorf("rebuilt %q", res.Rebuilt)
				}
			})
		})
	}
}

// TestPL06PositionsAreNextToRead: one record, none, and a batch that ends on a marker. Nothing is read twice.
func TestPL06PositionsAreNextToRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		r := w.restorer(nil)
		task := newMemoryTask(t, 0)
		for i, step := range []struct {
			write func()
			next  store.Offset
			read  int64
		}{
			{func() {}, 0, 0},
			{func() { w.produce(changelogTopic, 0, kv{"a", "1", 1}) }, 1, 1},
			{func() { w.transaction("x", kgo.TryCommit, changelogTopic, 0, kv{"a", "2", 2}) }, 3, 1},
			{func() {}, 3, 0},
		} {
			step.write()
			w.commitOffset(0, int64(i+1), commitmeta.Meta{Sequence: store.Sequence(i + 1)})
			res, err := r.Restore(t.Context(), w.request(task))
			if err != nil {
				t.Fatal(err)
			}
			cp := task.Checkpoint()
			in := store.TopicPartition{Topic: inputTopic}
			if cp.Changelogs[countsStore].Next != step.next || res.Records != step.read {
				t.Errorf("step %d: position %d after %d records, want %d after %d", i, cp.Changelogs[countsStore].Next, res.Records, step.next, step.read)
			}
			if cp.Inputs[in] != store.Offset(i+1) || res.Inputs[in].Next != store.Offset(i+1) || cp.Position[inputTopic][0] != store.Offset(i) {
				t.Errorf("step %d: inputs %v, position %v", i, cp.Inputs, cp.Position)
			}
		}
	})
}
