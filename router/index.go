package router

import (
	"cmp"
	"maps"
	"slices"

	"github.com/statemesh/statemesh/store"
)

// Replica is one copy of a task, as a caller reaches it.
type Replica struct {
	// Instance and Incarnation say who is meant: another process may listen on the endpoint by now.
	Instance, Incarnation string
	// Endpoint is empty when the instance answers no peer; such a copy is no candidate but for itself.
	Endpoint string
	Rack     string
	Role     store.Role
}

// Snapshot is one version of the metadata, whole and immutable. What its methods return belongs to the caller. A nil
// snapshot is no metadata yet: [Decide] and [Table] know it, the methods do not. Safe for concurrent use.
type Snapshot struct {
	app       string
	epoch     Epoch
	instances []Instance // sorted by ID
	stores    []StoreInfo
	moving    map[store.TaskID]string
	byName    map[store.Name]*storeIndex
	byID      map[string]int // into instances
	missing   []store.TaskID
}

// storeIndex answers for one store; tasks[p] is shared by all stores of a sub-topology.
type storeIndex struct {
	info  StoreInfo
	tasks []task
}

// task holds the copies of one task. Invariant: at most one is active, and it is the first; all are when it is global.
type task struct {
	// global: the whole of a global store, which every instance has.
	global   bool
	replicas []Replica
	movingTo string // the instance that will be the owner; "" when the task stays
	silent   bool   // a copy has no endpoint
}

func (t *task) active() (Replica, bool) {
	if len(t.replicas) > 0 && t.replicas[0].Role == store.RoleActive {
		return t.replicas[0], true
	}
	return Replica{}, false
}

// NewSnapshot checks d and indexes a deep copy of it. It reports everything that is wrong at once. Holes are not wrong:
// see [Snapshot.Missing].
func NewSnapshot(d Data) (*Snapshot, error) {
	if err := validate(&d); err != nil {
		return nil, err
	}
	s := &Snapshot{
		app:       d.Application,
		epoch:     d.Epoch,
		instances: cloneInstances(d.Instances),
		stores:    slices.Clone(d.Stores),
		moving:    maps.Clone(d.Moving),
		byName:    make(map[store.Name]*storeIndex, len(d.Stores)),
		byID:      make(map[string]int, len(d.Instances)),
	}
	slices.SortFunc(s.instances, func(a, b Instance) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(s.stores, func(a, b StoreInfo) int { return cmp.Compare(a.Name, b.Name) })
	for i, in := range s.instances {
		s.byID[in.ID] = i
	}
	s.index()
	return s, nil
}

// Application is the application id.
func (s *Snapshot) Application() string { return s.app }

// Epoch is the version of the snapshot.
func (s *Snapshot) Epoch() Epoch { return s.epoch }

// Data returns what the snapshot was made of: instances sorted by id, tasks and stores in order.
func (s *Snapshot) Data() Data {
	return Data{
		Application: s.app, Epoch: s.epoch,
		Instances: s.Instances(), Stores: s.Stores(), Moving: maps.Clone(s.moving),
	}
}

// Instances lists the instances by id (upstream's metadataForAllStreamsClients).
func (s *Snapshot) Instances() []Instance { return cloneInstances(s.instances) }

// Instance finds an instance by its id.
func (s *Snapshot) Instance(id string) (Instance, bool) {
	i, ok := s.byID[id]
	if !ok {
		return Instance{}, false
	}
	return cloneInstance(s.instances[i]), true
}

// Stores lists the stores by name.
func (s *Snapshot) Stores() []StoreInfo { return slices.Clone(s.stores) }

// Store finds a store by its name; *[store.UnknownStoreError] lists those there are.
func (s *Snapshot) Store(name store.Name) (StoreInfo, error) {
	ix, err := s.find(name)
	if err != nil {
		return StoreInfo{}, err
	}
	return ix.info, nil
}

// Partition is the partition of a store that key belongs to: murmur2 over the store's partition count, which is that of
// the topic and never that of what is assigned at the moment. *[store.UnknownStoreError]; *[store.InvalidKeyError] for a
// key without bytes, which no store holds.
func (s *Snapshot) Partition(name store.Name, key []byte) (store.Partition, error) {
	ix, err := s.find(name)
	if err != nil {
		return 0, err
	}
	if len(key) == 0 {
		return 0, &store.InvalidKeyError{Store: name, Reason: "empty"}
	}
	return PartitionFor(key, ix.info.Partitions), nil
}

// Active is the owner of a partition; false when there is none, or no such store or partition.
func (s *Snapshot) Active(name store.Name, p store.Partition) (Replica, bool) {
	ix, ok := s.byName[name]
	if !ok || p < 0 || int(p) >= len(ix.tasks) {
		return Replica{}, false
	}
	return ix.tasks[p].active()
}

// Replicas lists the copies of a partition, the active one first, the standbys by instance id.
func (s *Snapshot) Replicas(name store.Name, p store.Partition) []Replica {
	ix, ok := s.byName[name]
	if !ok || p < 0 || int(p) >= len(ix.tasks) {
		return nil
	}
	return slices.Clone(ix.tasks[p].replicas)
}

// MovingTo names the instance that is about to own the task; false when it stays where it is.
func (s *Snapshot) MovingTo(id store.TaskID) (string, bool) {
	to, ok := s.moving[id]
	return to, ok
}

// Missing lists the tasks with a store that nobody owns and nobody is about to. A snapshot without any is whole.
func (s *Snapshot) Missing() []store.TaskID { return slices.Clone(s.missing) }

func (s *Snapshot) find(name store.Name) (*storeIndex, error) {
	if ix, ok := s.byName[name]; ok {
		return ix, nil
	}
	known := make([]store.Name, len(s.stores))
	for i := range s.stores {
		known[i] = s.stores[i].Name
	}
	return nil, &store.UnknownStoreError{Store: name, Known: known}
}

// index fills byName and missing from instances, stores and moving.
func (s *Snapshot) index() {
	bySub := make(map[int32][]task)
	for i := range s.stores {
		info := s.stores[i]
		if info.Global {
			s.byName[info.Name] = &storeIndex{info: info, tasks: []task{everywhere(s.instances)}}
			continue
		}
		tasks, ok := bySub[info.Subtopology]
		if !ok {
			tasks = make([]task, info.Partitions)
			bySub[info.Subtopology] = tasks
		}
		s.byName[info.Name] = &storeIndex{info: info, tasks: tasks}
	}
	add := func(in *Instance, ids []store.TaskID, role store.Role) {
		for _, id := range ids {
			if tasks, ok := bySub[id.Subtopology]; ok { // else a sub-topology without stores: nothing to ask for
				t := &tasks[id.Partition]
				t.silent = t.silent || in.Endpoint == ""
				t.replicas = append(t.replicas, Replica{
					Instance: in.ID, Incarnation: in.Incarnation, Endpoint: in.Endpoint, Rack: in.Rack, Role: role,
				})
			}
		}
	}
	for i := range s.instances { // actives first: they lead the replicas of a task
		add(&s.instances[i], s.instances[i].Active, store.RoleActive)
	}
	for i := range s.instances {
		add(&s.instances[i], s.instances[i].Standby, store.RoleStandby)
	}
	for sub, tasks := range bySub {
		for p := range tasks {
			id := store.TaskID{Subtopology: sub, Partition: store.Partition(p)}
			tasks[p].movingTo = s.moving[id]
			if _, ok := tasks[p].active(); !ok && tasks[p].movingTo == "" {
				s.missing = append(s.missing, id)
			}
		}
	}
	slices.SortFunc(s.missing, store.TaskID.Compare)
}

// everywhere is the one partition of a global store: every instance is as good as any other.
func everywhere(instances []Instance) task {
	t := task{global: true}
	for i := range instances {
		in := &instances[i]
		t.silent = t.silent || in.Endpoint == ""
		t.replicas = append(t.replicas, Replica{
			Instance: in.ID, Incarnation: in.Incarnation, Endpoint: in.Endpoint, Rack: in.Rack, Role: store.RoleActive,
		})
	}
	return t
}

func cloneInstances(in []Instance) []Instance {
	out := make([]Instance, len(in))
	for i := range in {
		out[i] = cloneInstance(in[i])
	}
	return out
}

// cloneInstance copies in, with its tasks in order.
func cloneInstance(in Instance) Instance {
	in.Active = slices.SortedFunc(slices.Values(in.Active), store.TaskID.Compare)
	in.Standby = slices.SortedFunc(slices.Values(in.Standby), store.TaskID.Compare)
	return in
}
