package layered_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

const (
	benchWindows    = 24
	benchWindowKeys = 10_000
	hour            = int64(3_600_000)
)

// hourly is a window store with a segment for each of the day's windows.
var hourly = store.Spec{
	Name: "w", Kind: store.KindTimestampedWindow, WindowSize: time.Hour, Retention: benchWindows * time.Hour, SegmentInterval: time.Hour,
}

func value100(start int64) store.Value { return store.Value{Data: make([]byte, 100), Timestamp: start} }

// fillWindows puts a window of each key into each hour and moves them to the engine.
func fillWindows(b *testing.B, s *layered.Stores, task *layered.Task) {
	b.Helper()
	w := windowOf(b, task, "w")
	for i := range int64(benchWindows) {
		for k := range benchWindowKeys {
			if err := w.Put(benchKey(nil, k), i*hour, value100(i*hour)); err != nil {
				b.Fatal(err)
			}
		}
		task.Commit(checkpoint(int(i)+1, "w"))
		moveNow(b, s, task)
	}
}

// BenchmarkWindow is the work on a store of 10,000 keys with 24 hourly windows each, every hour a segment.
func BenchmarkWindow(b *testing.B) {
	open := func(b *testing.B) (*layered.Stores, *layered.Task) {
		b.Helper()
		s := openStores(b, layered.Config{Dir: b.TempDir()})
		task := openTask(b, s, task0, hourly)
		fillWindows(b, s, task)
		return s, task
	}
	b.Run("put", func(b *testing.B) {
		s := running(b, layered.Config{Dir: b.TempDir()})
		task := openTask(b, s, task0, hourly)
		w, rng, key, n := windowOf(b, task, "w"), rand.New(rand.NewPCG(1, 2)), []byte{}, 0
		v := value100(0)
		b.ReportAllocs()
		start := cpuSeconds(b)
		for b.Loop() {
			key = benchKey(key[:0], rng.IntN(benchWindowKeys))
			if err := w.Put(key, int64(rng.IntN(benchWindows))*hour, v); err != nil {
				b.Fatal(err)
			}
			if n++; n%20_000 == 0 {
				task.Commit(checkpoint(n, "w"))
			}
		}
		b.ReportMetric(float64(n)/(cpuSeconds(b)-start), "puts/cpu-s")
		task.Commit(checkpoint(n+1, "w"))
	})
	b.Run("fetch", func(b *testing.B) {
		_, task := open(b)
		w, rng, key := windowOf(b, task, "w"), rand.New(rand.NewPCG(1, 2)), []byte{}
		b.ReportAllocs()
		defer cpuPerOp(b)()
		for b.Loop() {
			key = benchKey(key[:0], rng.IntN(benchWindowKeys))
			if _, err := w.Fetch(key, int64(1+rng.IntN(benchWindows-1))*hour); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("24 windows", func(b *testing.B) {
		_, task := open(b)
		snap, err := task.Snapshot()
		if err != nil {
			b.Fatal(err)
		}
		defer snap.Close()
		r, err := snap.Windows("w")
		if err != nil {
			b.Fatal(err)
		}
		rng, key := rand.New(rand.NewPCG(1, 2)), []byte{}
		b.ReportAllocs()
		defer cpuPerOp(b)()
		for b.Loop() {
			key = benchKey(key[:0], rng.IntN(benchWindowKeys))
			it, err := r.Scan(b.Context(), store.WindowScan{Key: key, To: math.MaxInt64})
			if err != nil {
				b.Fatal(err)
			}
			n := 0
			for it.Next() {
				n += len(it.Entry().Data)
			}
			it.Close()
			if n != benchWindows*100 {
				b.Fatalf("%d bytes", n)
			}
		}
	})
	raw := rawWindows
	b.Run("24 windows, raw badger, an iterator each", func(b *testing.B) { raw(b, true) })
	b.Run("24 windows, raw badger, one iterator", func(b *testing.B) { raw(b, false) })
}

// cpuPerOp reports the processor time of an iteration: what a busy machine does not distort.
func cpuPerOp(b *testing.B) func() {
	b.Helper()
	start := cpuSeconds(b)
	return func() { b.ReportMetric((cpuSeconds(b)-start)*1e6/float64(b.N), "cpu-us/op") }
}

// rawWindows reads the same rows out of a bare database: segment, key, start.
func rawWindows(b *testing.B, each bool) {
	b.Helper()
	db := rawBadger(b)
	row := func(dst []byte, segment, k int) []byte {
		dst = binary.BigEndian.AppendUint64(append(dst[:0], "segment"...), uint64(segment))
		return benchKey(dst, k)
	}
	for segment := range benchWindows {
		wb := db.NewWriteBatchAt(uint64(segment + 1))
		for k := range benchWindowKeys {
			key := store.WindowKey(row(nil, segment, k), int64(segment)*hour, 0)
			if err := wb.SetEntryAt(badger.NewEntry(key, make([]byte, 108)), uint64(segment+1)); err != nil {
				b.Fatal(err)
			}
		}
		if err := wb.Flush(); err != nil {
			b.Fatal(err)
		}
	}
	txn := db.NewTransactionAt(math.MaxUint64, false)
	defer txn.Discard()
	rng := rand.New(rand.NewPCG(1, 2))
	opt := badger.DefaultIteratorOptions
	opt.PrefetchValues = false
	b.ReportAllocs()
	defer cpuPerOp(b)()
	for b.Loop() {
		k, n := rng.IntN(benchWindowKeys), 0
		var it *badger.Iterator
		for segment := range benchWindows {
			prefix := row(nil, segment, k)
			if each {
				opt.Prefix = prefix
			}
			if it == nil {
				it = txn.NewIterator(opt)
			}
			for it.Seek(prefix); it.ValidForPrefix(prefix); it.Next() {
				v, err := it.Item().ValueCopy(nil)
				if err != nil {
					b.Fatal(err)
				}
				_ = it.Item().KeyCopy(nil)
				n += len(v) - 8
			}
			if each {
				it.Close()
				it = nil
			}
		}
		if it != nil {
			it.Close()
		}
		if n != benchWindows*100 {
			b.Fatalf("%d bytes", n)
		}
	}
}

// BenchmarkSession is the loop of a session aggregation: find what a record touches, put the session it makes; a commit
// every 20,000 records, moves beside it.
func BenchmarkSession(b *testing.B) {
	for _, gap := range []int64{1, 1000} { // every record a new session; most records extend one
		b.Run(fmt.Sprint("gap=", gap), func(b *testing.B) {
			s := running(b, layered.Config{Dir: b.TempDir()})
			task := openTask(b, s, task0, store.Spec{Name: "s", Kind: store.KindSession, Retention: 10 * time.Minute})
			w, rng, key, n, now := sessionOf(b, task, "s"), rand.New(rand.NewPCG(1, 2)), []byte{}, 0, int64(0)
			v := store.Value{Data: make([]byte, 16)}
			b.ReportAllocs()
			start := cpuSeconds(b)
			for b.Loop() {
				key = benchKey(key[:0], rng.IntN(benchWindowKeys))
				now += int64(n % 2)
				it, err := w.Scan(store.SessionScan{Key: key, EarliestEnd: now - gap, LatestEnd: math.MaxInt64, LatestStart: now + gap})
				if err != nil {
					b.Fatal(err)
				}
				first := now
				for it.Next() {
					e := it.Entry()
					first = min(first, e.Start)
					if err := w.Remove(key, e.Start, e.End); err != nil {
						b.Fatal(err)
					}
				}
				it.Close()
				if err := w.Put(key, first, now, v); err != nil {
					b.Fatal(err)
				}
				if n++; n%20_000 == 0 {
					task.Commit(checkpoint(n, "s"))
				}
			}
			b.ReportMetric(float64(n)/(cpuSeconds(b)-start), "records/cpu-s")
			task.Commit(checkpoint(n+1, "s"))
		})
	}
}
