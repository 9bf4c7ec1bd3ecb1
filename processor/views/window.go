package views

import (
	"errors"
	"fmt"
	"time"

	"github.com/statemesh/statemesh/processor/windows"
	"github.com/statemesh/statemesh/store"
)

// Window splits the records of a key by their time: a view keeps one value per key and window. One of Tumbling, Hopping,
// Sliding and Session says how; the zero Window does not split. All are whole milliseconds.
type Window struct {
	// Tumbling is the size of windows that follow one another, the first at 0 (1970): [start, start+size).
	Tumbling time.Duration
	// Hopping is the size of windows of which one begins every Advance: they overlap, and a record is in several.
	Hopping, Advance time.Duration
	// Sliding is how far apart the first and the last record of a window may be. A window ends with each record, and one begins
	// behind it.
	Sliding time.Duration
	// Session is the pause that ends a session: records of a key at most so far apart are in one.
	Session time.Duration

	// Grace is how much longer a window takes records that arrive late, by the time of records. Default 0: what is older
	// than what was seen already may be late.
	Grace time.Duration
	// Retention is how long windows are kept, by the time of records. Default: as long as records may change them, and at
	// least a day.
	Retention time.Duration
}

// minRetention is the default for windows that could be forgotten sooner: somebody wants to look at them.
const minRetention = 24 * time.Hour

// windowing is what a Window says: exactly one is set, or none.
type windowing struct {
	time    *windows.Time
	sliding *windows.Sliding
	session *windows.Session
}

func (w Window) windowing() windowing {
	switch {
	case w.Tumbling != 0:
		t := windows.Tumbling(w.Tumbling, w.Grace)
		return windowing{time: &t}
	case w.Hopping != 0:
		t := windows.Hopping(w.Hopping, w.Advance, w.Grace)
		return windowing{time: &t}
	case w.Sliding != 0:
		return windowing{sliding: &windows.Sliding{Difference: w.Sliding, Grace: w.Grace}}
	case w.Session != 0:
		return windowing{session: &windows.Session{Gap: w.Session, Grace: w.Grace}}
	default:
		return windowing{}
	}
}

// least is how long the windows must be kept.
func (w windowing) least() time.Duration {
	switch {
	case w.time != nil:
		return w.time.MinRetention()
	case w.sliding != nil:
		return w.sliding.MinRetention()
	case w.session != nil:
		return w.session.MinRetention()
	default:
		return 0
	}
}

func (w Window) retention() time.Duration {
	if w.Retention != 0 {
		return w.Retention
	}
	return max(w.windowing().least(), minRetention)
}

// spec sets what the store of the windows is.
func (w Window) spec(s *store.Spec) {
	s.Retention = w.retention()
	switch is := w.windowing(); {
	case is.session != nil:
		s.Kind = store.KindSession
	case is.sliding != nil:
		// Both ends are in a sliding window; the end that a store tells is exclusive.
		s.Kind, s.WindowSize = store.KindTimestampedWindow, is.sliding.Difference+time.Millisecond
	default:
		s.Kind, s.WindowSize = store.KindTimestampedWindow, is.time.Size
	}
}

// problems lists what is wrong, by the name of the setting below "window"; empty for the whole.
func (w Window) problems() []FieldError {
	var found []FieldError
	bad := func(field, format string, args ...any) {
		found = append(found, FieldError{Path: field, Reason: fmt.Sprintf(format, args...)})
	}
	var set []string
	for _, k := range []struct {
		name string
		d    time.Duration
	}{{"tumbling", w.Tumbling}, {"hopping", w.Hopping}, {"sliding", w.Sliding}, {"session", w.Session}} {
		if k.d != 0 {
			set = append(set, k.name)
		}
	}
	switch len(set) {
	case 0:
		bad("", "want one of tumbling, hopping, sliding, session")
	case 1:
	default:
		bad(set[1], "the windows are %s already", set[0])
		return found
	}
	switch {
	case w.Hopping != 0 && w.Advance == 0:
		bad("advance", "hopping windows need it: one begins every so often")
	case w.Hopping == 0 && w.Advance != 0:
		bad("advance", "only hopping windows have one")
	}
	if w.Grace < 0 {
		bad("grace", "%s is negative", w.Grace)
	}
	if w.Retention < 0 {
		bad("retention", "%s is negative", w.Retention)
	}
	if len(found) > 0 {
		return found
	}
	is := w.windowing()
	var err error
	switch {
	case is.time != nil:
		err = is.time.Validate()
	case is.sliding != nil:
		err = is.sliding.Validate()
	default:
		err = is.session.Validate()
	}
	if joined, ok := errors.AsType[interface {
		error
		Unwrap() []error
	}](err); ok {
		for _, e := range joined.Unwrap() {
			bad(set[0], "%v", e)
		}
	}
	switch least := is.least(); {
	case w.Retention%time.Millisecond != 0:
		bad("retention", "%s: want whole milliseconds", w.Retention)
	case w.Retention != 0 && w.Retention < least:
		bad("retention", "%s is below %s, for which records may change a window", w.Retention, least)
	case err == nil && (least < 0 || w.retention() < 0):
		bad(set[0], "the windows and their grace are longer than a duration can hold")
	}
	return found
}
