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

// GN-15: who waits at an owner is told when the task has left, also if the copy that it left is followed by then.
func TestWaitEndsAtACopyThatWasAnOwner(t *testing.T) {
	t.Parallel()
	built, err := source().AddStateStore(store.Spec{Name: "st", Kind: store.KindKeyValue}, "p").Build("app")
	if err != nil {
		t.Fatal(err)
	}
	r := &Runtime{built: built, tasks: newRegistry(time.Now), now: time.Now, table: router.NewTable(), state: newStateBox(func(_, _ State) {})}
	stores, err := layered.Open(t.Context(), layered.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stores.Close() })
	state, err := stores.OpenTask(t.Context(), store.TaskID{}, built.StoreSpecs(0))
	if err != nil {
		t.Fatal(err)
	}
	state.Commit(store.Checkpoint{Changelogs: map[store.Name]store.LogPosition{"st": {Next: 3}}, StreamTime: -1})
	e := &entryTask{state: state, serving: true, age: newAge(time.Now, time.Hour, nil), read: new(readSoFar), mark: new(watermark)}
	e.age.confirm(time.Now())
	r.tasks.entries[store.TaskID{}] = e
	w := waiting{r: r, bs: built.stores["st"], opts: store.ReadOptions{AtLeast: store.Token{Inputs: store.Position{"in": {0: 1}}}}}
	if _, err := w.look(t.Context()); !is[*store.BehindError](err) {
		t.Fatalf("at the owner: %v", err)
	}
	e.serving, e.age, e.thread, e.replica = false, nil, followed, &replica{since: time.Now()}
	if _, err := w.look(t.Context()); !is[*store.NotReadyError](err) { // there is no map that would name the new one
		t.Errorf("at what it left: %v", err)
	}
	w = waiting{r: r, bs: w.bs, opts: w.opts}
	if _, err := w.look(t.Context()); !is[*store.BehindError](err) {
		t.Errorf("who came to the copy waits for it: %v", err)
	}
}
