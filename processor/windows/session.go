package windows

import (
	"errors"
	"time"
)

// Session is windows made by activity (upstream's SessionWindows): records of a key at most Gap apart are in one session, from
// the first of them to the last.
type Session struct {
	Gap, Grace time.Duration
}

// Span is a session, both ends inclusive.
type Span struct{ Start, End int64 }

// Validate reports everything that is wrong, joined.
func (w Session) Validate() error {
	return errors.Join(whole("gap", w.Gap, time.Millisecond), whole("grace", w.Grace, 0))
}

// Near is where to look for the sessions that a record of time t joins: their end is at least earliestEnd, their start at most
// latestStart (upstream's findSessions).
func (w Session) Near(t int64) (earliestEnd, latestStart int64) {
	return max(0, t-w.Gap.Milliseconds()), later(t, w.Gap)
}

// Merge is the session of a record of time t and those that it joins.
func (w Session) Merge(t int64, joined []Span) Span {
	s := Span{t, t}
	for _, o := range joined {
		s.Start, s.End = min(s.Start, o.Start), max(s.End, o.End)
	}
	return s
}

// Closed reports whether a session is closed.
func (w Session) Closed(s Span, streamTime int64) bool {
	return s.End < streamTime-w.Grace.Milliseconds()-w.Gap.Milliseconds()
}

// MinRetention is how long a store must keep sessions at least: so long may records join them.
func (w Session) MinRetention() time.Duration { return w.Gap + w.Grace }
