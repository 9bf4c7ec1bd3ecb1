package windows_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/statemesh/statemesh/processor/windows"
)

const ms = time.Millisecond

// semantics.md T4/46 to T4/48, and what lies beside them.
func TestGrid(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		w    windows.Time
		t    int64
		want []int64
	}{
		"T4/46":                    {windows.Hopping(12*ms, 5*ms, 0), 21, []int64{10, 15, 20}},
		"T4/47":                    {windows.Hopping(6*ms, 5*ms, 0), 7, []int64{5}},
		"T4/48":                    {windows.Tumbling(12*ms, 0), 21, []int64{12}},
		"first of a window":        {windows.Tumbling(12*ms, 0), 24, []int64{24}},
		"last of a window":         {windows.Tumbling(12*ms, 0), 23, []int64{12}},
		"none begins before 0":     {windows.Hopping(12*ms, 5*ms, 0), 3, []int64{0}},
		"at 0":                     {windows.Hopping(12*ms, 5*ms, 0), 0, []int64{0}},
		"every millisecond":        {windows.Hopping(3*ms, 1*ms, 0), 9, []int64{7, 8, 9}},
		"three hours, each hour":   {windows.Hopping(3*time.Hour, time.Hour, 0), 1357035300000, []int64{1357027200000, 1357030800000, 1357034400000}},
		"at the end of time":       {windows.Hopping(4*ms, 2*ms, 0), math.MaxInt64, []int64{math.MaxInt64 - 3, math.MaxInt64 - 1}},
		"a window beyond the time": {windows.Tumbling(time.Hour, 0), 5, []int64{0}},
	} {
		if got := slices.Collect(tc.w.Starts(tc.t)); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
	for range windows.Hopping(12*ms, 5*ms, 0).Starts(21) {
		break // a caller may stop
	}
}

// Every start of a grid is a multiple of the advance, and its window holds the time; all of these are there.
func TestGridHoldsTheTime(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		size := 1 + r.Int64N(40)
		advance := 1 + r.Int64N(size)
		at := r.Int64N(200)
		var want []int64
		for s := int64(0); s <= at; s += advance {
			if at < s+size {
				want = append(want, s)
			}
		}
		w := windows.Hopping(time.Duration(size)*ms, time.Duration(advance)*ms, 0)
		if got := slices.Collect(w.Starts(at)); !slices.Equal(got, want) {
			t.Fatalf("size %d advance %d at %d: %v, want %v", size, advance, at, got, want)
		}
	}
}

// QS-08: closing is at end + grace for time windows, behind it for sliding ones, and a gap later for sessions, whose end is
// inclusive.
func TestClosed(t *testing.T) {
	t.Parallel()
	tumbling := windows.Tumbling(10*ms, 5*ms)
	sliding := windows.Sliding{Difference: 10 * ms, Grace: 5 * ms}
	session := windows.Session{Gap: 10 * ms, Grace: 5 * ms}
	for name, got := range map[string][2]bool{
		"tumbling [0,10)": {tumbling.Closed(0, 14), tumbling.Closed(0, 15)},
		"sliding [0,10]":  {sliding.Closed(0, 15), sliding.Closed(0, 16)},
		"sliding, record": {sliding.Late(0, 15), sliding.Late(0, 16)},
		"session [0,10]":  {session.Closed(windows.Span{0, 10}, 25), session.Closed(windows.Span{0, 10}, 26)},
		"far away":        {tumbling.Closed(math.MaxInt64-1, math.MaxInt64), tumbling.Closed(0, math.MaxInt64)},
	} {
		if got != [2]bool{false, true} {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"advance 2ms is above the size 1ms": windows.Hopping(ms, 2*ms, 0).Validate(),
		"size 0s: want at least 1ms":        windows.Tumbling(0, 0).Validate(),
		"grace -1ms: want at least 0s":      windows.Tumbling(ms, -ms).Validate(),
		"gap 0s: want at least 1ms":         windows.Session{}.Validate(),
		"difference 1.5ms: want whole":      windows.Sliding{Difference: 1500 * time.Microsecond}.Validate(),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for _, err := range []error{
		windows.Hopping(3*time.Hour, time.Hour, time.Minute).Validate(), windows.Session{Gap: time.Hour}.Validate(),
		windows.Sliding{Difference: time.Hour}.Validate(),
	} {
		if err != nil {
			t.Error(err)
		}
	}
}

// slider keeps the windows of one key, with the text of their records.
type slider struct {
	w      windows.Sliding
	stream int64
	text   map[int64]string
	latest map[int64]int64
	skips  int
}

func newSlider(w windows.Sliding) *slider {
	return &slider{w: w, text: make(map[int64]string), latest: make(map[int64]int64)}
}

func (s *slider) String() string {
	var parts []string
	for _, start := range slices.Sorted(maps.Keys(s.text)) {
		parts = append(parts, fmt.Sprintf("%d:%s", start, s.text[start]))
	}
	return strings.Join(parts, " ")
}

func (s *slider) put(text string, t int64) {
	s.stream = max(s.stream, t)
	if s.w.Late(t, s.stream) {
		s.skips++
		return
	}
	from, to := s.w.Near(t)
	var kept []windows.Kept
	for _, start := range slices.Sorted(maps.Keys(s.latest)) {
		if start >= from && start <= to {
			kept = append(kept, windows.Kept{Start: start, Latest: s.latest[start]})
		}
	}
	before := maps.Clone(s.text)
	for _, step := range s.w.Plan(kept, t, s.stream) {
		var now string
		if step.Base != windows.None {
			now = before[kept[step.Base].Start]
		}
		if step.Counts {
			now += text
		}
		s.text[step.Start], s.latest[step.Start] = now, step.Latest
	}
}

// semantics.md T4/52 to T4/54. What T4/53 emits is what is closed at the end.
func TestSlidingVectors(t *testing.T) {
	t.Parallel()
	s := newSlider(windows.Sliding{Difference: 10 * ms, Grace: 50 * ms})
	for i, at := range []int64{10, 10, 14, 15, 20, 22, 30} {
		s.put(fmt.Sprint(i+1), at)
	}
	if got := s.String(); got != "0:12 4:123 5:1234 10:12345 11:345 12:3456 15:456 16:56 20:567 21:67 23:7" {
		t.Errorf("T4/52: %s", got)
	}
	closing := windows.Sliding{Difference: 10 * ms, Grace: 5 * ms}
	var closed []int64
	for _, start := range slices.Sorted(maps.Keys(s.text)) {
		if closing.Closed(start, 30) {
			closed = append(closed, start)
		}
	}
	if !slices.Equal(closed, []int64{0, 4, 5, 10, 11, 12}) {
		t.Errorf("T4/53: %v", closed)
	}
	s = newSlider(windows.Sliding{Difference: 10 * ms, Grace: 50 * ms})
	for i, at := range []int64{10, 14, 15, 22, 26, 30} {
		s.put(fmt.Sprint(i+1), at)
	}
	if got := s.String(); got != "0:1 4:12 5:123 11:23 12:234 15:34 16:45 20:456 23:56 27:6" {
		t.Errorf("T4/54: %s", got)
	}
}

// Whatever the order of arrival, the windows are those that the definition names, with the records that lie in them.
func TestSlidingModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 7))
		diff := 1 + r.Int64N(12)
		s := newSlider(windows.Sliding{Difference: time.Duration(diff) * ms, Grace: time.Hour})
		n := 1 + r.IntN(12)
		times := make([]int64, n)
		for i := range times {
			times[i] = r.Int64N(40)
			s.put(string(rune('a'+i)), times[i])
		}
		want := make(map[int64]string)
		for _, at := range times {
			for _, start := range []int64{max(0, at-diff), at + 1} {
				var in []byte
				for i, other := range times {
					if other >= start && other <= start+diff {
						in = append(in, byte('a'+i))
					}
				}
				if len(in) > 0 {
					want[start] = string(in)
				}
			}
		}
		for start := range s.text { // the order within a window is that of arrival
			got := []byte(s.text[start])
			slices.Sort(got)
			s.text[start] = string(got)
		}
		if !maps.Equal(s.text, want) {
			t.Fatalf("seed %d, difference %d, records at %v:\n%v, want\n%v", seed, diff, times, s.text, want)
		}
	}
}

func TestSlidingSkipsWhatIsLate(t *testing.T) {
	t.Parallel()
	s := newSlider(windows.Sliding{Difference: 10 * ms, Grace: 5 * ms})
	s.put("a", 100)
	s.put("c", 84) // a window that begins here ends at 94, before 100 - 5
	if s.skips != 1 || s.String() != "90:a" {
		t.Errorf("%d skipped; %s", s.skips, s)
	}
	s.put("b", 85) // [75,85] is closed, and no other window that is kept holds 85
	if s.skips != 1 || s.String() != "90:a" {
		t.Errorf("%d skipped; %s", s.skips, s)
	}
	s.put("d", 95) // [85,95] is open
	if got := s.String(); got != "85:d 90:ad 96:a" {
		t.Error(got)
	}
	s.put("e", math.MaxInt64) // the end of time is a time
	if _, ok := s.text[math.MaxInt64-10]; !ok {
		t.Error(s)
	}
}

// semantics.md T5/63 to T5/65, T5/67: one gap apart is together, and what joins two sessions makes them one.
func TestSessionVectors(t *testing.T) {
	t.Parallel()
	const gap = 5 * 60 * 1000
	w := windows.Session{Gap: gap * ms}
	for name, tc := range map[string]struct {
		times []int64
		want  string
	}{
		"T5/63":           {[]int64{0, gap + 1}, "[0,0]=1 [300001,300001]=1"},
		"T5/64":           {[]int64{0, gap + 1, gap / 2}, "[0,300001]=3"},
		"T5/65":           {[]int64{0, 100}, "[0,100]=2"},
		"T5/67":           {[]int64{7, 7}, "[7,7]=2"},
		"a gap apart":     {[]int64{0, gap}, "[0,300000]=2"},
		"from behind":     {[]int64{gap, 0}, "[0,300000]=2"},
		"inside":          {[]int64{0, gap, 10}, "[0,300000]=3"},
		"the end of time": {[]int64{math.MaxInt64, math.MaxInt64 - gap}, fmt.Sprintf("[%d,%d]=2", math.MaxInt64-gap, math.MaxInt64)},
	} {
		sessions := make(map[windows.Span]int)
		for _, at := range tc.times {
			from, to := w.Near(at)
			count := 1
			var joined []windows.Span
			for s, n := range sessions {
				if s.End >= from && s.Start <= to {
					joined = append(joined, s)
					count += n
					delete(sessions, s)
				}
			}
			sessions[w.Merge(at, joined)] = count
		}
		var parts []string
		for _, s := range slices.SortedFunc(maps.Keys(sessions), func(a, b windows.Span) int { return int(a.Start - b.Start) }) {
			parts = append(parts, fmt.Sprintf("[%d,%d]=%d", s.Start, s.End, sessions[s]))
		}
		if got := strings.Join(parts, " "); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

func TestMinRetention(t *testing.T) {
	t.Parallel()
	for want, got := range map[time.Duration]time.Duration{
		70 * ms: windows.Hopping(60*ms, 20*ms, 10*ms).MinRetention(),
		40 * ms: windows.Session{Gap: 30 * ms, Grace: 10 * ms}.MinRetention(),
		50 * ms: windows.Sliding{Difference: 20 * ms, Grace: 10 * ms}.MinRetention(),
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
