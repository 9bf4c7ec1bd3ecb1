package commitmeta_test

import (
	"math"
	"strings"
	"testing"

	"github.com/statemesh/statemesh/processor/internal/commitmeta"
)

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		meta commitmeta.Meta
		text string
	}{
		{commitmeta.Meta{Sequence: 1, StreamTime: -1}, "sm1:1:-1:"},
		{commitmeta.Meta{Sequence: 7, StreamTime: 1_700_000_000_000, TransactionalID: "app-p-1-0"}, "sm1:7:1700000000000:app-p-1-0"},
		{commitmeta.Meta{Sequence: 2, TransactionalID: "an:id:with:colons"}, "sm1:2:0:an:id:with:colons"},
		{commitmeta.Meta{Sequence: math.MaxInt64, StreamTime: math.MinInt64, TransactionalID: "x"}, "sm1:9223372036854775807:-9223372036854775808:x"},
	} {
		if got := tc.meta.Encode(); got != tc.text {
			t.Errorf("%+v: encoded %q, want %q", tc.meta, got, tc.text)
		}
		if got, ok := commitmeta.Decode(tc.text); !ok || got != tc.meta {
			t.Errorf("%q: decoded %+v, %t; want %+v", tc.text, got, ok, tc.meta)
		}
	}
}

// What others wrote is not ours: it reads as no commit at all, never as a wrong one.
func TestForeignMetadata(t *testing.T) {
	t.Parallel()
	none := commitmeta.Meta{StreamTime: -1}
	for _, text := range []string{
		"", "sm1", "sm1:", "sm1:1:2", "sm2:1:2:x", "SM1:1:2:x", " sm1:1:2:x", "sm1:-1:2:x", "sm1:one:2:x", "sm1:1:two:x", "sm1::2:x", "sm1:1::x",
		"sm1:9223372036854775808:2:x", "1700000000000", "AgAAAYvz", strings.Repeat("x", 4096),
	} {
		if got, ok := commitmeta.Decode(text); ok || got != none {
			t.Errorf("%q: decoded %+v, %t; want %+v, false", text, got, ok, none)
		}
	}
}
