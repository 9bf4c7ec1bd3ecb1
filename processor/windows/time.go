package windows

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"time"
)

// Time is a grid of windows of one size (upstream's TimeWindows): [start, start+Size), a window every Advance, the first at 0.
// With Advance = Size they tumble, with less they hop and overlap.
type Time struct {
	Size, Advance, Grace time.Duration
}

// Tumbling windows follow one another.
func Tumbling(size, grace time.Duration) Time { return Time{Size: size, Advance: size, Grace: grace} }

// Hopping windows begin every advance.
func Hopping(size, advance, grace time.Duration) Time {
	return Time{Size: size, Advance: advance, Grace: grace}
}

// Validate reports everything that is wrong, joined.
func (w Time) Validate() error {
	var errs []error
	errs = append(errs, whole("size", w.Size, time.Millisecond), whole("grace", w.Grace, 0))
	if w.Advance != w.Size {
		errs = append(errs, whole("advance", w.Advance, time.Millisecond))
	}
	if w.Advance > w.Size {
		errs = append(errs, fmt.Errorf("advance %s is above the size %s: records between windows would be in none", w.Advance, w.Size))
	}
	return errors.Join(errs...)
}

// Starts yields the windows that a record of time t is in, by their start, ascending.
func (w Time) Starts(t int64) iter.Seq[int64] {
	advance := w.Advance.Milliseconds()
	return func(yield func(int64) bool) {
		for start := w.First(t); yield(start) && start <= t-advance; {
			start += advance
		}
	}
}

// First is the start of the first window that a record of time t is in. The others begin every Advance, up to t.
func (w Time) First(t int64) int64 {
	size, advance := w.Size.Milliseconds(), w.Advance.Milliseconds()
	return max(0, t-size+advance) / advance * advance
}

// Closed reports whether the window that begins at start is closed.
func (w Time) Closed(start, streamTime int64) bool {
	return start <= streamTime-w.Grace.Milliseconds()-w.Size.Milliseconds()
}

// MinRetention is how long a store must keep windows at least: so long may records change them.
func (w Time) MinRetention() time.Duration { return w.Size + w.Grace }

// Forever is how long an unlimited window is.
const Forever = 250 * 365 * 24 * time.Hour

// Unlimited is one window of all records from Start on (upstream's UnlimitedWindows). It is never closed. Where a window has to have an end
// it is Forever later.
type Unlimited struct {
	// Start in Unix milliseconds. Older records are in no window.
	Start int64
}

// Validate reports what is wrong.
func (w Unlimited) Validate() error {
	if w.Start < 0 {
		return fmt.Errorf("start %d: want at least 0", w.Start)
	}
	return nil
}

// MinRetention is how long a store must keep the window at least.
func (w Unlimited) MinRetention() time.Duration { return Forever }

// later is d after t, at most the end of time: a record may bear any.
func later(t int64, d time.Duration) int64 {
	if ms := d.Milliseconds(); t <= math.MaxInt64-ms {
		return t + ms
	}
	return math.MaxInt64
}

// whole checks a length of time: in whole milliseconds, and at least so long.
func whole(name string, d, least time.Duration) error {
	switch {
	case d < least:
		return fmt.Errorf("%s %s: want at least %s", name, d, least)
	case d%time.Millisecond != 0:
		return fmt.Errorf("%s %s: want whole milliseconds", name, d)
	}
	return nil
}
