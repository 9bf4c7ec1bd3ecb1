package wire

import (
	"github.com/statemesh/statemesh/internal/suspect"
	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/store"
)

// ToSubject reads whom a request of the MeshService is about.
func ToSubject(m interface {
	GetInstance() string
	GetIncarnation() string
},
) (suspect.Subject, error) {
	s := suspect.Subject{Instance: m.GetInstance(), Incarnation: m.GetIncarnation()}
	if s.Instance == "" || s.Incarnation == "" {
		return s, &store.InvalidRequestError{Field: "instance", Reason: "give the id and the incarnation"}
	}
	return s, nil
}

// FromSighting makes the answer of instance by.
func FromSighting(s suspect.Sighting, by string) *statemeshv1.SuspectResponse {
	m := &statemeshv1.SuspectResponse{AnsweredBy: by, Sighting: statemeshv1.Sighting_SIGHTING_UNKNOWN}
	switch s.Kind {
	case suspect.Alive:
		m.Sighting, m.Incarnation = statemeshv1.Sighting_SIGHTING_ALIVE, s.Incarnation
	case suspect.Refused:
		m.Sighting = statemeshv1.Sighting_SIGHTING_REFUSED
	case suspect.Unreachable:
		m.Sighting = statemeshv1.Sighting_SIGHTING_UNREACHABLE
	case suspect.Unknown:
	}
	return m
}

// ToSighting reads the answer. What a later version may say is unknown to this one, and so is a life without a name.
func ToSighting(m *statemeshv1.SuspectResponse) (suspect.Sighting, string) {
	s := suspect.Sighting{}
	switch m.GetSighting() {
	case statemeshv1.Sighting_SIGHTING_ALIVE:
		if m.GetIncarnation() != "" {
			s = suspect.Sighting{Kind: suspect.Alive, Incarnation: m.GetIncarnation()}
		}
	case statemeshv1.Sighting_SIGHTING_REFUSED:
		s.Kind = suspect.Refused
	case statemeshv1.Sighting_SIGHTING_UNREACHABLE:
		s.Kind = suspect.Unreachable
	default:
	}
	return s, m.GetAnsweredBy()
}
