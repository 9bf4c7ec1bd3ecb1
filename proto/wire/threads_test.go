package wire

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// TestThreads: the list comes as it was sent, each state under its name; one of a later version is unknown.
func TestThreads(t *testing.T) {
	t.Parallel()
	states := []router.ThreadState{router.ThreadStarting, router.ThreadRebalancing, router.ThreadRunning, router.ThreadLeaving}
	if len(states) != len(statemeshv1.ThreadState_name)-1 {
		t.Errorf("%d states are sent, %d are known", len(states), len(statemeshv1.ThreadState_name)-1)
	}
	for _, s := range states {
		want := []router.Thread{{Name: "stream-thread-7", State: s, Tasks: []store.TaskID{{Subtopology: 1, Partition: 2}}}, {Name: "b", State: s}}
		m := reread(t, FromThreads(want, 9, "a"), &statemeshv1.ListThreadsResponse{})
		got, limit := ToThreads(m)
		if !reflect.DeepEqual(got, want) || limit != 9 || m.GetAnsweredBy() != "a" {
			t.Errorf("got %+v, at most %d, of %q", got, limit, m.GetAnsweredBy())
		}
		if name := m.GetThreads()[0].GetState().String(); name != "THREAD_STATE_"+strings.ToUpper(s.String()) {
			t.Errorf("%s is sent as %s", s, name)
		}
	}
	got, _ := ToThreads(&statemeshv1.ListThreadsResponse{Threads: []*statemeshv1.StreamThread{{State: 99}}})
	if got[0].State != router.ThreadUnknown {
		t.Errorf("a state of a later version is %s", got[0].State)
	}
}

// TestThreadRefusals: each comes back as the same error with its facts; other errors are no refusals.
func TestThreadRefusals(t *testing.T) {
	t.Parallel()
	limit := &router.ThreadLimitError{Threads: 3, Limit: 4, MemoryLimit: 5}
	all := []error{nil, limit, router.ErrLastThread, router.ErrThreadLingers}
	if len(all) != len(statemeshv1.ThreadRefusal_name) {
		t.Errorf("%d are sent, %d are known", len(all), len(statemeshv1.ThreadRefusal_name))
	}
	for _, want := range all {
		err := want
		if err != nil {
			err = fmt.Errorf("add: %w", want)
		}
		r, facts, ok := FromThreadRefusal(err)
		got := ToThreadRefusal(r, facts)
		if e, is := errors.AsType[*router.ThreadLimitError](got); is {
			ok = ok && *e == *limit
		} else {
			ok = ok && errors.Is(got, want)
		}
		if !ok {
			t.Errorf("%v is read as %v", want, got)
		}
	}
	if r, _, ok := FromThreadRefusal(store.ErrShuttingDown); ok {
		t.Errorf("an error of the call is refusal %s", r)
	}
	if err := ToThreadRefusal(99, nil); err == nil {
		t.Error("one of a later version is none")
	}
}
