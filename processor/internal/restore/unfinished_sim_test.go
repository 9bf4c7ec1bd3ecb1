package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/processor/internal/commitmeta"
	"github.com/statemesh/statemesh/store"
)

var errDisk = fmt.Errorf("drop: %w", syscall.EIO)

// breakOff is a seed that drops the copy, takes a part of another one, and can neither go on nor drop that.
func breakOff(task *memoryTask) Seed {
	return func(_ context.Context, need Need) (bool, error) {
		need.Dropping()
		task.mu.Lock()
		task.failWipe = errDisk
		task.mu.Unlock()
		return true, task.Wipe(context.Background())
	}
}

func (m *memoryTask) heal() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failWipe = nil
}

// TestUnfinishedCopyIsWiped: what a seed has left that is no copy, since the disk took no writes, is wiped before anything is read into
// it, as soon as that can be done. Until then the restore fails, and nothing is committed.
func TestUnfinishedCopyIsWiped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.produce(changelogTopic, 0, series(50, "v")...)
		w.commitOffset(0, 50, commitmeta.Meta{Sequence: 3})
		r := w.restorer(nil)
		task := newMemoryTask(t, 0)
		req := w.request(task)
		if _, err := r.Restore(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		w.produce(changelogTopic, 0, series(50, "w")...)
		told := 0
		req.Dropping = func() { told++ }
		req.Seed = breakOff(task)
		for range 2 { // the seed fails, then the wipe that comes first
			if _, err := r.Restore(t.Context(), req); !errors.Is(err, syscall.EIO) {
				t.Fatalf("%v, want what the disk said", err)
			}
		}
		task.heal()
		req.Seed = nil
		res, err := r.Restore(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if res.Records != 100 || res.Rebuilt == "" || res.Sequence != 3 || task.wipes != 1 || told != 3 {
			t.Errorf("result %+v, %d wipes, told %d times", res, task.wipes, told)
		}
		if have := task.content(countsStore); len(have) != 50 || !slices.Contains(have, "k7=w7@7") {
			t.Errorf("%v", have)
		}
	})
}

// TestStandbyOfAnUnfinishedCopy: the same for who follows. It is not exact before it is, and then has it all.
func TestStandbyOfAnUnfinishedCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.produce(changelogTopic, 0, series(50, "v")...)
		r := w.restorer(nil)
		task := newMemoryTask(t, 0)
		req := w.standbyRequest(task)
		req.Seed = breakOff(task)
		req.Published = func() {
			if task.Unfinished() {
				t.Error("what is no copy was published")
			}
		}
		for range 2 {
			if err := r.Standby(t.Context(), req); !errors.Is(err, syscall.EIO) {
				t.Fatalf("%v, want what the disk said", err)
			}
		}
		task.heal()
		req.Seed = nil
		s := w.standby(r, req)
		time.Sleep(aMoment)
		if !s.Exact() || s.Lag() != 0 || task.wipes != 1 || len(task.content(countsStore)) != 50 {
			t.Errorf("exact %t, lag %d, %d wipes, %d rows", s.Exact(), s.Lag(), task.wipes, len(task.content(countsStore)))
		}
		s.stop()
	})
}

// TestSeedPutsNothingBack: of two replicas that lag, each in another changelog, neither is a replacement of the other, whatever the sum
// says. Once the local copy is gone any past of the changelogs is one.
func TestSeedPutsNothingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.produce(changelogTopic, 0, series(10, "v")...)
		w.produce(otherTopic, 0, series(10, "v")...)
		r := w.restorer(nil)
		task := newMemoryTask(t, 0)
		req := w.request(task)
		if _, err := r.Restore(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		w.produce(changelogTopic, 0, series(10, "w")...)
		w.produce(otherTopic, 0, series(100, "w")...)
		before := task.Checkpoint()
		at := func(counts, seen store.Offset) store.Checkpoint {
			cp := before.Clone()
			for name, next := range map[store.Name]store.Offset{countsStore: counts, seenStore: seen} {
				pos := cp.Changelogs[name]
				pos.Next = next
				cp.Changelogs[name] = pos
			}
			return cp
		}
		asked := 0
		req.Seed = func(ctx context.Context, need Need) (bool, error) {
			asked++
			if left, err := need.Fits(ctx, at(10, 110), 0); err != nil || left != 10 {
				t.Errorf("as far and further: %d left, %v", left, err)
			}
			_, err := need.Fits(ctx, at(9, 110), 0)
			if e, ok := errors.AsType[*store.CopyRefusedError](err); !ok || e.Store != countsStore {
				t.Errorf("one store behind, the other far ahead: %v", err)
			}
			if all := need.Dropping(); all != 130 {
				t.Errorf("%d offsets in all", all)
			}
			if err := task.Wipe(ctx); err != nil {
				t.Fatal(err)
			}
			if left, err := need.Fits(ctx, at(9, 110), 0); err != nil || left != 11 {
				t.Errorf("in the place of nothing: %d left, %v", left, err)
			}
			return true, nil
		}
		if res, err := r.Restore(t.Context(), req); err != nil || asked != 1 || res.Records != 130 {
			t.Errorf("asked %d times, %d records, %v", asked, res.Records, err)
		}
	})
}

// TestSeedInThePlaceOfAPart: a copy that is not exact, as of an interrupted restore, is replaced by any that spares more than it takes.
func TestSeedInThePlaceOfAPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.produce(changelogTopic, 0, series(10, "v")...)
		w.produce(otherTopic, 0, series(100, "v")...)
		r := w.restorer(nil)
		donor, task := newMemoryTask(t, 0), newMemoryTask(t, 0)
		if _, err := r.Restore(t.Context(), w.request(donor)); err != nil {
			t.Fatal(err)
		}
		part, whole := donor.Checkpoint(), donor.Checkpoint()
		pos := part.Changelogs[seenStore]
		pos.Next = 5
		part.Changelogs[seenStore], part.Restoring = pos, true
		task.Commit(part)
		pos = whole.Changelogs[countsStore]
		pos.Next = 9
		whole.Changelogs[countsStore] = pos
		req := w.request(task)
		req.Seed = func(ctx context.Context, need Need) (bool, error) {
			if left, err := need.Fits(ctx, whole, 0); err != nil || left != 1 || need.Offsets != 95 {
				t.Errorf("%d of %d left, %v", left, need.Offsets, err)
			}
			return false, nil
		}
		if _, err := r.Restore(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	})
}

// TestSeedKeepsTheSequence: after the group's offsets were reset a copy may be ahead by its changelog and behind by its number. Numbers
// of commits never go back: neither of an owner nor of a copy that may become one.
func TestSeedKeepsTheSequence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.transaction("x", kgo.TryCommit, changelogTopic, 0, series(10, "v")...)
		w.commitOffset(0, 10, commitmeta.Meta{Sequence: 500})
		r := w.restorer(nil)
		owner, copied, donor := newMemoryTask(t, 0), newMemoryTask(t, 0), newMemoryTask(t, 0)
		for _, task := range []*memoryTask{owner, copied} {
			if res, err := r.Restore(t.Context(), w.request(task)); err != nil || res.Sequence != 500 {
				t.Fatalf("%+v, %v", res, err)
			}
		}
		w.commitRaw(0, 0, "") // an operator resets them
		w.transaction("x", kgo.TryCommit, changelogTopic, 0, series(10, "w")...)
		w.commitOffset(0, 2, commitmeta.Meta{Sequence: 2})
		if res, err := r.Restore(t.Context(), w.request(donor)); err != nil || res.Sequence != 2 {
			t.Fatalf("%+v, %v", res, err)
		}
		w.transaction("x", kgo.TryCommit, changelogTopic, 0, kv{"k0", "x", 9})
		from := func(task *memoryTask) Seed {
			return func(_ context.Context, need Need) (bool, error) {
				need.Dropping()
				task.take(donor)
				return true, nil
			}
		}
		req := w.request(owner)
		req.Seed = from(owner)
		if res, err := r.Restore(t.Context(), req); err != nil || res.Sequence != 500 || owner.Checkpoint().Sequence != 500 {
			t.Errorf("restored at %d, its copy at %d: %v", res.Sequence, owner.Checkpoint().Sequence, err)
		}
		follow := w.standbyRequest(copied)
		follow.Seed = from(copied)
		s := w.standby(r, follow)
		time.Sleep(aMoment)
		if cp := copied.Checkpoint(); !s.Exact() || cp.Sequence != 500 {
			t.Errorf("exact %t, at %d", s.Exact(), cp.Sequence)
		}
		s.stop()
		// Nor does a copy that is rebuilt forget it.
		owner.cp.Changelogs[countsStore] = store.LogPosition{Next: 1 << 40}
		if res, err := r.Restore(t.Context(), w.request(owner)); err != nil || res.Rebuilt == "" || res.Sequence != 500 {
			t.Errorf("rebuilt: %+v, %v", res, err)
		}
	})
}
