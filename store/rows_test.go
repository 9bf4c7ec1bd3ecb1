package store_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/statemesh/statemesh/store"
)

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestRowBytes are the byte layouts of T3 and the bounds T3/39 to T3/44.
func TestRowBytes(t *testing.T) {
	t.Parallel()
	k := unhex(t, "0a 0b 0c")
	for _, v := range []struct {
		id   string
		got  []byte
		want string
	}{
		{"layout of a window", store.WindowKey([]byte("a"), 1000, 0), "61 00000000000003e8 00000000"},
		{"layout of a session", store.SessionKey([]byte("a"), 50, 100), "61 0000000000000064 0000000000000032"},
		{"T3/39", store.WindowUpper(k, math.MaxInt64), "0a 7fffffffffffffff 7fffffff"},
		{"T3/40", store.WindowUpper(unhex(t, "0a 8f 9f"), math.MaxInt64), "0a8f9f 7fffffffffffffff 7fffffff"},
		{"T3/41", store.WindowUpper(unhex(t, "0c 0c 09"), 0x0affffffffffffff), "0c0c 0affffffffffffff 7fffffff"},
		{"T3/42", store.WindowUpper(k, 0), "0a0b0c 0000000000000000 7fffffff"},
		{"T3/43", store.WindowLower(k), "0a0b0c 0000000000000000 00000000"},
		{"T3/44", store.SessionUpper(k, 0, math.MaxInt64), "0a 7fffffffffffffff 0000000000000000"},
		{"session lower", store.SessionLower(k), "0a0b0c 0000000000000000 0000000000000000"},
	} {
		if want := unhex(t, v.want); !bytes.Equal(v.got, want) {
			t.Errorf("%s: %x, want %x", v.id, v.got, want)
		}
	}
	for i, b := range [][]byte{store.WindowLower(nil), store.WindowUpper(nil, 1), store.SessionLower(nil), store.SessionUpper(nil, 1, 1)} {
		if b != nil {
			t.Errorf("bound %d of an open range: %x", i, b)
		}
	}
}

// TestSegmentOf is T3/45.
func TestSegmentOf(t *testing.T) {
	t.Parallel()
	const interval = time.Minute
	for want := range int64(3) {
		if got := store.SegmentOf(want*interval.Milliseconds(), interval); got != want {
			t.Errorf("T3/45: segment of %d intervals is %d", want, got)
		}
	}
	if got := store.SegmentOf(interval.Milliseconds()-1, interval); got != 0 {
		t.Errorf("the last millisecond of segment 0 is in %d", got)
	}
	for retention, want := range map[time.Duration]time.Duration{
		time.Minute: time.Minute, 2 * time.Minute: time.Minute, time.Hour: 30 * time.Minute,
	} {
		if got := (store.Spec{Kind: store.KindSession, Retention: retention}).Segment(); got != want {
			t.Errorf("segment interval of retention %s is %s, want %s", retention, got, want)
		}
	}
}

// hostile draws a key from bytes that meet those of times.
func hostile(rng *rand.Rand) []byte {
	key := make([]byte, 1+rng.IntN(20))
	for i := range key {
		key[i] = []byte{0, 0, 1, 0x7f, 0x7f, 0xff}[rng.IntN(6)]
	}
	return key
}

func hostileTime(rng *rand.Rand) int64 {
	return []int64{0, 1, 255, 1 << 40, 0x7f7f7f7f7f7f7f7f, 0x7f00000000000000, math.MaxInt64, rng.Int64()}[rng.IntN(8)]
}

// TestRowBounds: every row of a key and time in the range lies within the bounds, keys that are prefixes of each other
// or look like times included.
func TestRowBounds(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 200_000 {
		a, b, at, upTo := hostile(rng), hostile(rng), hostileTime(rng), hostileTime(rng)
		if rng.IntN(2) == 0 {
			b = append(bytes.Clone(a), b...) // a prefix of another key
		}
		if bytes.Compare(a, b) > 0 {
			a, b = b, a
		}
		if at > upTo {
			at, upTo = upTo, at
		}
		start := min(at, hostileTime(rng))
		lastStart := max(start, min(upTo, hostileTime(rng)))
		for _, row := range [][]byte{store.WindowKey(a, at, int32(rng.Uint32()>>1)), store.WindowKey(b, at, 0)} {
			if bytes.Compare(row, store.WindowUpper(b, upTo)) > 0 {
				t.Fatalf("seed %d: window row %x is above the bound %x of key %x, start %d", seed, row, store.WindowUpper(b, upTo), b, upTo)
			}
			if bytes.Compare(row, store.WindowLower(a)) < 0 {
				t.Fatalf("seed %d: window row %x is below the bound %x of key %x", seed, row, store.WindowLower(a), a)
			}
		}
		row := store.SessionKey(a, start, at)
		if upper := store.SessionUpper(b, lastStart, upTo); bytes.Compare(row, upper) > 0 {
			t.Fatalf("seed %d: session row %x is above the bound %x of key %x, start %d, end %d", seed, row, upper, b, lastStart, upTo)
		}
		if row := store.SessionKey(b, start, at); bytes.Compare(row, store.SessionLower(a)) < 0 {
			t.Fatalf("seed %d: session row %x is below the bound %x of key %x", seed, row, store.SessionLower(a), a)
		}
	}
}

func TestParseRows(t *testing.T) {
	t.Parallel()
	key, start, seq, err := store.ParseWindowKey(store.WindowKey([]byte{0, 0xff}, 77, store.MaxSeq))
	if err != nil || !bytes.Equal(key, []byte{0, 0xff}) || start != 77 || seq != store.MaxSeq {
		t.Errorf("window: %x %d %d %v", key, start, seq, err)
	}
	if cap(key) != len(key) {
		t.Error("appending to the key would write over the time")
	}
	key, start, end, err := store.ParseSessionKey(store.SessionKey([]byte("k"), 5, 9))
	if err != nil || string(key) != "k" || start != 5 || end != 9 {
		t.Errorf("session: %x %d %d %v", key, start, end, err)
	}
	for name, row := range map[string][]byte{
		"empty": nil, "no key": store.WindowKey(nil, 1, 1), "negative start": store.WindowKey([]byte("a"), -1, 0),
		"negative number": store.WindowKey([]byte("a"), 1, -1),
	} {
		if _, _, _, err := store.ParseWindowKey(row); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("window row, %s: %v", name, err)
		}
	}
	for name, row := range map[string][]byte{
		"empty": nil, "no key": store.SessionKey(nil, 1, 1), "end before start": store.SessionKey([]byte("a"), 2, 1),
		"negative start": store.SessionKey([]byte("a"), -1, 1),
	} {
		if _, _, _, err := store.ParseSessionKey(row); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("session row, %s: %v", name, err)
		}
	}
}

func TestParseVersionKey(t *testing.T) {
	t.Parallel()
	for _, want := range []string{"k", "\x00", "\xff\x00"} {
		for _, at := range []int64{0, 1, 1 << 40, math.MaxInt64} {
			key, from, err := store.ParseVersionKey(store.VersionKey([]byte(want), at))
			if err != nil || string(key) != want || from != at {
				t.Errorf("version: %x %d %v, want %x %d", key, from, err, want, at)
			}
			if cap(key) != len(key) {
				t.Error("appending to the key would write over the time")
			}
		}
	}
	for name, row := range map[string][]byte{
		"empty": nil, "no key": store.VersionKey(nil, 1), "negative": store.VersionKey([]byte("a"), -1),
	} {
		if _, _, err := store.ParseVersionKey(row); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("version row, %s: %v", name, err)
		}
	}
}

// TestVersionedSegments: upstream's defaults (RocksDbVersionedKeyValueBytesStoreSupplier).
func TestVersionedSegments(t *testing.T) {
	t.Parallel()
	for retention, want := range map[time.Duration]time.Duration{
		time.Millisecond: 2 * time.Second, 6 * time.Second: 2 * time.Second, 10 * time.Second: 3333 * time.Millisecond,
		time.Minute: 20 * time.Second, time.Minute + time.Millisecond: 20 * time.Second, 5 * time.Minute: time.Minute,
		5*time.Minute + time.Millisecond: time.Minute, time.Hour: 5 * time.Minute, 2 * time.Hour: 5 * time.Minute,
		24 * time.Hour: time.Hour, 365 * 24 * time.Hour: 365 * time.Hour,
	} {
		if got := (store.Spec{Kind: store.KindVersioned, Retention: retention}).Segment(); got != want {
			t.Errorf("segment interval of history %s is %s, want %s", retention, got, want)
		}
	}
	if got := (store.Spec{Kind: store.KindVersioned, Retention: time.Hour, SegmentInterval: time.Second}).Segment(); got != time.Second {
		t.Errorf("the segment interval that was declared is %s", got)
	}
}

func FuzzParseVersionKey(f *testing.F) {
	f.Add(store.VersionKey([]byte("a"), 1000))
	f.Fuzz(func(t *testing.T, row []byte) {
		key, from, err := store.ParseVersionKey(row)
		if err == nil && !bytes.Equal(store.VersionKey(key, from), row) {
			t.Errorf("%x is not what %x, %d make", row, key, from)
		}
	})
}

func FuzzParseWindowKey(f *testing.F) {
	f.Add(store.WindowKey([]byte("a"), 1000, 1))
	f.Fuzz(func(t *testing.T, row []byte) {
		key, start, seq, err := store.ParseWindowKey(row)
		if err == nil && !bytes.Equal(store.WindowKey(key, start, seq), row) {
			t.Errorf("%x is not what %x, %d, %d make", row, key, start, seq)
		}
	})
}

func FuzzParseSessionKey(f *testing.F) {
	f.Add(store.SessionKey([]byte("a"), 50, 100))
	f.Fuzz(func(t *testing.T, row []byte) {
		key, start, end, err := store.ParseSessionKey(row)
		if err == nil && !bytes.Equal(store.SessionKey(key, start, end), row) {
			t.Errorf("%x is not what %x, %d, %d make", row, key, start, end)
		}
	})
}

func TestValidate(t *testing.T) {
	t.Parallel()
	window := store.Spec{Kind: store.KindWindow, WindowSize: 3 * time.Millisecond, Retention: time.Minute}
	with := func(change func(*store.Spec)) store.Spec {
		s := window
		change(&s)
		return s
	}
	for _, v := range []struct {
		name string
		spec store.Spec
		want string
	}{
		{"key-value", store.Spec{Kind: store.KindKeyValue}, ""},
		{"window", window, ""},
		{"retention of one window", with(func(s *store.Spec) { s.Retention = s.WindowSize }), ""},
		{"duplicates", with(func(s *store.Spec) { s.RetainDuplicates = true }), ""},
		{"session", store.Spec{Kind: store.KindSession, Retention: time.Millisecond}, ""},
		{"versioned", store.Spec{Kind: store.KindVersioned, Retention: time.Millisecond}, ""},
		{"versioned without history", store.Spec{Kind: store.KindVersioned}, "needs a retention"},
		{"versioned with a size", store.Spec{Kind: store.KindVersioned, Retention: 9e9, WindowSize: 1e6}, "no window size"},
		{"versioned and cached", store.Spec{Kind: store.KindVersioned, Retention: 9e9, Caching: true}, "no record cache"},
		{"versioned with duplicates", store.Spec{Kind: store.KindVersioned, Retention: 9e9, RetainDuplicates: true}, "no duplicates"},
		{"retention below the window", with(func(s *store.Spec) { s.Retention = 2 * time.Millisecond }), "below the window size"},
		{"no window size", with(func(s *store.Spec) { s.WindowSize = 0 }), "needs a window size"},
		{"negative", with(func(s *store.Spec) { s.Retention = -1 }), "negative"},
		{"microseconds", with(func(s *store.Spec) { s.Retention += time.Microsecond }), "whole milliseconds"},
		{"too many segments", with(func(s *store.Spec) { s.Retention, s.SegmentInterval = time.Hour, time.Second }), "segments"},
		{"key-value with retention", store.Spec{Kind: store.KindKeyValue, Retention: time.Minute}, "has no retention"},
		{"session without", store.Spec{Kind: store.KindSession}, "needs a retention"},
		{"session with a size", store.Spec{Kind: store.KindSession, Retention: 9e9, WindowSize: 1e6}, "no window size"},
		{"session with duplicates", store.Spec{Kind: store.KindSession, Retention: 9e9, RetainDuplicates: true}, "no duplicates"},
		{"unknown kind", store.Spec{Kind: 99}, "unknown"},
	} {
		switch err := v.spec.Validate(); {
		case v.want == "" && err != nil:
			t.Errorf("%s: %v", v.name, err)
		case v.want != "" && (err == nil || !strings.Contains(err.Error(), v.want)):
			t.Errorf("%s: %v, want %q", v.name, err, v.want)
		}
	}
}
