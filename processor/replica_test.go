package processor

import (
	"testing"
	"time"

	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

// TestUnloggedIsTheOwnersAlone: what is in no log is as old as when its owner left it, however long the copy is followed; a standby
// that never owned the task has none of it, and says so.
func TestUnloggedIsTheOwnersAlone(t *testing.T) {
	t.Parallel()
	built, err := source().AddStateStore(store.Spec{Name: "st", Kind: store.KindKeyValue}, "p").
		AddStateStore(store.Spec{Name: "un", Kind: store.KindKeyValue, NoChangelog: true}, "p").Build("app")
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
	state, err := stores.OpenTask(t.Context(), store.TaskID{}, r.built.StoreSpecs(0))
	if err != nil {
		t.Fatal(err)
	}
	state.Commit(store.Checkpoint{Changelogs: map[store.Name]store.LogPosition{"st": {Next: 3}}, StreamTime: -1})
	e := &entryTask{state: state, thread: followed, read: new(readSoFar), mark: new(watermark)}
	r.tasks.entries[store.TaskID{}] = e
	age := func(name store.Name) time.Duration {
		rd, err := r.Read(t.Context(), name, 0, store.ReadOptions{})
		if isUnproven(err) {
			return -1
		}
		if err != nil {
			t.Fatal(err)
		}
		defer rd.Close()
		return rd.Facts().Age
	}
	cp := state.Checkpoint()
	for what, tt := range map[string]struct {
		before           *replica
		logged, unlogged time.Duration
	}{
		"nothing is known":        {nil, -1, -1},
		"it was followed before":  {&replica{since: now.Add(-time.Second)}, time.Second, -1},
		"it was owned, and since": {&replica{since: now.Add(-time.Second), owned: now.Add(-time.Minute)}, time.Second, time.Minute},
	} {
		next := tt.before.goOn(&cp, nil)
		e.replica = &next
		if logged, unlogged := age("st"), age("un"); logged != tt.logged || unlogged != tt.unlogged {
			t.Errorf("%s: ages %s and %s, want %s and %s", what, logged, unlogged, tt.logged, tt.unlogged)
		}
	}
}
