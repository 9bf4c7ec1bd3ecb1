package restore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/statemesh/statemesh/store"
)

// memoryTask is a task's state as maps: what was committed, and what was applied since.
type memoryTask struct {
	t  *testing.T
	id store.TaskID

	mu          sync.Mutex
	cp          store.Checkpoint
	committed   map[store.Name]map[string]store.Value
	uncommitted map[store.Name]map[string]store.Value
	bytes       int64
	commits     []store.Checkpoint
	wipes       int
	restored    map[store.Name]int
	fail        error
	// unfinished: it is no copy until it is wiped, which fails with failWipe.
	unfinished bool
	failWipe   error
}

func newMemoryTask(t *testing.T, partition store.Partition) *memoryTask {
	m := &memoryTask{t: t, id: store.TaskID{Partition: partition}, restored: map[store.Name]int{}}
	m.committed, m.uncommitted = map[store.Name]map[string]store.Value{}, map[store.Name]map[string]store.Value{}
	m.cp.StreamTime = -1
	return m
}

func (m *memoryTask) ID() store.TaskID { return m.id }

func (m *memoryTask) Checkpoint() store.Checkpoint {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cp.Clone()
}

func (m *memoryTask) Restore(name store.Name, batch []store.Change) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return m.fail
	}
	if m.unfinished {
		return &store.NotReadyError{Reason: "a copy is being loaded"}
	}
	kv := m.uncommitted[name]
	if kv == nil {
		kv = map[string]store.Value{}
		m.uncommitted[name] = kv
	}
	for _, c := range batch {
		v := store.Value{Timestamp: c.Timestamp}
		if c.Value != nil {
			v.Data = append([]byte{}, c.Value...)
		}
		kv[string(c.Key)] = v
		m.bytes += int64(len(c.Key) + len(c.Value) + 64)
		m.restored[name]++
	}
	return nil
}

func (m *memoryTask) Commit(cp store.Checkpoint) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.unfinished {
		m.t.Errorf("a commit of what is no copy: %+v", cp)
		return
	}
	for name, kv := range m.uncommitted {
		if m.committed[name] == nil {
			m.committed[name] = map[string]store.Value{}
		}
		for k, v := range kv {
			if v.Data == nil {
				delete(m.committed[name], k)
			} else {
				m.committed[name][k] = v
			}
		}
	}
	for name, pos := range cp.Changelogs {
		if old := m.cp.Changelogs[name]; pos.Next < old.Next && pos.TopicID == old.TopicID {
			m.t.Errorf("store %s: position went from %d to %d", name, old.Next, pos.Next)
		}
	}
	m.uncommitted, m.bytes = map[store.Name]map[string]store.Value{}, 0
	m.cp = cp.Clone()
	m.commits = append(m.commits, cp.Clone())
}

func (m *memoryTask) Rollback() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.uncommitted, m.bytes = map[store.Name]map[string]store.Value{}, 0
}

func (m *memoryTask) Wipe(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failWipe != nil {
		m.unfinished = true
		m.cp = store.Checkpoint{StreamTime: -1, Restoring: true}
		return m.failWipe
	}
	m.wipes++
	m.unfinished = false
	m.committed, m.uncommitted = map[store.Name]map[string]store.Value{}, map[store.Name]map[string]store.Value{}
	m.cp, m.bytes = store.Checkpoint{StreamTime: -1}, 0
	return nil
}

func (m *memoryTask) Unfinished() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.unfinished
}

func (m *memoryTask) UncommittedBytes() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bytes
}

// content renders a committed store, one "key=value@timestamp" per entry, in order.
func (m *memoryTask) content(name store.Name) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m.committed[name])) {
		v := m.committed[name][k]
		out = append(out, fmt.Sprintf("%s=%s@%d", k, v.Data, v.Timestamp))
	}
	return out
}

func render(e store.Entry) string { return fmt.Sprintf("%s=%s@%d", e.Key, e.Data, e.Timestamp) }

// moving calls move after every so many records.
type moving struct {
	*memoryTask
	every, seen, calls int
	move               func()
}

func (m *moving) Restore(name store.Name, batch []store.Change) error {
	for m.seen += len(batch); m.seen >= m.every; m.seen -= m.every {
		m.calls++
		m.move()
	}
	return m.memoryTask.Restore(name, batch)
}
