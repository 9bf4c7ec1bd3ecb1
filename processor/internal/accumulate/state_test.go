package accumulate

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// everything has each function, with each form of value somewhere.
func everything() []Function {
	return []Function{
		{Name: "n", Kind: "count"},
		{Name: "v", Kind: "count", Of: true},
		{Name: "si", Kind: "sum", Type: "int"},
		{Name: "sd", Kind: "sum", Type: "double"},
		{Name: "min", Kind: "min", Type: "string"},
		{Name: "max", Kind: "max", Type: "timestamp"},
		{Name: "ai", Kind: "avg", Type: "int"},
		{Name: "ad", Kind: "avg", Type: "double"},
		{Name: "first", Kind: "first", Type: "bytes"},
		{Name: "latest", Kind: "latest", Type: "json"},
		{Name: "top", Kind: "top_k", Type: "duration", K: 5},
		{Name: "distinct", Kind: "distinct", Type: "int"},
		{Name: "q", Kind: "quantile", Type: "double", Q: 0.5},
	}
}

// record makes the n-th record for everything, some of whose values are null. Sums of its doubles are exact, and By of top_k rises.
func record(rnd *rand.Rand, n int) (time.Time, []Input) {
	i := rnd.Int64N(2000) - 1000
	text := fmt.Sprint(i)
	in := []Input{
		{},
		{Value: text},
		{Value: i},
		{Value: float64(i) / 4},
		{Value: text},
		{Value: time.Unix(i, i&7)},
		{Value: i << 50},
		{Value: float64(i)},
		{Value: []byte(text)},
		{Value: json.RawMessage(text)},
		{Value: time.Duration(i % 9), By: int64(n)},
		{Value: i},
		{Value: float64(i) * 1.5},
	}
	for j := range in {
		if rnd.IntN(4) == 0 {
			in[j] = Input{}
		}
	}
	return time.UnixMilli(rnd.Int64N(50)), in
}

// TestReplay: the bytes of a state do not depend on whether it was written and read in between, and adding some records, and then
// others, is merging the states of both.
func TestReplay(t *testing.T) {
	for _, n := range []int{0, 1, 2, 10, 100, 3000} {
		rnd := rand.New(rand.NewPCG(uint64(n), 1))
		p := plan(t, everything()...)
		whole, reread, left, right := p.New(), p.New(), p.New(), p.New()
		for i := range n {
			at, in := record(rnd, i)
			half := left
			if i >= n/3 {
				half = right
			}
			for _, s := range []*State{whole, reread, half} {
				if err := s.Add(at, in); err != nil {
					t.Fatal(err)
				}
			}
			var err error
			if reread, err = p.DecodeState(p.AppendState(nil, reread)); err != nil {
				t.Fatalf("after %d: %v", i+1, err)
			}
		}
		want := string(p.AppendState(nil, whole))
		if got := string(p.AppendState(nil, reread)); got != want {
			t.Errorf("%d: reread %x, want %x", n, got, want)
		}
		before := string(p.AppendState(nil, left)) + string(p.AppendState(nil, right))
		merged, err := p.Merge(left, right)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(p.AppendState(nil, merged)); got != want {
			t.Errorf("%d: merged %x, want %x", n, got, want)
		}
		if got := result(t, merged); got != result(t, whole) {
			t.Errorf("%d: merged %s, want %s", n, got, result(t, whole))
		}
		at, in := record(rnd, n)
		if err := merged.Add(at, in); err != nil {
			t.Fatal(err)
		}
		if after := string(p.AppendState(nil, left)) + string(p.AppendState(nil, right)); after != before {
			t.Errorf("%d: what was merged changed", n)
		}
		if merged.Empty() {
			t.Error("empty")
		}
	}
}

// TestMergeTopK: which By came last is not known; the greater one is kept, whichever side it is on.
func TestMergeTopK(t *testing.T) {
	p := plan(t, Function{Name: "x", Kind: "top_k", Type: "string", K: 2})
	a, b, c := p.New(), p.New(), p.New()
	for _, r := range []struct {
		s *State
		v string
		k any
	}{{a, "u", int64(5)}, {a, "v", int64(1)}, {b, "u", int64(3)}, {b, "v", int64(4)}, {c, "u", 1.0}} {
		if err := r.s.Add(time.Time{}, []Input{{Value: r.v, By: r.k}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, pair := range [][2]*State{{a, b}, {b, a}} {
		m, err := p.Merge(pair[0], pair[1])
		if err != nil {
			t.Fatal(err)
		}
		if got, want := result(t, m), `{"x":[{"value":"u","by":5},{"value":"v","by":4}]}`; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if e, ok := errors.AsType[*Error](second(p.Merge(a, c))); !ok || e.Reason != ReasonType {
		t.Errorf("orders of two types: %v", e)
	}
}

func second[T any](_ T, err error) error { return err }

func TestMergeBeyond(t *testing.T) {
	for _, f := range []struct {
		kind string
		v    any
	}{{"int", int64(1 << 62)}, {"double", 1e308}} {
		p := plan(t, Function{Name: "x", Kind: "sum", Type: f.kind})
		s := p.New()
		if err := s.Add(time.Time{}, []Input{{Value: f.v}}); err != nil {
			t.Fatal(err)
		}
		if e, ok := errors.AsType[*Error](second(p.Merge(s, s))); !ok || e.Reason != ReasonArithmetic || e.Column != "x" {
			t.Errorf("%s: %v", f.kind, e)
		}
	}
}

func TestDecodeStateErrors(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	p := plan(t, everything()...)
	for _, n := range []int{1, 200} {
		s := p.New()
		for i := range n {
			at, in := record(rnd, i)
			if err := s.Add(at, in); err != nil {
				t.Fatal(err)
			}
		}
		b := p.AppendState(nil, s)
		for cut := range b {
			if cut == 3 {
				continue // the empty state
			}
			if _, ok := errors.AsType[*StateError](second(p.DecodeState(b[:cut]))); !ok {
				t.Errorf("%d of %d bytes: no *StateError", cut, len(b))
			}
		}
		if e, ok := errors.AsType[*StateError](second(p.DecodeState(append(b, 0)))); !ok || e.Reason != "bytes after the end" {
			t.Errorf("one byte more: %v", e)
		}
		b[0] = 2
		if e, ok := errors.AsType[*StateError](second(p.DecodeState(b))); !ok || e.Reason != "another version" {
			t.Errorf("another version: %v", e)
		}
	}
	other := plan(t, Function{Name: "x", Kind: "max", Type: "int"})
	if e, ok := errors.AsType[*StateError](second(p.DecodeState(other.AppendState(nil, other.New())))); !ok || e.Reason != "it is of other functions" {
		t.Errorf("another plan: %v", e)
	}
	// Another name, and another quantile of the same sketch, find what is there.
	q := plan(t, Function{Name: "a", Kind: "quantile", Type: "int", Q: 0.5})
	if _, err := plan(t, Function{Name: "b", Kind: "quantile", Type: "int", Q: 0.9}).DecodeState(q.AppendState(nil, q.New())); err != nil {
		t.Error(err)
	}
}

func TestResultIsState(t *testing.T) {
	p := plan(t, Function{Name: "n", Kind: "count"}, Function{Name: "v", Kind: "count", Of: true}, Function{Name: "si", Kind: "sum", Type: "int"},
		Function{Name: "sd", Kind: "sum", Type: "double"}, Function{Name: "ts", Kind: "min", Type: "timestamp"},
		Function{Name: "dur", Kind: "max", Type: "duration"}, Function{Name: "s,\"", Kind: "max", Type: "string"}, Function{Name: "d", Kind: "min", Type: "double"})
	rnd := rand.New(rand.NewPCG(5, 6))
	whole, reread := p.New(), p.New()
	for i := range 2000 {
		k := rnd.Int64()
		in := []Input{
			{},
			{Value: k},
			{Value: k >> 12},
			{Value: rnd.NormFloat64() * 1e-9},
			{Value: time.Unix(k>>28, k&0xfffffff)},
			{Value: time.Duration(k)},
			{Value: fmt.Sprintf("%c\"\\\u2028,}\x01", 'a'+i/100)},
			{Value: rnd.NormFloat64() * 1e25},
		}
		for j := range in {
			if rnd.IntN(3) == 0 {
				in[j] = Input{}
			}
		}
		for _, s := range []*State{whole, reread} {
			if err := s.Add(time.Time{}, in); err != nil {
				t.Fatal(err)
			}
		}
		want := result(t, whole)
		if got := result(t, reread); got != want {
			t.Fatalf("after %d: %s, want %s", i+1, got, want)
		}
		var err error
		if reread, err = p.DecodeResult([]byte(want)); err != nil {
			t.Fatalf("%s: %v", want, err)
		}
	}
	if err := reread.Subtract(time.Time{}, make([]Input, 8)); !errors.Is(err, ErrNotReversible) {
		t.Errorf("Subtract: %v", err)
	}
	r := plan(t, Function{Name: "v", Kind: "count", Of: true}, Function{Name: "x", Kind: "sum", Type: "int"})
	s, err := r.DecodeResult([]byte(`{"v":7,"x":1}`))
	if err != nil {
		t.Fatal(err)
	}
	if s, err = r.DecodeState(r.AppendState(nil, s)); err != nil {
		t.Fatal(err)
	}
	if err := s.Subtract(time.Time{}, make([]Input, 2)); !errors.Is(err, ErrNotReversible) || result(t, s) != `{"v":7,"x":1}` {
		t.Errorf("Subtract from a state of a result that was written: %v", err)
	}
}

func TestDecodeResultErrors(t *testing.T) {
	p := plan(t, Function{Name: "n", Kind: "count"}, Function{Name: "v", Kind: "count", Of: true}, Function{Name: "d", Kind: "sum", Type: "double"},
		Function{Name: "t", Kind: "max", Type: "timestamp"}, Function{Name: "l", Kind: "max", Type: "duration"}, Function{Name: "s", Kind: "max", Type: "string"})
	for _, text := range []string{
		``, `{`, `{}`, `[]`, `null`, `{"n":1}`, `{"n":1,"v":1`, `{"n":1,"v":2}`, `{"n":-1,"v":0}`, `{"n":1.5,"v":0}`, `{"n":1,"v":0}x`, `{"n":1,"v":0,}`,
		`{"v":0,"n":1}`, `{"n":1,"v":0,"d":x}`, `{"n":1,"v":0,"d":NaN}`, `{"n":1,"v":0,"d":1e999}`, `{"n":1,"v":0,"t":1}`, `{"n":1,"v":0,"t":"x"}`,
		`{"n":1,"v":0,"l":"x"}`, `{"n":1,"v":0,"s":"x}`, `{"n":1,"v":0,"s":"\x"}`, `{"n":1,"v":0,"s":}`, `{ "n":1,"v":0}`, `{"n":1,"v":0,"o":1}`,
	} {
		if _, ok := errors.AsType[*StateError](second(p.DecodeResult([]byte(text)))); !ok {
			t.Errorf("%s: no *StateError", text)
		}
	}
	if _, err := p.DecodeResult([]byte(`{"n":1,"v":0}`)); err != nil {
		t.Error(err)
	}
}

func FuzzDecode(f *testing.F) {
	p := plan(f, everything()...)
	r := plan(f, Function{Name: "n", Kind: "count"}, Function{Name: "x", Kind: "sum", Type: "double"}, Function{Name: "s", Kind: "max", Type: "string"})
	rnd := rand.New(rand.NewPCG(1, 2))
	s := p.New()
	for i := range 200 {
		at, in := record(rnd, i)
		if err := s.Add(at, in); err != nil {
			f.Fatal(err)
		}
		if i < 2 || i == 199 {
			f.Add(p.AppendState(nil, s))
		}
	}
	f.Add([]byte(`{"n":1,"x":2.5,"s":"\u0061"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := p.DecodeState(b); err == nil {
			out := p.AppendState(nil, s)
			again, err := p.DecodeState(out)
			if err != nil {
				t.Fatalf("%x reads, but not as it is written: %v", b, err)
			}
			if string(p.AppendState(nil, again)) != string(out) {
				t.Fatalf("%x is written in two ways", b)
			}
			if _, err := p.AppendResult(nil, s); err != nil {
				t.Fatal(err)
			}
			at, in := record(rand.New(rand.NewPCG(1, 1)), 1)
			_ = s.Add(at, in) // it may refuse
			_, _ = p.Merge(s, again)
		} else if _, ok := errors.AsType[*StateError](err); !ok {
			t.Fatalf("%x: %v", b, err)
		}
		if s, err := r.DecodeResult(b); err == nil {
			out := result(t, s)
			if _, err := r.DecodeResult([]byte(out)); err != nil {
				t.Fatalf("%s: %v", out, err)
			}
		}
	})
}
