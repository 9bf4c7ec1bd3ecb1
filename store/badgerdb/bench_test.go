package badgerdb_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/badgerdb"
	"github.com/statemesh/statemesh/store/engine"
)

// BenchmarkReclaim removes expired rows of about 110 bytes beside a million others, in both ways, and says how long that
// took and how long the longest read took meanwhile (DESIGN.md).
func BenchmarkReclaim(b *testing.B) {
	for _, rows := range []int{10_000, 100_000} {
		for name, sweepRows := range map[string]int{"sweep": 1 << 30, "drop prefix": 1} {
			b.Run(fmt.Sprintf("rows=%d/%s", rows, name), func(b *testing.B) {
				for b.Loop() {
					benchReclaim(b, rows, sweepRows)
				}
			})
		}
	}
}

func benchReclaim(b *testing.B, rows, sweepRows int) {
	b.Helper()
	b.StopTimer()
	defer b.StartTimer()
	db := openDB(b, badgerdb.WithSweepRows(badgerdb.Options{Dir: b.TempDir()}, sweepRows))
	sp, x := space(b, db)
	other, err := db.Open(b.Context(), store.TaskID{Partition: 7}, []engine.Declared{{Name: "x", Kind: store.KindKeyValue}})
	if err != nil {
		b.Fatal(err)
	}
	value := make([]byte, 100)
	fill := func(space engine.SpaceID, id engine.StoreID, seg engine.Segment, rows int) {
		move(b, db, engine.Move{Space: space, Record: []byte("r"), Writes: func(yield func(engine.Write) bool) {
			key := make([]byte, 0, 16)
			for i := range rows {
				key = fmt.Appendf(key[:0], "%010d", i)
				if !yield(engine.Write{Store: id, Segment: seg, Key: key, Value: value}) {
					return
				}
			}
		}})
	}
	fill(other.ID, other.Stores["x"].ID, 0, 1_000_000)
	fill(sp, x, 1, rows)
	fill(sp, x, 2, rows)
	if err := db.Expire(sp, x, 2); err != nil {
		b.Fatal(err)
	}

	if err := badgerdb.Flatten(db); err != nil { // what the filling has left to do shall not count
		b.Fatal(err)
	}
	stop := make(chan struct{})
	var longest time.Duration
	var wg sync.WaitGroup
	wg.Go(func() {
		snap, err := db.Snapshot(other.ID)
		if err != nil {
			b.Error(err)
			return
		}
		defer snap.Release()
		key := make([]byte, 0, 16)
		for i := 0; ; i = (i + 7919) % 1_000_000 {
			select {
			case <-stop:
				return
			default:
			}
			key = fmt.Appendf(key[:0], "%010d", i)
			start := time.Now()
			if _, err := snap.Get(other.Stores["x"].ID, 0, key, nil); err != nil {
				b.Error(err)
				return
			}
			longest = max(longest, time.Since(start))
		}
	})
	time.Sleep(100 * time.Millisecond) //nolint:forbidigo // the reads shall be under way
	start := time.Now()
	reclaim(b, db)
	b.ReportMetric(float64(time.Since(start).Milliseconds()), "reclaim-ms")
	close(stop)
	wg.Wait()
	b.ReportMetric(float64(longest.Microseconds())/1000, "longest-read-ms")
}
