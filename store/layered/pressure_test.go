package layered_test

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

// TestRecentBytesHold: however many tasks write, their recent tables keep within RecentBytes and one commit of each writer; the
// values are there; and tasks that rest give everything back.
func TestRecentBytesHold(t *testing.T) {
	for _, tt := range []struct{ tasks, commitRows int }{{1, 50}, {40, 50}, {40, 1000}} {
		tasks, commitRows := tt.tasks, tt.commitRows
		t.Run(fmt.Sprintf("%d tasks, commits of %d rows", tasks, commitRows), func(t *testing.T) {
			const limit, valueBytes = 1 << 20, 200
			s := openStores(t, layered.Config{Dir: t.TempDir(), RecentBytes: limit, MoveInterval: time.Hour})
			spec := []store.Spec{{Name: "counts", Kind: store.KindKeyValue, NoChangelog: true}}
			var open []*layered.Task
			var kvs []store.KeyValue
			for p := range tasks {
				task, err := s.OpenTask(t.Context(), store.TaskID{Partition: store.Partition(p)}, spec)
				if err != nil {
					t.Fatal(err)
				}
				kv, err := task.KeyValue("counts")
				if err != nil {
					t.Fatal(err)
				}
				open, kvs = append(open, task), append(kvs, kv)
			}
			const rows = 40_000
			value := make([]byte, valueBytes)
			most := int64(0)
			for i := 0; i < rows; i += commitRows {
				w := i / commitRows % tasks
				for j := range commitRows {
					if err := kvs[w].Put(binary.BigEndian.AppendUint32(nil, uint32(i+j)), store.Value{Data: value}); err != nil {
						t.Fatal(err)
					}
				}
				open[w].Commit(store.Checkpoint{Sequence: store.Sequence(i + 1)})
				most = max(most, s.RecentBytes())
			}
			if one := int64(commitRows) * 2 * (valueBytes + 200); most > limit+one {
				t.Errorf("recent commits took %d bytes, want at most %d and one commit", most, limit)
			}
			if most < limit/4 {
				t.Errorf("recent commits took %d bytes of %d: they moved for no reason", most, limit)
			}
			for i := range rows {
				v, err := kvs[i/commitRows%tasks].Get(binary.BigEndian.AppendUint32(nil, uint32(i)))
				if err != nil || len(v.Data) != valueBytes {
					t.Fatalf("row %d: %d bytes, %v", i, len(v.Data), err)
				}
			}
			for _, task := range open {
				if err := task.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if have := s.RecentBytes(); have != 0 {
				t.Errorf("%d bytes are counted with no task open", have)
			}
		})
	}
}

// TestMovedTablesGo: what has moved to the engine leaves the memory as soon as nobody reads it, also of a task that rests.
func TestMovedTablesGo(t *testing.T) {
	for _, tt := range []struct {
		name string
		// after happens with a commit and its reader there, and ends with the commit moved and the reader closed.
		after func(*testing.T, *layered.Stores, *layered.Task, *layered.Snapshot)
	}{
		{"a move", func(t *testing.T, s *layered.Stores, task *layered.Task, snap *layered.Snapshot) {
			snap.Close()
			moveNow(t, s, task)
		}},
		{"the last reader", func(t *testing.T, s *layered.Stores, task *layered.Task, snap *layered.Snapshot) {
			moveNow(t, s, task)
			snap.Close()
		}},
		{"the last iterator", func(t *testing.T, s *layered.Stores, task *layered.Task, snap *layered.Snapshot) {
			r, err := snap.KeyValue("d")
			if err != nil {
				t.Fatal(err)
			}
			it, err := r.Scan(t.Context(), store.Scan{})
			if err != nil {
				t.Fatal(err)
			}
			snap.Close()
			moveNow(t, s, task)
			it.Close()
		}},
		{"the commit of a writer that began before the move", func(t *testing.T, s *layered.Stores, task *layered.Task, snap *layered.Snapshot) {
			snap.Close()
			set(t, task, "d", "b", "2")
			moveNow(t, s, task)
			task.Commit(checkpoint(2, "d"))
		}},
		{"its rollback", func(t *testing.T, s *layered.Stores, task *layered.Task, snap *layered.Snapshot) {
			snap.Close()
			set(t, task, "d", "b", "2")
			moveNow(t, s, task)
			task.Rollback()
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := openStores(t, layered.Config{Dir: t.TempDir(), MoveBytes: 100}) // a table is full with one row
			task := openTask(t, s, task0, disk)
			set(t, task, "d", "a", "1")
			kept := layered.RecentTable(t, task, "d")
			task.Commit(checkpoint(1, "d"))
			snap, err := task.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			tt.after(t, s, task, snap)
			for deadline := time.Now().Add(20 * time.Second); kept() && time.Now().Before(deadline); {
				runtime.GC()
			}
			if kept() {
				t.Error("the table that has moved is still there")
			}
			runtime.KeepAlive(task)
		})
	}
}

// TestOneBusyTaskAmongMany: tasks that hold nothing take nothing from the one that does.
func TestOneBusyTaskAmongMany(t *testing.T) {
	s := openStores(t, layered.Config{Dir: t.TempDir(), RecentBytes: 8 << 20, MoveInterval: time.Hour})
	spec := []store.Spec{{Name: "counts", Kind: store.KindKeyValue, NoChangelog: true}}
	var busy *layered.Task
	for p := range 100 {
		task, err := s.OpenTask(t.Context(), store.TaskID{Partition: store.Partition(p)}, spec)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = task.Close(t.Context()) })
		busy = task
	}
	kv, err := busy.KeyValue("counts")
	if err != nil {
		t.Fatal(err)
	}
	value := make([]byte, 100)
	for i := range 8_000 { // some 2 MiB, a quarter of all
		if err := kv.Put(binary.BigEndian.AppendUint32(nil, uint32(i)), store.Value{Data: value}); err != nil {
			t.Fatal(err)
		}
		if i%100 == 99 {
			busy.Commit(store.Checkpoint{Sequence: store.Sequence(i)})
		}
	}
	if have := s.RecentBytes(); have < 8_000*100 {
		t.Errorf("%d bytes are recent, want all of it: nobody else needs the room", have)
	}
}
