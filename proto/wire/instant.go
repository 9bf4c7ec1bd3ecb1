package wire

import (
	"fmt"
	"math"

	"google.golang.org/protobuf/proto"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/store"
)

// InstantOf says what an [Instant] is.
type InstantOf uint8

// The instants. NoInstant is that of a key-value store, and the latest version in a versioned one.
const (
	NoInstant InstantOf = iota
	WindowInstant
	SessionInstant
	AsOfInstant
)

// Instant says which of the values of a key is meant. Comparable.
type Instant struct {
	Of InstantOf
	// Start in Unix milliseconds: of the window, of the session, or the moment at which the version was valid.
	Start int64
	// End of the session, inclusive.
	End int64
}

// FromInstant makes the message; nil for NoInstant.
func FromInstant(i Instant) *statemeshv1.Instant {
	switch i.Of {
	case WindowInstant:
		return &statemeshv1.Instant{Of: &statemeshv1.Instant_WindowStartMs{WindowStartMs: i.Start}}
	case SessionInstant:
		return &statemeshv1.Instant{Of: &statemeshv1.Instant_Session{
			Session: &statemeshv1.SessionBounds{StartMs: i.Start, EndMs: i.End},
		}}
	case AsOfInstant:
		return &statemeshv1.Instant{Of: &statemeshv1.Instant_AsOfMs{AsOfMs: i.Start}}
	default:
		return nil
	}
}

// ToInstant reads the message, which a caller sent.
func ToInstant(m *statemeshv1.Instant) (Instant, error) {
	if m == nil {
		return Instant{}, nil
	}
	if err := known("instant", m); err != nil {
		return Instant{}, err
	}
	switch of := m.GetOf().(type) {
	case *statemeshv1.Instant_WindowStartMs:
		if of.WindowStartMs < 0 {
			return Instant{}, invalid("instant.window_start_ms", "negative")
		}
		return Instant{Of: WindowInstant, Start: of.WindowStartMs}, nil
	case *statemeshv1.Instant_Session:
		s := of.Session
		if err := known("instant.session", s); err != nil {
			return Instant{}, err
		}
		if s.GetStartMs() < 0 || s.GetEndMs() < s.GetStartMs() {
			return Instant{}, invalid("instant.session", "want 0 <= start <= end")
		}
		return Instant{Of: SessionInstant, Start: s.GetStartMs(), End: s.GetEndMs()}, nil
	case *statemeshv1.Instant_AsOfMs:
		if of.AsOfMs < 0 {
			return Instant{}, invalid("instant.as_of_ms", "negative")
		}
		return Instant{Of: AsOfInstant, Start: of.AsOfMs}, nil
	default:
		return Instant{}, invalid("instant", "neither a window, nor a session, nor a moment")
	}
}

// Span is the time that a row is about, in Unix milliseconds: see [store.Entry].
type Span struct{ Start, End int64 }

// FromSpan makes the message.
func FromSpan(s Span) *statemeshv1.Span {
	m := &statemeshv1.Span{StartMs: s.Start}
	if s.End != store.NoEnd {
		m.EndMs = &s.End
	}
	return m
}

// ToSpan reads the message; false when there is none.
func ToSpan(m *statemeshv1.Span) (Span, bool) {
	if m == nil {
		return Span{}, false
	}
	s := Span{Start: m.GetStartMs(), End: store.NoEnd}
	if m.EndMs != nil {
		s.End = m.GetEndMs()
	}
	return s, true
}

// lower and upper are bounds of times that a caller may leave open.
func lower(field string, ms *int64) (int64, error) {
	if ms == nil {
		return 0, nil
	}
	return notNegative(field, *ms)
}

func upper(field string, ms *int64) (int64, error) {
	if ms == nil {
		return math.MaxInt64, nil
	}
	return notNegative(field, *ms)
}

func notNegative(field string, ms int64) (int64, error) {
	if ms < 0 {
		return 0, invalid(field, "negative")
	}
	return ms, nil
}

// ToWindowSelection reads the times of a scan of windows.
func ToWindowSelection(m *statemeshv1.WindowSelection) (s store.WindowScan, err error) {
	if err = known("windows", m); err != nil {
		return s, err
	}
	if s.From, err = lower("windows.start_from_ms", m.StartFromMs); err != nil {
		return s, err
	}
	s.To, err = upper("windows.start_to_ms", m.StartToMs)
	return s, err
}

// FromWindowSelection makes the message; ends that are open are left out.
func FromWindowSelection(s *store.WindowScan) *statemeshv1.WindowSelection {
	return &statemeshv1.WindowSelection{StartFromMs: fromLower(s.From), StartToMs: fromUpper(s.To)}
}

// ToSessionSelection reads the times of a scan of sessions.
func ToSessionSelection(m *statemeshv1.SessionSelection) (s store.SessionScan, err error) {
	if err = known("sessions", m); err != nil {
		return s, err
	}
	if s.EarliestEnd, err = lower("sessions.earliest_end_ms", m.EarliestEndMs); err != nil {
		return s, err
	}
	if s.LatestEnd, err = upper("sessions.latest_end_ms", m.LatestEndMs); err != nil {
		return s, err
	}
	s.LatestStart, err = upper("sessions.latest_start_ms", m.LatestStartMs)
	return s, err
}

// FromSessionSelection makes the message; ends that are open are left out.
func FromSessionSelection(s *store.SessionScan) *statemeshv1.SessionSelection {
	return &statemeshv1.SessionSelection{
		EarliestEndMs: fromLower(s.EarliestEnd), LatestEndMs: fromUpper(s.LatestEnd), LatestStartMs: fromUpper(s.LatestStart),
	}
}

// ToVersionSelection reads the times of a scan of versions.
func ToVersionSelection(m *statemeshv1.VersionSelection) (s store.VersionScan, err error) {
	if err = known("versions", m); err != nil {
		return s, err
	}
	if s.From, err = lower("versions.from_ms", m.FromMs); err != nil {
		return s, err
	}
	s.To, err = upper("versions.to_ms", m.ToMs)
	return s, err
}

// FromVersionSelection makes the message; ends that are open are left out.
func FromVersionSelection(s *store.VersionScan) *statemeshv1.VersionSelection {
	return &statemeshv1.VersionSelection{FromMs: fromLower(s.From), ToMs: fromUpper(s.To)}
}

func fromLower(ms int64) *int64 {
	if ms == 0 {
		return nil
	}
	return &ms
}

func fromUpper(ms int64) *int64 {
	if ms == math.MaxInt64 {
		return nil
	}
	return &ms
}

// known refuses a message with fields that this version does not know: what is asked for is honoured or refused.
func known(field string, m proto.Message) error {
	if n := len(m.ProtoReflect().GetUnknown()); n > 0 {
		return invalid(field, fmt.Sprintf("%d bytes of fields that this server does not know", n))
	}
	return nil
}
