package processor

import (
	"fmt"

	"github.com/statemesh/statemesh/store"
)

// readOnly is a store in the hands of a processor that may not write it.
type readOnly struct {
	store.KeyValue
	name store.Name
}

// Put is refused.
func (r readOnly) Put([]byte, store.Value) error { return r.refuse() }

// PutIfAbsent is refused.
func (r readOnly) PutIfAbsent([]byte, store.Value) (store.Value, bool, error) {
	return store.Value{}, false, r.refuse()
}

// Delete is refused.
func (r readOnly) Delete([]byte) (store.Value, bool, error) { return store.Value{}, false, r.refuse() }

func (r readOnly) refuse() error { return refuseWrite(r.name) }

// readOnlyVersioned is readOnly for a versioned store.
type readOnlyVersioned struct {
	store.Versioned
	name store.Name
}

// Put is refused.
func (r readOnlyVersioned) Put([]byte, store.Value) (int64, error) { return 0, refuseWrite(r.name) }

// Delete is refused.
func (r readOnlyVersioned) Delete([]byte, int64) (store.Version, error) {
	return store.Version{}, refuseWrite(r.name)
}

func refuseWrite(name store.Name) error {
	return fmt.Errorf("store %s: is fed from a topic, and only its own processor writes it", name)
}

// writes reports whether a node that is connected to a store may write it.
func (sub *subtopology) writes(name store.Name, n *node) bool {
	for _, s := range sub.stores {
		if s.spec.Name == name {
			return s.writer < 0 || n == &sub.nodes[s.writer]
		}
	}
	return true
}
