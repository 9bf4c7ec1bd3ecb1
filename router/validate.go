package router

import (
	"errors"
	"fmt"
	"net"

	"github.com/statemesh/statemesh/store"
)

// validate reports everything that makes d unfit to be published: what contradicts itself, or could not be acted on.
func validate(d *Data) error {
	v := validator{counts: map[int32]int32{}, active: map[store.TaskID]string{}}
	if d.Application == "" {
		v.add("application id: empty")
	}
	if d.Epoch <= 0 {
		v.add("epoch %d: want > 0", d.Epoch)
	}
	v.stores(d.Stores)
	ids := v.instances(d.Instances)
	v.moving(d.Moving, ids)
	if len(v.errs) == 0 {
		return nil
	}
	return fmt.Errorf("metadata of epoch %d: %w", d.Epoch, errors.Join(v.errs...))
}

type validator struct {
	errs   []error
	counts map[int32]int32         // partitions by sub-topology, of those with a store
	active map[store.TaskID]string // the instance that is active
}

func (v *validator) add(format string, args ...any) {
	v.errs = append(v.errs, fmt.Errorf(format, args...))
}

func (v *validator) stores(stores []StoreInfo) {
	seen := make(map[store.Name]bool, len(stores))
	for i := range stores {
		st := &stores[i]
		switch {
		case st.Name == "":
			v.add("store %d: no name", i)
		case seen[st.Name]:
			v.add("store %s: listed twice", st.Name)
		}
		seen[st.Name] = true
		if st.Subtopology < 0 {
			v.add("store %s: sub-topology %d: want >= 0", st.Name, st.Subtopology)
		}
		if st.Partitions <= 0 {
			v.add("store %s: %d partitions: want > 0", st.Name, st.Partitions)
			continue
		}
		if st.Global && st.Partitions != 1 {
			v.add("store %s: a global store with %d partitions: want 1", st.Name, st.Partitions)
			continue
		}
		if n, ok := v.counts[st.Subtopology]; ok && n != st.Partitions {
			v.add("store %s: %d partitions, others of sub-topology %d have %d", st.Name, st.Partitions, st.Subtopology, n)
			continue
		}
		v.counts[st.Subtopology] = st.Partitions
	}
}

func (v *validator) instances(instances []Instance) map[string]bool {
	ids := make(map[string]bool, len(instances))
	for i := range instances {
		in := &instances[i]
		switch {
		case in.ID == "":
			v.add("instance %d (%s): no id", i, in.Endpoint)
		case ids[in.ID]:
			v.add("instance %s: listed twice", in.ID)
		}
		ids[in.ID] = true
		if host, port, err := net.SplitHostPort(in.Endpoint); in.Endpoint != "" && (err != nil || host == "" || port == "" || port == "0") {
			v.add("instance %s: endpoint %q: want host:port", in.ID, in.Endpoint)
		}
		held := make(map[store.TaskID]bool, len(in.Active)+len(in.Standby))
		for _, id := range in.Active {
			v.task(in.ID, id, held)
			if other, ok := v.active[id]; ok && other != in.ID {
				v.add("task %s: active on %s and on %s", id, other, in.ID)
			}
			v.active[id] = in.ID
		}
		for _, id := range in.Standby {
			v.task(in.ID, id, held)
		}
	}
	return ids
}

// task checks one task of an instance. A sub-topology that no store names is one without state; a partition beyond the
// stores' count is a task that the map cannot have.
func (v *validator) task(instance string, id store.TaskID, held map[store.TaskID]bool) {
	if id.Subtopology < 0 || id.Partition < 0 {
		v.add("instance %s: task %s: want numbers >= 0", instance, id)
	}
	if n, ok := v.counts[id.Subtopology]; ok && int32(id.Partition) >= n {
		v.add("instance %s: task %s: sub-topology %d has %d partitions", instance, id, id.Subtopology, n)
	}
	if held[id] {
		v.add("instance %s: task %s: listed twice", instance, id)
	}
	held[id] = true
}

func (v *validator) moving(moving map[store.TaskID]string, ids map[string]bool) {
	for id, to := range moving {
		if n, ok := v.counts[id.Subtopology]; id.Subtopology < 0 || id.Partition < 0 || ok && int32(id.Partition) >= n {
			v.add("moving task %s: no such task", id)
		}
		switch {
		case !ids[to]:
			v.add("moving task %s: to %q, which is no instance of the map", id, to)
		case v.active[id] == to:
			v.add("moving task %s: to %s, which owns it already", id, to)
		}
	}
}
