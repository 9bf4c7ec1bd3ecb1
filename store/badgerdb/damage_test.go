package badgerdb_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/badgerdb"
	"github.com/statemesh/statemesh/store/engine"
	"github.com/statemesh/statemesh/store/storetest"
)

// TestDamage is SE-15: a directory with a damaged or missing file is moved aside under a name that says so, an empty one
// begun, and both are told; nothing is lost in silence.
func TestDamage(t *testing.T) {
	t.Parallel()
	flip := func(where float64) func(t *testing.T, name string) {
		return func(t *testing.T, name string) {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			at := int(where * float64(len(b)-1))
			for i := at; i < min(at+8, len(b)); i++ {
				b[i] ^= 0x55
			}
			if err := os.WriteFile(name, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		pattern string
		damage  func(t *testing.T, name string)
	}{
		"table missing":   {"*.sst", func(t *testing.T, name string) { remove(t, name) }},
		"table flipped":   {"*.sst", flip(0.3)},
		"table emptied":   {"*.sst", func(t *testing.T, name string) { truncate(t, name, 0) }},
		"manifest start":  {"MANIFEST", flip(0)},
		"manifest middle": {"MANIFEST", flip(0.5)},
		"manifest cut":    {"MANIFEST", func(t *testing.T, name string) { truncate(t, name, 9) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "db")
			db := openDB(t, badgerdb.Options{Dir: dir})
			sp, x := space(t, db)
			kv := make(map[string]string)
			for i := range 2000 {
				kv[fmt.Sprint(i)] = "some value"
			}
			move(t, db, storetest.EngineMove(sp, x, "1", kv))
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			files, err := filepath.Glob(filepath.Join(dir, c.pattern))
			if err != nil || len(files) == 0 {
				t.Fatalf("no %s: %v", c.pattern, err)
			}
			c.damage(t, files[0])
			aside := ""
			opt := badgerdb.Options{Dir: dir}
			opt.Listener.Quarantined = func(dir string) { aside = dir }
			db = openDB(t, opt)
			if aside == "" {
				got, record := storetest.EngineContent(t, db, sp, x)
				if record == "1" && len(got) == len(kv) {
					return // the damage hit nothing that was in use
				}
				t.Fatalf("damage went unnoticed: %d keys, record %q", len(got), record)
			}
			if _, err := os.Stat(aside); err != nil {
				t.Errorf("what was moved aside is gone: %v", err)
			}
			if n := len(db.Spaces()); n != 0 {
				t.Errorf("the new database holds %d key spaces", n)
			}
			sp, x = space(t, db)
			move(t, db, storetest.EngineMove(sp, x, "again", map[string]string{"a": "1"}))
		})
	}
}

// TestEmptyLogs: a kill between the creation of a log and its first byte is no damage.
func TestEmptyLogs(t *testing.T) {
	t.Parallel()
	opt := badgerdb.Options{Dir: filepath.Join(t.TempDir(), "db")}
	opt.Listener.Quarantined = func(dir string) { t.Errorf("moved aside to %q", dir) }
	db := openDB(t, opt)
	sp, x := space(t, db)
	move(t, db, storetest.EngineMove(sp, x, "1", map[string]string{"a": "1"}))
	image := filepath.Join(t.TempDir(), "db")
	if err := storetest.KillImage(opt.Dir, image); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"00002.mem", "000077.vlog"} {
		if err := os.WriteFile(filepath.Join(image, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	opt.Dir = image
	got, record := storetest.EngineContent(t, openDB(t, opt), sp, x)
	same(t, map[string]string{"a": "1"}, got)
	if record != "1" {
		t.Errorf("record %q", record)
	}
}

// TestProbe: damage of a table that makes Badger end the process is found at the next opening; a table that was never
// finished, and so is in no manifest, is not taken for damage.
func TestProbe(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(t *testing.T, table string) (damaged bool){
		"cut": func(t *testing.T, table string) bool {
			info, err := os.Stat(table)
			if err != nil {
				t.Fatal(err)
			}
			truncate(t, table, info.Size()*9/10)
			return true
		},
		"footer": func(t *testing.T, table string) bool {
			info, err := os.Stat(table)
			if err != nil {
				t.Fatal(err)
			}
			flip(t, table, info.Size()-3)
			return true
		},
		"unfinished": func(t *testing.T, table string) bool {
			b, err := os.ReadFile(table)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(filepath.Dir(table), "000777.sst"), b[:len(b)/2], 0o600); err != nil {
				t.Fatal(err)
			}
			return false
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opt := badgerdb.Options{Dir: filepath.Join(t.TempDir(), "db")}
			db := openDB(t, opt)
			sp, x := space(t, db)
			move(t, db, engine.Move{Space: sp, Writes: bulk(x, 0, 0, 100), Record: []byte("1")})
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			tables, err := filepath.Glob(filepath.Join(opt.Dir, "*.sst"))
			if err != nil || len(tables) == 0 {
				t.Fatalf("%d tables, %v", len(tables), err)
			}
			want := damage(t, tables[0])
			if err := os.WriteFile(opt.Dir+".opening", []byte("x"), 0o600); err != nil { // the attempt that it ended
				t.Fatal(err)
			}
			aside := ""
			opt.Listener.Quarantined = func(dir string) { aside = dir }
			db = openDB(t, opt)
			if (aside != "") != want {
				t.Errorf("moved aside to %q", aside)
			}
			if n := len(db.Spaces()); (n == 0) != want {
				t.Errorf("%d key spaces", n)
			}
		})
	}
}

// TestAttempts: a directory that ended the process at five openings in a row is not tried again; fewer may have been kills.
func TestAttempts(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "db")
	db := openDB(t, badgerdb.Options{Dir: dir})
	sp, x := space(t, db)
	move(t, db, storetest.EngineMove(sp, x, "1", map[string]string{"a": "1"}))
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	aside := ""
	opt := badgerdb.Options{Dir: dir}
	opt.Listener.Quarantined = func(dir string) { aside = dir }
	for deaths := range 6 {
		if err := os.WriteFile(dir+".opening", bytes.Repeat([]byte("x"), deaths), 0o600); err != nil {
			t.Fatal(err)
		}
		db, err := badgerdb.Open(t.Context(), opt)
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if (aside != "") != (deaths == 5) {
			t.Errorf("after %d deaths: moved aside to %q", deaths, aside)
		}
		if _, err := os.Stat(dir + ".opening"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the mark of an attempt stays after success: %v", err)
		}
	}
}

// TestReaderDuringDrop: a key space is not reclaimed under a reader; one that stays too long ends with an error, never
// with an end of results, and the readers of others see nothing of it.
func TestReaderDuringDrop(t *testing.T) {
	t.Parallel()
	db := openDB(t, badgerdb.Options{Dir: t.TempDir(), DropWait: time.Hour})
	sp, x := space(t, db)
	kv := make(map[string]string)
	for i := range 5000 {
		kv[fmt.Sprintf("%05d", i)] = "v"
	}
	move(t, db, storetest.EngineMove(sp, x, "1", kv))
	snap, it := reading(t, db, sp, x)
	if err := db.Drop(t.Context(), sp); err != nil {
		t.Fatal(err)
	}
	if pending, err := db.Reclaim(t.Context()); err != nil || !pending {
		t.Fatalf("reclaim under a reader: pending %t, %v", pending, err)
	}
	snap.Release() // the iterator still reads
	if pending, _ := db.Reclaim(t.Context()); !pending {
		t.Error("reclaimed under an iterator")
	}
	n := 1
	for it.Next() {
		n++
	}
	if n != len(kv) || it.Err() != nil {
		t.Errorf("a reader of a dropped key space saw %d of %d keys, %v", n, len(kv), it.Err())
	}
	it.Close()
	if pending, err := db.Reclaim(t.Context()); pending || err != nil {
		t.Errorf("reclaim without readers: pending %t, %v", pending, err)
	}
}

func TestReaderCutOff(t *testing.T) {
	t.Parallel()
	db := openDB(t, badgerdb.Options{Dir: t.TempDir(), DropWait: time.Nanosecond})
	sp, x := space(t, db)
	other, err := db.Open(t.Context(), store.TaskID{Partition: 7}, []engine.Declared{{Name: "x", Kind: store.KindKeyValue}})
	if err != nil {
		t.Fatal(err)
	}
	kv := make(map[string]string)
	for i := range 5000 {
		kv[fmt.Sprintf("%05d", i)] = "v"
	}
	move(t, db, storetest.EngineMove(sp, x, "1", kv))
	move(t, db, storetest.EngineMove(other.ID, other.Stores["x"].ID, "1", kv))
	snap, it := reading(t, db, sp, x)
	kept, keptIt := reading(t, db, other.ID, other.Stores["x"].ID)
	if err := db.Drop(t.Context(), sp); err != nil {
		t.Fatal(err)
	}
	if pending, err := db.Reclaim(t.Context()); pending || err != nil {
		t.Fatalf("reclaim: pending %t, %v", pending, err)
	}
	for it.Next() {
	}
	if !errors.Is(it.Err(), engine.ErrDropped) || !errors.Is(it.Err(), store.ErrClosed) {
		t.Errorf("a reader that was cut off ends with %v", it.Err())
	}
	if _, err := snap.Get(x, 0, []byte("00001"), nil); !errors.Is(err, engine.ErrDropped) {
		t.Errorf("get after the drop: %v", err)
	}
	n := 1
	for keptIt.Next() {
		n++
	}
	if n != len(kv) || keptIt.Err() != nil {
		t.Errorf("the reader of another key space: %d keys, %v", n, keptIt.Err())
	}
	keptIt.Close()
	it.Close()
	kept.Release()
	snap.Release()
}

// TestDropSurvivesKill: a drop that was reported is kept after a crash at any step of its bytes' going, whether they are
// deleted row by row or dropped as a prefix.
func TestDropSurvivesKill(t *testing.T) {
	t.Parallel()
	for name, sweepRows := range map[string]int{"row by row": 10, "as a prefix": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dropSurvivesKill(t, sweepRows)
		})
	}
}

func dropSurvivesKill(t *testing.T, sweepRows int) {
	dir := t.TempDir()
	images := []string{}
	take := func() error {
		image := filepath.Join(t.TempDir(), fmt.Sprint("image", len(images)))
		images = append(images, image)
		return storetest.KillImage(dir, image)
	}
	dropping := false
	opt := badgerdb.WithSweepRows(badgerdb.Options{Dir: dir}, sweepRows)
	db := openDB(t, badgerdb.WithHook(opt, func(string) error {
		if dropping {
			return take()
		}
		return nil
	}))
	sp, x := space(t, db)
	move(t, db, storetest.EngineMove(sp, x, "1", map[string]string{"a": "1", "b": "1"}))
	if err := errors.Join(db.Drop(t.Context(), sp), take()); err != nil {
		t.Fatal(err)
	}
	dropping = true
	if _, err := db.Reclaim(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, image := range images {
		db := openDB(t, badgerdb.Options{Dir: image})
		if n := len(db.Spaces()); n != 0 {
			t.Errorf("%s: a dropped key space is back", image)
		}
		if pending, err := db.Reclaim(t.Context()); pending || err != nil {
			t.Errorf("%s: reclaim: pending %t, %v", image, pending, err)
		}
		again, id := space(t, db)
		if again == sp {
			t.Errorf("%s: the id %d is used again", image, sp)
		}
		if got, _ := storetest.EngineContent(t, db, again, id); len(got) != 0 {
			t.Errorf("%s: a new key space holds %v", image, got)
		}
	}
}

// TestCompaction is SE-01, SE-02: keys that were deleted stay away and readers keep what they see, through compaction.
func TestCompaction(t *testing.T) {
	t.Parallel()
	rng, done := storetest.Seeded(t)
	defer done()
	dir := t.TempDir()
	db := openDB(t, badgerdb.Options{Dir: dir, MemTableBytes: 256 << 10})
	sp, x := space(t, db)
	state := make(map[string]string)
	for round := range 20 {
		kv := make(map[string]string)
		for range 1500 {
			k := fmt.Sprint("k", rng.IntN(4000))
			if rng.IntN(5) < 3 {
				kv[k] = "-"
				delete(state, k)
			} else {
				kv[k] = fmt.Sprint("v", round)
				state[k] = kv[k]
			}
		}
		move(t, db, storetest.EngineMove(sp, x, fmt.Sprint(round), kv))
		old, _ := db.Snapshot(sp)
		want := len(state)
		if round%5 == 4 {
			move(t, db, storetest.EngineMove(sp, x, fmt.Sprint(round), map[string]string{"k1": "after"}))
			state["k1"] = "after"
			if err := badgerdb.Flatten(db); err != nil {
				t.Fatal(err)
			}
			n := 0
			it, err := old.Iterate(engine.Range{Store: x})
			if err != nil {
				t.Fatal(err)
			}
			for it.Next() {
				n++
			}
			it.Close()
			if n != want {
				t.Errorf("a reader lost keys to compaction: %d of %d", n, want)
			}
		}
		old.Release()
	}
	for range 2 {
		got, _ := storetest.EngineContent(t, db, sp, x)
		same(t, state, got)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		db = openDB(t, badgerdb.Options{Dir: dir, MemTableBytes: 256 << 10})
	}
}

func reading(t *testing.T, db *badgerdb.DB, sp engine.SpaceID, id engine.StoreID) (engine.Snapshot, engine.Iterator) {
	t.Helper()
	snap, err := db.Snapshot(sp)
	if err != nil {
		t.Fatal(err)
	}
	it, err := snap.Iterate(engine.Range{Store: id})
	if err != nil || !it.Next() {
		t.Fatalf("iterate: %v", err)
	}
	return snap, it
}

func remove(t *testing.T, name string) {
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
}

func truncate(t *testing.T, name string, size int64) {
	if err := os.Truncate(name, size); err != nil {
		t.Fatal(err)
	}
}

// flip inverts one byte.
func flip(t *testing.T, name string, at int64) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	b[at] ^= 0xff
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
}
