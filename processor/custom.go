package processor

import (
	"errors"
	"fmt"
	"slices"

	"github.com/statemesh/statemesh/store"
)

// CustomStore is a kind of store of one's own (upstream's StoreBuilder of a StateStore of one's own): operations that are laid out over one
// or more stores of the built-in kinds, its parts. A counter set, a queue by priority, rows with an index are such kinds.
//
// What a part is good for the whole is good for: every change is in the part's changelog, restored from it, followed by standbys, sent with
// snapshots, rolled back with its transaction, and all parts of a task are at one commit. Each part can be asked under its own name like
// any store; a query of two parts may see two commits.
//
// T is what processors work with. A task has one T for all its processors that share the store, which belongs to the stream thread. It may
// keep what it can find again in its parts, a count of rows for example: after a transaction that was undone there is a new T.
type CustomStore[T any] struct {
	parts []store.Spec
	open  func(*Parts) (T, error)
}

// NewCustomStore declares a store of one's own with its parts. open makes a T of a task's parts, which hold what was committed last. It is
// called by the first [CustomStore.Open] of the task. The declaration can be used in any number of topologies.
func NewCustomStore[T any](open func(*Parts) (T, error), parts ...store.Spec) *CustomStore[T] {
	return &CustomStore[T]{parts: slices.Clone(parts), open: open}
}

// Parts are the specs of the built-in stores that it is made of.
func (s *CustomStore[T]) Parts() []store.Spec { return slices.Clone(s.parts) }

// Open returns the T of the task, in Init of a processor that the store is connected to.
func (s *CustomStore[T]) Open(ctx *Context) (T, error) {
	var none T
	if err := s.broken(); err != nil {
		return none, err
	}
	for _, part := range s.parts {
		if !slices.Contains(ctx.node.def.stores, part.Name) {
			return none, &store.UnknownStoreError{Store: part.Name, Known: ctx.node.def.stores}
		}
	}
	if opened, ok := ctx.task.custom[s]; ok {
		return opened.(T), nil //nolint:forcetypeassert // s is the key of what its own open has made
	}
	t, err := s.open(&Parts{ctx: ctx, names: s.parts})
	if err != nil {
		return none, fmt.Errorf("open store %s: %w", s.parts[0].Name, err)
	}
	if ctx.task.custom == nil {
		ctx.task.custom = make(map[any]any)
	}
	ctx.task.custom[s] = t
	return t, nil
}

func (s *CustomStore[T]) broken() error {
	switch {
	case len(s.parts) == 0:
		return errors.New("a store of one's own needs at least one part")
	case s.open == nil:
		return errors.New("a store of one's own needs a function that opens it")
	default:
		return nil
	}
}

// StoreBuilder is what [Topology.AddStore] takes: a [CustomStore] of any type.
type StoreBuilder interface {
	// Parts are the specs of the built-in stores that it is made of.
	Parts() []store.Spec
	broken() error
}

// AddStore declares a store of one's own and connects it to processors (upstream's addStateStore of a StoreBuilder). Every task of their
// sub-topology has its own.
func (t *Topology) AddStore(s StoreBuilder, processors ...string) *Topology {
	if s == nil {
		t.fail("store", "", "is nil")
		return t
	}
	if err := s.broken(); err != nil {
		name := ""
		if parts := s.Parts(); len(parts) > 0 {
			name = string(parts[0].Name)
		}
		t.fail("store", name, err.Error())
		return t
	}
	for _, part := range s.Parts() {
		t.AddStateStore(part, processors...)
	}
	return t
}

// Parts gives the stores of a task to a store of one's own that is made of them. What it returns belongs to the task's stream thread and
// sees the writes of the running commit. A name that is no part is a *store.UnknownStoreError, another kind a *store.WrongKindError.
type Parts struct {
	ctx   *Context
	names []store.Spec
}

// KeyValue returns a key-value part, timestamped or not.
func (p *Parts) KeyValue(name store.Name) (store.KeyValue, error) {
	if err := p.known(name); err != nil {
		return nil, err
	}
	return p.ctx.Store(name)
}

// Window returns a window part.
func (p *Parts) Window(name store.Name) (store.Window, error) {
	if err := p.known(name); err != nil {
		return nil, err
	}
	return p.ctx.WindowStore(name)
}

// Session returns a session part.
func (p *Parts) Session(name store.Name) (store.Session, error) {
	if err := p.known(name); err != nil {
		return nil, err
	}
	return p.ctx.SessionStore(name)
}

// Versioned returns a versioned part.
func (p *Parts) Versioned(name store.Name) (store.Versioned, error) {
	if err := p.known(name); err != nil {
		return nil, err
	}
	return p.ctx.VersionedStore(name)
}

// StreamTime is the greatest record timestamp of the task so far, in Unix milliseconds, -1 before the first. It moves on as records come.
func (p *Parts) StreamTime() int64 { return p.ctx.CurrentStreamTime() }

func (p *Parts) known(name store.Name) error {
	known := make([]store.Name, len(p.names))
	for i := range p.names {
		if known[i] = p.names[i].Name; known[i] == name {
			return nil
		}
	}
	return &store.UnknownStoreError{Store: name, Known: known}
}
