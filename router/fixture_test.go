package router

import (
	"testing"

	"github.com/statemesh/statemesh/store"
)

// fleet is a map of the stores "counts" (sub-topology 0) and "totals" (1), with n partitions each, dealt out in turn to
// the instances; standby of a task is the next instance.
func fleet(epoch Epoch, n int32, ids ...string) Data {
	d := Data{
		Application: "app", Epoch: epoch,
		Stores: []StoreInfo{
			{Name: "totals", Kind: store.KindKeyValue, Subtopology: 1, Partitions: n},
			{Name: "counts", Kind: store.KindTimestampedKeyValue, Partitions: n, KeyFormat: "string", ValueFormat: "int64"},
		},
	}
	for _, id := range ids {
		d.Instances = append(d.Instances, Instance{ID: id, Incarnation: id + "1", Endpoint: id + ":9000"})
	}
	for sub := range int32(2) {
		for p := range n {
			id := store.TaskID{Subtopology: sub, Partition: store.Partition(p)}
			a := &d.Instances[int(p)%len(ids)]
			a.Active = append(a.Active, id)
			if len(ids) > 1 {
				s := &d.Instances[(int(p)+1)%len(ids)]
				s.Standby = append(s.Standby, id)
			}
		}
	}
	return d
}

func mustSnapshot(tb testing.TB, d Data) *Snapshot {
	tb.Helper()
	s, err := NewSnapshot(d)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func task0(p store.Partition) store.TaskID { return store.TaskID{Partition: p} }
