package layered_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

// rowsOf reads a copy from its first row to its last, in pieces of about limit bytes.
func rowsOf(tb testing.TB, snap *layered.Snapshot, limit int) (store.CopyHeader, []store.CopyRow) {
	tb.Helper()
	c, err := snap.Copy()
	if err != nil {
		tb.Fatal(err)
	}
	var out []store.CopyRow
	var after store.CopyPlace
	for {
		rows, done, err := c.Read(tb.Context(), after, limit)
		if err != nil {
			tb.Fatal(err)
		}
		for _, r := range rows {
			r.Key, r.Value = bytes.Clone(r.Key), bytes.Clone(r.Value)
			out = append(out, r)
			after = r.Place()
		}
		if done {
			return c.Header(time.Now()), out
		}
		if len(rows) == 0 {
			tb.Fatal("no rows, and more behind them")
		}
	}
}

// load fills a task with a copy.
func load(tb testing.TB, task *layered.Task, h store.CopyHeader, rows []store.CopyRow) {
	tb.Helper()
	l, err := task.Load(tb.Context(), h, time.Now())
	if err != nil {
		tb.Fatal(err)
	}
	if err := l.Add(tb.Context(), rows); err != nil {
		tb.Fatal(err)
	}
	if err := l.Finish(tb.Context()); err != nil {
		tb.Fatal(err)
	}
}

func snapshot(tb testing.TB, task *layered.Task) *layered.Snapshot {
	tb.Helper()
	snap, err := task.Snapshot()
	if err != nil {
		tb.Fatal(err)
	}
	return snap
}

// TestCopy: what one instance reads out of a snapshot is, loaded by another, the same state at the same commit, at once and
// after it was opened again.
func TestCopy(t *testing.T) {
	t.Parallel()
	from := openStores(t, layered.Config{Dir: t.TempDir()})
	donor := openTask(t, from, task0, disk)
	d := kv(t, donor, "d")
	put := func(first, last int, value string) {
		for i := first; i < last; i++ {
			if err := d.Put(fmt.Appendf(nil, "key-%04d", i), store.Value{Data: []byte(value), Timestamp: int64(i)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	put(0, 1000, "engine")
	donor.Commit(checkpoint(1, "d"))
	moveNow(t, from, donor)
	put(500, 1500, "recent")
	if _, _, err := d.Delete([]byte("key-0001")); err != nil {
		t.Fatal(err)
	}
	donor.Commit(checkpoint(2, "d"))
	snap := snapshot(t, donor)
	defer snap.Close()
	want := pinned(t, snap, "d")
	put(0, 10, "later")
	donor.Commit(checkpoint(3, "d"))

	h, rows := rowsOf(t, snap, 1000)
	to := openStores(t, layered.Config{Dir: t.TempDir()})
	task := openTask(t, to, task0, disk)
	load(t, task, h, rows)
	for range 2 {
		if cp := task.Checkpoint(); cp.Restoring || cp.Sequence != 2 || cp.Changelogs["d"] != checkpoint(2, "d").Changelogs["d"] {
			t.Fatalf("checkpoint %+v", cp)
		}
		loaded := snapshot(t, task)
		if d := cmp.Diff(want, pinned(t, loaded, "d")); d != "" {
			t.Errorf("(-want +got)\n%s", d)
		}
		loaded.Close()
		if err := task.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		task = openTask(t, to, task0, disk)
	}
}
