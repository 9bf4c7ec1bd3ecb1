package layered_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

// BenchmarkCopy makes the same state of 100,000 keys by replaying its changelog, of one record and of ten per key, and by
// loading a copy of it; and reads such a copy. The moves are part of each. keys/cpu-s is for the keys of the state, whatever
// the number of records.
func BenchmarkCopy(b *testing.B) {
	for _, size := range []int{8, 100} {
		from := openStores(b, layered.Config{Dir: b.TempDir()})
		donor := openTask(b, from, task0, disk)
		replay(b, from, donor, 1, size)
		snap := snapshot(b, donor)
		for _, updates := range []int{1, 10} {
			b.Run(fmt.Sprintf("value=%d/log=%d", size, updates), func(b *testing.B) {
				perKey(b, func(s *layered.Stores, task *layered.Task) { replay(b, s, task, updates, size) })
			})
		}
		b.Run(fmt.Sprintf("value=%d/read", size), func(b *testing.B) {
			perKey(b, func(*layered.Stores, *layered.Task) { eachPiece(b, snap, func([]store.CopyRow) {}) })
		})
		// What a load costs, without the donor's part, is what is left when the line above is taken away.
		b.Run(fmt.Sprintf("value=%d/read and load", size), func(b *testing.B) {
			perKey(b, func(_ *layered.Stores, task *layered.Task) {
				h, err := snap.Copy()
				if err != nil {
					b.Fatal(err)
				}
				l, err := task.Load(b.Context(), h.Header(time.Now()), time.Now())
				if err != nil {
					b.Fatal(err)
				}
				eachPiece(b, snap, func(rows []store.CopyRow) {
					if err := l.Add(b.Context(), rows); err != nil {
						b.Fatal(err)
					}
				})
				if err := l.Finish(b.Context()); err != nil {
					b.Fatal(err)
				}
			})
		})
		snap.Close()
	}
}

// perKey fills an empty copy of the task in each iteration.
func perKey(b *testing.B, fill func(*layered.Stores, *layered.Task)) {
	b.Helper()
	n, used := 0, 0.0
	for b.Loop() {
		b.StopTimer()
		s, err := layered.Open(b.Context(), layered.Config{Dir: b.TempDir()})
		if err != nil {
			b.Fatal(err)
		}
		task := openTask(b, s, task0, disk)
		b.StartTimer()
		start := cpuSeconds(b)
		fill(s, task)
		used += cpuSeconds(b) - start
		n += benchKeys
		b.StopTimer()
		if err := task.Close(b.Context()); err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(n)/used, "keys/cpu-s")
}

// replay restores a changelog in which each key is there so often, at random places, a commit every 20,000 records, and moves
// it.
func replay(b *testing.B, s *layered.Stores, task *layered.Task, updates, size int) {
	b.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	value := make([]byte, size)
	batch, arena := make([]store.Change, 0, 1000), make([]byte, 0, 1000*16)
	n := 0
	for range updates {
		for _, i := range rng.Perm(benchKeys) {
			from := len(arena)
			arena = benchKey(arena, i)
			batch = append(batch, store.Change{Key: arena[from:], Value: value, Timestamp: 1})
			if n++; len(batch) < cap(batch) {
				continue
			}
			if err := task.Restore("d", batch); err != nil {
				b.Fatal(err)
			}
			batch, arena = batch[:0], arena[:0]
			if n%20_000 == 0 {
				task.Commit(checkpoint(n, "d"))
			}
		}
	}
	task.Commit(checkpoint(n, "d"))
	moveNow(b, s, task)
}

// eachPiece reads a copy in pieces of 256 KiB.
func eachPiece(b *testing.B, snap *layered.Snapshot, see func([]store.CopyRow)) {
	b.Helper()
	c, err := snap.Copy()
	if err != nil {
		b.Fatal(err)
	}
	for after, done := (store.CopyPlace{}), false; !done; {
		var rows []store.CopyRow
		if rows, done, err = c.Read(b.Context(), after, 256<<10); err != nil {
			b.Fatal(err)
		}
		if len(rows) > 0 {
			after = rows[len(rows)-1].Place().Clone()
		}
		see(rows)
	}
}
