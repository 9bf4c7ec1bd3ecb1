package main

import (
	"strings"
	"testing"
)

// TestRun runs the case study with its own broker: it compares every table itself.
func TestRun(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := run(t.Context(), options{instances: 2}, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if n := strings.Count(out.String(), "answers right"); n != 2 {
		t.Errorf("%d instances have answered:\n%s", n, out.String())
	}
}
