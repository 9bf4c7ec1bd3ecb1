package processor

import (
	"errors"
	"testing"
	"time"

	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

// TestReadPartial: a copy that is being restored answers who accepts what it has so far, and nobody else.
func TestReadPartial(t *testing.T) {
	t.Parallel()
	built, err := source().AddStateStore(store.Spec{Name: "st", Kind: store.KindKeyValue}, "p").Build("app")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	r := &Runtime{
		built: built, tasks: newRegistry(time.Now), now: func() time.Time { return now }, table: router.NewTable(), state: newStateBox(func(_, _ State) {}),
	}
	stores, err := layered.Open(t.Context(), layered.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stores.Close() })
	id := store.TaskID{}
	state, err := stores.OpenTask(t.Context(), id, r.built.StoreSpecs(0))
	if err != nil {
		t.Fatal(err)
	}
	if err := state.Restore("st", []store.Change{{Key: []byte("k"), Value: []byte("v")}}); err != nil {
		t.Fatal(err)
	}
	log := map[store.Name]store.LogPosition{"st": {Next: 3}}
	state.Commit(store.Checkpoint{Changelogs: log, Restoring: true, StreamTime: -1})
	e := &entryTask{id: id, state: state, read: new(readSoFar), mark: new(watermark)}
	r.tasks.entries[id] = e
	r.tasks.progress(id, 3, 10, 5*time.Second)
	read := func(o store.ReadOptions) (store.Facts, error) {
		rd, err := r.Read(t.Context(), "st", 0, o)
		if err != nil {
			return store.Facts{}, err
		}
		defer rd.Close()
		kv, err := rd.KeyValue()
		if err != nil {
			t.Fatal(err)
		}
		if v, err := kv.Get(t.Context(), []byte("k")); err != nil || string(v.Data) != "v" {
			t.Errorf("what was restored: %q, %v", v.Data, err)
		}
		if _, err := kv.Get(t.Context(), []byte("l")); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("what was not: %v", err)
		}
		return rd.Facts(), nil
	}
	refused := func(why string, o store.ReadOptions) {
		t.Helper()
		_, err := read(o)
		if e, ok := errors.AsType[*store.NotReadyError](err); !ok || e.Reason != reasonRestoring || e.Restored != 3 || e.Total != 10 || e.Left != 5*time.Second {
			t.Errorf("%s: %v", why, err)
		}
	}
	partial := store.ReadOptions{Partial: true}
	refused("who does not accept it", store.ReadOptions{})
	refused("a bound that is not proven", store.ReadOptions{Partial: true, MaxAge: time.Hour})
	refused("a token", store.ReadOptions{Partial: true, AtLeast: store.Token{Inputs: store.Position{"in": {0: 1}}}})
	f, err := read(partial)
	if err != nil || f.Role != store.RoleActive || f.Age != -1 || !f.Token.Empty() || f.Partial == nil ||
		*f.Partial != (store.Partial{Restored: 3, Total: 10, Left: 5 * time.Second, StreamTime: -1}) {
		t.Fatalf("%+v, %v", f, err)
	}
	if _, err := read(store.ReadOptions{Partial: true, OnlyActive: true}); err != nil {
		t.Errorf("the owner's own: %v", err)
	}
	// It was whole three seconds ago: what had been committed by then is in it, or what came later.
	e.replica = &replica{since: now.Add(-3 * time.Second)}
	if f, err := read(store.ReadOptions{Partial: true, MaxAge: time.Minute}); err != nil || f.Age != 3*time.Second || f.Partial == nil {
		t.Errorf("%+v, %v", f, err)
	}
	refused("a bound below that", store.ReadOptions{Partial: true, MaxAge: time.Second})
	// The same of a copy that is followed, for who does not insist on the owner.
	e.thread = followed
	if f, err := read(partial); err != nil || f.Role != store.RoleStandby || f.Partial == nil {
		t.Errorf("%+v, %v", f, err)
	}
	if _, err := read(store.ReadOptions{Partial: true, OnlyActive: true}); err == nil {
		t.Error("a copy answered who insists on the owner")
	}
	// What was taken away answers nobody with less than a state that was.
	e.thread, e.hidden = 0, true
	if _, err := read(partial); err == nil {
		t.Error("what a former owner was restoring answered")
	}
	// Once it is whole it is nothing partial.
	e.thread, e.hidden, e.replica = followed, false, &replica{since: now.Add(-time.Second)}
	state.Commit(store.Checkpoint{Changelogs: log, StreamTime: -1})
	if f, err := read(partial); err != nil || f.Partial != nil || f.Token.Empty() || f.Age != time.Second {
		t.Errorf("%+v, %v", f, err)
	}
}
