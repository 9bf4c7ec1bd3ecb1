package badgerdb_test

import (
	"fmt"
	"testing"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/badgerdb"
	"github.com/statemesh/statemesh/store/engine"
)

// TestSize: once the rows are in tables, two key spaces that share some are told apart, roughly.
func TestSize(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := openDB(t, badgerdb.Options{Dir: dir})
	const small, large = 2_000, 20_000
	rows := []int{large, small}
	ids := make([]engine.SpaceID, len(rows))
	var want [2]int64
	for i, n := range rows {
		sp, err := db.Open(t.Context(), store.TaskID{Partition: store.Partition(i)}, []engine.Declared{{Name: "x", Kind: store.KindKeyValue}})
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = sp.ID
		err = db.Move(t.Context(), engine.Move{Space: sp.ID, Record: []byte("1"), Writes: func(yield func(engine.Write) bool) {
			for k := range n {
				w := engine.Write{Store: sp.Stores["x"].ID, Key: fmt.Appendf(nil, "key-%06d", k), Value: make([]byte, 50)}
				want[i] += int64(len(w.Key) + len(w.Value))
				if !yield(w) {
					return
				}
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil { // which writes tables
		t.Fatal(err)
	}
	db = openDB(t, badgerdb.Options{Dir: dir})
	for i, n := range rows {
		count, size := db.Size(ids[i])
		t.Logf("%d rows of %d bytes: %d of %d", n, want[i], count, size)
		// One table may hold all: then it is cut into equal parts.
		if count < int64(min(n, (small+large)/2))/2 || count > 2*int64(max(n, (small+large)/2)) {
			t.Errorf("%d rows: %d", n, count)
		}
		if size < want[i]/4 || size > 4*max(want[i], (want[0]+want[1])/2) {
			t.Errorf("%d bytes: %d", want[i], size)
		}
	}
}
