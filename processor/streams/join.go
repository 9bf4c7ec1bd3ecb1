package streams

import (
	"slices"
	"time"

	"github.com/statemesh/statemesh/store"
)

// Maybe is a side of a left or outer join: OK says that there is a value.
type Maybe[T any] struct {
	Value T
	OK    bool
}

// JoinWindows says which records of two streams meet (upstream's JoinWindows): one of the left stream with time t meets those of the right
// stream with the same key from t-Before to t+After, both inclusive. Before or After may be negative, their sum may not. In whole
// milliseconds.
type JoinWindows struct {
	Before, After time.Duration
	// Grace is how long after a window its records may still come, in stream time. What comes later finds no records that it could
	// meet, and is dropped and counted.
	Grace time.Duration
}

// Within is a window of d before and d after, without grace (upstream's ofTimeDifferenceWithNoGrace).
func Within(d time.Duration) JoinWindows { return JoinWindows{Before: d, After: d} }

// size is how far apart the first and the last record that meet one can be.
func (w JoinWindows) size() time.Duration { return w.Before + w.After }

// reason says what is wrong, empty when nothing is.
func (w JoinWindows) reason() string {
	switch {
	case w.size() < 0:
		return "a window ends before it begins: Before and After are below 0 together"
	case w.Grace < 0:
		return "Grace is negative"
	case w.Before%time.Millisecond != 0 || w.After%time.Millisecond != 0 || w.Grace%time.Millisecond != 0:
		return "Before, After and Grace are whole milliseconds"
	default:
		return ""
	}
}

// repartitionedAs is the stream with all records of a key in one task, through a topic of this name when keys may have changed. Joins
// of one stream that name the topic alike share it.
func (s *Stream[K, V]) repartitionedAs(name string) *Stream[K, V] {
	if !s.rekeyed {
		return s
	}
	id := s.node.name + "/" + name
	if known, ok := s.b.shared[id].(*Stream[K, V]); ok {
		s.b.skip(3) // as if it were made again, as upstream does
		return known
	}
	r := s.through(name, options{})
	s.b.shared[id] = r
	return r
}

// skip uses up positions.
func (b *Builder) skip(n int) { b.index += n }

// suffixed is the name that was given with a suffix, or the next by position, which is used up in either case.
func (b *Builder) suffixed(given, suffix, prefix string) string {
	if given != "" {
		given += suffix
	}
	return b.nameOr(given, prefix)
}

// union of two lists of stores, in their order.
func union(a, b []store.Name) []store.Name {
	all := slices.Clone(a)
	for _, name := range b {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}
