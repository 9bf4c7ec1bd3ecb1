package layered_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

const (
	versionedKeys = 10_000
	versionsEach  = 10
	versionStep   = int64(10 * time.Minute / time.Millisecond)
)

// versionTime is when version v of key k begins: keys have times of their own.
func versionTime(k, v int) int64 { return int64(v)*versionStep + int64(k*7919)%versionStep }

// fillVersions puts versions of 100 bytes and moves them to the engine.
func fillVersions(b *testing.B, s *layered.Stores, task *layered.Task) store.Versioned {
	b.Helper()
	w, err := task.Versioned("v")
	if err != nil {
		b.Fatal(err)
	}
	for v := range versionsEach {
		for k := range versionedKeys {
			if _, err := w.Put(benchKey(nil, k), store.Value{Data: make([]byte, 100), Timestamp: versionTime(k, v)}); err != nil {
				b.Fatal(err)
			}
		}
		task.Commit(checkpoint(v+1, "v"))
	}
	moveNow(b, s, task)
	return w
}

func versionedTask(b *testing.B) (*layered.Stores, *layered.Task) {
	b.Helper()
	s := running(b, layered.Config{Dir: b.TempDir()})
	return s, openTask(b, s, task0, store.Spec{Name: "v", Kind: store.KindVersioned, Retention: 24 * time.Hour})
}

// BenchmarkVersionedPut puts a version of a random key that has ten; a commit every 10,000 puts with its changes read as for
// the changelog, moves beside it. Raw Badger takes rows of key and time in write batches of as many, and knows nothing of when a
// version ends.
func BenchmarkVersionedPut(b *testing.B) {
	for _, c := range []struct {
		name string
		at   func(rng *rand.Rand, k, n int) int64
	}{
		{"newest", func(_ *rand.Rand, k, n int) int64 { return versionTime(k, versionsEach) + int64(n) }},
		{"out of order", func(rng *rand.Rand, k, _ int) int64 { return versionTime(k, 1) + rng.Int64N(8*versionStep) }},
	} {
		b.Run(c.name, func(b *testing.B) { putVersions(b, c.at) })
	}
	b.Run("raw badger", func(b *testing.B) {
		db := rawVersions(b)
		rng := rand.New(rand.NewPCG(1, 2))
		n := 0
		wb := db.NewWriteBatchAt(2)
		b.ReportAllocs()
		start := cpuSeconds(b)
		for b.Loop() {
			k := rng.IntN(versionedKeys)
			if err := wb.Set(store.VersionKey(benchKey(nil, k), versionTime(k, versionsEach)+int64(n)), make([]byte, 100)); err != nil {
				b.Fatal(err)
			}
			if n++; n%10_000 == 0 {
				if err := wb.Flush(); err != nil {
					b.Fatal(err)
				}
				wb = db.NewWriteBatchAt(uint64(2 + n))
			}
		}
		b.ReportMetric(float64(n)/(cpuSeconds(b)-start), "puts/cpu-s")
		if err := wb.Flush(); err != nil {
			b.Fatal(err)
		}
	})
}

// putVersions is one case of BenchmarkVersionedPut.
func putVersions(b *testing.B, at func(rng *rand.Rand, k, n int) int64) {
	b.Helper()
	s, task := versionedTask(b)
	w := fillVersions(b, s, task)
	rng := rand.New(rand.NewPCG(1, 2))
	val := store.Value{Data: make([]byte, 100)}
	key := make([]byte, 0, 16)
	n := 0
	b.ReportAllocs()
	start := cpuSeconds(b)
	for b.Loop() {
		k := rng.IntN(versionedKeys)
		val.Timestamp = at(rng, k, n)
		if _, err := w.Put(benchKey(key[:0], k), val); err != nil {
			b.Fatal(err)
		}
		if n++; n%10_000 == 0 {
			for range task.Changes() {
			}
			task.Commit(checkpoint(versionsEach+n, "v"))
		}
	}
	b.ReportMetric(float64(n)/(cpuSeconds(b)-start), "puts/cpu-s")
}

// BenchmarkVersionedGet reads keys with ten versions in the engine, the latest one and as of a time. In raw Badger both are a
// seek to the last row of the key that is not later.
func BenchmarkVersionedGet(b *testing.B) {
	s, task := versionedTask(b)
	fillVersions(b, s, task)
	snap, err := task.Snapshot()
	if err != nil {
		b.Fatal(err)
	}
	defer snap.Close()
	r, err := snap.Versions("v")
	if err != nil {
		b.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	key := make([]byte, 0, 16)
	loop := func(b *testing.B, read func(k int) error) {
		b.Helper()
		b.ReportAllocs()
		start := cpuSeconds(b)
		for b.Loop() {
			if err := read(rng.IntN(versionedKeys)); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N)/(cpuSeconds(b)-start), "gets/cpu-s")
	}
	b.Run("latest", func(b *testing.B) {
		loop(b, func(k int) error {
			_, err := r.Get(b.Context(), benchKey(key[:0], k))
			return err
		})
	})
	for _, v := range []int{versionsEach - 2, 1} {
		b.Run(fmt.Sprintf("as of %d versions ago", versionsEach-1-v), func(b *testing.B) {
			loop(b, func(k int) error {
				_, err := r.GetAsOf(b.Context(), benchKey(key[:0], k), versionTime(k, v)+versionStep/2)
				return err
			})
		})
	}
	b.Run("raw badger", func(b *testing.B) {
		db := rawVersions(b)
		loop(b, func(k int) error {
			row := store.VersionKey(benchKey(key[:0], k), versionTime(k, 1)+versionStep/2)
			txn := db.NewTransactionAt(1, false)
			defer txn.Discard()
			it := txn.NewIterator(badger.IteratorOptions{Reverse: true, Prefix: row[:16]})
			defer it.Close()
			if it.Seek(row); !it.Valid() {
				return store.ErrNotFound
			}
			_, err := it.Item().ValueCopy(nil)
			return err
		})
	})
}

// rawVersions holds the same versions in Badger alone, in rows of key and time.
func rawVersions(b *testing.B) *badger.DB {
	b.Helper()
	db := openRaw(b)
	wb := db.NewWriteBatchAt(1)
	for v := range versionsEach {
		for k := range versionedKeys {
			if err := wb.Set(store.VersionKey(benchKey(nil, k), versionTime(k, v)), make([]byte, 100)); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := wb.Flush(); err != nil {
		b.Fatal(err)
	}
	return db
}
