package storetest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/statemesh/statemesh/store"
)

// Subject is a store under test, empty when it is handed out.
type Subject struct {
	Writer store.KeyValue
	// Commit makes what was written visible to readers opened later.
	Commit func()
	// Reader opens a reader of the last commit. The subject closes it.
	Reader func() store.KeyValueReader
	// OpenIterators counts what nobody has closed.
	OpenIterators func() int64
}

// KeyValue runs the contract of store.KeyValue and store.KeyValueReader.
func KeyValue(t *testing.T, open func(t *testing.T, kind store.Kind) Subject) {
	t.Helper()
	for _, kind := range []store.Kind{store.KindKeyValue, store.KindTimestampedKeyValue} {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			for name, test := range map[string]func(*testing.T, Subject, store.Kind){
				"scan vectors":        scanVectors,
				"bounds":              bounds,
				"values":              values,
				"keys":                keys,
				"put if absent":       putIfAbsent,
				"delete":              remove,
				"owned":               owned,
				"iterator":            iterators,
				"scan while writing":  scanWhileWriting,
				"reverse is a mirror": mirror,
				"count":               count,
				"many":                many,
				"context":             contexts,
			} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					s := open(t, kind)
					test(t, s, kind)
					if n := s.OpenIterators(); n != 0 {
						t.Errorf("%d iterators left open", n)
					}
				})
			}
		})
	}
}

// scanner is what both faces of a store can do.
type scanner func(store.Scan) (store.Iterator, error)

// faces are the store as its writer sees it, before and after the commit, and as a reader does.
func faces(t *testing.T, s Subject, check func(t *testing.T, scan scanner)) {
	t.Helper()
	t.Run("writer", func(t *testing.T) { check(t, s.Writer.Scan) })
	s.Commit()
	t.Run("writer after commit", func(t *testing.T) { check(t, s.Writer.Scan) })
	r := s.Reader()
	t.Run("reader", func(t *testing.T) {
		check(t, func(sc store.Scan) (store.Iterator, error) { return r.Scan(t.Context(), sc) })
	})
}

func put(t *testing.T, kv store.KeyValue, key, value string) {
	t.Helper()
	if err := kv.Put([]byte(key), store.Value{Data: []byte(value), Timestamp: 1}); err != nil {
		t.Fatalf("put %q: %v", key, err)
	}
}

func rows(t *testing.T, scan scanner, sc store.Scan) []string {
	t.Helper()
	it, err := scan(sc)
	if err != nil {
		t.Fatalf("scan %+v: %v", sc, err)
	}
	defer it.Close()
	out := []string{}
	for it.Next() {
		e := it.Entry()
		if e.Data == nil {
			t.Fatalf("scan %+v: key %q has no value", sc, e.Key)
		}
		out = append(out, string(e.Key)+"="+string(e.Data))
	}
	if err := it.Err(); err != nil {
		t.Fatalf("scan %+v: %v", sc, err)
	}
	return out
}

func int32Key(n int32) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }

// scanVectors are T2 of the semantics: 1 to 12.
func scanVectors(t *testing.T, s Subject, _ store.Kind) {
	ints := func(ns ...int32) []string {
		out := []string{}
		for _, n := range ns {
			out = append(out, string(int32Key(n))+"="+fmt.Sprint(n))
		}
		return out
	}
	for _, n := range []int32{0, 1, 2, 4, 5} {
		put(t, s.Writer, string(int32Key(n)), fmt.Sprint(n))
	}
	if _, found, err := s.Writer.Delete(int32Key(5)); err != nil || !found {
		t.Fatalf("delete 5: %t, %v", found, err)
	}
	strs := []string{"zk1=a", "zk2=b", "zk3=c", "zprefix_1=f", "zprefix_2=d", "zprefix_3=b", "yabc=1", "yabcd=2", "yabce=3", "xa=1", "xb=2", "xc=3", "w1=1", "w2=2", "w11=3", "w13=4"}
	for _, kv := range strs {
		k, v, _ := bytes.Cut([]byte(kv), []byte("="))
		put(t, s.Writer, string(k), string(v))
	}
	top := int32Key(6) // the vectors of ints end below the strings
	faces(t, s, func(t *testing.T, scan scanner) {
		for _, v := range []struct {
			id   string
			scan store.Scan
			want []string
		}{
			{"T2.1", store.Scan{From: int32Key(2), To: int32Key(4)}, ints(2, 4)},
			{"T2.2", store.Scan{From: int32Key(2), To: int32Key(6)}, ints(2, 4)},
			{"T2.3", store.Scan{To: int32Key(1)}, ints(0, 1)},
			{"T2.4 forward", store.Scan{From: int32Key(2), To: top}, ints(2, 4)},
			{"T2.4 reverse", store.Scan{From: int32Key(2), To: top, Reverse: true}, ints(4, 2)},
			{"T2.5", store.Scan{From: int32Key(2), To: int32Key(1)}, ints()},
			{"T2.6", store.Scan{From: int32Key(-1), To: int32Key(1)}, ints()},
			{"T2.8", store.Scan{Prefix: []byte("zprefix")}, []string{"zprefix_1=f", "zprefix_2=d", "zprefix_3=b"}},
			{"T2.9", store.Scan{Prefix: []byte("yabcd")}, []string{"yabcd=2"}},
			{"T2.10", store.Scan{Prefix: []byte("xbb")}, []string{}},
			{"T2.11", store.Scan{Prefix: int32Key(1)}, ints(1)},
			{"T2.12", store.Scan{Prefix: []byte("w1")}, []string{"w1=1", "w11=3", "w13=4"}},
			{"T2.4 open", store.Scan{From: []byte("zk3")}, []string{"zk3=c", "zprefix_1=f", "zprefix_2=d", "zprefix_3=b"}},
			{"T2.4 open reverse", store.Scan{From: []byte("zprefix_2"), Reverse: true}, []string{"zprefix_3=b", "zprefix_2=d"}},
		} {
			if d := cmp.Diff(v.want, rows(t, scan, v.scan)); d != "" {
				t.Errorf("%s: (-want +got)\n%s", v.id, d)
			}
		}
	})
	old, found, err := s.Writer.PutIfAbsent([]byte("zk1"), store.Value{Data: []byte("x")})
	if err != nil || !found || string(old.Data) != "a" {
		t.Errorf("T2.7: %q, %t, %v", old.Data, found, err)
	}
	if v, err := s.Writer.Get([]byte("zk1")); err != nil || string(v.Data) != "a" {
		t.Errorf("T2.7: then %q, %v", v.Data, err)
	}
}

// bounds are the traps QS-04 and QS-05, and upstream's prefix bound that lets a foreign key in.
func bounds(t *testing.T, s Subject, _ store.Kind) {
	all := []string{"\x00", "a", "a\x00", "a\xff", "a\xff\xff\x01", "b", "\xff", "\xff\xff", "\xff\xff\x00", "\xff\xff\xff"}
	for _, k := range all {
		put(t, s.Writer, k, "v")
	}
	want := func(keys ...string) []string {
		out := []string{}
		for _, k := range keys {
			out = append(out, k+"=v")
		}
		return out
	}
	faces(t, s, func(t *testing.T, scan scanner) {
		for _, c := range []struct {
			name string
			scan store.Scan
			want []string
		}{
			{"all", store.Scan{}, want(all...)},
			{"empty from", store.Scan{From: []byte{}}, want(all...)},
			{"empty to", store.Scan{To: []byte{}}, want()},
			{"empty prefix", store.Scan{Prefix: []byte{}}, want(all...)},
			{"one key", store.Scan{From: []byte("a"), To: []byte("a")}, want("a")},
			{"prefix", store.Scan{Prefix: []byte("a")}, want("a", "a\x00", "a\xff", "a\xff\xff\x01")},
			{"prefix with ff", store.Scan{Prefix: []byte("a\xff")}, want("a\xff", "a\xff\xff\x01")},
			{"prefix of ff", store.Scan{Prefix: []byte("\xff\xff")}, want("\xff\xff", "\xff\xff\x00", "\xff\xff\xff")},
			{"after", store.Scan{After: []byte("a")}, want(all[2:]...)},
			{"after a key that is not there", store.Scan{After: []byte("a\x01")}, want(all[3:]...)},
			{"after below from", store.Scan{From: []byte("b"), After: []byte("a")}, want(all[5:]...)},
			{"after beyond to", store.Scan{To: []byte("a"), After: []byte("b")}, want()},
			{"after reverse", store.Scan{After: []byte("a\x00"), Reverse: true}, want("a", "\x00")},
			{"after in prefix", store.Scan{Prefix: []byte("a"), After: []byte("a\x00")}, want("a\xff", "a\xff\xff\x01")},
			{"after in prefix reverse", store.Scan{Prefix: []byte("a"), After: []byte("a\xff"), Reverse: true}, want("a\x00", "a")},
			{"after above all reverse", store.Scan{Prefix: []byte("a"), After: []byte("z"), Reverse: true}, want("a\xff\xff\x01", "a\xff", "a\x00", "a")},
		} {
			if d := cmp.Diff(c.want, rows(t, scan, c.scan)); d != "" {
				t.Errorf("%s: (-want +got)\n%s", c.name, d)
			}
		}
		if _, err := scan(store.Scan{Prefix: []byte("a"), From: []byte("a")}); !errors.Is(err, store.ErrInvalidRequest) {
			t.Errorf("prefix with from: %v", err)
		}
	})
}

// values is SE-14: an empty value, a delete and a missing key are three things.
func values(t *testing.T, s Subject, kind store.Kind) {
	if err := s.Writer.Put([]byte("empty"), store.Value{Data: []byte{}, Timestamp: 41}); err != nil {
		t.Fatal(err)
	}
	put(t, s.Writer, "deleted", "x")
	if err := s.Writer.Put([]byte("deleted"), store.Value{}); err != nil {
		t.Fatal(err)
	}
	check := func(name string, get func(key []byte) (store.Value, error)) {
		v, err := get([]byte("empty"))
		want := int64(noTimestamp)
		if kind == store.KindTimestampedKeyValue {
			want = 41
		}
		if err != nil || v.Data == nil || len(v.Data) != 0 || v.Timestamp != want {
			t.Errorf("SE-14 %s: empty value: %v, %v", name, v, err)
		}
		for _, key := range []string{"deleted", "never"} {
			if _, err := get([]byte(key)); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("SE-14 %s: %s: %v", name, key, err)
			}
		}
	}
	check("writer", s.Writer.Get)
	s.Commit()
	r := s.Reader()
	check("reader", func(key []byte) (store.Value, error) { return r.Get(t.Context(), key) })
	faces(t, s, func(t *testing.T, scan scanner) {
		if d := cmp.Diff([]string{"empty="}, rows(t, scan, store.Scan{})); d != "" {
			t.Errorf("SE-14: (-want +got)\n%s", d)
		}
	})
}

// noTimestamp is what a plain store returns.
const noTimestamp = -1

func keys(t *testing.T, s Subject, _ store.Kind) {
	put(t, s.Writer, "k", "v")
	s.Commit()
	r := s.Reader()
	for _, key := range [][]byte{nil, {}} {
		_, get := s.Writer.Get(key)
		set := s.Writer.Put(key, store.Value{Data: []byte("v")})
		_, _, absent := s.Writer.PutIfAbsent(key, store.Value{Data: []byte("v")})
		_, _, del := s.Writer.Delete(key)
		_, read := r.Get(t.Context(), key)
		_, _, readMany := r.GetMany(t.Context(), [][]byte{[]byte("k"), key})
		for i, err := range []error{get, set, absent, del, read, readMany} {
			if !errors.Is(err, store.ErrInvalidKey) {
				t.Errorf("call %d with key %v: %v", i, key, err)
			}
		}
	}
	large := store.Value{Data: make([]byte, 64<<20)}
	if err := s.Writer.Put([]byte("k"), large); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("64 MiB: %v", err)
	} else if e, ok := errors.AsType[*store.TooLargeError](err); !ok || e.Setting == "" || e.Limit == 0 {
		t.Errorf("64 MiB: %v does not say which setting", err)
	}
	if v, err := s.Writer.Get([]byte("k")); err != nil || string(v.Data) != "v" {
		t.Errorf("after a refused put: %q, %v", v.Data, err)
	}
}

func putIfAbsent(t *testing.T, s Subject, _ store.Kind) {
	for i, want := range []bool{false, true, true} {
		v, found, err := s.Writer.PutIfAbsent([]byte("k"), store.Value{Data: []byte{byte(i)}})
		if err != nil || found != want || found && v.Data[0] != 0 {
			t.Errorf("call %d: %v, %t, %v", i, v, found, err)
		}
		s.Commit()
	}
	if v, found, err := s.Writer.PutIfAbsent([]byte("other"), store.Value{}); err != nil || found || v.Data != nil {
		t.Errorf("nil: %v, %t, %v", v, found, err)
	}
}

func remove(t *testing.T, s Subject, _ store.Kind) {
	put(t, s.Writer, "k", "v")
	s.Commit()
	before := s.Reader()
	v, found, err := s.Writer.Delete([]byte("k"))
	if err != nil || !found || string(v.Data) != "v" {
		t.Errorf("delete: %q, %t, %v", v.Data, found, err)
	}
	if _, found, err := s.Writer.Delete([]byte("k")); err != nil || found {
		t.Errorf("again: %t, %v", found, err)
	}
	if v, err := before.Get(t.Context(), []byte("k")); err != nil || string(v.Data) != "v" {
		t.Errorf("reader before the commit: %q, %v", v.Data, err)
	}
	s.Commit()
	if v, err := before.Get(t.Context(), []byte("k")); err != nil || string(v.Data) != "v" {
		t.Errorf("old reader after the commit: %q, %v", v.Data, err)
	}
	if _, err := s.Reader().Get(t.Context(), []byte("k")); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("new reader: %v", err)
	}
}

// owned is SE-06: what goes in is copied, what comes out is the caller's.
func owned(t *testing.T, s Subject, _ store.Kind) {
	key, data := []byte("key"), []byte("data")
	if err := s.Writer.Put(key, store.Value{Data: data}); err != nil {
		t.Fatal(err)
	}
	copy(key, "xxx")
	copy(data, "xxxx")
	got, err := s.Writer.Get([]byte("key"))
	if err != nil || string(got.Data) != "data" {
		t.Fatalf("SE-06: %q, %v", got.Data, err)
	}
	s.Commit()
	r := s.Reader()
	read, err := r.Get(t.Context(), []byte("key"))
	if err != nil {
		t.Fatal(err)
	}
	it, err := r.Scan(t.Context(), store.Scan{})
	if err != nil || !it.Next() {
		t.Fatalf("scan: %v", err)
	}
	row := it.Entry()
	it.Close()
	for i := range 2000 {
		put(t, s.Writer, "key", fmt.Sprintf("%04d", i))
		if i%100 == 0 {
			s.Commit()
		}
	}
	if string(got.Data) != "data" || string(read.Data) != "data" || string(row.Data) != "data" || string(row.Key) != "key" {
		t.Errorf("SE-06: values changed under their owner: %q %q %q", got.Data, read.Data, row.Data)
	}
	copy(read.Data, "yyyy")
	if again, err := r.Get(t.Context(), []byte("key")); err != nil || string(again.Data) != "data" {
		t.Errorf("SE-06: the caller changed the store: %q, %v", again.Data, err)
	}
}

// iterators is SE-16: Close may come twice, from the end and from a canceller.
func iterators(t *testing.T, s Subject, _ store.Kind) {
	for i := range 100 {
		put(t, s.Writer, fmt.Sprintf("k%03d", i), "v")
	}
	s.Commit()
	r := s.Reader()
	for n := range 101 {
		it, err := r.Scan(t.Context(), store.Scan{})
		if err != nil {
			t.Fatal(err)
		}
		for range n {
			if !it.Next() {
				t.Fatalf("ends before %d", n)
			}
		}
		it.Close()
		it.Close()
		if it.Next() {
			t.Fatal("SE-16: goes on after Close")
		}
		it.Close()
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 250 {
				ctx, cancel := context.WithCancel(t.Context())
				it, err := r.Scan(ctx, store.Scan{})
				if err != nil {
					t.Error(err)
				} else {
					wg.Go(cancel)
					for it.Next() {
					}
					it.Close()
				}
				cancel()
				if err == nil {
					it.Close()
				}
			}
		})
	}
	wg.Wait()
}

// scanWhileWriting is QS-12: an iterator shows the state at its opening, whatever the writer does.
func scanWhileWriting(t *testing.T, s Subject, _ store.Kind) {
	want := []string{}
	for i := range 300 {
		k := fmt.Sprintf("k%03d", i)
		put(t, s.Writer, k, "old")
		want = append(want, k+"=old")
		if i == 150 {
			s.Commit()
		}
	}
	check := func(name string, scan scanner) {
		it, err := scan(store.Scan{})
		if err != nil {
			t.Fatal(err)
		}
		defer it.Close()
		got := []string{}
		for i := 0; it.Next(); i++ {
			e := it.Entry()
			got = append(got, string(e.Key)+"="+string(e.Data))
			switch k := fmt.Sprintf("k%03d", 299-i); i % 3 {
			case 0:
				put(t, s.Writer, k, "new")
			case 1:
				if err := s.Writer.Put([]byte(k), store.Value{}); err != nil {
					t.Fatal(err)
				}
			default:
				put(t, s.Writer, k+"x", "new")
			}
			if i%50 == 49 {
				s.Commit()
			}
		}
		if it.Err() != nil {
			t.Fatal(it.Err())
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("QS-12 %s: (-want +got)\n%s", name, d)
		}
	}
	check("writer", s.Writer.Scan)
	s.Commit()
	want = rows(t, s.Writer.Scan, store.Scan{})
	r := s.Reader()
	check("reader", func(sc store.Scan) (store.Iterator, error) { return r.Scan(t.Context(), sc) })
}

// mirror is QS-05: a reverse scan is the mirror of the forward one, for many prefixes.
func mirror(t *testing.T, s Subject, _ store.Kind) {
	rng, done := Seeded(t)
	defer done()
	var pool [][]byte
	for range 400 {
		key := make([]byte, 1+rng.IntN(4))
		for i := range key {
			key[i] = []byte{0, 1, 0xfe, 0xff}[rng.IntN(4)]
		}
		pool = append(pool, key)
		put(t, s.Writer, string(key), "v")
		if rng.IntN(50) == 0 {
			s.Commit()
		}
	}
	faces(t, s, func(t *testing.T, scan scanner) {
		for range 700 {
			key := pool[rng.IntN(len(pool))]
			sc := store.Scan{Prefix: key[:1+rng.IntN(len(key))]}
			if rng.IntN(2) == 0 {
				sc = store.Scan{From: key, To: pool[rng.IntN(len(pool))]}
			}
			forward := rows(t, scan, sc)
			sc.Reverse = true
			back := rows(t, scan, sc)
			slices.Reverse(back)
			if !slices.Equal(forward, back) {
				t.Fatalf("QS-05 %+v: forward %q, mirror %q", sc, forward, back)
			}
		}
	})
}

func count(t *testing.T, s Subject, _ store.Kind) {
	want := func(n int64) {
		t.Helper()
		got, err := s.Writer.ApproximateCount()
		if err != nil || got != n {
			t.Errorf("writer counts %d, %v, want %d", got, err, n)
		}
		s.Commit()
		if got, err = s.Reader().ApproximateCount(t.Context()); err != nil || got != n {
			t.Errorf("reader counts %d, %v, want %d", got, err, n)
		}
	}
	want(0)
	for i := range 20 {
		put(t, s.Writer, fmt.Sprint("k", i), "v")
	}
	want(20)
	put(t, s.Writer, "k1", "w")
	if _, _, err := s.Writer.Delete([]byte("k2")); err != nil {
		t.Fatal(err)
	}
	want(19)
}

func many(t *testing.T, s Subject, _ store.Kind) {
	put(t, s.Writer, "a", "1")
	put(t, s.Writer, "c", "3")
	s.Commit()
	got, found, err := s.Reader().GetMany(t.Context(), [][]byte{[]byte("c"), []byte("b"), []byte("a"), []byte("a")})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(found, []bool{true, false, true, true}) || string(got[0].Data)+string(got[2].Data)+string(got[3].Data) != "311" {
		t.Errorf("%v %v", got, found)
	}
}

func contexts(t *testing.T, s Subject, _ store.Kind) {
	for i := range 10 {
		put(t, s.Writer, fmt.Sprint(i), "v")
	}
	s.Commit()
	r := s.Reader()
	ctx, cancel := context.WithCancel(t.Context())
	it, err := r.Scan(ctx, store.Scan{})
	if err != nil || !it.Next() {
		t.Fatalf("scan: %v", err)
	}
	cancel()
	if it.Next() || !errors.Is(it.Err(), context.Canceled) {
		t.Errorf("a scan goes on, or ends as if it were whole, after its context: %v", it.Err())
	}
	it.Close()
	_, get := r.Get(ctx, []byte("1"))
	_, _, readMany := r.GetMany(ctx, [][]byte{[]byte("1")})
	_, scan := r.Scan(ctx, store.Scan{})
	for i, err := range []error{get, readMany, scan} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("call %d after the end of its context: %v", i, err)
		}
	}
}
