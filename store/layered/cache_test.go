package layered_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

var (
	cachedStore = store.Spec{Name: "c", Kind: store.KindTimestampedKeyValue, Caching: true}
	otherStore  = store.Spec{Name: "o", Kind: store.KindKeyValue, Caching: true}
)

// cacheBench is a task behind a record cache; heard is what its listeners were told.
type cacheBench struct {
	t     *testing.T
	s     *layered.Stores
	task  *layered.Task
	cache *layered.RecordCache
	heard []string
	n     int
}

func newCacheBench(t *testing.T, maxBytes int64, specs ...store.Spec) *cacheBench {
	t.Helper()
	b := &cacheBench{t: t, s: openStores(t, layered.Config{Dir: t.TempDir()})}
	b.task = openTask(t, b.s, task0, specs...)
	b.cache = b.s.NewRecordCache(maxBytes)
	b.task.UseCache(b.cache)
	for _, spec := range specs {
		if err := b.task.OnFlush(spec.Name, b.listener(spec.Name)); err != nil {
			t.Fatal(err)
		}
	}
	b.commit()
	return b
}

// listener notes "key=new(old)"; a value that is not there is "-".
func (b *cacheBench) listener(name store.Name) store.FlushListener {
	return func(f store.Flushed) error {
		b.heard = append(b.heard, fmt.Sprintf("%s=%s(%s)", f.Key, text(f.New), text(f.Old)))
		if name == "o" {
			b.heard[len(b.heard)-1] = "o:" + b.heard[len(b.heard)-1]
		}
		return nil
	}
}

func text(v store.Value) string {
	if v.Data == nil {
		return "-"
	}
	return string(v.Data)
}

func (b *cacheBench) put(pairs ...string) {
	b.t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		set(b.t, b.task, "c", pairs[i], pairs[i+1])
	}
}

func (b *cacheBench) del(key string) {
	b.t.Helper()
	if err := kv(b.t, b.task, "c").Put([]byte(key), store.Value{Timestamp: 9}); err != nil {
		b.t.Fatal(err)
	}
}

func (b *cacheBench) flush(names ...store.Name) {
	b.t.Helper()
	for _, name := range names {
		if _, err := b.task.FlushCache(name); err != nil {
			b.t.Fatal(err)
		}
	}
}

func (b *cacheBench) commit() {
	b.t.Helper()
	b.n++
	b.task.Commit(checkpoint(b.n, "c", "o"))
}

// want compares what was heard since the last call.
func (b *cacheBench) want(what string, heard ...string) {
	b.t.Helper()
	equal(b.t, what, strings.Join(heard, " "), strings.Join(b.heard, " "))
	b.heard = nil
}

// changes are what goes to the changelog, in order of keys.
func (b *cacheBench) changes() map[string]string {
	out := make(map[string]string)
	for name, c := range b.task.Changes() {
		out[string(name)+"/"+string(c.Key)] = text(store.Value{Data: c.Value})
	}
	return out
}

// TestVectorsT7 are the vectors of record caches, by their numbers. An entry of one byte each costs 47.
func TestVectorsT7(t *testing.T) {
	t.Parallel()
	const entry = 47
	sum := func(t *testing.T, spec store.Spec) *cacheBench {
		t.Helper()
		b := newCacheBench(t, 1<<20, spec)
		b.put("A", "1", "D", "5", "A", "21", "A", "321")
		return b
	}
	for name, run := range map[string]func(t *testing.T){
		"T7/87 caching off": func(t *testing.T) {
			off := cachedStore
			off.Caching = false
			sum(t, off).want("heard", "A=1(-)", "D=5(-)", "A=21(1)", "A=321(21)")
		},
		"T7/88 caching on": func(t *testing.T) {
			b := sum(t, cachedStore)
			b.want("before the flush")
			b.flush("c")
			b.want("one flush", "D=5(-)", "A=321(-)") // in order of the last update
			equal(t, "changelog", map[string]string{"c/A": "321", "c/D": "5"}, b.changes())
			b.flush("c")
			b.want("nothing is told twice")
		},
		"T7/89 flush order": func(t *testing.T) {
			b := newCacheBench(t, 3*entry, cachedStore)
			b.put("1", "c")
			b.flush("c") // 1 is clean
			b.want("first", "1=c(-)")
			b.put("0", "a", "2", "b")
			if _, err := kv(t, b.task, "c").Get([]byte("1")); err != nil { // upstream puts it clean between the two
				t.Fatal(err)
			}
			if err := b.cache.Resize(2 * entry); err != nil {
				t.Fatal(err)
			}
			b.want("the evicted first, then in order of puts", "0=a(-)", "2=b(-)")
			equal(t, "bytes", 2*entry, int(b.cache.Bytes()))
		},
		"T7/90 one entry": func(t *testing.T) {
			b := newCacheBench(t, entry, cachedStore)
			for i := 1; i <= 5; i++ {
				b.put(fmt.Sprint(i), fmt.Sprint(i))
			}
			// The second put evicts the first entry, which flushes both; the third evicts the second, which is clean.
			b.want("flushed", "1=1(-)", "2=2(-)", "3=3(-)", "4=4(-)")
			equal(t, "evictions", 4, int(layered.Evictions(b.cache)))
			equal(t, "bytes", entry, int(b.cache.Bytes()))
		},
		"T7/91 no room, CA-03": func(t *testing.T) {
			for _, size := range []int64{0, 1} {
				b := newCacheBench(t, size, cachedStore)
				for _, v := range []string{"1", "2", "3"} {
					b.put("k", v)
					equal(t, "bytes", 0, int(b.cache.Bytes()))
				}
				b.want("each at once", "k=1(-)", "k=2(1)", "k=3(2)")
			}
		},
		"T7/92 size": func(t *testing.T) {
			b := newCacheBench(t, 1<<20, cachedStore)
			b.put("a", "1", "b", "1", "c", "1")
			equal(t, "three", 141, int(b.cache.Bytes()))
			if err := b.cache.Resize(100); err != nil {
				t.Fatal(err)
			}
			equal(t, "resized", 94, int(b.cache.Bytes()))
			b.want("evicting a dirty one flushes all", "a=1(-)", "b=1(-)", "c=1(-)")
			b.put("d", "1")
			equal(t, "one more", 94, int(b.cache.Bytes()))
		},
		"T7/93 eldest": func(t *testing.T) {
			b := newCacheBench(t, 5*entry, cachedStore)
			b.put("0", "a", "1", "a", "2", "a", "3", "a", "4", "a")
			b.flush("c")
			b.heard = nil
			b.put("5", "a")
			equal(t, "bytes", 5*entry, int(b.cache.Bytes()))
			b.want("a clean one forwards nothing")
			b.put("1", "b", "2", "b", "3", "b", "4", "b")
			equal(t, "0 went, the others are there", 5*entry, int(b.cache.Bytes()))
			b.want("nothing was evicted")
		},
		"T7/94 last value": func(t *testing.T) {
			b := newCacheBench(t, 1<<20, cachedStore)
			b.put("k", "1", "k", "2", "k", "3")
			equal(t, "bytes", entry, int(b.cache.Bytes()))
			b.flush("c")
			b.want("one entry", "k=3(-)")
		},
		"T7/96 range": func(t *testing.T) {
			b := newCacheBench(t, 1<<20, cachedStore)
			b.put("0", "a", "1", "a", "2", "a", "3", "a", "4", "a", "5", "a")
			scan := func(to string) string {
				it, err := kv(t, b.task, "c").Scan(store.Scan{From: []byte("1"), To: []byte(to)})
				if err != nil {
					t.Fatal(err)
				}
				defer it.Close()
				var keys []string
				for it.Next() {
					keys = append(keys, string(it.Entry().Key))
				}
				return strings.Join(keys, ",")
			}
			equal(t, "inclusive", "1,2,3,4", scan("4"))
			equal(t, "exclusive", "1,2,3", scan("3\xff"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t)
		})
	}
}

// TestCacheListeners: a listener may write to another store, which is flushed after it, and to its own, which is flushed
// the next time; it may fail; what it is given may be overwritten by the writes that it makes.
func TestCacheListeners(t *testing.T) {
	t.Parallel()
	b := newCacheBench(t, 1<<20, cachedStore, otherStore)
	listen := func(fn store.FlushListener) {
		if err := b.task.OnFlush("c", fn); err != nil {
			t.Fatal(err)
		}
	}
	listen(func(f store.Flushed) error {
		set(t, b.task, "o", string(f.Key), "copy of "+text(f.New))
		if text(f.New) != "again" {
			set(t, b.task, "c", string(f.Key), "again")
		}
		return b.listener("c")(f)
	})
	b.put("k", "1")
	b.flush("c", "o")
	b.want("both, once", "k=1(-)", "o:k=copy of 1(-)")
	b.flush("c", "o")
	b.want("what the listener wrote", "k=again(1)", "o:k=copy of again(copy of 1)")
	b.flush("c", "o")
	b.want("nothing is left")
	b.commit()

	off := newCacheBench(t, 1<<20, store.Spec{Name: "c", Kind: store.KindKeyValue})
	if err := off.task.OnFlush("c", func(f store.Flushed) error {
		if len(f.New.Data) < 3 {
			set(t, off.task, "c", string(f.Key), string(f.New.Data)+".")
		}
		return off.listener("c")(f)
	}); err != nil {
		t.Fatal(err)
	}
	off.put("k", "1")
	off.want("without a cache at once", "k=1(-)")
	off.flush("c")
	off.flush("c")
	off.flush("c")
	off.want("and what the listener wrote at the next flushes", "k=1.(1)", "k=1..(1.)")

	full := errors.New("full")
	listen(func(store.Flushed) error { return full })
	b.put("k", "2")
	if _, err := b.task.FlushCache("c"); !errors.Is(err, full) {
		t.Errorf("a listener's error: %v", err)
	}
	b.task.Rollback()
	if err := b.cache.Resize(1); err != nil {
		t.Fatal(err)
	}
	if err := kv(t, b.task, "c").Put([]byte("k"), store.Value{Data: []byte("3")}); !errors.Is(err, full) {
		t.Errorf("a listener's error, through a put: %v", err)
	}
	b.task.Rollback()
	listen(b.listener("c"))
	b.put("k", "4")
	b.want("as of the last commit", "k=4(again)")
	if _, err := b.task.FlushCache("nowhere"); !errors.Is(err, store.ErrUnknownStore) {
		t.Errorf("unknown store: %v", err)
	}
}

// TestCacheHandover: a cache that loses a task forgets its entries, another takes them up from the last commit; a restart
// remembers what was heard. Empty, absent and deleted are three things (SE-14).
func TestCacheHandover(t *testing.T) {
	t.Parallel()
	b := newCacheBench(t, 1<<20, cachedStore)
	b.put("k", "1", "e", "")
	b.flush("c")
	b.want("first", "k=1(-)", "e=(-)")
	b.commit()
	b.task.UseCache(nil)
	equal(t, "bytes without a task", 0, int(b.cache.Bytes()))
	b.put("k", "2")
	b.want("without a cache at once", "k=2(1)")
	b.task.Rollback()
	b.task.UseCache(b.s.NewRecordCache(1 << 20))
	moveNow(t, b.s, b.task) // from here on the old values come from the engine
	b.put("k", "3", "e", "e")
	b.del("never")
	equal(t, "the writer reads what is cached", map[string]string{"k": "3", "e": "e"}, written(t, b.task, "c"))
	b.flush("c")
	b.want("from the engine", "k=3(1)", "e=e()")
	equal(t, "changelog", map[string]string{"c/k": "3", "c/e": "e"}, b.changes())
	b.del("k")
	b.put("e", "")
	b.flush("c")
	b.want("once more in the same commit", "k=-(3)", "e=(e)")
	equal(t, "changelog", map[string]string{"c/k": "-", "c/e": ""}, b.changes())
	b.put("k", "5") // not flushed: whoever commits without a flush is not told
	b.commit()
	b.flush("c")
	b.want("after a commit nothing is dirty")
	equal(t, "committed", map[string]string{"k": "5", "e": ""}, committed(t, b.task, "c"))
}

// TestCacheMetrics: what an operator sees after a commit.
func TestCacheMetrics(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	s := openStores(t, layered.Config{Dir: t.TempDir(), Registerer: reg})
	task := openTask(t, s, task0, cachedStore)
	cache := s.NewRecordCache(94)
	task.UseCache(cache)
	task.Commit(checkpoint(0, "c"))
	set(t, task, "c", "a", "1", "b", "1", "c", "1") // evicts a, flushes all
	for _, key := range []string{"a", "b", "x"} {   // a is in the table still
		if _, err := kv(t, task, "c").Get([]byte(key)); err != nil && key != "x" {
			t.Fatal(err)
		}
	}
	set(t, task, "c", "b", "2")
	if _, err := task.FlushCache("c"); err != nil {
		t.Fatal(err)
	}
	task.Commit(checkpoint(1, "c"))
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]float64)
	for _, f := range families {
		name, ok := strings.CutPrefix(f.GetName(), "statemesh_record_cache_")
		if !ok {
			continue
		}
		for _, m := range f.GetMetric() {
			key := name
			for _, l := range m.GetLabel() {
				key += " " + l.GetValue()
			}
			got[key] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	equal(t, "metrics", map[string]float64{
		"hits_total": 2, "misses_total": 1, "evictions_total": 1, "bytes": 94, "dirty_bytes": 0,
		"flushed_total commit": 1, "flushed_total pressure": 3, "flushed_total put": 0,
	}, got)
}

// TestCacheWindowsAndSessions: rows of windows and sessions are named as their stores name them, and READ_UNCOMMITTED sees
// the stream time of what it shows.
func TestCacheWindowsAndSessions(t *testing.T) {
	t.Parallel()
	windows := store.Spec{
		Name: "w", Kind: store.KindTimestampedWindow, Caching: true, Retention: time.Minute, WindowSize: 10 * time.Second,
	}
	sessions := store.Spec{Name: "s", Kind: store.KindSession, Caching: true, Retention: time.Minute}
	s := openStores(t, layered.Config{Dir: t.TempDir()})
	task := openTask(t, s, task0, windows, sessions)
	task.UseCache(s.NewRecordCache(1 << 20))
	task.Commit(checkpoint(0, "w", "s"))
	var heard []string
	for _, name := range []store.Name{"w", "s"} {
		if err := task.OnFlush(name, func(f store.Flushed) error {
			heard = append(heard, fmt.Sprintf("%s %s[%d,%d]@%d=%s(%s)", name, f.Key, f.Start, f.End, f.New.Timestamp, text(f.New), text(f.Old)))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	w, err := task.Window("w")
	if err != nil {
		t.Fatal(err)
	}
	ses, err := task.Session("s")
	if err != nil {
		t.Fatal(err)
	}
	put := func(start int64, value string) {
		if err := w.Put([]byte("k"), start, store.Value{Data: []byte(value), Timestamp: start + 1}); err != nil {
			t.Fatal(err)
		}
	}
	put(10_000, "1")
	put(20_000, "1")
	put(10_000, "2")
	if err := ses.Put([]byte("k"), 5, 9, store.Value{Data: []byte("1"), Timestamp: 9}); err != nil {
		t.Fatal(err)
	}
	if err := ses.Remove([]byte("k"), 5, 9); err != nil { // merged before anybody saw it
		t.Fatal(err)
	}
	if err := ses.Put([]byte("k"), 5, 12, store.Value{Data: []byte("2"), Timestamp: 12}); err != nil {
		t.Fatal(err)
	}
	flush := func() string {
		heard = nil
		for _, name := range []store.Name{"w", "s"} {
			if _, err := task.FlushCache(name); err != nil {
				t.Fatal(err)
			}
		}
		return strings.Join(heard, "; ")
	}
	equal(t, "first", "w k[20000,30000]@20001=1(-); w k[10000,20000]@10001=2(-); s k[5,12]@12=2(-)", flush())
	task.Commit(checkpoint(1, "w", "s"))
	moveNow(t, s, task)
	put(10_000, "3")
	if err := ses.Remove([]byte("k"), 5, 12); err != nil {
		t.Fatal(err)
	}
	equal(t, "second", "w k[10000,20000]@10001=3(2); s k[5,12]@0=-(2)", flush())

	put(75_000, "9") // 10,000 has expired by that
	task.ShowNow(at(1))
	snap := uncommitted(t, task)
	r, err := snap.Windows("w")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Fetch(t.Context(), []byte("k"), 10_000); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("an expired window, uncommitted: %v", err)
	}
	if v, err := r.Fetch(t.Context(), []byte("k"), 75_000); err != nil || string(v.Data) != "9" {
		t.Errorf("an uncommitted window: %s, %v", v.Data, err)
	}
	it, err := r.Scan(t.Context(), store.WindowScan{To: 1 << 40})
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	task.Rollback()
	if it.Next() || !errors.Is(it.Err(), store.ErrNotReady) {
		t.Errorf("a scan over a rollback: %v", it.Err())
	}
	for _, start := range []int64{10_000, 75_000} {
		if _, err := r.Fetch(t.Context(), []byte("k"), start); !errors.Is(err, store.ErrNotReady) {
			t.Errorf("window %d, rolled back: %v", start, err)
		}
	}
}
