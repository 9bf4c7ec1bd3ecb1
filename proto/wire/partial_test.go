package wire

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/store"
)

// TestPartialBothWays: a partial answer of which no age is proven is an answer; any other without an age is none. An absence in it
// is told from a proof on either side.
func TestPartialBothWays(t *testing.T) {
	t.Parallel()
	for _, want := range []Answer{
		{Partition: 3, Epoch: 4, Instance: "a", Endpoint: "a:1", Facts: store.Facts{
			Role: store.RoleActive, Position: store.Position{}, Age: -1, Partial: &store.Partial{Restored: 3, Total: 10, Left: time.Second, StreamTime: 8},
		}},
		{Partition: 3, Facts: store.Facts{
			Role: store.RoleStandby, Position: store.Position{}, Age: time.Second, Partial: &store.Partial{StreamTime: -1},
		}},
	} {
		got, err := ToAnswer(reread(t, FromAnswer("s", want), &statemeshv1.Answer{}))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("\n got %+v\nwant %+v\n%v", got, want, err)
		}
		err = FromStatus(ToStatus(&AbsentError{Store: "s", Answer: want}))
		absent, ok := errors.AsType[*AbsentError](err)
		if !ok || !reflect.DeepEqual(absent.Answer, want) || !errors.Is(err, store.ErrNotFound) || !errors.Is(err, store.ErrPartial) {
			t.Errorf("%+v", err)
		}
	}
	whole := Answer{Facts: store.Facts{Role: store.RoleActive, Position: store.Position{}}}
	if err := FromStatus(ToStatus(&AbsentError{Store: "s", Answer: whole})); errors.Is(err, store.ErrPartial) || !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a proof: %v", err)
	}
	m := FromAnswer("s", whole)
	m.Age = nil
	if _, err := ToAnswer(m); !errors.Is(err, ErrMalformed) {
		t.Errorf("an answer of no age: %v", err)
	}
	o := ReadOptions{Partial: true}
	if got, err := ToReadOptions("s", reread(t, FromReadOptions("s", &o), &statemeshv1.ReadOptions{})); err != nil || !reflect.DeepEqual(got, o) {
		t.Errorf("%+v, %v", got, err)
	}
}
