package badgerdb_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/badgerdb"
	"github.com/statemesh/statemesh/store/engine"
	"github.com/statemesh/statemesh/store/storetest"
)

// TestDeletedSpaceComesBack: after nearly everything was deleted the files are small again, with no further write, and
// after a restart between the deletes and the upkeep.
func TestDeletedSpaceComesBack(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("restart=", restart), func(t *testing.T) {
			t.Parallel()
			const rows = 30_000
			passes := 0
			opt := badgerdb.Options{Dir: t.TempDir(), MemTableBytes: 2 << 20}
			opt.Listener.Compacted = func(int64) { passes++ }
			db := openDB(t, opt)
			sp, x := space(t, db)
			move(t, db, engine.Move{Space: sp, Writes: bulk(x, 0, 0, rows), Record: []byte("1")})
			reclaim(t, db)
			full := diskUsage(t, opt.Dir)
			if full < rows*700 || passes > 0 { // the last memtables may not be tables yet
				t.Fatalf("%d bytes on disk for %d rows of 1000, %d passes before anything was deleted", full, rows, passes)
			}
			move(t, db, engine.Move{Space: sp, Writes: unset(bulk(x, 0, 10, rows)), Record: []byte("2")})
			if restart {
				if err := db.Close(); err != nil {
					t.Fatal(err)
				}
				db = openDB(t, opt)
			}
			reclaim(t, db)
			if left := diskUsage(t, opt.Dir); left > full/5 || passes != 1 {
				t.Errorf("%d of %d bytes are still on disk after %d passes", left, full, passes)
			}
			if n := count(t, db, sp, x, 0); n != 10 {
				t.Errorf("%d rows are left, want 10", n)
			}
			reclaim(t, db)
			if passes != 1 {
				t.Errorf("%d passes: each must be paid for by deletes", passes)
			}
		})
	}
}

// TestExpiredSpaceComesBack: the same for segments that expire, few rows and many.
func TestExpiredSpaceComesBack(t *testing.T) {
	t.Parallel()
	for name, sweepRows := range map[string]int{"row by row": 0, "as prefixes": 1000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const rows, segments = 3_000, 10
			opt := badgerdb.WithSweepRows(badgerdb.Options{Dir: t.TempDir(), MemTableBytes: 2 << 20}, sweepRows)
			db := openDB(t, opt)
			sp, x := space(t, db)
			for seg := range engine.Segment(segments) {
				move(t, db, engine.Move{Space: sp, Writes: bulk(x, seg, 0, rows), Record: []byte("1")})
			}
			full := diskUsage(t, opt.Dir)
			if err := db.Expire(sp, x, segments-1); err != nil {
				t.Fatal(err)
			}
			reclaim(t, db)
			if left := diskUsage(t, opt.Dir); left > full/3 { // two segments of ten
				t.Errorf("%d of %d bytes are still on disk", left, full)
			}
			for seg := range engine.Segment(segments) {
				want := 0
				if seg == 0 || seg == segments-1 {
					want = rows
				}
				if n := count(t, db, sp, x, seg); n != want {
					t.Errorf("segment %d has %d rows, want %d", seg, n, want)
				}
			}
		})
	}
}

// TestIdleReader: a snapshot of a key space that is not written to, as every quiet task has one open, keeps nothing of
// the others from being compacted away; once its own is written to it keeps what it sees.
func TestIdleReader(t *testing.T) {
	t.Parallel()
	opt := badgerdb.Options{Dir: t.TempDir(), MemTableBytes: 1 << 20}
	db := openDB(t, opt)
	quiet, x := space(t, db)
	busy, err := db.Open(t.Context(), store.TaskID{Partition: 7}, []engine.Declared{{Name: "x", Kind: store.KindKeyValue}})
	if err != nil {
		t.Fatal(err)
	}
	move(t, db, engine.Move{Space: quiet, Writes: bulk(x, 0, 0, 100), Record: []byte("1")})
	idle, err := db.Snapshot(quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Release()
	for range 12 {
		move(t, db, engine.Move{Space: busy.ID, Writes: bulk(busy.Stores["x"].ID, 0, 0, 1000), Record: []byte("1")})
	}
	if err := badgerdb.Flatten(db); err != nil {
		t.Fatal(err)
	}
	if used := diskUsage(t, opt.Dir); used > 6<<20 {
		t.Errorf("%d bytes for one version of 1.1 MB: an idle reader keeps old versions of others", used)
	}
	move(t, db, engine.Move{Space: quiet, Writes: unset(bulk(x, 0, 0, 50)), Record: []byte("2")})
	for range 3 {
		move(t, db, engine.Move{Space: busy.ID, Writes: bulk(busy.Stores["x"].ID, 0, 0, 1000), Record: []byte("1")})
	}
	if err := badgerdb.Flatten(db); err != nil {
		t.Fatal(err)
	}
	it, err := idle.Iterate(engine.Range{Store: x})
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	n := 0
	for it.Next() {
		n++
	}
	if n != 100 || it.Err() != nil {
		t.Errorf("a reader lost keys to compaction: %d of 100, %v", n, it.Err())
	}
}

// TestIdleReaderAfterUndo: the undo of a failed move rewrites keys, of the same values, and must not let compaction take
// the versions that an older reader sees.
func TestIdleReaderAfterUndo(t *testing.T) {
	t.Parallel()
	armed := false
	db := openDB(t, badgerdb.WithHook(badgerdb.Options{Dir: t.TempDir(), MemTableBytes: 1 << 20}, func(step string) error {
		if armed && step == badgerdb.MoveSteps[1] {
			armed = false
			return errCut
		}
		return nil
	}))
	sp, x := space(t, db)
	for range 6 {
		move(t, db, engine.Move{Space: sp, Writes: bulk(x, 0, 0, 2000), Record: []byte("1")})
	}
	old, err := db.Snapshot(sp)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Release()
	armed = true
	if err := db.Move(t.Context(), engine.Move{Space: sp, Writes: unset(bulk(x, 0, 0, 2000)), Record: []byte("2")}); !errors.Is(err, errCut) {
		t.Fatalf("a cut move: %v", err)
	}
	if err := badgerdb.Flatten(db); err != nil {
		t.Fatal(err)
	}
	for i := range 2000 {
		if v, err := old.Get(x, 0, fmt.Appendf(nil, "%08d", i), nil); err != nil || len(v) < 1000 {
			t.Fatalf("key %d: %d bytes, %v", i, len(v), err)
		}
	}
}

// TestReaderOfExpired: a reader that stays too long loses the dead segments, with an error, and nothing else.
func TestReaderOfExpired(t *testing.T) {
	t.Parallel()
	db := openDB(t, badgerdb.Options{Dir: t.TempDir(), DropWait: time.Nanosecond})
	sp, x := space(t, db)
	for seg := range engine.Segment(4) {
		move(t, db, engine.Move{Space: sp, Writes: bulk(x, seg, 0, 500), Record: []byte("1")})
	}
	snap, err := db.Snapshot(sp)
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Release()
	its := make([]engine.Iterator, 4)
	for seg := range its {
		if its[seg], err = snap.Iterate(engine.Range{Store: x, Segment: engine.Segment(seg)}); err != nil || !its[seg].Next() {
			t.Fatalf("segment %d: %v", seg, err)
		}
		defer its[seg].Close()
	}
	if err := db.Expire(sp, x, 3); err != nil {
		t.Fatal(err)
	}
	reclaim(t, db)
	for seg, it := range its {
		n := 1
		for it.Next() {
			n++
		}
		_, getErr := snap.Get(x, engine.Segment(seg), []byte("00000007"), nil)
		if dead := seg == 1 || seg == 2; dead {
			if !errors.Is(it.Err(), engine.ErrDropped) || !errors.Is(getErr, engine.ErrDropped) {
				t.Errorf("dead segment %d: %d rows, %v, get: %v", seg, n, it.Err(), getErr)
			}
		} else if n != 500 || it.Err() != nil || getErr != nil {
			t.Errorf("segment %d, which lives: %d rows, %v, get: %v", seg, n, it.Err(), getErr)
		}
	}
}

// TestKillDuringExpiry: whatever step of the removal a crash follows, the database opens with the last move's record, has
// all that is not dead, and can be told again what is.
func TestKillDuringExpiry(t *testing.T) {
	t.Parallel()
	for name, sweepRows := range map[string]int{"row by row": 0, "as prefixes": 10} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, armed := t.TempDir(), false
			var images []string
			opt := badgerdb.WithSweepRows(badgerdb.Options{Dir: dir}, sweepRows)
			db := openDB(t, badgerdb.WithHook(opt, func(string) error {
				if !armed {
					return nil
				}
				images = append(images, filepath.Join(t.TempDir(), "image"))
				return storetest.KillImage(dir, images[len(images)-1])
			}))
			sp, x := space(t, db)
			// The last move, which is checked at opening, has all of it.
			writes := func(yield func(engine.Write) bool) {
				for seg := range engine.Segment(3) {
					for w := range bulk(x, seg, 0, 40) {
						if !yield(w) {
							return
						}
					}
				}
			}
			move(t, db, engine.Move{Space: sp, Writes: writes, Record: []byte("last")})
			if err := db.Expire(sp, x, 2); err != nil {
				t.Fatal(err)
			}
			armed = true
			reclaim(t, db)
			armed = false
			if len(images) < 3 {
				t.Fatalf("%d steps", len(images))
			}
			for i, image := range images {
				opt := badgerdb.Options{Dir: image}
				opt.Listener.Quarantined = func(string) { t.Errorf("step %d: taken for damaged", i) }
				db := openDB(t, opt)
				if err := db.Expire(sp, x, 2); err != nil {
					t.Fatal(err)
				}
				reclaim(t, db)
				for seg, want := range []int{40, 0, 40} {
					if n := count(t, db, sp, x, engine.Segment(seg)); n != want {
						t.Errorf("step %d, segment %d: %d rows, want %d", i, seg, n, want)
					}
				}
				if _, record := storetest.EngineContent(t, db, sp, x); record != "last" {
					t.Errorf("step %d: record %q", i, record)
				}
			}
		})
	}
}

// bulk yields rows with keys from first to last, of 1,000 bytes that do not compress.
func bulk(id engine.StoreID, seg engine.Segment, first, last int) iter.Seq[engine.Write] {
	return func(yield func(engine.Write) bool) {
		rng := rand.New(rand.NewPCG(uint64(seg), uint64(first)))
		value := make([]byte, 1000)
		for i := first; i < last; i++ {
			for j := 0; j < len(value); j += 8 {
				binary.LittleEndian.PutUint64(value[j:], rng.Uint64())
			}
			if !yield(engine.Write{Store: id, Segment: seg, Key: fmt.Appendf(nil, "%08d", i), Value: value}) {
				return
			}
		}
	}
}

// unset yields deletes of what writes sets.
func unset(writes iter.Seq[engine.Write]) iter.Seq[engine.Write] {
	return func(yield func(engine.Write) bool) {
		for w := range writes {
			w.Value = nil
			if !yield(w) {
				return
			}
		}
	}
}

func count(tb testing.TB, db *badgerdb.DB, sp engine.SpaceID, id engine.StoreID, seg engine.Segment) (n int) {
	tb.Helper()
	snap, err := db.Snapshot(sp)
	if err != nil {
		tb.Fatal(err)
	}
	defer snap.Release()
	it, err := snap.Iterate(engine.Range{Store: id, Segment: seg})
	if err != nil {
		tb.Fatal(err)
	}
	defer it.Close()
	for it.Next() {
		n++
	}
	if err := it.Err(); err != nil {
		tb.Fatal(err)
	}
	return n
}

func reclaim(tb testing.TB, db *badgerdb.DB) {
	tb.Helper()
	if pending, err := db.Reclaim(tb.Context()); pending || err != nil {
		tb.Fatalf("reclaim: pending %t, %v", pending, err)
	}
}

// diskUsage is what the tables under dir take of the disk; the logs of memtables come and go.
func diskUsage(tb testing.TB, dir string) (bytes int64) {
	tb.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, ".mem") {
			return err
		}
		info, err := d.Info()
		if err == nil {
			bytes += info.Sys().(*syscall.Stat_t).Blocks * 512
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		tb.Fatal(err)
	}
	return bytes
}
