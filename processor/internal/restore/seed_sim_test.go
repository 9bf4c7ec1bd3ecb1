package restore

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/processor/internal/commitmeta"
	"github.com/statemesh/statemesh/store"
)

// take makes a task what another one is, as a copy of that does.
func (m *memoryTask) take(from *memoryTask) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.committed = make(map[store.Name]map[string]store.Value)
	for name, kv := range from.committed {
		m.committed[name] = maps.Clone(kv)
	}
	m.cp = from.Checkpoint()
}

// TestSeedThenTail: what a seed brings is not read again. What is written and committed while it comes is read after it, and the
// bound is asked for after it, in the order of any restore.
func TestSeedThenTail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.produce(changelogTopic, 0, series(100, "v")...)
		w.commitOffset(0, 100, commitmeta.Meta{Sequence: 1})
		r := w.restorer(nil)
		donor := newMemoryTask(t, 0)
		if _, err := r.Restore(t.Context(), w.request(donor)); err != nil {
			t.Fatal(err)
		}
		w.transaction("x", kgo.TryCommit, changelogTopic, 0, kv{"k0", "newer", 200}, kv{"k1", "", 200})
		task := newMemoryTask(t, 0)
		req := w.request(task)
		asked := 0
		req.Seed = func(ctx context.Context, need Need) (bool, error) {
			asked++
			if need.Offsets != 103 {
				t.Errorf("%d offsets to read, want 103", need.Offsets)
			}
			left, err := need.Fits(ctx, donor.Checkpoint(), time.Second)
			if err != nil || left != 3 {
				t.Errorf("%d offsets are left: %v", left, err)
			}
			task.take(donor)
			w.produce(changelogTopic, 0, kv{"late", "1", 300})
			w.commitOffset(0, 101, commitmeta.Meta{Sequence: 2})
			return true, nil
		}
		res, err := r.Restore(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if asked != 1 || res.Records != 3 || res.Rebuilt != "" || task.wipes != 0 {
			t.Errorf("asked %d times, %d records, rebuilt %q: want one, the 3 behind the copy, and nothing", asked, res.Records, res.Rebuilt)
		}
		if res.Sequence != 2 || res.Inputs[store.TopicPartition{Topic: inputTopic}].Next != 101 {
			t.Errorf("result %+v: want what was committed meanwhile", res)
		}
		have := task.content(countsStore)
		if len(have) != 100 || !slices.Contains(have, "k0=newer@200") || !slices.Contains(have, "late=1@300") {
			t.Errorf("%d rows: %v", len(have), have)
		}
	})
}

// TestSeedThatFails leaves the changelog to be read, from where the copy is; it is asked once. Its error ends the restore.
func TestSeedThatFails(t *testing.T) {
	for name, c := range map[string]struct {
		seed    func(task *memoryTask) (bool, error)
		records int64
	}{
		"asked in vain": {func(*memoryTask) (bool, error) { return false, nil }, 50},
		"and dropped":   {func(task *memoryTask) (bool, error) { return true, task.Wipe(context.Background()) }, 100},
		"of another past": {func(task *memoryTask) (bool, error) {
			task.cp.Changelogs[countsStore] = store.LogPosition{Next: 1 << 40}
			return true, nil
		}, 100},
		"with an error": {func(*memoryTask) (bool, error) { return true, store.ErrCorrupt }, -1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.produce(changelogTopic, 0, series(50, "v")...)
				r := w.restorer(nil)
				task := newMemoryTask(t, 0)
				req := w.request(task)
				if _, err := r.Restore(t.Context(), req); err != nil {
					t.Fatal(err)
				}
				w.produce(changelogTopic, 0, series(50, "w")...)
				asked := 0
				req.Seed = func(context.Context, Need) (bool, error) {
					asked++
					return c.seed(task)
				}
				res, err := r.Restore(t.Context(), req)
				switch {
				case asked != 1:
					t.Errorf("asked %d times", asked)
				case c.records < 0:
					if !errors.Is(err, store.ErrCorrupt) {
						t.Errorf("error %v", err)
					}
					return
				case err != nil || res.Records != c.records:
					t.Errorf("%d records, want %d: %v", res.Records, c.records, err)
				}
				if have := task.content(countsStore); len(have) != 50 || !slices.Contains(have, "k7=w7@7") {
					t.Errorf("%v", have)
				}
			})
		})
	}
}

// TestSeedMustFit: a state is taken only if it is a past of the changelogs as they are: of the same topic, within it, and not
// from before deletions that are gone.
func TestSeedMustFit(t *testing.T) {
	pos := func(at *store.LogPosition, change func(*store.LogPosition)) store.LogPosition {
		p := *at
		change(&p)
		return p
	}
	for name, c := range map[string]struct {
		change func(*store.LogPosition)
		age    time.Duration
		reason string
	}{
		"as it is":        {func(*store.LogPosition) {}, time.Hour, ""},
		"recreated topic": {func(p *store.LogPosition) { p.TopicID[3] ^= 1 }, 0, "recreated"},
		"beyond the end":  {func(p *store.LogPosition) { p.Next = 1000 }, 0, "log ends at"},
		"no offset":       {func(p *store.LogPosition) { p.Next = -1 }, 0, "no offset"},
		"later epoch":     {func(p *store.LogPosition) { p.LeaderEpoch = 1000 }, 0, "leader epoch"},
		"before the log":  {func(p *store.LogPosition) { p.Next = 5 }, 0, "log starts at"},
		"too old":         {func(*store.LogPosition) {}, 25 * time.Hour, "deletions are kept"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.produce(changelogTopic, 0, series(50, "v")...)
				r := w.restorer(nil)
				donor := newMemoryTask(t, 0)
				if _, err := r.Restore(t.Context(), w.request(donor)); err != nil {
					t.Fatal(err)
				}
				w.produce(changelogTopic, 0, series(50, "w")...)
				if err := w.cluster.DeleteRecords(changelogTopic, 0, 10); err != nil {
					t.Fatal(err)
				}
				task := newMemoryTask(t, 0)
				req := w.request(task)
				log := req.Changelogs[countsStore]
				log.Retention = 24 * time.Hour
				req.Changelogs[countsStore] = log
				req.Seed = func(ctx context.Context, need Need) (bool, error) {
					cp := donor.Checkpoint()
					at := cp.Changelogs[countsStore]
					cp.Changelogs[countsStore] = pos(&at, c.change)
					_, err := need.Fits(ctx, cp, c.age)
					refused, ok := errors.AsType[*store.CopyRefusedError](err)
					switch {
					case c.reason == "" && err != nil, c.reason != "" && !ok:
						t.Errorf("fits: %v", err)
					case ok && (!strings.Contains(refused.Reason, c.reason) || refused.Store != countsStore):
						t.Errorf("refused by %v, want %q", refused, c.reason)
					}
					delete(cp.Changelogs, countsStore)
					if _, err := need.Fits(ctx, cp, 0); !errors.Is(err, store.ErrCopyRefused) {
						t.Errorf("a state without a position: %v", err)
					}
					return false, nil
				}
				if _, err := r.Restore(t.Context(), req); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// TestSeedTruncated: a state that had read what the leader's log no longer has is none of its past (KIP-101).
func TestSeedTruncated(t *testing.T) {
	e := evidence{
		logged: true, end: 100, leaderEpoch: 5, epochEnd: 60, have: &store.LogPosition{LeaderEpoch: 3, Next: 80},
	}
	if v := judge(e); v.action != rebuild || !strings.Contains(v.reason, "truncated") {
		t.Errorf("%+v", v)
	}
}

// TestSeededStandby is exact with the copy, and publishes what follows. It asks again when it has to begin anew after that.
func TestSeededStandby(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.produce(changelogTopic, 0, series(100, "v")...)
		r := w.restorer(nil)
		donor := newMemoryTask(t, 0)
		if _, err := r.Restore(t.Context(), w.request(donor)); err != nil {
			t.Fatal(err)
		}
		w.produce(changelogTopic, 0, kv{"k0", "newer", 200})
		task := newMemoryTask(t, 0)
		req := w.standbyRequest(task)
		asked, dropped, told := 0, 0, 0
		req.Dropping = func() { told++ }
		req.Seed = func(_ context.Context, need Need) (bool, error) {
			if asked++; asked > 1 {
				return false, nil
			}
			need.Dropping()
			dropped++
			task.take(donor)
			return true, nil
		}
		s := w.standby(r, req)
		time.Sleep(aMoment)
		if !s.Exact() || s.Lag() != 0 || asked != 1 || dropped != 1 || told != 1 {
			t.Errorf("exact %t, lag %d, asked %d times, told %d times", s.Exact(), s.Lag(), asked, told)
		}
		if n := task.restored[countsStore]; n != 1 {
			t.Errorf("%d records were read, want the one behind the copy", n)
		}
		if have := task.content(countsStore); len(have) != 100 || !slices.Contains(have, "k0=newer@200") {
			t.Errorf("%v", have)
		}
		for _, cp := range task.commits {
			if cp.Restoring {
				t.Errorf("a commit that is not exact: %+v", cp)
			}
		}
		// The changelog loses what the copy has still to read.
		s.stop()
		w.produce(changelogTopic, 0, series(10, "x")...)
		if err := w.cluster.DeleteRecords(changelogTopic, 0, 105); err != nil {
			t.Fatal(err)
		}
		s = w.standby(r, req)
		time.Sleep(aMoment)
		if !s.Exact() || asked != 2 || task.wipes != 1 || told != 2 {
			t.Errorf("exact %t, asked %d times, %d wipes, told %d times: want it to be rebuilt, and asked for", s.Exact(), asked, task.wipes, told)
		}
		s.stop()
		if n := r.active.Load(); n != 0 {
			t.Errorf("%d are said to apply", n)
		}
	})
}
