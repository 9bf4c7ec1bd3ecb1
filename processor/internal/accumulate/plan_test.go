package accumulate

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

func TestNewPlanErrors(t *testing.T) {
	tests := []struct {
		f    Function
		want string
	}{
		{Function{Kind: "count"}, "no name"},
		{Function{Name: "x", Kind: "median"}, `"median" is no function`},
		{Function{Name: "x", Kind: "sum"}, `"" is no type`},
		{Function{Name: "x", Kind: "sum", Type: "string"}, "sum takes no string"},
		{Function{Name: "x", Kind: "avg", Type: "duration"}, "avg takes no duration"},
		{Function{Name: "x", Kind: "quantile", Type: "timestamp"}, "quantile takes no timestamp"},
		{Function{Name: "x", Kind: "min", Type: "json"}, "min takes no json"},
		{Function{Name: "x", Kind: "max", Type: "bool"}, "max takes no bool"},
		{Function{Name: "x", Kind: "max", Type: "bytes"}, "max takes no bytes"},
		{Function{Name: "x", Kind: "top_k", Type: "int"}, "k is 0"},
		{Function{Name: "x", Kind: "top_k", Type: "int", K: 1001}, "k is 1001"},
		{Function{Name: "x", Kind: "quantile", Type: "int", Q: 1.5}, "q is 1.5"},
		{Function{Name: "x", Kind: "quantile", Type: "int", Q: math.NaN()}, "q is NaN"},
	}
	for _, tt := range tests {
		_, err := NewPlan([]Function{tt.f})
		e, ok := errors.AsType[*FunctionError](err)
		if !ok || !strings.Contains(e.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q", tt.f, err, tt.want)
		}
	}
	if _, err := NewPlan(nil); err == nil {
		t.Error("a plan of nothing")
	}
	_, err := NewPlan([]Function{{Name: "x", Kind: "count"}, {Name: "x", Kind: "count"}, {Name: "y", Kind: "z"}})
	if err == nil || !strings.Contains(err.Error(), "given twice") || !strings.Contains(err.Error(), "no function") {
		t.Errorf("not all that is wrong: %v", err)
	}
}

func TestColumns(t *testing.T) {
	p := plan(t, everything()...)
	var got []string
	for _, c := range p.Columns() {
		got = append(got, c.Name+" "+c.Type)
	}
	want := []string{
		"n int", "v int", "si int", "sd double", "min string", "max timestamp", "ai double", "ad double", "first bytes", "latest json",
		"top json", "distinct int", "q double",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

func TestWhatPlansCan(t *testing.T) {
	for kind, want := range map[string]struct{ reversible, result bool }{
		"count": {true, true}, "sum": {true, true}, "min": {false, true}, "max": {false, true}, "avg": {true, false}, "first": {}, "latest": {},
		"top_k": {}, "distinct": {}, "quantile": {},
	} {
		p := plan(t, Function{Name: "n", Kind: "count"}, Function{Name: "x", Kind: kind, Type: "int", K: 1})
		if p.Reversible() != want.reversible || p.ResultIsState() != want.result {
			t.Errorf("%s: reversible %t, result %t", kind, p.Reversible(), p.ResultIsState())
		}
	}
}
