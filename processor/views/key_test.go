package views

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"strings"
	"testing"
)

func FuzzKey(f *testing.F) {
	f.Add("EWR", "IAH")
	f.Add("a/b", "50%")
	f.Add("", "%2F")
	f.Add("%25", "/")
	f.Fuzz(func(t *testing.T, a, b string) {
		key := EncodeKey(a, b)
		got, err := DecodeKey(key, 2)
		if err != nil || got[0] != a || got[1] != b {
			t.Fatalf("%q %q: key %q, decoded %q, %v", a, b, key, got, err)
		}
		if parts, err := DecodeKey(a, 2); err == nil && EncodeKey(parts...) != a {
			t.Fatalf("%q: taken as %q, which is %q", a, parts, EncodeKey(parts...))
		}
		if one, err := DecodeKey(EncodeKey(a), 1); err != nil || one[0] != a {
			t.Fatalf("%q alone: %q, %v", a, one, err)
		}
		if !strings.HasPrefix(EncodeKey(a, b), EncodeKey(a, "")) {
			t.Fatalf("%q: no prefix for its first value", key)
		}
	})
}

func TestDecodeKeyRefuses(t *testing.T) {
	for _, key := range []string{"a", "a/b/c", "a%/b", "a%2f/b", "%41/b", "a/%"} {
		if got, err := DecodeKey(key, 2); err == nil {
			t.Errorf("%q: %q", key, got)
		}
	}
}

// FuzzStatistics adds numbers one by one, through the stored form each time, and compares with plain arithmetic.
func FuzzStatistics(f *testing.F) {
	f.Add([]byte("12345678abcdefgh"))
	f.Add(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, math.Float64bits(-0.1)), math.Float64bits(1e300)))
	f.Fuzz(func(t *testing.T, data []byte) {
		var want Statistics
		var stats, avg []byte
		for ; len(data) >= 8; data = data[8:] {
			x := math.Float64frombits(binary.BigEndian.Uint64(data))
			if math.IsNaN(x) || math.IsInf(x, 0) || math.IsInf(want.Sum+x, 0) {
				continue
			}
			if want.Count == 0 {
				want.Min, want.Max = x, x
			}
			want = Statistics{Count: want.Count + 1, Sum: want.Sum + x, Min: math.Min(want.Min, x), Max: math.Max(want.Max, x)}
			want.Avg = want.Sum / float64(want.Count)
			stats = step(t, stats, x, parseStats, Statistics.appendStats)
			avg = step(t, avg, x, parseAvg, Statistics.appendAvg)
		}
		if want.Count == 0 {
			return
		}
		var got Statistics
		if err := json.Unmarshal(stats, &got); err != nil {
			t.Fatalf("%s: %v", stats, err)
		}
		if got != want {
			t.Fatalf("%s, want %+v", stats, want)
		}
		if std, err := json.Marshal(want); err != nil || string(std) != string(stats) {
			t.Fatalf("%s, encoding/json %s, %v", stats, std, err)
		}
		got = Statistics{}
		if err := json.Unmarshal(avg, &got); err != nil || got.Count != want.Count || got.Sum != want.Sum || got.Avg != want.Avg {
			t.Fatalf("%s: %v, want %+v", avg, err, want)
		}
	})
}

func step(t *testing.T, stored []byte, x float64, parse func([]byte) (Statistics, error), form func(Statistics, []byte) []byte) []byte {
	t.Helper()
	var s Statistics
	if stored != nil {
		var err error
		if s, err = parse(stored); err != nil {
			t.Fatalf("%s: %v", stored, err)
		}
	}
	s, ok := s.add(x)
	if !ok {
		t.Fatalf("%s + %g: out of range", stored, x)
	}
	return form(s, nil)
}
