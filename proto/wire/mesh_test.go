package wire

import (
	"testing"

	"github.com/statemesh/statemesh/internal/suspect"
	"github.com/statemesh/statemesh/proto/statemesh/v1"
)

func TestSightingRoundTrip(t *testing.T) {
	t.Parallel()
	for _, want := range []suspect.Sighting{
		{Kind: suspect.Unknown}, {Kind: suspect.Alive, Incarnation: "2"}, {Kind: suspect.Refused}, {Kind: suspect.Unreachable},
	} {
		got, by := ToSighting(FromSighting(want, "a"))
		if got != want || by != "a" {
			t.Errorf("%+v became %+v by %q", want, got, by)
		}
	}
	for name, m := range map[string]*statemeshv1.SuspectResponse{
		"nothing":             {},
		"of a later version":  {Sighting: 99, Incarnation: "1"},
		"alive, nobody known": {Sighting: statemeshv1.Sighting_SIGHTING_ALIVE},
	} {
		if got, _ := ToSighting(m); got.Kind != suspect.Unknown {
			t.Errorf("%s: %+v, want nothing known", name, got)
		}
	}
}

func TestSubjectIsWhole(t *testing.T) {
	t.Parallel()
	if s, err := ToSubject(&statemeshv1.SuspectRequest{Instance: "a", Incarnation: "1"}); err != nil || s != (suspect.Subject{Instance: "a", Incarnation: "1"}) {
		t.Errorf("%+v, %v", s, err)
	}
	for _, m := range []*statemeshv1.RejoinRequest{{}, {Instance: "a"}, {Incarnation: "1"}, nil} {
		if _, err := ToSubject(m); err == nil {
			t.Errorf("%v: no error", m)
		}
	}
}
