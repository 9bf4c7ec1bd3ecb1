package badgerdb_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/badgerdb"
	"github.com/statemesh/statemesh/store/engine"
	"github.com/statemesh/statemesh/store/storetest"
)

// A kill leaves what the process had written, synced or not: the system still has it. Its image is a copy of the
// directory at that point. After a power loss of each file something between what was last synced and what was written
// is there.

var errCut = errors.New("cut")

// TestKill cuts a move after each step and opens what a kill would have left: either the move is there with its record,
// or nothing of it is. Before, the key space went through moves that deleted and rewrote, so that leftovers would show.
func TestKill(t *testing.T) {
	t.Parallel()
	for _, at := range badgerdb.MoveSteps {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			image, armed := filepath.Join(t.TempDir(), "image"), false
			dir := t.TempDir()
			db := openDB(t, badgerdb.WithHook(badgerdb.Options{Dir: dir}, func(step string) error {
				if armed && step == at {
					armed = false
					return storetest.KillImage(dir, image)
				}
				return nil
			}))
			sp, x := space(t, db)
			first := map[string]string{"a": "1", "b": "1", "gone": "1"}
			move(t, db, storetest.EngineMove(sp, x, "1", first))
			move(t, db, storetest.EngineMove(sp, x, "2", map[string]string{"b": "2", "gone": "-"}))
			armed = true
			move(t, db, storetest.EngineMove(sp, x, "3", map[string]string{"a": "3", "b": "-", "c": "3", "gone": "3"}))

			before, after := map[string]string{"a": "1", "b": "2"}, map[string]string{"a": "3", "c": "3", "gone": "3"}
			db = openDB(t, badgerdb.Options{Dir: image})
			got, record := storetest.EngineContent(t, db, sp, x)
			switch record {
			case "2":
				same(t, before, got)
				// What the replay rewrites is not shadowed by the leftovers, what it does not rewrite stays away.
				move(t, db, storetest.EngineMove(sp, x, "3b", map[string]string{"a": "3b"}))
				got, _ = storetest.EngineContent(t, db, sp, x)
				same(t, map[string]string{"a": "3b", "b": "2"}, got)
			case "3":
				if at == badgerdb.MoveSteps[0] || at == badgerdb.MoveSteps[1] {
					t.Errorf("the record is there before its step")
				}
				same(t, after, got)
			default:
				t.Errorf("record %q is that of no move in question", record)
			}
		})
	}
}

// TestKillDuringUndo cuts the undo at opening after each of its steps, again and again, and then lets it through.
func TestKillDuringUndo(t *testing.T) {
	t.Parallel()
	dir, image := t.TempDir(), filepath.Join(t.TempDir(), "image-0")
	armed := false
	db := openDB(t, badgerdb.WithHook(badgerdb.Options{Dir: dir}, func(step string) error {
		if armed && step == badgerdb.MoveSteps[0] {
			armed = false
			return storetest.KillImage(dir, image)
		}
		return nil
	}))
	sp, x := space(t, db)
	move(t, db, storetest.EngineMove(sp, x, "1", map[string]string{"a": "1", "b": "1"}))
	armed = true
	move(t, db, storetest.EngineMove(sp, x, "2", map[string]string{"a": "2", "b": "-", "c": "2"}))

	cut := func(from, at string) string {
		next, done := filepath.Join(t.TempDir(), "image"), false
		_, err := badgerdb.Open(t.Context(), badgerdb.WithHook(badgerdb.Options{Dir: from}, func(step string) error {
			if step != at || done {
				return nil
			}
			done = true
			if err := storetest.KillImage(from, next); err != nil {
				return err
			}
			return fs.ErrPermission // an error of the machine: the directory is not taken for corrupt
		}))
		if !done {
			t.Fatalf("%s: no undo came to it: %v", at, err)
		}
		return next
	}
	for range 2 { // what an undo that was cut leaves is undone in turn
		for _, at := range badgerdb.UndoSteps[:2] {
			image = cut(image, at)
		}
	}
	for _, at := range badgerdb.UndoSteps[2:] {
		from := filepath.Join(t.TempDir(), "from")
		if err := storetest.KillImage(image, from); err != nil {
			t.Fatal(err)
		}
		db := openDB(t, badgerdb.Options{Dir: cut(from, at)})
		got, _ := storetest.EngineContent(t, db, sp, x)
		same(t, map[string]string{"a": "1", "b": "1"}, got)
	}
	db = openDB(t, badgerdb.Options{Dir: image})
	got, record := storetest.EngineContent(t, db, sp, x)
	same(t, map[string]string{"a": "1", "b": "1"}, got)
	if record != "1" {
		t.Errorf("record %q, want that of the last whole move", record)
	}
}

// TestFailedMove fails a move after each step without a kill: nothing of it is seen, then or after opening again, and
// the next move works.
func TestFailedMove(t *testing.T) {
	t.Parallel()
	for _, at := range badgerdb.MoveSteps {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			dir, armed, undone := t.TempDir(), false, 0
			opt := badgerdb.WithHook(badgerdb.Options{Dir: dir}, func(step string) error {
				if armed && step == at {
					armed = false
					return errCut
				}
				return nil
			})
			opt.Listener.Undone = func(int) { undone++ }
			db := openDB(t, opt)
			sp, x := space(t, db)
			move(t, db, storetest.EngineMove(sp, x, "1", map[string]string{"a": "1", "b": "1"}))
			old, err := db.Snapshot(sp)
			if err != nil {
				t.Fatal(err)
			}
			defer old.Release()
			armed = true
			err = db.Move(t.Context(), storetest.EngineMove(sp, x, "2", map[string]string{"a": "2", "b": "-", "c": "2"}))
			if !errors.Is(err, errCut) {
				t.Fatalf("a cut move: %v", err)
			}
			want := map[string]string{"a": "1", "b": "1"}
			got, record := storetest.EngineContent(t, db, sp, x)
			same(t, want, got)
			if record != "1" || undone != 1 {
				t.Errorf("record %q, undone %d times", record, undone)
			}
			move(t, db, storetest.EngineMove(sp, x, "3", map[string]string{"b": "3"}))
			if v, err := old.Get(x, 0, []byte("b"), nil); err != nil || string(v) != "1" {
				t.Errorf("an old reader sees %q, %v", v, err)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			db = openDB(t, badgerdb.Options{Dir: dir})
			got, record = storetest.EngineContent(t, db, sp, x)
			same(t, map[string]string{"a": "1", "b": "3"}, got)
			if record != "3" {
				t.Errorf("opened again: record %q", record)
			}
		})
	}
}

// TestUndoFails: while the leftovers of a failed move cannot be undone the database takes no moves and reads stay at D;
// once they can it goes on (SE-08).
func TestUndoFails(t *testing.T) {
	t.Parallel()
	broken := false
	db := openDB(t, badgerdb.WithHook(badgerdb.Options{Dir: t.TempDir()}, func(string) error {
		if broken {
			return errCut
		}
		return nil
	}))
	sp, x := space(t, db)
	move(t, db, storetest.EngineMove(sp, x, "1", map[string]string{"a": "1"}))
	broken = true
	for range 3 {
		if err := db.Move(t.Context(), storetest.EngineMove(sp, x, "2", map[string]string{"a": "2", "b": "2"})); !errors.Is(err, errCut) {
			t.Fatalf("move: %v", err)
		}
		got, record := storetest.EngineContent(t, db, sp, x)
		same(t, map[string]string{"a": "1"}, got)
		if record != "1" {
			t.Errorf("record %q", record)
		}
	}
	if err := db.Move(t.Context(), storetest.EngineMove(sp, x, "2", nil)); !errors.Is(err, engine.ErrReadOnly) {
		t.Errorf("the error does not say that the engine takes no writes: %v", err)
	}
	broken = false
	move(t, db, storetest.EngineMove(sp, x, "3", map[string]string{"c": "3"}))
	got, _ := storetest.EngineContent(t, db, sp, x)
	same(t, map[string]string{"a": "1", "c": "3"}, got)
}

// TestFullDisk is the guard of SE-08: below the free space that must remain a move is refused before it writes.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := openDB(t, badgerdb.Options{Dir: dir})
	sp, x := space(t, db)
	move(t, db, storetest.EngineMove(sp, x, "1", map[string]string{"a": "1"}))
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = openDB(t, badgerdb.Options{Dir: dir, MinFreeBytes: 1 << 62})
	err := db.Move(t.Context(), storetest.EngineMove(sp, x, "2", map[string]string{"a": "2"}))
	if !errors.Is(err, engine.ErrReadOnly) || !strings.Contains(err.Error(), dir) {
		t.Errorf("a full disk: %v", err)
	}
	got, record := storetest.EngineContent(t, db, sp, x)
	same(t, map[string]string{"a": "1"}, got)
	if record != "1" {
		t.Errorf("record %q", record)
	}
}

// TestPowerLoss is SE-07: of each file that was written since it was synced a part is lost. What opens is what some
// move made, not older than the last one that was reported durable, or the loss is noticed.
func TestPowerLoss(t *testing.T) {
	t.Parallel()
	rng, done := storetest.Seeded(t)
	defer done()
	for round := range 30 {
		powerLoss(t, rng, round)
	}
}

func powerLoss(t *testing.T, rng *rand.Rand, round int) {
	dir := t.TempDir()
	synced := filepath.Join(t.TempDir(), "synced")
	db, err := badgerdb.Open(t.Context(), badgerdb.WithHook(badgerdb.Options{Dir: dir, MemTableBytes: 1 << 20}, func(step string) error {
		switch step {
		case badgerdb.MoveSteps[1], badgerdb.MoveSteps[3]: // after a sync
			return storetest.KillImage(dir, synced)
		}
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	sp, x := space(t, db)
	states := map[string]map[string]string{"": {}}
	state := make(map[string]string)
	durable := 0
	image := filepath.Join(t.TempDir(), "image")
	moves := 2 + rng.IntN(4)
	for i := 1; i <= moves; i++ {
		kv := make(map[string]string)
		for range 20 + rng.IntN(200) {
			k := fmt.Sprint("k", rng.IntN(300))
			if rng.IntN(4) == 0 {
				kv[k] = "-"
				delete(state, k)
			} else {
				kv[k] = strings.Repeat(fmt.Sprint(i), 1+rng.IntN(300))
				state[k] = kv[k]
			}
		}
		states[fmt.Sprint(i)] = maps.Clone(state)
		if i == moves { // the power fails during the last
			writing := storetest.EngineMove(sp, x, fmt.Sprint(i), kv)
			if err := db.Move(t.Context(), writing); err != nil {
				t.Fatal(err)
			}
			// The last sync of this move is not believed: what was synced before is, of the rest a part.
			break
		}
		move(t, db, storetest.EngineMove(sp, x, fmt.Sprint(i), kv))
		durable = i
		if err := storetest.KillImage(dir, synced); err != nil {
			t.Fatal(err)
		}
		if i == moves-1 { // keep what was durable before the last move
			if err := storetest.KillImage(synced, image); err != nil {
				t.Fatal(err)
			}
		}
	}
	tear(t, rng, image, dir)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	quarantined := false
	opt := badgerdb.Options{Dir: image, MemTableBytes: 1 << 20}
	opt.Listener.Quarantined = func(string) { quarantined = true }
	db, err = badgerdb.Open(t.Context(), opt)
	if err != nil {
		t.Fatalf("round %d: %v", round, err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	if quarantined {
		return // detected: rebuilt from the changelog
	}
	got, record := storetest.EngineContent(t, db, sp, x)
	want, ok := states[record]
	if !ok || record == "" {
		t.Fatalf("round %d: record %q is that of no move", round, record)
	}
	if record != fmt.Sprint(durable) && record != fmt.Sprint(moves) {
		t.Errorf("SE-07 round %d: record %s is older than the durable move %d", round, record, durable)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("SE-07 round %d: record %s, but its data is not there (-want +got)\n%s", round, record, d)
	}
}

// tear makes of image, the directory at the last sync, what a power loss may leave of now: of each file a random length
// of what has changed since.
func tear(t *testing.T, rng *rand.Rand, image, now string) {
	t.Helper()
	entries, err := os.ReadDir(now)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		written, err := os.ReadFile(filepath.Join(now, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		old, err := os.ReadFile(filepath.Join(image, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			old = nil
		} else if err != nil {
			t.Fatal(err)
		}
		torn := slices.Clone(old)
		if len(torn) < len(written) {
			torn = append(torn, make([]byte, len(written)-len(torn))...)
		}
		first, last := difference(written, torn)
		cut := first
		if last > first {
			cut += rng.IntN(last - first + 1)
		}
		copy(torn[first:cut], written[first:cut])
		if err := os.WriteFile(filepath.Join(image, e.Name()), torn, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// difference is the part in which a and b, as long as a, differ.
func difference(a, b []byte) (first, last int) {
	for first < len(a) && a[first] == b[first] {
		first++
	}
	last = len(a)
	for last > first && a[last-1] == b[last-1] {
		last--
	}
	return first, last
}

func space(tb testing.TB, db *badgerdb.DB) (engine.SpaceID, engine.StoreID) {
	tb.Helper()
	sp, err := db.Open(tb.Context(), store.TaskID{}, []engine.Declared{{Name: "x", Kind: store.KindKeyValue}})
	if err != nil {
		tb.Fatal(err)
	}
	return sp.ID, sp.Stores["x"].ID
}

func move(tb testing.TB, db *badgerdb.DB, m engine.Move) {
	tb.Helper()
	if err := db.Move(tb.Context(), m); err != nil {
		tb.Fatal(err)
	}
}

func same(tb testing.TB, want, got map[string]string) {
	tb.Helper()
	if d := cmp.Diff(want, got); d != "" {
		tb.Errorf("(-want +got)\n%s", d)
	}
}
