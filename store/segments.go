package store

import (
	"fmt"
	"math"
	"time"
)

// minSegment is the shortest segment that is chosen by itself (upstream's Stores).
const minSegment = time.Minute

// maxSegments bounds how many segments of a store are alive: a scan over all keys has an iterator open on each.
const maxSegments = 1000

// SegmentOf is the number of the segment of time t (upstream's Segments.segmentId).
func SegmentOf(t int64, interval time.Duration) int64 { return t / interval.Milliseconds() }

// Segment is the segment interval of a window, session or versioned store: the one declared, or upstream's default.
func (s Spec) Segment() time.Duration {
	switch r := s.Retention; {
	case s.SegmentInterval > 0:
		return s.SegmentInterval
	case s.Kind != KindVersioned:
		return max(r/2, minSegment)
	case r <= time.Minute: // RocksDbVersionedKeyValueBytesStoreSupplier
		return max(whole(r/3), 2*time.Second)
	case r <= 5*time.Minute:
		return max(whole(r/5), 20*time.Second)
	case r <= time.Hour:
		return max(whole(r/12), time.Minute)
	default:
		return max(whole(r/24), 5*time.Minute)
	}
}

// whole cuts d to milliseconds.
func whole(d time.Duration) time.Duration { return d.Truncate(time.Millisecond) }

// Validate says what is wrong with the times of a store: each kind has its own, and takes no others. Upstream's rules
// (Stores), and whole milliseconds, for that is what time is counted in.
func (s Spec) Validate() error {
	for _, f := range []struct {
		name  string
		value time.Duration
	}{{"retention", s.Retention}, {"window size", s.WindowSize}, {"segment interval", s.SegmentInterval}} {
		if f.value < 0 {
			return fmt.Errorf("%s %s is negative", f.name, f.value)
		}
		if f.value%time.Millisecond != 0 {
			return fmt.Errorf("%s %s is not in whole milliseconds", f.name, f.value)
		}
	}
	switch s.Kind {
	case KindKeyValue, KindTimestampedKeyValue:
		if s.Retention != 0 || s.WindowSize != 0 || s.SegmentInterval != 0 {
			return fmt.Errorf("a %s store has no retention, window size or segment interval", s.Kind)
		}
	case KindWindow, KindTimestampedWindow:
		if s.WindowSize == 0 {
			return fmt.Errorf("a %s store needs a window size", s.Kind)
		}
		if s.Retention < s.WindowSize {
			return fmt.Errorf("retention %s is below the window size %s", s.Retention, s.WindowSize)
		}
	case KindSession:
		if s.WindowSize != 0 {
			return fmt.Errorf("a %s store has no window size", s.Kind)
		}
		if s.Retention == 0 {
			return fmt.Errorf("a %s store needs a retention", s.Kind)
		}
	case KindVersioned:
		if s.WindowSize != 0 {
			return fmt.Errorf("a %s store has no window size", s.Kind)
		}
		if s.Retention == 0 {
			return fmt.Errorf("a %s store needs a retention of its history", s.Kind)
		}
		if s.Caching {
			return fmt.Errorf("a %s store has no record cache: each put is a version of its own", s.Kind)
		}
	default:
		return fmt.Errorf("kind %d is unknown", s.Kind)
	}
	if s.RetainDuplicates && s.Kind != KindWindow && s.Kind != KindTimestampedWindow {
		return fmt.Errorf("a %s store keeps no duplicates", s.Kind)
	}
	if s.SegmentInterval > 0 && s.Retention/s.SegmentInterval > maxSegments {
		return fmt.Errorf("segment interval %s cuts a retention of %s into more than %d segments", s.SegmentInterval, s.Retention, maxSegments)
	}
	return nil
}

// WindowEnd is the exclusive end of the window of this store that starts at start, at most MaxInt64 (upstream's
// WindowKeySchema.timeWindowForSize).
func (s Spec) WindowEnd(start int64) int64 {
	if size := s.WindowSize.Milliseconds(); start <= math.MaxInt64-size {
		return start + size
	}
	return math.MaxInt64
}
