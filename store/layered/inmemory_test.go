package layered_test

import (
	"errors"
	"testing"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

// TestInMemory: no directory, nothing that outlives the stores, and the limits of a disk, so that what would be refused there is here.
func TestInMemory(t *testing.T) {
	t.Parallel()
	ctx, id := t.Context(), store.TaskID{Partition: 1}
	specs := []store.Spec{{Name: "s", Kind: store.KindKeyValue}, {Name: "m", Kind: store.KindKeyValue, InMemory: true}}
	stores, err := layered.Open(ctx, layered.Config{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	task, err := stores.OpenTask(ctx, id, specs)
	if err != nil {
		t.Fatal(err)
	}
	s, err := task.KeyValue("s")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Put([]byte("k"), store.Value{Data: []byte("v")}); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(make([]byte, 70_000), store.Value{Data: []byte("v")}); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("a key that no disk takes: %v", err)
	}
	m, err := task.KeyValue("m")
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Put(make([]byte, 70_000), store.Value{Data: []byte("v")}); err != nil {
		t.Errorf("a key of a store in memory: %v", err)
	}
	positions := map[store.Name]store.LogPosition{"s": {Next: 1}, "m": {Next: 1}}
	task.Commit(store.Checkpoint{Sequence: 1, Changelogs: positions})
	if err := layered.MoveNow(stores, task); err != nil {
		t.Fatal(err)
	}
	if v, err := s.Get([]byte("k")); err != nil || string(v.Data) != "v" {
		t.Errorf("after a move: %q, %v", v.Data, err)
	}
	if held := stores.Held(); len(held) != 1 || held[0].ID != id {
		t.Errorf("held %v", held)
	}
	if err := errors.Join(task.Close(ctx), stores.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := layered.Open(ctx, layered.Config{}); err == nil {
		t.Error("stores on a disk need a directory")
	}
}
