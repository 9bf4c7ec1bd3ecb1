package accumulate

import (
	"encoding/json"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/statemesh/statemesh/processor"
)

var _ processor.Labelled = (*Error)(nil)

// rec is a record with one input, at a time in milliseconds.
type rec struct {
	at    int64
	value any
	by    any
}

func (r rec) time() time.Time { return time.UnixMilli(r.at) }

func of(values ...any) []rec {
	var all []rec
	for i, v := range values {
		all = append(all, rec{at: int64(i), value: v})
	}
	return all
}

func plan(tb testing.TB, functions ...Function) *Plan {
	tb.Helper()
	p, err := NewPlan(functions)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func result(tb testing.TB, s *State) string {
	tb.Helper()
	b, err := s.plan.AppendResult(nil, s)
	if err != nil {
		tb.Fatal(err)
	}
	if !json.Valid(b) {
		tb.Fatalf("no JSON: %s", b)
	}
	return string(b)
}

func date(s string) time.Time {
	at, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		panic(err) // a fault of the test
	}
	return at
}

func TestFunctions(t *testing.T) {
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	tests := []struct {
		name string
		f    Function
		in   []rec
		want string
	}{
		{"count of records", Function{Kind: "count"}, of(nil, int64(1), nil), `{"x":3}`},
		{"count of nothing", Function{Kind: "count"}, nil, `{"x":0}`},
		{"count of values", Function{Kind: "count", Of: true}, of(nil, int64(1), "a", raw("null"), math.NaN()), `{"x":3}`},
		{"sum of ints", Function{Kind: "sum", Type: "int"}, of(int64(5), nil, int64(-7)), `{"x":-2}`},
		{"sum to the last int", Function{Kind: "sum", Type: "int"}, of(int64(math.MaxInt64), int64(math.MinInt64), int64(math.MinInt64+1), int64(1)), `{"x":-9223372036854775807}`},
		{"sum of doubles", Function{Kind: "sum", Type: "double"}, of(0.5, nil, -2.25), `{"x":-1.75}`},
		{"sum of doubles in order", Function{Kind: "sum", Type: "double"}, of(1e16, 1.0, -1e16), `{"x":0}`},
		{"sum of nulls", Function{Kind: "sum", Type: "double"}, of(nil), `{}`},
		{"sum of nothing", Function{Kind: "sum", Type: "int"}, nil, `{}`},
		{"min of ints", Function{Kind: "min", Type: "int"}, of(int64(3), int64(-4), nil, int64(0)), `{"x":-4}`},
		{"max of negative ints", Function{Kind: "max", Type: "int"}, of(int64(-3), int64(-4), nil), `{"x":-3}`},
		{"min of doubles", Function{Kind: "min", Type: "double"}, of(2.5, -0.5), `{"x":-0.5}`},
		{"max of strings by bytes", Function{Kind: "max", Type: "string"}, of("Z", "é", "a", "zz"), `{"x":"é"}`},
		{"min of strings by bytes", Function{Kind: "min", Type: "string"}, of("b", "B", "ab", nil), `{"x":"B"}`},
		{"min of the empty string", Function{Kind: "min", Type: "string"}, of("b", ""), `{"x":""}`},
		{"max of timestamps", Function{Kind: "max", Type: "timestamp"}, of(date("2013-01-01T10:15:30.25Z"), date("2013-01-01T12:15:30.25+05:00"), date("2013-01-01T10:15:30.250000001Z")), `{"x":"2013-01-01T10:15:30.250000001Z"}`},
		{"min of timestamps", Function{Kind: "min", Type: "timestamp"}, of(date("0001-01-01T00:00:00Z"), date("9999-12-31T23:59:59Z")), `{"x":"0001-01-01T00:00:00Z"}`},
		{"min of durations", Function{Kind: "min", Type: "duration"}, of(time.Hour, -time.Minute), `{"x":"-1m0s"}`},
		{"avg of ints", Function{Kind: "avg", Type: "int"}, of(int64(1), nil, int64(2)), `{"x":1.5}`},
		{"avg of negative ints", Function{Kind: "avg", Type: "int"}, of(int64(-1), int64(-2)), `{"x":-1.5}`},
		{"avg of ints beyond 64 bits", Function{Kind: "avg", Type: "int"}, of(int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64)), `{"x":9223372036854776000}`},
		{"avg of ints below 64 bits", Function{Kind: "avg", Type: "int"}, of(int64(math.MinInt64), int64(math.MinInt64)), `{"x":-9223372036854776000}`},
		{"avg of ints that come back", Function{Kind: "avg", Type: "int"}, of(int64(math.MaxInt64), int64(math.MaxInt64), int64(-math.MaxInt64), int64(-math.MaxInt64+8)), `{"x":2}`},
		{"avg of doubles", Function{Kind: "avg", Type: "double"}, of(1.0, 2.0, nil, -9.0), `{"x":-2}`},
		{"avg of nothing", Function{Kind: "avg", Type: "double"}, of(nil), `{}`},
		{"first by time", Function{Kind: "first", Type: "string"}, []rec{{at: 5, value: "b"}, {at: 3, value: "a"}, {at: 1}, {at: 4, value: "c"}}, `{"x":"a"}`},
		{"first of equal times", Function{Kind: "first", Type: "int"}, []rec{{at: 5, value: int64(1)}, {at: 5, value: int64(2)}}, `{"x":1}`},
		{"first before 1970", Function{Kind: "first", Type: "int"}, []rec{{at: 0, value: int64(1)}, {at: -5, value: int64(2)}}, `{"x":2}`},
		{"latest by time", Function{Kind: "latest", Type: "json"}, []rec{{at: 5, value: raw(`{"a": 1}`)}, {at: 9, value: raw("null")}, {at: 3, value: raw("2")}}, `{"x":{"a": 1}}`},
		{"latest of equal times", Function{Kind: "latest", Type: "bool"}, []rec{{at: 5, value: true}, {at: 5, value: false}}, `{"x":false}`},
		{"latest of bytes", Function{Kind: "latest", Type: "bytes"}, of([]byte("a"), []byte{0, 255}), `{"x":"AP8="}`},
		{"latest of empty bytes", Function{Kind: "latest", Type: "bytes"}, of([]byte("a"), []byte{}), `{"x":""}`},
		{"latest is escaped", Function{Kind: "latest", Type: "string"}, of("a\"\n"), `{"x":"a\"\n"}`},
		{
			"top_k",
			Function{Kind: "top_k", Type: "string", K: 2},
			[]rec{{value: "a", by: int64(1)}, {value: "b", by: int64(3)}, {value: "c", by: int64(-2)}, {value: "d", by: int64(2)}, {by: int64(9)}, {value: "e"}},
			`{"x":[{"value":"b","by":3},{"value":"d","by":2}]}`,
		},
		{
			"top_k has a value once, with its last by",
			Function{Kind: "top_k", Type: "string", K: 3},
			[]rec{{value: "a", by: 9.0}, {value: "b", by: 3.0}, {value: "c", by: 2.5}, {value: "a", by: 2.75}},
			`{"x":[{"value":"b","by":3},{"value":"a","by":2.75},{"value":"c","by":2.5}]}`,
		},
		{
			"top_k with ties",
			Function{Kind: "top_k", Type: "string", K: 2},
			[]rec{{value: "c", by: time.Second}, {value: "b", by: time.Second}, {value: "a", by: time.Second}},
			`{"x":[{"value":"a","by":"1s"},{"value":"b","by":"1s"}]}`,
		},
		{
			"top_k of ints by time",
			Function{Kind: "top_k", Type: "int", K: 2},
			[]rec{{value: int64(10), by: date("2013-01-01T00:00:00Z")}, {value: int64(9), by: date("2013-01-01T00:00:00Z")}},
			`{"x":[{"value":9,"by":"2013-01-01T00:00:00Z"},{"value":10,"by":"2013-01-01T00:00:00Z"}]}`,
		},
		{"top_k of nothing", Function{Kind: "top_k", Type: "int", K: 2}, of(int64(1)), `{}`},
		{"distinct", Function{Kind: "distinct", Type: "string"}, of("a", "b", nil, "a", ""), `{"x":3}`},
		{"distinct of nothing", Function{Kind: "distinct", Type: "string"}, of(nil), `{"x":0}`},
		{"distinct has one zero", Function{Kind: "distinct", Type: "double"}, of(0.0, math.Copysign(0, -1), 1.0), `{"x":2}`},
		{"distinct of instants at offsets", Function{Kind: "distinct", Type: "timestamp"}, of(date("2013-01-01T10:00:00Z"), date("2013-01-01T12:00:00+02:00")), `{"x":1}`},
		{"distinct of bools", Function{Kind: "distinct", Type: "bool"}, of(true, false, true), `{"x":2}`},
		{"quantile of zero", Function{Kind: "quantile", Type: "int", Q: 1}, of(int64(-5), int64(0), nil), `{"x":0}`},
		{"quantile of nothing", Function{Kind: "quantile", Type: "double", Q: 0.5}, of(nil), `{}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.f.Name = "x"
			p := plan(t, tt.f)
			s := p.New()
			for _, r := range tt.in {
				if err := s.Add(r.time(), []Input{{Value: r.value, By: r.by}}); err != nil {
					t.Fatal(err)
				}
			}
			if got := result(t, s); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			if got, want := s.Empty(), len(tt.in) == 0; got != want {
				t.Errorf("Empty() = %t", got)
			}
		})
	}
}

// TestRefused: what cannot be added leaves all columns as they were, also those before the one that refuses.
func TestRefused(t *testing.T) {
	inf := math.Inf(1)
	tests := []struct {
		name   string
		f      Function
		before rec
		value  any
		by     any
		reason string
	}{
		{"sum above", Function{Kind: "sum", Type: "int"}, rec{value: int64(math.MaxInt64)}, int64(1), nil, ReasonArithmetic},
		{"sum below", Function{Kind: "sum", Type: "int"}, rec{value: int64(-2)}, int64(math.MinInt64), nil, ReasonArithmetic},
		{"sum of doubles", Function{Kind: "sum", Type: "double"}, rec{value: math.MaxFloat64}, math.MaxFloat64, nil, ReasonArithmetic},
		{"avg of doubles", Function{Kind: "avg", Type: "double"}, rec{value: -math.MaxFloat64}, -math.MaxFloat64, nil, ReasonArithmetic},
		{"sum of NaN", Function{Kind: "sum", Type: "double"}, rec{value: 1.0}, math.NaN(), nil, ReasonRange},
		{"min of NaN", Function{Kind: "min", Type: "double"}, rec{value: 1.0}, math.NaN(), nil, ReasonRange},
		{"max of infinite", Function{Kind: "max", Type: "double"}, rec{value: 1.0}, inf, nil, ReasonRange},
		{"latest of infinite", Function{Kind: "latest", Type: "double"}, rec{value: 1.0}, -inf, nil, ReasonRange},
		{"distinct of NaN", Function{Kind: "distinct", Type: "double"}, rec{value: 1.0}, math.NaN(), nil, ReasonRange},
		{"quantile of NaN", Function{Kind: "quantile", Type: "double"}, rec{value: 1.0}, math.NaN(), nil, ReasonRange},
		{"top_k by NaN", Function{Kind: "top_k", Type: "int", K: 1}, rec{value: int64(1), by: 1.0}, int64(2), math.NaN(), ReasonRange},
		{"top_k by another type", Function{Kind: "top_k", Type: "int", K: 1}, rec{value: int64(1), by: 1.0}, int64(2), int64(2), ReasonType},
		{"top_k by a string", Function{Kind: "top_k", Type: "int", K: 1}, rec{}, int64(2), "a", ReasonType},
		{"sum of another type", Function{Kind: "sum", Type: "int"}, rec{value: int64(1)}, 1.0, nil, ReasonType},
		{"a Go int", Function{Kind: "max", Type: "int"}, rec{value: int64(1)}, 1, nil, ReasonType},
		{"no UTF-8", Function{Kind: "max", Type: "string"}, rec{value: "a"}, "\xff", nil, ReasonUTF8},
		{"a year that cannot be written", Function{Kind: "latest", Type: "timestamp"}, rec{}, time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC), nil, ReasonRange},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.f.Name = "x"
			p := plan(t, Function{Name: "n", Kind: "count"}, Function{Name: "before", Kind: "sum", Type: "int"}, tt.f)
			s := p.New()
			if err := s.Add(tt.before.time(), []Input{{}, {Value: int64(1)}, {Value: tt.before.value, By: tt.before.by}}); err != nil {
				t.Fatal(err)
			}
			before := string(p.AppendState(nil, s))
			err := s.Add(time.UnixMilli(1), []Input{{}, {Value: int64(1)}, {Value: tt.value, By: tt.by}})
			e, ok := errors.AsType[*Error](err)
			if !ok || e.Column != "x" || e.DropReason() != tt.reason {
				t.Fatalf("got %v, want %q", err, tt.reason)
			}
			if after := string(p.AppendState(nil, s)); after != before {
				t.Errorf("the state changed: %x, was %x", after, before)
			}
		})
	}
}

func TestSubtract(t *testing.T) {
	p := plan(t, Function{Name: "n", Kind: "count"}, Function{Name: "v", Kind: "count", Of: true}, Function{Name: "i", Kind: "sum", Type: "int"},
		Function{Name: "d", Kind: "sum", Type: "double"}, Function{Name: "ai", Kind: "avg", Type: "int"}, Function{Name: "ad", Kind: "avg", Type: "double"})
	if !p.Reversible() {
		t.Fatal("not reversible")
	}
	rows := [][]Input{
		{{}, {Value: "a"}, {Value: int64(5)}, {Value: 0.1}, {Value: int64(math.MaxInt64)}, {Value: 0.1}},
		{{}, {}, {}, {Value: 0.2}, {Value: int64(math.MaxInt64)}, {}},
		{{}, {Value: "b"}, {Value: int64(-9)}, {Value: 1e17}, {Value: int64(-3)}, {Value: 1e17}},
		{{}, {}, {}, {}, {}, {}},
	}
	s := p.New()
	for _, in := range rows {
		if err := s.Add(time.Time{}, in); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []string{
		`{"n":3,"v":1,"i":-9,"d":100000000000000000,"ai":4611686018427388000,"ad":100000000000000000}`,
		`{"n":2,"v":1,"i":-9,"d":100000000000000000,"ai":-3,"ad":100000000000000000}`,
		`{"n":1,"v":0}`, // nothing of what rounding left
		`{"n":0,"v":0}`,
	} {
		if s.Empty() {
			t.Fatalf("empty with %d records left", len(rows)-i)
		}
		if err := s.Subtract(time.Time{}, rows[i]); err != nil {
			t.Fatal(err)
		}
		if got := result(t, s); got != want {
			t.Errorf("after %d: %s, want %s", i+1, got, want)
		}
	}
	if !s.Empty() {
		t.Error("not empty")
	}
	if got, want := p.AppendState(nil, s), p.AppendState(nil, p.New()); string(got) != string(want) {
		t.Errorf("state %x, want %x", got, want)
	}
	if e, ok := errors.AsType[*Error](s.Subtract(time.Time{}, rows[0])); !ok || e.Reason != ReasonAbsent {
		t.Errorf("from the empty state: %v", e)
	}
	if err := s.Add(time.Time{}, rows[3]); err != nil {
		t.Fatal(err)
	}
	if e, ok := errors.AsType[*Error](s.Subtract(time.Time{}, rows[0])); !ok || e.Reason != ReasonAbsent || e.Column != "v" || result(t, s) != `{"n":1,"v":0}` {
		t.Errorf("of a value that is not there: %v", e)
	}
}

func TestSubtractBeyond(t *testing.T) {
	p := plan(t, Function{Name: "i", Kind: "sum", Type: "int"}, Function{Name: "d", Kind: "sum", Type: "double"})
	s := p.New()
	for range 2 {
		if err := s.Add(time.Time{}, []Input{{Value: int64(-2)}, {Value: -math.MaxFloat64 / 2}}); err != nil {
			t.Fatal(err)
		}
	}
	before := result(t, s)
	for column, in := range map[string][]Input{
		"i": {{Value: int64(math.MaxInt64)}, {Value: 1.0}},
		"d": {{Value: int64(1)}, {Value: math.MaxFloat64}},
	} {
		e, ok := errors.AsType[*Error](s.Subtract(time.Time{}, in))
		if !ok || e.Column != column || e.Reason != ReasonArithmetic || result(t, s) != before {
			t.Errorf("%s: %v", column, e)
		}
	}
}

func TestWrongUse(t *testing.T) {
	p, other := plan(t, Function{Name: "x", Kind: "max", Type: "int"}), plan(t, Function{Name: "x", Kind: "max", Type: "int"})
	if err := p.New().Add(time.Time{}, nil); !errors.Is(err, ErrOtherPlan) {
		t.Errorf("Add: %v", err)
	}
	if err := p.New().Subtract(time.Time{}, []Input{{}}); !errors.Is(err, ErrNotReversible) {
		t.Errorf("Subtract: %v", err)
	}
	if _, err := p.AppendResult(nil, other.New()); !errors.Is(err, ErrOtherPlan) {
		t.Errorf("AppendResult: %v", err)
	}
	if _, err := p.Merge(p.New(), other.New()); !errors.Is(err, ErrOtherPlan) {
		t.Errorf("Merge: %v", err)
	}
	if _, err := plan(t, Function{Name: "x", Kind: "avg", Type: "int"}).DecodeResult([]byte(`{}`)); !errors.Is(err, ErrResult) {
		t.Errorf("DecodeResult: %v", err)
	}
}
