package layered_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

var versionedSpec = store.Spec{Name: "v", Kind: store.KindVersioned, Retention: time.Second, SegmentInterval: 100 * time.Millisecond}

func versioned(t *testing.T, task *layered.Task) store.Versioned {
	t.Helper()
	v, err := task.Versioned("v")
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func putVersion(t *testing.T, v store.Versioned, key, value string, ts int64) {
	t.Helper()
	val := store.Value{Timestamp: ts}
	if value != "" {
		val.Data = []byte(value)
	}
	if _, err := v.Put([]byte(key), val); err != nil {
		t.Fatal(err)
	}
}

// changes lists what goes to the changelog: key=value@time, "-" for a tombstone.
func changes(task *layered.Task) []string {
	var out []string
	for _, c := range task.Changes() {
		value := "-"
		if c.Value != nil {
			value = string(c.Value)
		}
		out = append(out, fmt.Sprintf("%s=%s@%d", c.Key, value, c.Timestamp))
	}
	return out
}

// TestVersionedChangelog: every put goes to the changelog, in order; of puts of one key and time the last; and the last
// record of each key is its latest version, for that is what compaction keeps.
func TestVersionedChangelog(t *testing.T) {
	t.Parallel()
	s := openStores(t, layered.Config{Dir: t.TempDir()})
	task := openTask(t, s, task0, versionedSpec)
	v := versioned(t, task)
	commits := 0
	logs := func(want ...string) {
		t.Helper()
		for range 2 {
			if d := cmp.Diff(want, changes(task)); d != "" {
				t.Errorf("changes (-want +got)\n%s", d)
			}
		}
		commits++
		task.Commit(checkpoint(commits, "v"))
		if got := changes(task); got != nil {
			t.Errorf("changes after a commit: %q", got)
		}
	}
	putVersion(t, v, "a", "1", 10)
	putVersion(t, v, "b", "1", 15)
	putVersion(t, v, "a", "2", 20)
	logs("a=1@10", "b=1@15", "a=2@20")

	putVersion(t, v, "a", "3", 30)
	putVersion(t, v, "a", "4", 30)
	putVersion(t, v, "c", "1", 31)
	logs("a=4@30", "c=1@31")

	putVersion(t, v, "a", "late", 25) // the latest is of an earlier commit
	logs("a=late@25", "a=4@30")

	putVersion(t, v, "a", "5", 40)
	putVersion(t, v, "a", "late", 35) // the latest is of this one
	putVersion(t, v, "a", "later", 36)
	logs("a=late@35", "a=later@36", "a=5@40")

	putVersion(t, v, "a", "", 50)
	putVersion(t, v, "a", "late", 45) // the latest is a tombstone
	logs("a=late@45", "a=-@50")
	putVersion(t, v, "a", "late", 46)
	putVersion(t, v, "a", "", 47)
	logs("a=late@46", "a=-@47", "a=-@50")

	putVersion(t, v, "a", "6", 60) // on top again
	putVersion(t, v, "a", "", 55)
	putVersion(t, v, "a", "7", 61)
	logs("a=-@55", "a=6@60", "a=7@61")

	// What is handed out stays as it is.
	putVersion(t, v, "x", "aaaa", 70)
	var held []store.Change
	for _, c := range task.Changes() {
		held = append(held, c)
	}
	putVersion(t, v, "x", "bbbb", 70)
	putVersion(t, v, "x", "cccc", 71)
	if len(held) != 1 || string(held[0].Key) != "x" || string(held[0].Value) != "aaaa" {
		t.Errorf("what was handed out has changed: %v", held)
	}
	logs("x=bbbb@70", "x=cccc@71")

	putVersion(t, v, "x", "dddd", 80)
	task.Rollback()
	if got := changes(task); got != nil {
		t.Errorf("changes after a rollback: %q", got)
	}
	before := task.UncommittedBytes()
	putVersion(t, v, "x", "dddd", 80)
	if task.UncommittedBytes() < before+int64(2*len("xdddd")) {
		t.Errorf("a put costs %d bytes", task.UncommittedBytes()-before)
	}
	putVersion(t, v, "z", "empty follows", 2000)
	if _, err := v.Put([]byte("z"), store.Value{Data: []byte{}, Timestamp: 2001}); err != nil {
		t.Fatal(err)
	}
	putVersion(t, v, "x", "too late", 999) // refused
	logs("x=dddd@80", "z=empty follows@2000", "z=@2001")

	if err := task.Restore("v", []store.Change{{Key: []byte("r"), Value: []byte("1"), Timestamp: 2000}}); err != nil {
		t.Fatal(err)
	}
	logs()
	if err := task.Restore("v", []store.Change{{Key: []byte("r"), Value: []byte("1"), Timestamp: -1}}); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("a version without a time: %v", err)
	}
	task.Rollback()
}

// TestVersionedNoChangelog: a store without a changelog keeps no log of puts.
func TestVersionedNoChangelog(t *testing.T) {
	t.Parallel()
	s := openStores(t, layered.Config{Dir: t.TempDir()})
	spec := versionedSpec
	spec.NoChangelog = true
	task := openTask(t, s, task0, spec)
	v := versioned(t, task)
	putVersion(t, v, "a", "1", 10)
	putVersion(t, v, "a", "0", 5)
	if got := changes(task); got != nil {
		t.Errorf("changes %q", got)
	}
	if got, err := v.GetAsOf([]byte("a"), 7); err != nil || got.ValidTo != 10 {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestVersionedReopened: history goes on to expire where it was, by the store's own time, after a restart; the latest version
// stays, whatever became of its segment (QS-09, QS-11).
func TestVersionedReopened(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for n, c := range []struct {
		puts, refused []int64
		asOf          map[int64]int64 // the start of what was valid then, -1 for nothing
	}{
		{puts: []int64{100, 500, 1000}, asOf: map[int64]int64{99: -1, 100: 100, 499: 100, 500: 500, 1000: 1000}},
		{puts: []int64{1500}, refused: []int64{499}, asOf: map[int64]int64{499: -1, 500: 500, 999: 500, 1499: 1000, 1600: 1500}},
		{refused: []int64{499}, asOf: map[int64]int64{499: -1, 500: 500, 1600: 1500}},
		{puts: []int64{2100}, refused: []int64{1099}, asOf: map[int64]int64{1000: -1, 1099: -1, 1100: 1000, 1499: 1000, 2000: 1500}},
		{asOf: map[int64]int64{1099: -1, 1100: 1000}},
		{puts: []int64{9000}, refused: []int64{7999}, asOf: map[int64]int64{2100: -1, 7999: -1, 8000: 2100, 9000: 9000}},
	} {
		s, err := layered.Open(t.Context(), layered.Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		task := openTask(t, s, task0, versionedSpec)
		v := versioned(t, task)
		if n == 0 {
			putVersion(t, v, "still", "here", 1)
		}
		for _, at := range c.puts {
			putVersion(t, v, "k", fmt.Sprint(at), at)
			task.Commit(checkpoint(100*n+int(at), "v"))
		}
		for _, at := range c.refused {
			if end, err := v.Put([]byte("k"), store.Value{Data: []byte("late"), Timestamp: at}); err != nil || end != store.NotPut {
				t.Errorf("start %d: put at %d ends at %d, %v: it is too old", n, at, end, err)
			}
		}
		task.Rollback()
		for at, from := range c.asOf {
			switch got, err := v.GetAsOf([]byte("k"), at); {
			case from < 0 && !errors.Is(err, store.ErrNotFound):
				t.Errorf("start %d: as of %d: %+v, %v, want nothing", n, at, got, err)
			case from >= 0 && (err != nil || got.Timestamp != from || string(got.Data) != fmt.Sprint(from)):
				t.Errorf("start %d: as of %d: %+v, %v, want that of %d", n, at, got, err, from)
			}
		}
		if got, err := v.GetAsOf([]byte("still"), 1); err != nil || string(got.Data) != "here" {
			t.Errorf("start %d: the latest version of an old key: %+v, %v", n, got, err)
		}
		moveNow(t, s, task)
		layered.ReclaimNow(t, s)
		ctx := context.WithoutCancel(t.Context())
		if err := errors.Join(task.Close(ctx), s.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestVersionedReaders: readers beside a writer see whole commits: both keys have the same history, and each way to read
// shows it.
func TestVersionedReaders(t *testing.T) {
	t.Parallel()
	s := openStores(t, layered.Config{Dir: t.TempDir()})
	task := openTask(t, s, task0, versionedSpec)
	v := versioned(t, task)
	task.Commit(checkpoint(0, "v"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for ctx.Err() == nil {
				if err := compareHistories(t.Context(), task); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	rng := rand.New(rand.NewPCG(1, 1))
	now := int64(0)
	for n := range 300 {
		now += rng.Int64N(40)
		for range 1 + rng.IntN(20) {
			at, value := max(0, now-rng.Int64N(600)), fmt.Sprint(rng.Uint32())
			if rng.IntN(4) == 0 {
				value = ""
			}
			for _, key := range []string{"a", "b"} {
				putVersion(t, v, key, value, at)
			}
		}
		if rng.IntN(10) == 0 {
			task.Rollback()
			continue
		}
		task.Commit(checkpoint(n+1, "v"))
		if rng.IntN(10) == 0 {
			moveNow(t, s, task)
		}
	}
	cancel()
	readers.Wait()
}

// compareHistories compares two keys at one snapshot.
func compareHistories(ctx context.Context, task *layered.Task) error {
	snap, err := task.Snapshot()
	if err != nil {
		return err
	}
	defer snap.Close()
	r, err := snap.Versions("v")
	if err != nil {
		return err
	}
	var read [2][]store.Version
	for i, key := range []string{"a", "b"} {
		it, err := r.Scan(ctx, store.VersionScan{Key: []byte(key), To: math.MaxInt64})
		if err != nil {
			return err
		}
		for it.Next() {
			read[i] = append(read[i], store.Version{Value: it.Entry().Value, ValidTo: it.Entry().End})
		}
		it.Close()
		if err := it.Err(); err != nil {
			return err
		}
	}
	if d := cmp.Diff(read[0], read[1]); d != "" {
		return fmt.Errorf("two keys that get the same differ\n%s", d)
	}
	oldest := snap.Checkpoint().StoreTimes["v"] - versionedSpec.Retention.Milliseconds()
	for i, v := range read[0] {
		if i > 0 && read[0][i-1].ValidTo > v.Timestamp {
			return fmt.Errorf("version %d begins at %d, the one before ends at %d", i, v.Timestamp, read[0][i-1].ValidTo)
		}
		got, err := r.GetAsOf(ctx, []byte("b"), max(v.Timestamp, oldest))
		if d := cmp.Diff(v, got); err != nil || d != "" {
			return fmt.Errorf("as of %d: %w (-scan +get)\n%s", v.Timestamp, err, d)
		}
	}
	return nil
}
