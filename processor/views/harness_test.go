package views

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

// memory is a timestamped key-value store for the tests of this package; only what the keepers use is there.
type memory struct {
	store.KeyValue
	rows map[string]store.Value
	fail error
}

func (m *memory) Get(key []byte) (store.Value, error) {
	if m.fail != nil {
		return store.Value{}, m.fail
	}
	v, ok := m.rows[string(key)]
	if !ok {
		return store.Value{}, store.ErrNotFound
	}
	return store.Value{Data: bytes.Clone(v.Data), Timestamp: v.Timestamp}, nil
}

func (m *memory) Put(key []byte, v store.Value) error {
	if len(key) == 0 {
		return &store.InvalidKeyError{Reason: "empty"}
	}
	if v.Data == nil {
		delete(m.rows, string(key))
		return nil
	}
	m.rows[string(key)] = store.Value{Data: append([]byte{}, v.Data...), Timestamp: v.Timestamp}
	return nil
}

// mesh runs the processors of views of one topic in one place: what a selector forwards reaches the keeper at once. The
// slices of a record are spoilt after it was handled, so that whoever kept one is found out.
type mesh struct {
	t        *testing.T
	selector *selector
	keepers  map[string]node
	stores   map[store.Name]*memory
	state    *layered.Task // of views with windows
	drops    []string
	time     int64 // stream time
}

// node is a keeper of any kind.
type node interface {
	processor.Processor
	init(ctx scope) error
}

func newMesh(t *testing.T, views ...View) *mesh {
	t.Helper()
	if err := Validate(views); err != nil {
		t.Fatal(err)
	}
	m := &mesh{t: t, keepers: make(map[string]node), stores: make(map[store.Name]*memory), time: -1}
	children := make([]string, len(views))
	var specs []store.Spec
	for _, v := range views {
		if v.Window != (Window{}) || v.History != 0 {
			v.InMemory = true
			specs = append(specs, v.Spec())
		}
	}
	if len(specs) > 0 {
		m.state = openTask(t, specs)
	}
	for i, v := range views {
		children[i] = v.Name
		m.stores[store.Name(v.Name)] = &memory{rows: make(map[string]store.Value)}
		k, ok := newProcessor(v).(node)
		if !ok {
			t.Fatal("a keeper of another kind")
		}
		if err := k.init(&place{mesh: m, view: v.Name}); err != nil {
			t.Fatal(err)
		}
		m.keepers[v.Name] = k
	}
	m.selector = newSelector(views, children)
	m.selector.ctx = &place{mesh: m}
	return m
}

// openTask is a real task with these stores.
func openTask(tb testing.TB, specs []store.Spec) *layered.Task {
	tb.Helper()
	stores, err := layered.Open(tb.Context(), layered.Config{Dir: tb.TempDir(), MinFreeBytes: 1})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = stores.Close() })
	task, err := stores.OpenTask(tb.Context(), store.TaskID{}, specs)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = task.Close(context.WithoutCancel(tb.Context())) })
	return task
}

// place is the context of one node.
type place struct {
	mesh *mesh
	view string
}

func (p *place) Drop(reason string) { p.mesh.drops = append(p.mesh.drops, reason) }

func (p *place) Store(name store.Name) (store.KeyValue, error) {
	if name != store.Name(p.view) {
		return nil, &store.UnknownStoreError{Store: name}
	}
	return p.mesh.stores[name], nil
}

func (p *place) WindowStore(name store.Name) (store.Window, error) { return p.mesh.state.Window(name) }

func (p *place) SessionStore(name store.Name) (store.Session, error) {
	return p.mesh.state.Session(name)
}

func (p *place) VersionedStore(name store.Name) (store.Versioned, error) {
	return p.mesh.state.Versioned(name)
}

func (p *place) CurrentStreamTime() int64 { return p.mesh.time }

func (p *place) ForwardTo(child string, r processor.Record) error {
	k := p.mesh.keepers[child]
	if k == nil {
		return fmt.Errorf("no child %q", child)
	}
	copied := r
	copied.Key, copied.Value = clone(r.Key), clone(r.Value)
	err := k.Process(&copied)
	spoil(copied.Key, copied.Value)
	return err
}

// clone keeps nil and empty apart.
func clone(b []byte) []byte {
	if b == nil {
		return nil
	}
	return append([]byte{}, b...)
}

func spoil(slices ...[]byte) {
	for _, s := range slices {
		for i := range s {
			s[i] = 0xAA
		}
	}
}

// rec makes a record. In key and value "<nil>" stands for none.
func rec(ts int64, key, value string) processor.Record {
	r := processor.Record{Timestamp: ts}
	if key != "<nil>" {
		r.Key = []byte(key)
	}
	if value != "<nil>" {
		r.Value = []byte(value)
	}
	return r
}

func (m *mesh) process(records ...processor.Record) error {
	for _, r := range records {
		r.Key, r.Value = clone(r.Key), clone(r.Value)
		m.time = max(m.time, r.Timestamp)
		err := m.selector.Process(&r)
		spoil(r.Key, r.Value)
		if err != nil {
			return err
		}
	}
	return nil
}

func (m *mesh) mustProcess(records ...processor.Record) {
	m.t.Helper()
	if err := m.process(records...); err != nil {
		m.t.Fatal(err)
	}
}

// dump shows a store as "key=value@timestamp", in the form of its value format.
func (m *mesh) dump(v View) string {
	rows := m.stores[store.Name(v.Name)].rows
	var w strings.Builder
	for i, key := range slices.Sorted(maps.Keys(rows)) {
		if i > 0 {
			w.WriteByte(' ')
		}
		row := rows[key]
		fmt.Fprintf(&w, "%s=%s@%d", key, show(v.Spec().ValueFormat, row.Data), row.Timestamp)
	}
	return w.String()
}

// reasons counts the drops: "null key*2, null value".
func (m *mesh) reasons() string {
	counts := make(map[string]int)
	for _, d := range m.drops {
		counts[d]++
	}
	var all []string
	for _, d := range slices.SortedFunc(maps.Keys(counts), cmp.Compare[string]) {
		if n := counts[d]; n > 1 {
			d = fmt.Sprintf("%s*%d", d, n)
		}
		all = append(all, d)
	}
	return strings.Join(all, ", ")
}

// reasonOf is the reason of a record that could not be decoded, or the whole error in brackets.
func reasonOf(err error) string {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*processor.DeserializationError](err); ok {
		return e.Reason
	}
	return "[" + err.Error() + "]"
}
