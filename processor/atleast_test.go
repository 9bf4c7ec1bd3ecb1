package processor

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

// TestWaitThatIsOverAtOnce: the first look is not bounded by the wait, so the time may be over before there is anything to
// wait for: then the reader is told what the look has found.
func TestWaitThatIsOverAtOnce(t *testing.T) {
	t.Parallel()
	built, err := source().AddStateStore(store.Spec{Name: "st", Kind: store.KindKeyValue}, "p").Build("app")
	if err != nil {
		t.Fatal(err)
	}
	r := &Runtime{built: built, tasks: newRegistry(time.Now), now: time.Now, table: router.NewTable(), state: newStateBox(func(_, _ State) {})}
	id := store.TaskID{}
	if _, err := r.tasks.claim(t.Context(), id, 0, nil, func(context.Context) (*layered.Task, error) { return nil, nil }); err != nil {
		t.Fatal(err)
	}
	token := store.Token{Inputs: store.Position{"in": {0: 1}}}
	_, err = r.Read(t.Context(), "st", 0, store.ReadOptions{AtLeast: token, Wait: time.Nanosecond})
	if e, ok := errors.AsType[*store.NotReadyError](err); !ok || e.Reason != reasonStarting {
		t.Errorf("a task that is being opened: %v", err)
	}
}
