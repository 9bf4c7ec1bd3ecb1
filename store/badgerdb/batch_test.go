package badgerdb_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dgraph-io/badger/v4"

	"github.com/statemesh/statemesh/store/badgerdb"
	"github.com/statemesh/statemesh/store/storetest"
)

// TestMoveOfManyPortions: a move that does not fit into what Badger takes at once is all there, values and deletes, and one of
// whose portions Badger takes only some is undone, ends and leaves the database in order.
func TestMoveOfManyPortions(t *testing.T) {
	t.Parallel()
	const rows = 5000 // a memtable of 256 KiB takes some 400 at once
	db := openDB(t, badgerdb.Options{Dir: t.TempDir(), MemTableBytes: 256 << 10})
	sp, x := space(t, db)
	set := func(value func(i int) string) map[string]string {
		all := make(map[string]string)
		for i := range rows {
			all[fmt.Sprintf("%05d", i)] = value(i)
		}
		return all
	}
	want := set(func(i int) string { return fmt.Sprint("first ", i) })
	move(t, db, storetest.EngineMove(sp, x, "1", want))
	got, _ := storetest.EngineContent(t, db, sp, x)
	same(t, want, got)

	tooLarge := strings.Repeat("x", 60<<10)
	for _, at := range []int{0, rows / 2, rows - 1} {
		bad := set(func(i int) string {
			if i == at {
				return tooLarge
			}
			return "bad"
		})
		if err := db.Move(t.Context(), storetest.EngineMove(sp, x, "2", bad)); !errors.Is(err, badger.ErrTxnTooBig) {
			t.Fatalf("row %d is too large: %v", at, err)
		}
		got, record := storetest.EngineContent(t, db, sp, x)
		if same(t, want, got); record != "1" {
			t.Errorf("record %s", record)
		}
	}

	mixed := set(func(i int) string {
		if i%3 == 0 {
			return "-"
		}
		return "third"
	})
	move(t, db, storetest.EngineMove(sp, x, "3", mixed))
	for key, value := range mixed {
		if value == "-" {
			delete(mixed, key)
		}
	}
	got, _ = storetest.EngineContent(t, db, sp, x)
	same(t, mixed, got)
}
