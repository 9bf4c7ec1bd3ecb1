package badgerdb_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/badgerdb"
	"github.com/statemesh/statemesh/store/engine"
	"github.com/statemesh/statemesh/store/storetest"
)

// TestDamagedLogs: several memtables have not been flushed when the process is killed, and then one of their logs loses its
// end, or a byte of it flips, anywhere. What opens is what one move made, or the damage is noticed.
func TestDamagedLogs(t *testing.T) {
	t.Parallel()
	rng, done := storetest.Seeded(t)
	defer done()
	opt := badgerdb.Options{Dir: t.TempDir(), MemTableBytes: 256 << 10}
	db := openDB(t, opt)
	sp, x := space(t, db)
	image := filepath.Join(t.TempDir(), "killed")
	if err := storetest.KillImage(opt.Dir, image); err != nil { // without any table
		t.Fatal(err)
	}
	snap, err := db.Snapshot(sp)
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Release()
	it, err := snap.Iterate(engine.Range{Store: x}) // keeps the log of the first memtable
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	states := map[string]map[string]string{"": {}}
	state := make(map[string]string)
	last := ""
	var logs []string
	for more := 5; more > 0; { // some moves are in the second log alone
		kv := make(map[string]string)
		for range 60 {
			k := fmt.Sprint("k", rng.IntN(3000))
			if kv[k] = fmt.Sprintf("%0*d", 1+rng.IntN(300), len(states)); rng.IntN(4) == 0 {
				kv[k] = "-"
			}
		}
		for k, v := range kv {
			if state[k] = v; v == "-" {
				delete(state, k)
			}
		}
		last = fmt.Sprint(len(states))
		move(t, db, storetest.EngineMove(sp, x, last, kv))
		states[last] = maps.Clone(state)
		if logs, err = filepath.Glob(filepath.Join(opt.Dir, "*.mem")); err != nil {
			t.Fatal(err)
		}
		if len(logs) > 1 {
			more--
		}
	}
	for _, log := range logs { // and with both logs: as if the flush had not begun yet
		b, err := os.ReadFile(log)
		if err == nil {
			err = os.WriteFile(filepath.Join(image, filepath.Base(log)), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(logs) != 2 {
		t.Fatalf("%d logs, want 2", len(logs))
	}
	noticed, older := 0, 0
	for round := range 60 {
		dir := filepath.Join(t.TempDir(), "db")
		if err := storetest.KillImage(image, dir); err != nil {
			t.Fatal(err)
		}
		if round > 0 { // the first is not damaged
			damageLog(t, filepath.Join(dir, filepath.Base(logs[rng.IntN(len(logs))])), rng.IntN)
		}
		quarantined := false
		opt := badgerdb.Options{Dir: dir, MemTableBytes: 256 << 10}
		opt.Listener.Quarantined = func(string) { quarantined = true }
		db, err := badgerdb.Open(t.Context(), opt)
		if err != nil {
			t.Fatal(err)
		}
		if quarantined {
			noticed++
		} else {
			got, record := storetest.EngineContent(t, db, sp, x)
			if d := cmp.Diff(states[record], got); d != "" {
				t.Errorf("round %d: record %q of %q, but its data is not there (-want +got)\n%s", round, record, last, d)
			}
			if record != last {
				older++
			}
		}
		if round == 0 && (quarantined || older > 0) {
			t.Errorf("a kill alone: moved aside %t, older %d", quarantined, older)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d logs, damaged 59 times: noticed %d times, %d times an older move", len(logs), noticed, older)
	if noticed == 0 {
		t.Error("no damage was noticed: the test shows nothing")
	}
}

// TestRefusedLog: what Badger would refuse in a log, and would leave half open, never comes to it. Behind the last entry
// it is cut off like any other end that was torn; in the header it is damage.
func TestRefusedLog(t *testing.T) {
	t.Parallel()
	image := filepath.Join(t.TempDir(), "killed")
	opt := badgerdb.Options{Dir: t.TempDir()}
	db := openDB(t, opt)
	sp, x := space(t, db)
	move(t, db, storetest.EngineMove(sp, x, "1", map[string]string{"a": "1"}))
	if err := storetest.KillImage(opt.Dir, image); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(image, "00001.mem")
	whole, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	end := len(bytes.TrimRight(whole, "\x00"))
	for name, c := range map[string]struct {
		at      int
		bytes   []byte
		damaged bool
	}{
		"a length that never ends":   {end, bytes.Repeat([]byte{0xff}, 14), false},
		"a length of 4 GB":           {end, []byte{0, 0, 10, 0xff, 0xff, 0xff, 0xff, 0x0f, 0, 1}, false},
		"lengths that overflow":      {end, []byte{0, 0, 0x80, 0x80, 0x04, 0xf0, 0xff, 0xff, 0xff, 0x0f, 0, 1}, false},
		"a key nobody encrypts with": {0, []byte{1}, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "db")
			if err := storetest.KillImage(image, dir); err != nil {
				t.Fatal(err)
			}
			b := slices.Clone(whole)
			copy(b[c.at:], c.bytes)
			if err := os.WriteFile(filepath.Join(dir, "00001.mem"), b, 0o600); err != nil {
				t.Fatal(err)
			}
			damaged := false
			opt := badgerdb.Options{Dir: dir}
			opt.Listener.Quarantined = func(string) { damaged = true }
			db := openDB(t, opt)
			if damaged != c.damaged {
				t.Fatalf("taken for damage: %t, want %t", damaged, c.damaged)
			}
			if damaged {
				return
			}
			got, record := storetest.EngineContent(t, db, sp, x)
			same(t, map[string]string{"a": "1"}, got)
			if record != "1" {
				t.Errorf("record %q", record)
			}
		})
	}
}

// TestFlushedLog: an iterator keeps the log of a memtable that was flushed; meanwhile keys in it are deleted, and compaction
// removes them with their tombstones. A kill then leaves the old log, and the keys must not come back from it.
func TestFlushedLog(t *testing.T) {
	t.Parallel()
	images := t.TempDir()
	opt := badgerdb.WithSweepRows(badgerdb.Options{Dir: t.TempDir(), MemTableBytes: 256 << 10}, 1)
	opt = badgerdb.WithHook(opt, func(step string) error {
		if step != badgerdb.StepDropped {
			return nil
		}
		return storetest.KillImage(opt.Dir, filepath.Join(images, "killed after prefixes were dropped"))
	})
	db := openDB(t, opt)
	sp, x := space(t, db)
	quiet, err := db.Open(t.Context(), store.TaskID{Partition: 7}, []engine.Declared{{Name: "x", Kind: store.KindKeyValue}})
	if err != nil {
		t.Fatal(err)
	}
	move(t, db, engine.Move{Space: sp, Writes: bulk(x, 0, 0, 50), Record: []byte("1")})
	snap, err := db.Snapshot(quiet.ID) // of another key space: it holds back no compaction
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Release()
	it, err := snap.Iterate(engine.Range{Store: quiet.Stores["x"].ID})
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	move(t, db, engine.Move{Space: sp, Writes: bulk(x, 0, 1000, 1600), Record: []byte("2")}) // fills the first memtable
	move(t, db, engine.Move{Space: sp, Writes: unset(bulk(x, 0, 0, 50)), Record: []byte("2")})
	for range 8 { // flush, and push the tombstones down
		move(t, db, engine.Move{Space: sp, Writes: bulk(x, 0, 1000, 1600), Record: []byte("3")})
		if err := badgerdb.Flatten(db); err != nil {
			t.Fatal(err)
		}
	}
	if err := badgerdb.Compact(db); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"killed", "killed in the removal"} {
		if err := storetest.KillImage(opt.Dir, filepath.Join(images, name)); err != nil {
			t.Fatal(err)
		}
	}
	// Badger empties a log before it removes it.
	if err := os.Truncate(filepath.Join(images, "killed in the removal", "00001.mem"), 0); err != nil {
		t.Fatal(err)
	}
	// DropPrefix flushes the memtable and begins a new one, in which there is nothing yet.
	move(t, db, engine.Move{Space: sp, Writes: bulk(x, 1, 0, 10), Record: []byte("4")})
	if err := db.Expire(sp, x, 2); err != nil {
		t.Fatal(err)
	}
	reclaim(t, db)

	killed, err := filepath.Glob(filepath.Join(images, "killed*"))
	if err != nil || len(killed) != 3 {
		t.Fatalf("images %q, want 3: %v", killed, err)
	}
	for _, image := range killed {
		name := filepath.Base(image)
		if _, err := os.Stat(filepath.Join(image, "00001.mem")); err != nil {
			t.Fatalf("%s: the first log is gone: the test shows nothing: %v", name, err)
		}
		again := badgerdb.Options{Dir: image, MemTableBytes: opt.MemTableBytes}
		again.Listener.Quarantined = func(dir string) { t.Errorf("%s: moved aside to %s", name, dir) }
		db := openDB(t, again)
		if n := count(t, db, sp, x, 0); n != 600 {
			t.Errorf("%s: %d rows, want 600: deleted ones are back", name, n)
		}
	}
}

// TestEmptyNewestLog: a newest log without entries goes before Badger sees it, so that its number is used again.
func TestEmptyNewestLog(t *testing.T) {
	t.Parallel()
	opt := badgerdb.Options{Dir: t.TempDir()}
	db := openDB(t, opt)
	sp, x := space(t, db)
	move(t, db, storetest.EngineMove(sp, x, "1", map[string]string{"a": "1"}))
	image := filepath.Join(t.TempDir(), "killed")
	for _, size := range []int{0, 20, 4096} {
		if err := storetest.KillImage(opt.Dir, image); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(image, "00002.mem"), make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
		again := badgerdb.Options{Dir: image}
		again.Listener.Quarantined = func(dir string) { t.Errorf("%d bytes: moved aside to %s", size, dir) }
		db := openDB(t, again)
		if got, _ := storetest.EngineContent(t, db, sp, x); got["a"] != "1" {
			t.Errorf("%d bytes: %v", size, got)
		}
		if logs, _ := filepath.Glob(filepath.Join(image, "*.mem")); !slices.Contains(logs, filepath.Join(image, "00002.mem")) {
			t.Errorf("%d bytes: logs %v", size, logs)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func damageLog(t *testing.T, name string, intN func(int) int) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	end := len(bytes.TrimRight(b, "\x00"))
	at := intN(end)
	if intN(2) == 0 {
		clear(b[at:]) // lost, as a hole in the file reads
	} else {
		b[at] ^= byte(1 + intN(255))
	}
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
}
