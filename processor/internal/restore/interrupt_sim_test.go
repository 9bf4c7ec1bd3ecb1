package restore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/statemesh/statemesh/store"
)

// writeLong writes n records of 100 keys in small batches, and returns what the store must hold.
func writeLong(w *world, topic string, partition int32, n int) (want []string) {
	oracle := map[string]string{}
	for done := 0; done < n; done += 50 {
		var kvs []kv
		for i := done; i < done+50; i++ {
			x := kv{fmt.Sprintf("k%02d", i*7%100), fmt.Sprint("v", i), int64(i)}
			if i%11 == 0 {
				x.value = ""
				delete(oracle, x.key)
			} else {
				oracle[x.key] = fmt.Sprintf("%s=%s@%d", x.key, x.value, x.at)
			}
			kvs = append(kvs, x)
		}
		w.produce(topic, partition, kvs...)
	}
	for _, k := range slices.Sorted(maps.Keys(oracle)) {
		want = append(want, oracle[k])
	}
	return want
}

// TestCR01InterruptedRestoreGoesOn: restores are cut off at random points, also while chunks are fetched and not yet
// applied. Each goes on at the last applied offset + 1; no checkpoint claims more than was applied; the end equals the
// oracle and nothing was applied from the start again.
func TestCR01InterruptedRestoreGoesOn(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 1))
				w := newWorld(t)
				const total = 2000
				want := writeLong(w, changelogTopic, 0, total)
				r := w.restorer(func(c *Config) { c.FetchBytes, c.PartitionBytes, c.CommitBytes = 2048, 2048, 4096 })
				task := newMemoryTask(t, 0)
				cuts := 0
				for {
					ctx, cancel := context.WithCancel(t.Context())
					left := rng.IntN(total / 4)
					apply := &interrupting{memoryTask: task, left: left, cancel: cancel}
					res, err := r.Restore(ctx, w.request(apply))
					cancel()
					cp := task.Checkpoint()
					if applied := task.restored[countsStore]; int(cp.Changelogs[countsStore].Next) > applied {
						t.Fatalf("checkpoint at %d, %d records applied", cp.Changelogs[countsStore].Next, applied)
					}
					if err == nil {
						if res.Rebuilt != "" {
							t.Errorf("rebuilt: %s", res.Rebuilt)
						}
						break
					}
					if !errors.Is(err, context.Canceled) || !cp.Restoring {
						t.Fatalf("cut: %v, restoring %t", err, cp.Restoring)
					}
					if cuts++; cuts > 200 {
						t.Fatal("no progress from one restore to the next")
					}
				}
				if have := task.content(countsStore); !slices.Equal(have, want) {
					t.Errorf("store differs from the oracle:\n%v\n%v", have, want)
				}
				if task.restored[countsStore] != total {
					t.Errorf("%d records applied over %d restores, want each of %d once", task.restored[countsStore], cuts+1, total)
				}
				if cuts == 0 {
					t.Error("no restore was cut off")
				}
			})
		})
	}
}

// interrupting calls cancel after some records.
type interrupting struct {
	*memoryTask
	left   int
	cancel context.CancelFunc
}

func (i *interrupting) Restore(name store.Name, batch []store.Change) error {
	if i.left -= len(batch); i.left <= 0 {
		i.cancel()
	}
	return i.memoryTask.Restore(name, batch)
}

// TestCR12RestoresComeAndGo: eight tasks are restored while restores are called off and begun again all the time. Every
// task ends with its own state, nothing is rebuilt, and the budget is whole afterwards.
func TestCR12RestoresComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const tasks, n = 8, 400
		w := newWorld(t)
		if err := w.cluster.CreateTopic("wide-changelog", tasks, map[string]string{"cleanup.policy": "compact"}); err != nil {
			t.Fatal(err)
		}
		var all []*memoryTask
		var want [][]string
		for p := range tasks {
			want = append(want, writeLong(w, "wide-changelog", int32(p), n+50*p))
			all = append(all, newMemoryTask(t, store.Partition(p)))
		}
		r := w.restorer(func(c *Config) {
			c.FetchBytes, c.PartitionBytes, c.BufferBytes, c.CommitBytes = 4096, 1024, 1<<20, 4096
		})
		rng := rand.New(rand.NewPCG(7, 7))
		for p, task := range all {
			pauses := make([]int, 20)
			for i := range pauses {
				pauses[i] = rng.IntN(n)
			}
			w.wg.Go(func() {
				for _, left := range pauses {
					ctx, cancel := context.WithCancel(t.Context())
					req := w.request(&interrupting{memoryTask: task, left: left, cancel: cancel})
					req.Changelogs = map[store.Name]Changelog{countsStore: w.changelog("wide-changelog")}
					_, err := r.Restore(ctx, req)
					cancel()
					if err != nil && !errors.Is(err, context.Canceled) {
						t.Errorf("task %d: %v", p, err)
					}
				}
				req := w.request(task)
				req.Changelogs = map[store.Name]Changelog{countsStore: w.changelog("wide-changelog")}
				if res, err := r.Restore(t.Context(), req); err != nil || res.Rebuilt != "" {
					t.Errorf("task %d: %+v, %v", p, res, err)
				}
			})
		}
		w.settle(t, r)
		for p, task := range all {
			if have := task.content(countsStore); !slices.Equal(have, want[p]) {
				t.Errorf("task %d: %d entries, want %d", p, len(have), len(want[p]))
			}
			// CR-17: a checkpoint holds only what is the task's own.
			cp := task.Checkpoint()
			if len(cp.Changelogs) != 1 || int(cp.Changelogs[countsStore].Next) != n+50*p {
				t.Errorf("task %d: checkpoint %+v", p, cp)
			}
		}
	})
}

// settle waits until restores have ended and checks that they left nothing behind.
func (w *world) settle(t *testing.T, r *Restorer) {
	t.Helper()
	for range 3600 {
		time.Sleep(time.Second)
		synctest.Wait()
		if r.active.Load() == 0 {
			break
		}
	}
	time.Sleep(time.Second) // a fetch on its way returns what it took
	synctest.Wait()
	r.budget.mu.Lock()
	defer r.budget.mu.Unlock()
	if r.budget.free != r.cfg.BufferBytes || len(r.budget.waiting) != 0 {
		t.Errorf("budget: %d of %d bytes free, %d waiting", r.budget.free, r.cfg.BufferBytes, len(r.budget.waiting))
	}
}

// TestStoreErrorRollsBack: what the store refuses ends the restore; nothing half applied is committed.
func TestStoreErrorRollsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.produce(changelogTopic, 0, kv{"a", "1", 1})
		r := w.restorer(nil)
		task := newMemoryTask(t, 0)
		task.fail = store.ErrClosed
		if _, err := r.Restore(t.Context(), w.request(task)); !errors.Is(err, store.ErrClosed) {
			t.Errorf("error %v", err)
		}
		if len(task.commits) != 0 || task.UncommittedBytes() != 0 {
			t.Errorf("%d commits, %d bytes uncommitted", len(task.commits), task.UncommittedBytes())
		}
		task.fail = nil
		if _, err := r.Restore(t.Context(), w.request(task)); err != nil {
			t.Fatal(err)
		}
		wantContent(t, task, countsStore, "a=1@1")
	})
}

// TestRestoreAfterRunHasEnded returns at once, also when Run ends under it.
func TestRestoreAfterRunHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.produce(changelogTopic, 0, kv{"a", "1", 1})
		r, err := New(Config{Client: w.direct, Group: group})
		if err != nil {
			t.Fatal(err)
		}
		result := make(chan error, 1)
		w.wg.Go(func() {
			_, err := r.Restore(t.Context(), w.request(newMemoryTask(t, 0)))
			result <- err
		})
		time.Sleep(time.Minute) // nobody runs it yet: it waits
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := r.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("run: %v", err)
		}
		if err := <-result; !errors.Is(err, ErrStopped) {
			t.Errorf("restore under a Run that ended: %v", err)
		}
		if _, err := r.Restore(t.Context(), w.request(newMemoryTask(t, 0))); !errors.Is(err, ErrStopped) {
			t.Errorf("restore after Run: %v", err)
		}
	})
}

// TestSimInterruptedRestoreGrowsOld (CR-01): what an interrupted restore has kept is as old as that restore. Deletions beyond it
// may be gone by the time it goes on.
func TestSimInterruptedRestoreGrowsOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		writeLong(w, changelogTopic, 0, 2000)
		r := w.restorer(func(c *Config) { c.FetchBytes, c.PartitionBytes, c.CommitBytes = 2048, 2048, 4096 })
		for _, after := range []time.Duration{30 * time.Second, 90 * time.Second} {
			task := newMemoryTask(t, 0)
			ctx, cancel := context.WithCancel(t.Context())
			_, err := r.Restore(ctx, w.request(&interrupting{memoryTask: task, left: 1000, cancel: cancel}))
			cancel()
			if cp := task.Checkpoint(); err == nil || !cp.Restoring || cp.Changelogs[countsStore].Next == 0 {
				t.Fatalf("interrupted: %v, checkpoint %+v", err, cp)
			}
			time.Sleep(after)
			req := w.request(task)
			for name, log := range req.Changelogs {
				log.Retention = time.Minute
				req.Changelogs[name] = log
			}
			res, err := r.Restore(t.Context(), req)
			if err != nil || (res.Rebuilt != "") != (after > time.Minute) {
				t.Errorf("after %s: rebuilt %q, %v", after, res.Rebuilt, err)
			}
		}
	})
}
