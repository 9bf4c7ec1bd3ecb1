package layered_test

import (
	"errors"
	"testing"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

func TestSmoke(t *testing.T) {
	s, err := layered.Open(t.Context(), layered.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	tk, err := s.OpenTask(t.Context(), store.TaskID{}, []store.Spec{{Name: "a", Kind: store.KindTimestampedKeyValue}, {Name: "m", Kind: store.KindKeyValue, InMemory: true}})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []store.Name{"a", "m"} {
		kv, _ := tk.KeyValue(n)
		if err := kv.Put([]byte("k"), store.Value{Data: []byte("v"), Timestamp: 7}); err != nil {
			t.Fatal(err)
		}
	}
	for n, c := range tk.Changes() {
		t.Log(n, c)
	}
	tk.Commit(store.Checkpoint{Sequence: 1, Changelogs: map[store.Name]store.LogPosition{"a": {Next: 1}, "m": {Next: 1}}})
	snap, err := tk.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if err := tk.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, n := range []store.Name{"a", "m"} {
		r, err := snap.KeyValue(n)
		if err != nil {
			t.Fatal(err)
		}
		v, err := r.Get(t.Context(), []byte("k"))
		t.Log(v, err)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Get(t.Context(), []byte("q")); !errors.Is(err, store.ErrNotFound) {
			t.Fatal(err)
		}
	}
	snap.Close()
	t.Log(s.Held())
	tk, err = s.OpenTask(t.Context(), store.TaskID{}, []store.Spec{{Name: "a", Kind: store.KindTimestampedKeyValue}, {Name: "m", Kind: store.KindKeyValue, InMemory: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(tk.Checkpoint())
	kv, _ := tk.KeyValue("a")
	if v, err := kv.Get([]byte("k")); err != nil || v.Timestamp != 7 {
		t.Fatal(v, err)
	}
	it, err := kv.Scan(store.Scan{})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for it.Next() {
		n++
	}
	if n != 1 || it.Err() != nil {
		t.Fatal(n, it.Err())
	}
	it.Close()
	if err := tk.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
