package badgerdb_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/statemesh/statemesh/store/badgerdb"
	"github.com/statemesh/statemesh/store/storetest"
)

// TestManifestCut: after a kill the manifest has lost its end, so tables are not in it while the log of the memtable has what
// came after them (SE-15). What opens is what one move made, or the damage is noticed; also where there are so many tables
// that Badger compacts them as soon as it has opened.
func TestManifestCut(t *testing.T) {
	t.Parallel()
	for _, tables := range []int{3, 7} {
		t.Run(fmt.Sprint(tables, " tables"), func(t *testing.T) {
			t.Parallel()
			testManifestCut(t, tables)
		})
	}
}

func testManifestCut(t *testing.T, want int) {
	opt := badgerdb.Options{Dir: t.TempDir(), MemTableBytes: 256 << 10}
	db := openDB(t, opt)
	sp, x := space(t, db)
	const rows = 40
	moves := 0
	write := func() {
		moves++
		kv := make(map[string]string, rows)
		for i := range rows {
			kv[fmt.Sprintf("%d of %d", i, moves)] = fmt.Sprintf("%0200d", i)
		}
		move(t, db, storetest.EngineMove(sp, x, fmt.Sprint(moves), kv))
	}
	for tables := 0; tables < want; {
		write()
		found, err := filepath.Glob(filepath.Join(opt.Dir, "*.sst"))
		if err != nil {
			t.Fatal(err)
		}
		tables = len(found)
	}
	write() // in the log alone
	image := filepath.Join(t.TempDir(), "killed")
	if err := storetest.KillImage(opt.Dir, image); err != nil {
		t.Fatal(err)
	}
	manifest, err := os.ReadFile(filepath.Join(image, "MANIFEST"))
	if err != nil {
		t.Fatal(err)
	}
	noticed := 0
	const header = 8 // magic of the file; then length and checksum of each change
	for end := header; end <= len(manifest); end += header + int(binary.BigEndian.Uint32(manifest[end:])) {
		dir := filepath.Join(t.TempDir(), "db")
		if err := storetest.KillImage(image, dir); err != nil {
			t.Fatal(err)
		}
		truncate(t, filepath.Join(dir, "MANIFEST"), int64(end))
		quarantined := false
		again := badgerdb.Options{Dir: dir, MemTableBytes: opt.MemTableBytes}
		again.Listener.Quarantined = func(string) { quarantined = true }
		db := openDB(t, again)
		if quarantined {
			noticed++
		} else if got, record := storetest.EngineContent(t, db, sp, x); fmt.Sprint(len(got)/rows) != record {
			t.Errorf("cut at %d of %d: %d rows with record %s of %d", end, len(manifest), len(got), record, moves)
		}
		if end == len(manifest) {
			if quarantined {
				t.Error("a kill alone was taken for damage")
			}
			break
		}
	}
	if noticed == 0 {
		t.Error("no damage was noticed: the test shows nothing")
	}
}
