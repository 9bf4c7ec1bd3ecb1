package restore

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/statemesh/statemesh/store"
)

// TestFetchErrorsThatPass: leaders move, brokers do not know yet, answers are corrupt. The restore ends all the same.
func TestFetchErrorsThatPass(t *testing.T) {
	for _, e := range []*kerr.Error{
		kerr.NotLeaderForPartition, kerr.UnknownLeaderEpoch, kerr.FencedLeaderEpoch, kerr.LeaderNotAvailable, kerr.KafkaStorageError,
		kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kerr.OffsetNotAvailable, kerr.CorruptMessage, kerr.UnknownServerError,
	} {
		t.Run(e.Message, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.produce(changelogTopic, 0, kv{"a", "1", 1})
				h := w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: changelogTopic, Err: e, Count: 3})
				r := w.restorer(nil)
				task := newMemoryTask(t, 0)
				if _, err := r.Restore(t.Context(), w.request(task)); err != nil {
					t.Fatal(err)
				}
				wantContent(t, task, countsStore, "a=1@1")
				if h.Hits() != 3 {
					t.Errorf("%d faults, want 3", h.Hits())
				}
			})
		})
	}
}

// TestCF10RefusalsAreNamed: what the brokers do not allow is an error that says what, on what, at once.
func TestCF10RefusalsAreNamed(t *testing.T) {
	for name, c := range map[string]struct {
		fault kfake.Fault
		words []string
	}{
		"read":     {kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: changelogTopic, Err: kerr.TopicAuthorizationFailed}, []string{"changelog " + changelogTopic + "-0", "read"}},
		"describe": {kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: changelogTopic, Err: kerr.TopicAuthorizationFailed}, []string{"changelog " + changelogTopic + "-0", "list offsets"}},
		"group":    {kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetFetch}, Group: group, Err: kerr.GroupAuthorizationFailed}, []string{"group " + group, "read committed offsets"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.produce(changelogTopic, 0, kv{"a", "1", 1})
				w.commitRaw(0, 1, "")
				c.fault.Count = -1
				w.cluster.Fault(c.fault)
				r := w.restorer(nil)
				start := time.Now()
				_, err := r.Restore(t.Context(), w.request(newMemoryTask(t, 0)))
				if !errors.Is(err, c.fault.Err) {
					t.Fatalf("error %v", err)
				}
				for _, word := range c.words {
					if !strings.Contains(err.Error(), word) {
						t.Errorf("%q is not in %q", word, err)
					}
				}
				if took := time.Since(start); took > 30*time.Second {
					t.Errorf("took %s", took)
				}
			})
		})
	}
}

// TestLeadersMoveDuringARestore: partitions change hands between the brokers all the time.
func TestLeadersMoveDuringARestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		want := writeLong(w, changelogTopic, 0, 1000)
		r := w.restorer(func(c *Config) { c.FetchBytes, c.PartitionBytes = 1024, 1024 })
		task := newMemoryTask(t, 0)
		moves := 0
		mover := &moving{memoryTask: task, every: 100, move: func() {
			moves++
			if err := w.cluster.MoveTopicPartition(changelogTopic, 0, int32(moves%2)); err != nil {
				t.Error(err)
			}
		}}
		if _, err := r.Restore(t.Context(), w.request(mover)); err != nil {
			t.Fatal(err)
		}
		if have := task.content(countsStore); !slices.Equal(have, want) {
			t.Errorf("%d entries, want %d", len(have), len(want))
		}
		if moves < 5 || task.restored[countsStore] != 1000 {
			t.Errorf("%d moves, %d records", moves, task.restored[countsStore])
		}
	})
}

// TestBrokersAwayIsAStall: no answer for StallTimeout is an error that says where it stands and why.
func TestBrokersAwayIsAStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.produce(changelogTopic, 0, kv{"a", "1", 1})
		w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: changelogTopic, Err: kerr.NotLeaderForPartition, Count: -1})
		r := w.restorer(func(c *Config) { c.StallTimeout = 20 * time.Second })
		start := time.Now()
		_, err := r.Restore(t.Context(), w.request(newMemoryTask(t, 0)))
		stall, ok := errors.AsType[*StalledError](err)
		if !ok || stall.Topic != changelogTopic || stall.Next != 0 || !errors.Is(err, kerr.NotLeaderForPartition) {
			t.Fatalf("error %v", err)
		}
		if took := time.Since(start); took < 20*time.Second || took > 40*time.Second {
			t.Errorf("gave up after %s", took)
		}
	})
}

// TestTopicDeletedDuringARestore is an error that names it.
func TestTopicDeletedDuringARestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		writeLong(w, changelogTopic, 0, 500)
		r := w.restorer(func(c *Config) { c.FetchBytes, c.PartitionBytes = 1024, 1024 })
		task := &moving{memoryTask: newMemoryTask(t, 0), every: 100}
		task.move = func() {
			if task.calls == 1 {
				if err := w.cluster.DeleteTopic(changelogTopic); err != nil {
					t.Error(err)
				}
			}
		}
		_, err := r.Restore(t.Context(), w.request(task))
		if gone, ok := errors.AsType[*TopicChangedError](err); !ok || gone.Topic != changelogTopic {
			t.Errorf("error %v", err)
		}
	})
}

// TestFetchesAreShared: partitions of one broker travel in one request.
func TestFetchesAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, kfake.NumBrokers(1), kfake.Ports(9092))
		const tasks = 20
		if err := w.cluster.CreateTopic("wide-changelog", tasks, map[string]string{"cleanup.policy": "compact"}); err != nil {
			t.Fatal(err)
		}
		for p := range int32(tasks) {
			w.produce("wide-changelog", p, kv{"a", fmt.Sprint(p), 1})
		}
		fetches := w.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Observe: true, TopLevel: true, Count: -1})
		r, err := New(Config{Client: w.direct, Group: group})
		if err != nil {
			t.Fatal(err)
		}
		// All streams are there before the first fetch.
		for p := range tasks {
			req := w.request(newMemoryTask(t, 0))
			task := req.Task.(*memoryTask)
			task.id.Partition = store.Partition(p)
			req.Changelogs = map[store.Name]Changelog{countsStore: w.changelog("wide-changelog")}
			w.wg.Go(func() {
				if _, err := r.Restore(t.Context(), req); err != nil {
					t.Error(err)
				}
				wantContent(t, task, countsStore, fmt.Sprintf("a=%d@1", p))
			})
		}
		synctest.Wait()
		w.run(r)
		w.settle(t, r)
		if n := fetches.Hits(); n == 0 || n > 3 {
			t.Errorf("%d fetches for %d partitions, want one or a few", n, tasks)
		}
	})
}

// TestPartitionsTakeTurns: when every answer is full after one partition, the one that has waited longest is first in
// each request.
func TestPartitionsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const tasks, n = 4, 1000
		w := newWorld(t, kfake.NumBrokers(1), kfake.Ports(9092))
		if err := w.cluster.CreateTopic("wide-changelog", tasks, map[string]string{"cleanup.policy": "compact"}); err != nil {
			t.Fatal(err)
		}
		for p := range int32(tasks) {
			writeLong(w, "wide-changelog", p, n)
		}
		var requests, shared int
		var servedAt [tasks]int
		w.cluster.ControlKey(int16(kmsg.Fetch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
			w.cluster.KeepControl()
			requests++
			fetch := kreq.(*kmsg.FetchRequest)
			fetch.MaxBytes = 1024 // fakekafka takes the bound out for the sake of aborted transactions; there are none here
			var asked []int32
			for _, topic := range fetch.Topics {
				for _, p := range topic.Partitions {
					asked = append(asked, p.Partition)
				}
			}
			for _, p := range asked[1:] {
				shared++
				if servedAt[p] < servedAt[asked[0]] {
					t.Errorf("request %d: partition %d, last served at %d, comes before %d, last served at %d",
						requests, asked[0], servedAt[asked[0]], p, servedAt[p])
				}
			}
			servedAt[asked[0]] = requests
			return nil, nil, false
		})
		r, err := New(Config{Client: w.direct, Group: group, FetchBytes: 1024, PartitionBytes: 1024})
		if err != nil {
			t.Fatal(err)
		}
		for p := range tasks {
			req := w.request(newMemoryTask(t, store.Partition(p)))
			req.Changelogs = map[store.Name]Changelog{countsStore: w.changelog("wide-changelog")}
			w.wg.Go(func() {
				if _, err := r.Restore(t.Context(), req); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		w.run(r)
		w.settle(t, r)
		if requests < tasks*n/50 || shared == 0 {
			t.Errorf("%d requests, %d partitions shared one", requests, shared)
		}
	})
}
