package layered_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

const benchKeys = 100_000

// benchKey appends "user-" and n in eleven digits; it is cheap, for it runs inside the loops that are measured.
func benchKey(dst []byte, n int) []byte {
	dst = append(dst, "user-00000000000"...)
	for i := len(dst) - 1; n > 0; i-- {
		dst[i] = byte('0' + n%10)
		n /= 10
	}
	return dst
}

// cpuSeconds is what the process has used, all its goroutines.
func cpuSeconds(b *testing.B) float64 {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	sec := func(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }
	return sec(u.Utime) + sec(u.Stime)
}

// running opens Stores whose moves run beside the benchmark.
func running(b *testing.B, cfg layered.Config) *layered.Stores {
	b.Helper()
	s := openStores(b, cfg)
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.Context()))
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Run(ctx); err != nil {
			b.Error(err)
		}
	})
	b.Cleanup(func() { cancel(); wg.Wait() })
	return s
}

// fill restores n keys with values of 100 bytes and moves them to the engine.
func fill(b *testing.B, s *layered.Stores, task *layered.Task, n int) {
	b.Helper()
	batch := make([]store.Change, 0, 1000)
	for i := range n {
		batch = append(batch, store.Change{Key: benchKey(nil, i), Value: make([]byte, 100), Timestamp: 1})
		if len(batch) == cap(batch) || i == n-1 {
			if err := task.Restore("d", batch); err != nil {
				b.Fatal(err)
			}
			batch = batch[:0]
		}
		if i%20_000 == 19_999 || i == n-1 {
			task.Commit(checkpoint(i+1, "d"))
		}
	}
	moveNow(b, s, task)
}

// BenchmarkCount is the loop of a counting task: read, add one, write; a commit every 50,000 updates with its changes
// read as for the changelog; moves beside it. 1M cold keys lie in the engine in one of the cases.
func BenchmarkCount(b *testing.B) {
	for _, cold := range []int{0, 1_000_000} {
		b.Run(fmt.Sprint("cold=", cold), func(b *testing.B) {
			s := running(b, layered.Config{Dir: b.TempDir()})
			task := openTask(b, s, task0, disk)
			if cold > 0 {
				fill(b, s, task, cold)
			}
			countLoop(b, task, nothing, nothing)
		})
	}
}

// BenchmarkShow is the loop of BenchmarkCount with an overlay that is shown to readers after each batch of 1,000 updates:
// when nobody asks, and when somebody always does.
func BenchmarkShow(b *testing.B) {
	for name, show := range map[string]func(*layered.Task){
		"nobody":   func(task *layered.Task) { task.Show(at(1)) },
		"somebody": func(task *layered.Task) { task.ShowNow(at(1)) },
	} {
		b.Run("reader="+name, func(b *testing.B) {
			s := running(b, layered.Config{Dir: b.TempDir()})
			task := openTask(b, s, task0, disk)
			countLoop(b, task, func() { show(task) }, nothing)
		})
	}
}

func nothing() {}

// countLoop reads, adds one and writes. It calls batch every 1,000 updates; every 50,000 it calls flush, reads the changes
// as for the changelog, and commits.
func countLoop(b *testing.B, task *layered.Task, batch, flush func()) {
	b.Helper()
	counts := kv(b, task, "d")
	rng := rand.New(rand.NewPCG(1, 2))
	key, val := make([]byte, 0, 16), make([]byte, 8)
	n := 0
	b.ReportAllocs()
	start := cpuSeconds(b)
	for b.Loop() {
		key = benchKey(key[:0], rng.IntN(benchKeys))
		var c uint64
		if v, err := counts.Get(key); err == nil && len(v.Data) == 8 {
			c = binary.BigEndian.Uint64(v.Data)
		}
		binary.BigEndian.PutUint64(val, c+1)
		if err := counts.Put(key, store.Value{Data: val, Timestamp: int64(n)}); err != nil {
			b.Fatal(err)
		}
		if n++; n%1000 == 0 {
			batch()
		}
		if n%50_000 == 0 {
			flush()
			bytes := 0
			for _, c := range task.Changes() {
				bytes += len(c.Key) + len(c.Value)
			}
			task.Commit(checkpoint(n, "d"))
		}
	}
	b.ReportMetric(float64(n)/(cpuSeconds(b)-start), "updates/cpu-s")
}

// BenchmarkRestore replays a changelog of keys that repeat, and one of keys that do not, moves included.
func BenchmarkRestore(b *testing.B) {
	for name, keys := range map[string]int{"repeated": benchKeys, "distinct": 1e11} {
		b.Run(name, func(b *testing.B) {
			s := running(b, layered.Config{Dir: b.TempDir()})
			task := openTask(b, s, task0, disk)
			rng := rand.New(rand.NewPCG(1, 2))
			batch := make([]store.Change, 1000)
			arena := make([]byte, 0, 1000*32)
			value := make([]byte, 8)
			n := 0
			b.ReportAllocs()
			start := cpuSeconds(b)
			for b.Loop() {
				if i := n % len(batch); i == 0 && n > 0 {
					if err := task.Restore("d", batch); err != nil {
						b.Fatal(err)
					}
					arena = arena[:0]
					if n%20_000 == 0 {
						task.Commit(checkpoint(n, "d"))
					}
				}
				from := len(arena)
				arena = benchKey(arena, rng.IntN(keys))
				batch[n%len(batch)] = store.Change{Key: arena[from:], Value: value, Timestamp: 1}
				n++
			}
			task.Commit(checkpoint(n, "d"))
			moveNow(b, s, task)
			b.ReportMetric(float64(n)/(cpuSeconds(b)-start), "records/cpu-s")
		})
	}
}

// BenchmarkGet reads through a snapshot, from the engine and from the recent layer, beside Badger alone on the same data.
func BenchmarkGet(b *testing.B) {
	s := openStores(b, layered.Config{Dir: b.TempDir()})
	task := openTask(b, s, task0, disk)
	fill(b, s, task, benchKeys)
	read := func(b *testing.B) {
		b.Helper()
		snap, err := task.Snapshot()
		if err != nil {
			b.Fatal(err)
		}
		defer snap.Close()
		r, err := snap.KeyValue("d")
		if err != nil {
			b.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(1, 2))
		ctx := b.Context()
		key := make([]byte, 0, 16)
		b.ReportAllocs()
		for b.Loop() {
			key = benchKey(key[:0], rng.IntN(benchKeys))
			if _, err := r.Get(ctx, key); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("engine", read)
	b.Run("snapshot for each", func(b *testing.B) {
		rng := rand.New(rand.NewPCG(1, 2))
		key := make([]byte, 0, 16)
		b.ReportAllocs()
		for b.Loop() {
			key = benchKey(key[:0], rng.IntN(benchKeys))
			snap, err := task.Snapshot()
			if err != nil {
				b.Fatal(err)
			}
			r, err := snap.KeyValue("d")
			if err != nil {
				b.Fatal(err)
			}
			if _, err := r.Get(b.Context(), key); err != nil {
				b.Fatal(err)
			}
			snap.Close()
		}
	})
	b.Run("raw badger", func(b *testing.B) {
		db := rawBadger(b)
		rng := rand.New(rand.NewPCG(1, 2))
		key := make([]byte, 0, 16)
		b.ReportAllocs()
		for b.Loop() {
			key = benchKey(key[:0], rng.IntN(benchKeys))
			txn := db.NewTransactionAt(1, false)
			item, err := txn.Get(key)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := item.ValueCopy(nil); err != nil {
				b.Fatal(err)
			}
			txn.Discard()
		}
	})
	for i := range benchKeys {
		if err := kv(b, task, "d").Put(benchKey(nil, i), store.Value{Data: make([]byte, 100)}); err != nil {
			b.Fatal(err)
		}
	}
	task.Commit(checkpoint(2*benchKeys, "d"))
	b.Run("recent", read)
}

// BenchmarkScan reads 1,000 rows at a random place.
func BenchmarkScan(b *testing.B) {
	s := openStores(b, layered.Config{Dir: b.TempDir()})
	task := openTask(b, s, task0, disk)
	fill(b, s, task, benchKeys)
	scan := func(b *testing.B) {
		b.Helper()
		rng := rand.New(rand.NewPCG(1, 2))
		b.ReportAllocs()
		rows := 0
		for b.Loop() {
			snap, err := task.Snapshot()
			if err != nil {
				b.Fatal(err)
			}
			r, _ := snap.KeyValue("d")
			it, err := r.Scan(b.Context(), store.Scan{From: benchKey(nil, rng.IntN(benchKeys-1000))})
			if err != nil {
				b.Fatal(err)
			}
			for range 1000 {
				if !it.Next() {
					b.Fatal(it.Err())
				}
				rows++
			}
			it.Close()
			snap.Close()
		}
		b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "rows/s")
	}
	b.Run("engine", scan)
	b.Run("raw badger", func(b *testing.B) {
		db := rawBadger(b)
		rng := rand.New(rand.NewPCG(1, 2))
		b.ReportAllocs()
		rows := 0
		for b.Loop() {
			txn := db.NewTransactionAt(1, false)
			opt := badger.DefaultIteratorOptions
			opt.PrefetchValues = false
			it := txn.NewIterator(opt)
			it.Seek(benchKey(nil, rng.IntN(benchKeys-1000)))
			for range 1000 {
				if _, err := it.Item().ValueCopy(nil); err != nil {
					b.Fatal(err)
				}
				_ = it.Item().KeyCopy(nil)
				it.Next()
				rows++
			}
			it.Close()
			txn.Discard()
		}
		b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "rows/s")
	})
	for i := range benchKeys / 2 {
		if err := kv(b, task, "d").Put(benchKey(nil, 2*i), store.Value{Data: make([]byte, 100)}); err != nil {
			b.Fatal(err)
		}
	}
	task.Commit(checkpoint(2*benchKeys, "d"))
	b.Run("half recent", scan)
}

func BenchmarkPut(b *testing.B) {
	s := openStores(b, layered.Config{Dir: b.TempDir()})
	task := openTask(b, s, task0, disk)
	d := kv(b, task, "d")
	val := store.Value{Data: make([]byte, 100)}
	key := make([]byte, 0, 16)
	for i := range benchKeys {
		if err := d.Put(benchKey(key[:0], i), val); err != nil {
			b.Fatal(err)
		}
	}
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		if err := d.Put(benchKey(key[:0], n%benchKeys), val); err != nil {
			b.Fatal(err)
		}
		n++
	}
}

// BenchmarkCommit is a commit of 100 changed keys.
func BenchmarkCommit(b *testing.B) {
	s := openStores(b, layered.Config{Dir: b.TempDir()})
	task := openTask(b, s, task0, disk)
	d := kv(b, task, "d")
	val := store.Value{Data: make([]byte, 100)}
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		for i := range 100 {
			if err := d.Put(benchKey(nil, i), val); err != nil {
				b.Fatal(err)
			}
		}
		n++
		task.Commit(checkpoint(n, "d"))
	}
}

// openRaw opens Badger with nothing around it, under the same options.
func openRaw(b *testing.B) *badger.DB {
	b.Helper()
	opt := badger.DefaultOptions(b.TempDir()).WithLogger(nil).WithMemTableSize(8 << 20).WithNumMemtables(2).
		WithCompression(options.None).WithBlockCacheSize(0).WithNumCompactors(2).WithDetectConflicts(false).WithMetricsEnabled(false)
	db, err := badger.OpenManaged(opt)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := db.Close(); err != nil {
			b.Error(err)
		}
	})
	return db
}

// rawBadger holds the same data in Badger alone.
func rawBadger(b *testing.B) *badger.DB {
	b.Helper()
	db := openRaw(b)
	wb := db.NewWriteBatchAt(1)
	for i := range benchKeys {
		if err := wb.Set(benchKey(nil, i), make([]byte, 108)); err != nil {
			b.Fatal(err)
		}
	}
	if err := wb.Flush(); err != nil {
		b.Fatal(err)
	}
	return db
}

// BenchmarkCache is the loop of BenchmarkCount behind a record cache whose listener hears every change, as a sink does:
// with room for all keys, for a tenth of them, and with none; a commit every 50,000 updates.
func BenchmarkCache(b *testing.B) {
	for name, size := range map[string]int64{"all": 64 << 20, "tenth": benchKeys / 10 * (16 + 8 + 45), "none": 0} {
		b.Run("room="+name, func(b *testing.B) {
			s := running(b, layered.Config{Dir: b.TempDir()})
			spec := disk
			spec.Caching = true
			task := openTask(b, s, task0, spec)
			cache := s.NewRecordCache(size)
			task.UseCache(cache)
			heard := 0
			if err := task.OnFlush("d", func(f store.Flushed) error {
				heard += len(f.New.Data) + len(f.Old.Data)
				return nil
			}); err != nil {
				b.Fatal(err)
			}
			countLoop(b, task, nothing, func() {
				if _, err := task.FlushCache("d"); err != nil {
					b.Fatal(err)
				}
			})
			if _, err := task.FlushCache("d"); err != nil { // of one update alone nothing is flushed by then
				b.Fatal(err)
			}
			if heard == 0 {
				b.Error("nothing was heard")
			}
		})
	}
}
