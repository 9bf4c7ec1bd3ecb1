package layered_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
	"github.com/statemesh/statemesh/store/storetest"
)

// copySpecs are stores of every kind whose rows a copy can have.
func copySpecs(inMemory bool) []store.Spec {
	specs := []store.Spec{
		{Name: "d", Kind: store.KindWindow, WindowSize: time.Second, RetainDuplicates: true},
		{Name: "k", Kind: store.KindKeyValue},
		{Name: "s", Kind: store.KindSession},
		{Name: "t", Kind: store.KindTimestampedKeyValue},
		{Name: "v", Kind: store.KindVersioned},
		{Name: "w", Kind: store.KindTimestampedWindow, WindowSize: time.Second},
	}
	for i := range specs {
		specs[i].InMemory = inMemory
		if specs[i].Kind > store.KindTimestampedKeyValue {
			specs[i].Retention, specs[i].SegmentInterval = 10*time.Second, time.Second
		}
	}
	return specs
}

// copyHeader is that of a copy of such stores, whose time is now.
func copyHeader(specs []store.Spec, now int64) store.CopyHeader {
	h := store.CopyHeader{Format: store.CopyFormat, Checkpoint: checkpoint(7)}
	h.Checkpoint.StoreTimes = make(map[store.Name]int64)
	for _, s := range specs {
		h.Stores = append(h.Stores, store.CopyStoreOf(s))
		h.Checkpoint.Changelogs[s.Name] = store.LogPosition{Next: 70}
		if s.Retention > 0 && now >= 0 {
			h.Checkpoint.StoreTimes[s.Name] = now
		}
	}
	return h
}

// stamped is a value with a time before it.
func stamped(at uint64, value string) []byte {
	return append(binary.BigEndian.AppendUint64(nil, at), value...)
}

// goodRows are rows that a copy of copySpecs may have at time 20,000.
func goodRows() []store.CopyRow {
	return []store.CopyRow{
		{Store: 0, Segment: 20, Key: store.WindowKey([]byte("a"), 19_000, 0)},
		{Store: 0, Segment: 20, Key: store.WindowKey([]byte("a"), 19_000, 1), Value: []byte("x")},
		{Store: 1, Key: []byte("a"), Value: []byte("x")},
		{Store: 1, Key: []byte("b")},
		{Store: 2, Segment: 20, Key: store.SessionKey([]byte("a"), 0, 19_999), Value: []byte("x")},
		{Store: 3, Key: []byte("a"), Value: stamped(1, "")},
		{Store: 4, Key: []byte("a"), Value: stamped(20_000, "x")},
		{Store: 4, Segment: 20, Key: store.VersionKey([]byte("a"), 19_100), Value: stamped(19_100, "")},
		{Store: 4, Segment: 21, Key: store.VersionKey([]byte("a"), 3), Value: stamped(20_000, "old")},
		{Store: 5, Segment: 12, Key: store.WindowKey([]byte("a"), 11_000, 0), Value: stamped(1, "x")},
	}
}

// TestLoadRefuses: a copy whose rows would lie elsewhere here, or that says too little, is refused by name before anything of
// the task is touched.
func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	specs := copySpecs(false)
	s := openStores(t, layered.Config{Dir: t.TempDir()})
	task := openTask(t, s, task0, append(specs, store.Spec{Name: "u", Kind: store.KindKeyValue, NoChangelog: true})...)
	set(t, task, "k", "mine", "1")
	mine := checkpoint(1, "d", "k", "s", "t", "v", "w")
	task.Commit(mine)
	for name, c := range map[string]struct {
		change func(*store.CopyHeader)
		store  store.Name
		reason string
	}{
		"format":            {func(h *store.CopyHeader) { h.Format++ }, "", "format 2"},
		"task":              {func(h *store.CopyHeader) { h.Task.Partition = 9 }, "", "task 0_9"},
		"part":              {func(h *store.CopyHeader) { h.Checkpoint.Restoring = true }, "", "no whole state"},
		"kind":              {func(h *store.CopyHeader) { h.Stores[1].Kind = store.KindTimestampedKeyValue }, "k", "timestamped-key-value"},
		"retention":         {func(h *store.CopyHeader) { h.Stores[2].Retention++ }, "s", "retention"},
		"segments":          {func(h *store.CopyHeader) { h.Stores[4].Segment *= 2 }, "v", "segment interval is 2s"},
		"duplicates":        {func(h *store.CopyHeader) { h.Stores[0].Duplicates = false }, "d", "duplicates"},
		"a store less":      {func(h *store.CopyHeader) { h.Stores = h.Stores[1:] }, "d", "not in the copy"},
		"a store twice":     {func(h *store.CopyHeader) { h.Stores[0] = h.Stores[1] }, "k", "twice"},
		"an unknown store":  {func(h *store.CopyHeader) { h.Stores[0].Name = "x" }, "x", "no logged store"},
		"an unlogged store": {func(h *store.CopyHeader) { h.Stores[1].Name = "u" }, "u", "no logged store"},
		"no position":       {func(h *store.CopyHeader) { delete(h.Checkpoint.Changelogs, "t") }, "t", "no changelog position"},
		"position":          {func(h *store.CopyHeader) { h.Checkpoint.Changelogs["t"] = store.LogPosition{Next: -1} }, "t", "no changelog position"},
		"time":              {func(h *store.CopyHeader) { h.Checkpoint.StoreTimes["w"] = -5 }, "w", "time -5"},
		"a time too many":   {func(h *store.CopyHeader) { h.Checkpoint.StoreTimes["k"] = 5 }, "k", "time 5"},
		"number":            {func(h *store.CopyHeader) { h.Stores[0].Last = -1 }, "d", "number -1"},
		"sequence":          {func(h *store.CopyHeader) { h.Checkpoint.Sequence = -1 }, "", "commit -1"},
	} {
		h := copyHeader(specs, 20_000)
		c.change(&h)
		_, err := task.Load(t.Context(), h, time.Now())
		if asked := task.Accepts(h); asked == nil || asked.Error() != err.Error() {
			t.Errorf("%s: would be refused by %v, and is by %v", name, asked, err)
		}
		refused, ok := errors.AsType[*store.CopyRefusedError](err)
		if !ok || !errors.Is(err, store.ErrCopyRefused) || refused.Store != c.store || !strings.Contains(refused.Reason, c.reason) {
			t.Errorf("%s: %v", name, err)
		}
	}
	snap := snapshot(t, task)
	defer snap.Close()
	if got := pinned(t, snap, "k"); got["mine"] != "1" || task.Checkpoint().Sequence != 1 {
		t.Errorf("after refusals: %v, %+v", got, task.Checkpoint())
	}
}

// TestLoadBroken: a row that no copy has is an error that names it, and the task is empty after it and fit for another load.
func TestLoadBroken(t *testing.T) {
	t.Parallel()
	s := openStores(t, layered.Config{Dir: t.TempDir(), MaxRecordBytes: 1000})
	layered.LoadBytes(s, 1)
	long := make([]byte, 2000)
	for name, c := range map[string]struct {
		row    store.CopyRow
		store  store.Name
		reason string
	}{
		"unknown store":     {store.CopyRow{Store: 6, Key: []byte("z")}, "", "store 6 of 6"},
		"twice":             {store.CopyRow{Store: 1, Key: []byte("b")}, "k", "not behind"},
		"before":            {store.CopyRow{Store: 1, Key: []byte("aa")}, "k", "not behind"},
		"former store":      {store.CopyRow{Store: 0, Segment: 99, Key: []byte("z")}, "d", "not behind"},
		"no key":            {store.CopyRow{Store: 3, Value: stamped(1, "")}, "t", "empty"},
		"long key":          {store.CopyRow{Store: 1, Key: append([]byte("c"), long...)}, "k", "above 1000"},
		"long value":        {store.CopyRow{Store: 1, Key: []byte("c"), Value: long}, "k", "above 1000"},
		"no timestamp":      {store.CopyRow{Store: 3, Key: []byte("a"), Value: long[:7]}, "t", "timestamp"},
		"segment":           {store.CopyRow{Store: 1, Segment: 1, Key: []byte("a")}, "k", "segment 1"},
		"no window":         {store.CopyRow{Store: 5, Segment: 1, Key: []byte("a"), Value: stamped(1, "")}, "w", "window row"},
		"no segment":        {store.CopyRow{Store: 5, Key: store.WindowKey([]byte("a"), 0, 0), Value: stamped(1, "")}, "w", "segment 0"},
		"other segment":     {store.CopyRow{Store: 5, Segment: 13, Key: store.WindowKey([]byte("a"), 11_000, 0), Value: stamped(1, "")}, "w", "segment 13"},
		"expired":           {store.CopyRow{Store: 5, Segment: 11, Key: store.WindowKey([]byte("a"), 10_000, 0), Value: stamped(1, "")}, "w", "expired"},
		"to come":           {store.CopyRow{Store: 5, Segment: 21, Key: store.WindowKey([]byte("a"), 20_001, 0), Value: stamped(1, "")}, "w", "20001"},
		"negative number":   {store.CopyRow{Store: 5, Segment: 21, Key: store.WindowKey([]byte("a"), 20_000, -1), Value: stamped(1, "")}, "w", "number -1"},
		"numbered":          {store.CopyRow{Store: 5, Segment: 21, Key: store.WindowKey([]byte("a"), 20_000, 1), Value: stamped(1, "")}, "w", "duplicates"},
		"no session":        {store.CopyRow{Store: 2, Segment: 1, Key: store.SessionKey([]byte("a"), 8, 7)}, "s", "session row"},
		"negative session":  {store.CopyRow{Store: 2, Segment: 1 << 40, Key: store.SessionKey([]byte("a"), -9, -7)}, "s", "session row"},
		"negative version":  {store.CopyRow{Store: 4, Key: []byte("a"), Value: stamped(1<<63, "")}, "v", "its time is -"},
		"no version":        {store.CopyRow{Store: 4, Segment: 20, Key: []byte("a"), Value: stamped(19_000, "")}, "v", "version row"},
		"version backwards": {store.CopyRow{Store: 4, Segment: 20, Key: store.VersionKey([]byte("a"), 19_002), Value: stamped(19_001, "")}, "v", "version from"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, inMemory := range []bool{false, true} {
				specs := copySpecs(inMemory)
				task := openTask(t, s, task0, specs...)
				l, err := task.Load(t.Context(), copyHeader(specs, 20_000), time.Now())
				if err != nil {
					t.Fatal(err)
				}
				before := slices.DeleteFunc(goodRows(), func(r store.CopyRow) bool { return r.Store > 1 })
				err = l.Add(t.Context(), append(before, c.row))
				broken, ok := errors.AsType[*store.CopyBrokenError](err)
				want := store.CopyBrokenError{Store: c.store, Row: int64(len(before) + 1), Reason: c.reason}
				if !ok || !errors.Is(err, store.ErrCopyBroken) || broken.Store != want.Store || broken.Row != want.Row || !strings.Contains(broken.Reason, want.Reason) {
					t.Errorf("%v, want %+v", err, want)
				}
				wiped(t, task, specs)
				if err := errors.Join(l.Add(t.Context(), nil), l.Finish(t.Context())); !errors.Is(err, store.ErrClosed) {
					t.Errorf("a load that is over goes on: %v", err)
				}
				load(t, task, copyHeader(specs, 20_000), goodRows())
				snap := snapshot(t, task)
				if _, rows := rowsOf(t, snap, 1); len(rows) != len(goodRows()) {
					t.Errorf("%d rows after a good copy, want %d", len(rows), len(goodRows()))
				}
				snap.Close()
				if err := task.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// wiped: a copy that did not become whole claims nothing and holds nothing.
func wiped(tb testing.TB, task *layered.Task, specs []store.Spec) {
	tb.Helper()
	if cp := task.Checkpoint(); !cp.Restoring || len(cp.Changelogs)+len(cp.StoreTimes)+len(cp.Inputs) > 0 || cp.Sequence != 0 {
		tb.Fatalf("what is left of a load has checkpoint %+v", cp)
	}
	if snap, err := task.Snapshot(); !errors.Is(err, store.ErrNotReady) {
		tb.Fatalf("what is left of a load is readable: %v, %v", snap, err)
	}
	for _, spec := range specs {
		if rows := layered.EngineRows(tb, task, spec.Name); rows != 0 {
			tb.Fatalf("what is left of a load has %d rows in store %s", rows, spec.Name)
		}
	}
}

// TestLoadKilled: a process that is killed after any of the moves of a load leaves an empty copy, after the last the whole.
func TestLoadKilled(t *testing.T) {
	t.Parallel()
	specs := copySpecs(false)
	specs[3].InMemory = true // what it held is lost with the process, and its position with it
	s := openStores(t, layered.Config{Dir: filepath.Join(t.TempDir(), "state")})
	layered.LoadBytes(s, 1)
	task := openTask(t, s, task0, specs...)
	set(t, task, "k", "former", "1")
	task.Commit(checkpoint(9, "d", "k", "s", "t", "v", "w"))
	moveNow(t, s, task)
	look := func(at string, check func(*layered.Task)) {
		t.Helper()
		image := filepath.Join(t.TempDir(), "state")
		if err := storetest.KillImage(layered.Dir(s), image); err != nil {
			t.Fatal(err)
		}
		after, err := layered.Open(t.Context(), layered.Config{Dir: image})
		if err != nil {
			t.Fatalf("%s: %v", at, err)
		}
		for _, h := range after.Held() {
			if whole := h.Checkpoint.Sequence == 7; !whole && len(h.Checkpoint.Changelogs) > 0 {
				t.Errorf("%s: a copy is held at %+v", at, h.Checkpoint)
			}
		}
		left := openTask(t, after, task0, specs...)
		check(left)
		if err := errors.Join(left.Close(t.Context()), after.Close()); err != nil {
			t.Errorf("%s: %v", at, err)
		}
	}
	l, err := task.Load(t.Context(), copyHeader(specs, 20_000), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	empty := func(left *layered.Task) { wiped(t, left, specs) }
	look("begun", empty)
	for i, r := range goodRows() {
		if err := l.Add(t.Context(), []store.CopyRow{r}); err != nil {
			t.Fatal(err)
		}
		look(fmt.Sprint("row ", i), empty)
	}
	if err := l.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	look("finished", func(left *layered.Task) {
		cp := left.Checkpoint()
		if names := slices.Sorted(maps.Keys(cp.Changelogs)); cp.Sequence != 7 || !cp.Restoring || !slices.Equal(names, []store.Name{"d", "k", "s", "v", "w"}) {
			t.Errorf("a whole copy, killed, has checkpoint %+v", cp)
		}
		for _, spec := range specs {
			if (layered.EngineRows(t, left, spec.Name) > 0) == spec.InMemory {
				t.Errorf("a whole copy, killed: store %s, in memory %t", spec.Name, spec.InMemory)
			}
		}
	})
}

// TestLoadEnds: a load does not go on after its task was wiped, closed, or given another one, and what it leaves is empty.
func TestLoadEnds(t *testing.T) {
	t.Parallel()
	specs := copySpecs(false)
	s := openStores(t, layered.Config{Dir: t.TempDir()})
	layered.LoadBytes(s, 1)
	h := copyHeader(specs, 20_000)
	for name, end := range map[string]func(*layered.Task) error{
		"wipe":  func(task *layered.Task) error { return task.Wipe(t.Context()) },
		"close": func(task *layered.Task) error { return task.Close(t.Context()) },
		"load": func(task *layered.Task) error {
			_, err := task.Load(t.Context(), h, time.Now())
			return err
		},
	} {
		task := openTask(t, s, task0, specs...)
		l, err := task.Load(t.Context(), h, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Add(t.Context(), goodRows()[:4]); err != nil {
			t.Fatal(err)
		}
		if err := end(task); err != nil {
			t.Fatal(err)
		}
		if err := l.Add(t.Context(), goodRows()[4:]); !errors.Is(err, store.ErrClosed) {
			t.Errorf("%s: more rows: %v", name, err)
		}
		if err := l.Finish(t.Context()); !errors.Is(err, store.ErrClosed) {
			t.Errorf("%s: finish: %v", name, err)
		}
		if err := l.Abandon(t.Context()); err != nil {
			t.Errorf("%s: abandon: %v", name, err)
		}
		if name == "close" {
			task = openTask(t, s, task0, specs...)
		}
		wiped(t, task, specs)
		if err := task.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLoadCalledOff: a load whose move cannot be waited for any longer is over, and nothing of it counts.
func TestLoadCalledOff(t *testing.T) {
	t.Parallel()
	specs := copySpecs(false)
	s := openStores(t, layered.Config{Dir: t.TempDir()})
	layered.LoadBytes(s, 1)
	task := openTask(t, s, task0, specs...)
	l, err := task.Load(t.Context(), copyHeader(specs, 20_000), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	layered.StallMoves(task)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err = l.Add(ctx, goodRows())
	layered.EndStall(s, task)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, err := kv(t, task, "k").Get([]byte("a")); !errors.Is(err, store.ErrNotReady) {
		t.Errorf("a task that could not be wiped: %v", err)
	}
	if err := l.Abandon(t.Context()); err != nil {
		t.Fatal(err)
	}
	wiped(t, task, specs)
	if _, err := kv(t, task, "k").Get([]byte("a")); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a wiped task: %v", err)
	}
}

// TestCopyAge: a copy is as old here as it was there, counted from the request by the clock of this instance.
func TestCopyAge(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1_000_000)
	for _, c := range []struct {
		wall int64
		now  time.Time
		age  time.Duration
		want int64
	}{
		{990_000, at, 10 * time.Second, 490_000},
		{0, at, -1, 0},
		{1_000_001, at, 0, 500_000},                   // their clock was set back
		{1, time.UnixMilli(2_000_000), 2e12 - 1e6, 0}, // older than time
	} {
		from, to := openStores(t, layered.Config{Dir: t.TempDir()}), openStores(t, layered.Config{Dir: t.TempDir()})
		donor, task := openTask(t, from, task0, disk), openTask(t, to, task0, disk)
		cp := checkpoint(1, "d")
		cp.WallTime = c.wall
		donor.Commit(cp)
		snap := snapshot(t, donor)
		cop, err := snap.Copy()
		if err != nil {
			t.Fatal(err)
		}
		h := cop.Header(c.now)
		snap.Close()
		if h.Age != c.age || h.Checkpoint.WallTime != 0 {
			t.Errorf("commit of %d copied at %d: age %s, want %s; %d", c.wall, c.now.UnixMilli(), h.Age, c.age, h.Checkpoint.WallTime)
		}
		l, err := task.Load(t.Context(), h, time.UnixMilli(500_000))
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Finish(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := task.Checkpoint().WallTime; got != c.want {
			t.Errorf("commit of %d copied at %d: wall time %d here, want %d", c.wall, c.now.UnixMilli(), got, c.want)
		}
	}
}

// TestCopyRefused: what is no whole commit of logged stores is not copied.
func TestCopyRefused(t *testing.T) {
	t.Parallel()
	s := openStores(t, layered.Config{Dir: t.TempDir()})
	task := openTask(t, s, task0, disk)
	task.Commit(checkpoint(1, "d"))
	set(t, task, "d", "a", "1")
	task.ShowNow(at(1))
	running, err := task.SnapshotUncommitted(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer running.Close()
	unlogged := openTask(t, s, store.TaskID{Partition: 1}, store.Spec{Name: "u", Kind: store.KindKeyValue, NoChangelog: true})
	none := snapshot(t, unlogged)
	defer none.Close()
	for want, snap := range map[string]*layered.Snapshot{"more than a commit": running, "no store": none} {
		if _, err := snap.Copy(); !errors.Is(err, store.ErrCopyRefused) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	task.Rollback()
	task.Commit(checkpoint(2))
	lacking := snapshot(t, task)
	defer lacking.Close()
	if _, err := lacking.Copy(); !errors.Is(err, store.ErrCopyRefused) || !strings.Contains(err.Error(), "no changelog position") {
		t.Error(err)
	}
	closed := snapshot(t, task)
	closed.Close()
	if _, err := closed.Copy(); !errors.Is(err, store.ErrClosed) {
		t.Error(err)
	}
	if d := cmp.Diff("copy of task 0_0 refused: store d: the commit has no changelog position of it",
		(&store.CopyRefusedError{Store: "d", Reason: "the commit has no changelog position of it"}).Error()); d != "" {
		t.Error(d)
	}
}
