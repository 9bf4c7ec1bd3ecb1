package wire

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// FromSnapshot makes the message of a whole snapshot.
func FromSnapshot(s *router.Snapshot) *statemeshv1.MetadataSnapshot { return FromData(s.Data()) }

// FromData makes the message. Instances, stores and tasks come in order.
func FromData(d router.Data) *statemeshv1.MetadataSnapshot {
	return &statemeshv1.MetadataSnapshot{
		Application: d.Application,
		Epoch:       int64(d.Epoch),
		Instances:   FromInstances(d.Instances),
		Stores:      FromStores(d.Stores),
		Moving:      FromMoving(d.Moving),
	}
}

// ToData reads the message. [router.NewSnapshot] checks whether it makes sense.
func ToData(m *statemeshv1.MetadataSnapshot) (router.Data, error) {
	if m == nil {
		return router.Data{}, malformed("snapshot", "absent")
	}
	return router.Data{
		Application: m.GetApplication(),
		Epoch:       router.Epoch(m.GetEpoch()),
		Instances:   ToInstances(m.GetInstances()),
		Stores:      ToStores(m.GetStores()),
		Moving:      ToMoving(m.GetMoving()),
	}, nil
}

// FromInstances makes the messages, by id.
func FromInstances(in []router.Instance) []*statemeshv1.Instance {
	out := make([]*statemeshv1.Instance, len(in))
	for i, v := range in {
		out[i] = &statemeshv1.Instance{
			Id: v.ID, Incarnation: v.Incarnation, Endpoint: v.Endpoint, Rack: v.Rack,
			Active: fromTasks(v.Active), Standby: fromTasks(v.Standby),
		}
	}
	slices.SortFunc(out, func(a, b *statemeshv1.Instance) int { return cmp.Compare(a.GetId(), b.GetId()) })
	return out
}

// ToInstances reads the messages.
func ToInstances(ms []*statemeshv1.Instance) []router.Instance {
	out := make([]router.Instance, len(ms))
	for i, m := range ms {
		out[i] = router.Instance{
			ID: m.GetId(), Incarnation: m.GetIncarnation(), Endpoint: m.GetEndpoint(), Rack: m.GetRack(),
			Active: toTasks(m.GetActive()), Standby: toTasks(m.GetStandby()),
		}
	}
	return out
}

// FromStores makes the messages, by name.
func FromStores(in []router.StoreInfo) []*statemeshv1.Store {
	out := make([]*statemeshv1.Store, len(in))
	for i, v := range in {
		out[i] = &statemeshv1.Store{
			Name: string(v.Name), Kind: fromKind(v.Kind), Subtopology: v.Subtopology, Partitions: v.Partitions,
			KeyFormat: v.KeyFormat, ValueFormat: v.ValueFormat, SourceTopic: v.SourceTopic,
			RetentionMs: v.Retention.Milliseconds(), WindowSizeMs: v.WindowSize.Milliseconds(), Global: v.Global,
		}
	}
	slices.SortFunc(out, func(a, b *statemeshv1.Store) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return out
}

// ToStores reads the messages. A kind that this version does not know becomes 0: such a store can be listed and routed
// to all the same.
func ToStores(ms []*statemeshv1.Store) []router.StoreInfo {
	out := make([]router.StoreInfo, len(ms))
	for i, m := range ms {
		out[i] = router.StoreInfo{
			Name: store.Name(m.GetName()), Kind: toKind(m.GetKind()), Subtopology: m.GetSubtopology(),
			Partitions: m.GetPartitions(), KeyFormat: m.GetKeyFormat(), ValueFormat: m.GetValueFormat(),
			SourceTopic: m.GetSourceTopic(),
			Retention:   toMillis(m.GetRetentionMs()), WindowSize: toMillis(m.GetWindowSizeMs()), Global: m.GetGlobal(),
		}
	}
	return out
}

// toMillis reads a duration; one that Go cannot hold, 292 years, is cut.
func toMillis(ms int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Millisecond)
	return time.Duration(min(max(ms, 0), most)) * time.Millisecond
}

// FromMoving makes the messages, by task.
func FromMoving(in map[store.TaskID]string) []*statemeshv1.MovingTask {
	out := make([]*statemeshv1.MovingTask, 0, len(in))
	for _, id := range slices.SortedFunc(maps.Keys(in), store.TaskID.Compare) {
		out = append(out, &statemeshv1.MovingTask{Task: fromTask(id), ToInstance: in[id]})
	}
	return out
}

// ToMoving reads the messages; nil when there are none.
func ToMoving(ms []*statemeshv1.MovingTask) map[store.TaskID]string {
	if len(ms) == 0 {
		return nil
	}
	out := make(map[store.TaskID]string, len(ms))
	for _, m := range ms {
		out[toTask(m.GetTask())] = m.GetToInstance()
	}
	return out
}

// FromReplica makes the reference; nil for a replica without an instance.
func FromReplica(r router.Replica) *statemeshv1.InstanceRef {
	return fromInstance(r.Instance, r.Endpoint)
}

func fromTasks(ids []store.TaskID) []*statemeshv1.Task {
	sorted := slices.SortedFunc(slices.Values(ids), store.TaskID.Compare)
	out := make([]*statemeshv1.Task, len(sorted))
	for i, id := range sorted {
		out[i] = fromTask(id)
	}
	return out
}

func toTasks(ms []*statemeshv1.Task) []store.TaskID {
	if len(ms) == 0 {
		return nil
	}
	out := make([]store.TaskID, len(ms))
	for i, m := range ms {
		out[i] = toTask(m)
	}
	return out
}

func fromTask(id store.TaskID) *statemeshv1.Task {
	return &statemeshv1.Task{Subtopology: id.Subtopology, Partition: int32(id.Partition)}
}

func toTask(m *statemeshv1.Task) store.TaskID {
	return store.TaskID{Subtopology: m.GetSubtopology(), Partition: store.Partition(m.GetPartition())}
}
