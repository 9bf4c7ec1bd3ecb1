package commitmeta_test

import (
	"maps"
	"math"
	"strings"
	"testing"

	"github.com/statemesh/statemesh/processor/internal/commitmeta"
)

func TestTimesRoundTrip(t *testing.T) {
	t.Parallel()
	for _, stream := range []int64{-1, 0, 1_700_000_000_000, math.MaxInt64} {
		want := make(map[string]int64)
		var times []commitmeta.Time
		for name, at := range map[string]int64{
			"counts": stream, "visits": stream - 1, "final-store": commitmeta.Unobserved, "ahead": math.MaxInt64, "early": math.MinInt64 + 1, "zero": 0,
		} {
			id := commitmeta.TimeID(name)
			times, want[id] = append(times, commitmeta.Time{ID: id, At: at}), at
		}
		m := commitmeta.Meta{Sequence: 3, StreamTime: stream, TransactionalID: "an:id-0", Observed: commitmeta.EncodeTimes(stream, times)}
		got, ok := commitmeta.Decode(m.Encode())
		if !ok || got != m || !maps.Equal(got.Times(), want) {
			t.Errorf("%q: decoded %+v, %v, %t; want %+v, %v", m.Encode(), got, got.Times(), ok, m, want)
		}
	}
}

// A version that knows no times cuts the string at its first three colons: it must find the numbers where it looks for them.
func TestTimesBehindWhatOlderVersionsRead(t *testing.T) {
	t.Parallel()
	m := commitmeta.Meta{Sequence: 3, StreamTime: 7, TransactionalID: "app-0"}
	m.Observed = commitmeta.EncodeTimes(7, []commitmeta.Time{{ID: commitmeta.TimeID("counts"), At: 5}, {ID: commitmeta.TimeID("visits"), At: commitmeta.Unobserved}})
	parts := strings.SplitN(m.Encode(), ":", 4)
	if len(parts) != 4 || parts[1] != "3" || parts[2] != "7" || !strings.HasPrefix(parts[3], "app-0;") {
		t.Errorf("an older version reads %q", parts)
	}
}

func TestNoTimes(t *testing.T) {
	t.Parallel()
	if m, ok := commitmeta.Decode("sm1:1:2:x"); !ok || m.Times() != nil {
		t.Errorf("a commit without times: %v, %t", m.Times(), ok)
	}
	for _, text := range []string{"sm1:1:2:x;t=short", "sm1:1:2:x;t=,,", "sm1:1:2:x;t=AAAAAAAA!"} {
		m, ok := commitmeta.Decode(text)
		for id, at := range m.Times() {
			if at != commitmeta.Unobserved {
				t.Errorf("%q: %s is at %d", text, id, at)
			}
		}
		if !ok || m.TransactionalID != "x" {
			t.Errorf("%q: %+v, %t", text, m, ok)
		}
	}
}

// With as many times as a task may have, as long as they can be, the metadata is below what brokers take by default.
func TestTimesFit(t *testing.T) {
	t.Parallel()
	times := make([]commitmeta.Time, commitmeta.MaxTimes)
	for i := range times {
		times[i] = commitmeta.Time{ID: commitmeta.TimeID(string(rune('a' + i))), At: math.MinInt64 + 2}
	}
	m := commitmeta.Meta{Sequence: math.MaxInt64, StreamTime: 1, TransactionalID: strings.Repeat("x", 512)}
	m.Observed = commitmeta.EncodeTimes(m.StreamTime, times)
	if n := len(m.Encode()); n > 4096 {
		t.Errorf("%d bytes", n)
	}
}
