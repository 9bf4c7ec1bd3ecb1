package layered_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
	"github.com/statemesh/statemesh/store/storetest"
)

// machine runs a task for the model test.
type machine struct {
	t     *testing.T
	cfg   layered.Config
	specs []store.Spec
	s     *layered.Stores
	task  *layered.Task
	n     int
}

func TestModel(t *testing.T) {
	t.Parallel()
	for name, specs := range map[string][]store.Spec{
		"disk":   {{Name: "a", Kind: store.KindTimestampedKeyValue}, {Name: "b", Kind: store.KindKeyValue, NoChangelog: true}},
		"memory": {{Name: "m", Kind: store.KindKeyValue, InMemory: true}},
		"mixed":  {{Name: "a", Kind: store.KindKeyValue}, {Name: "m", Kind: store.KindTimestampedKeyValue, InMemory: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seed := storetest.Seed(t)
			for run := range uint64(storetest.Seeds()) {
				t.Run(fmt.Sprint("seed ", seed+run), func(t *testing.T) {
					rng := rand.New(rand.NewPCG(seed+run, 1))
					cfg := layered.Config{Dir: filepath.Join(t.TempDir(), "state"), MoveBytes: 1 << uint(8+rng.IntN(16)), MemTableBytes: 1 << 20}
					m := &machine{t: t, cfg: cfg, specs: specs}
					m.open()
					defer func() { m.close() }()
					m.task.Commit(checkpoint(0, m.names()...)) // a copy that is restoring has no readers
					storetest.Model(t, rng, m, 4000)
					if t.Failed() {
						t.Logf("replay with -run 'TestModel/%s' -seeds=1 -seed=%d", name, seed+run)
					}
				})
			}
		})
	}
}

func (m *machine) Stores() map[store.Name]store.KeyValue {
	out := make(map[store.Name]store.KeyValue)
	for _, s := range m.specs {
		kv, err := m.task.KeyValue(s.Name)
		if err != nil {
			m.t.Fatal(err)
		}
		out[s.Name] = kv
	}
	return out
}

func (m *machine) Commit(n int) { m.n = n; m.task.Commit(checkpoint(n, m.names()...)) }
func (m *machine) Rollback()    { m.task.Rollback() }

func (m *machine) Move() {
	if err := layered.MoveNow(m.s, m.task); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) Snapshot() (map[store.Name]store.KeyValueReader, int, func()) {
	snap, err := m.task.Snapshot()
	if err != nil {
		m.t.Fatal(err)
	}
	readers := make(map[store.Name]store.KeyValueReader)
	for _, s := range m.specs {
		r, err := snap.KeyValue(s.Name)
		if err != nil {
			m.t.Fatal(err)
		}
		readers[s.Name] = r
	}
	return readers, int(snap.Checkpoint().Sequence), snap.Close
}

func (m *machine) Restart(end storetest.End) (int, []store.Name) {
	switch end {
	case storetest.EndClose:
		if err := m.task.Close(m.t.Context()); err != nil {
			m.t.Fatal(err)
		}
		m.openTask()
	case storetest.EndStop:
		m.close()
		m.open()
	case storetest.EndKill:
		image := filepath.Join(m.t.TempDir(), "state")
		if err := storetest.KillImage(m.cfg.Dir, image); err != nil {
			m.t.Fatal(err)
		}
		m.close()
		m.cfg.Dir = image
		m.open()
	case storetest.EndWipe:
		if err := m.task.Wipe(m.t.Context()); err != nil {
			m.t.Fatal(err)
		}
	}
	cp := m.task.Checkpoint()
	m.n = int(cp.Sequence)
	var lost []store.Name
	for _, s := range m.specs {
		pos, known := cp.Changelogs[s.Name]
		switch {
		case s.InMemory && (end == storetest.EndStop || end == storetest.EndKill):
			// CR-17: what does not outlive the process has no position after it.
			if known {
				m.t.Errorf("CR-17: in-memory store %s has position %d after a restart", s.Name, pos.Next)
			}
			lost = append(lost, s.Name)
		case s.NoChangelog:
			if known {
				m.t.Errorf("store %s has no changelog but position %v", s.Name, pos)
			}
		case !known && m.n == 0:
		case pos.Next != store.Offset(10*m.n):
			m.t.Errorf("store %s: position %v of commit %d", s.Name, pos, m.n)
		}
	}
	if len(lost) == len(m.specs) && m.n != 0 {
		m.t.Errorf("nothing is there but commit %d", m.n)
	}
	if !cp.Restoring && len(lost) > 0 {
		m.t.Errorf("not restoring with %v lost", lost)
	}
	if cp.Restoring { // as if the changelog that is missing were empty
		m.task.Commit(checkpoint(m.n, m.names()...))
	}
	return m.n, lost
}

func (m *machine) open() {
	m.t.Helper()
	var err error
	if m.s, err = layered.Open(m.t.Context(), m.cfg); err != nil {
		m.t.Fatal(err)
	}
	m.openTask()
}

func (m *machine) openTask() {
	m.t.Helper()
	var err error
	if m.task, err = m.s.OpenTask(m.t.Context(), store.TaskID{Partition: 3}, m.specs); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) close() {
	m.t.Helper()
	ctx := context.WithoutCancel(m.t.Context())
	if err := m.task.Close(ctx); err != nil {
		m.t.Error(err)
	}
	if err := m.s.Close(); err != nil {
		m.t.Error(err)
	}
	if n := m.s.OpenIterators() + m.s.OpenSnapshots(); n != 0 {
		m.t.Errorf("%d iterators and snapshots left open", n)
	}
}

func (m *machine) names() []store.Name {
	var out []store.Name
	for _, s := range m.specs {
		if !s.NoChangelog {
			out = append(out, s.Name)
		}
	}
	return out
}
