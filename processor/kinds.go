package processor

import (
	"slices"

	"github.com/statemesh/statemesh/store"
)

// WindowStore returns a window store that is connected to this node; see [Context.Store]. *store.WrongKindError when it is of
// another kind.
func (c *Context) WindowStore(name store.Name) (store.Window, error) {
	if !slices.Contains(c.node.def.stores, name) {
		return nil, &store.UnknownStoreError{Store: name, Known: c.node.def.stores}
	}
	w, err := c.task.state.Window(name)
	if err != nil || c.task.logs[name] == nil {
		return w, err
	}
	return &limitedWindow{Window: w, limited: c.task.limit(name)}, nil
}

// SessionStore returns a session store that is connected to this node; see [Context.Store]. *store.WrongKindError when it is of
// another kind.
func (c *Context) SessionStore(name store.Name) (store.Session, error) {
	if !slices.Contains(c.node.def.stores, name) {
		return nil, &store.UnknownStoreError{Store: name, Known: c.node.def.stores}
	}
	s, err := c.task.state.Session(name)
	if err != nil || c.task.logs[name] == nil {
		return s, err
	}
	return &limitedSession{Session: s, limited: c.task.limit(name)}, nil
}

// VersionedStore returns a versioned store that is connected to this node; see [Context.Store], also for one that is fed from a
// topic. *store.WrongKindError when it is of another kind.
func (c *Context) VersionedStore(name store.Name) (store.Versioned, error) {
	if !slices.Contains(c.node.def.stores, name) {
		return nil, &store.UnknownStoreError{Store: name, Known: c.node.def.stores}
	}
	v, err := c.task.state.Versioned(name)
	if err != nil {
		return nil, err
	}
	if !c.task.sub.writes(name, c.node.def) {
		return readOnlyVersioned{Versioned: v, name: name}, nil
	}
	if log := c.task.logs[name]; log == nil || log.source != nil {
		return v, nil
	}
	return &limitedVersioned{Versioned: v, limited: c.task.limit(name)}, nil
}

// rowOverhead is what the key of a row has beside the key of its window or session, at most.
const rowOverhead = 16

// limitedWindow refuses what the store's changelog would refuse later.
type limitedWindow struct {
	store.Window

	limited
}

// Put implements store.Window.
func (l *limitedWindow) Put(key []byte, start int64, v store.Value) error {
	if err := l.check(len(key)+rowOverhead, v); err != nil {
		return err
	}
	return l.Window.Put(key, start, v)
}

// limitedSession refuses what the store's changelog would refuse later.
type limitedSession struct {
	store.Session

	limited
}

// Put implements store.Session.
func (l *limitedSession) Put(key []byte, start, end int64, v store.Value) error {
	if err := l.check(len(key)+rowOverhead, v); err != nil {
		return err
	}
	return l.Session.Put(key, start, end, v)
}

// limitedVersioned refuses what the store's changelog would refuse later.
type limitedVersioned struct {
	store.Versioned

	limited
}

// Put implements store.Versioned.
func (l *limitedVersioned) Put(key []byte, v store.Value) (validTo int64, err error) {
	if err := l.check(len(key), v); err != nil {
		return 0, err
	}
	return l.Versioned.Put(key, v)
}
