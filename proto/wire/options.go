package wire

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/store"
)

// ReadOptions is what the caller of a read insists on.
type ReadOptions struct {
	// MaxStaleness is the oldest answer accepted; 0: no bound is stated.
	MaxStaleness time.Duration
	// BypassCache keeps the remote cache out.
	BypassCache bool
	// OnlyActive accepts the owner alone.
	OnlyActive bool
	// Isolation is what the read may see.
	Isolation store.Isolation
	// AtLeast is what the answer must contain; empty: nothing is asked for.
	AtLeast store.Token
	// Wait is how long a copy may wait for AtLeast.
	Wait time.Duration
	// Partial accepts what a copy has so far that is being restored, when no other can answer.
	Partial bool
}

// IsZero reports whether nothing is insisted on.
func (o *ReadOptions) IsZero() bool {
	return o.MaxStaleness <= 0 && !o.BypassCache && !o.OnlyActive && o.Isolation == store.ReadCommitted &&
		o.AtLeast.Empty() && o.Wait <= 0 && !o.Partial
}

// minStaleness: below it a bound is a mistake of units, and nothing could meet it.
const minStaleness = time.Millisecond

// FromReadOptions makes the message for a read of a store; nil for the zero value.
func FromReadOptions(name store.Name, o *ReadOptions) *statemeshv1.ReadOptions {
	if o.IsZero() {
		return nil
	}
	m := &statemeshv1.ReadOptions{AcceptPartial: o.Partial}
	if o.MaxStaleness > 0 {
		m.MaxStaleness = durationpb.New(o.MaxStaleness)
	}
	if o.BypassCache {
		m.Cache = statemeshv1.CacheMode_CACHE_MODE_BYPASS
	}
	if o.OnlyActive {
		m.Role = statemeshv1.RolePreference_ROLE_PREFERENCE_ACTIVE
	}
	if o.Isolation != store.ReadCommitted {
		m.Isolation = fromIsolation(o.Isolation)
	}
	if t := FromToken(name, o.AtLeast); t != nil {
		m.AtLeast = [][]byte{t}
	}
	if o.Wait > 0 {
		m.Wait = durationpb.New(o.Wait)
	}
	return m
}

// ToReadOptions reads the message of a read of a store. What this version does not honour is an
// *[store.InvalidRequestError], fields it does not know included: an option is never ignored.
func ToReadOptions(name store.Name, m *statemeshv1.ReadOptions) (ReadOptions, error) {
	var o ReadOptions
	if m == nil {
		return o, nil
	}
	if err := known("options", m); err != nil {
		return o, err
	}
	if d := m.GetMaxStaleness(); d != nil {
		if d.CheckValid() != nil || d.AsDuration() < minStaleness {
			return o, invalid("options.max_staleness", "no duration of at least 1ms")
		}
		o.MaxStaleness = d.AsDuration()
	}
	switch c := m.GetCache(); c {
	case statemeshv1.CacheMode_CACHE_MODE_UNSPECIFIED:
	case statemeshv1.CacheMode_CACHE_MODE_BYPASS:
		o.BypassCache = true
	default:
		return o, invalid("options.cache", fmt.Sprintf("%d: no such mode", c))
	}
	switch i := m.GetIsolation(); i {
	case statemeshv1.IsolationLevel_ISOLATION_LEVEL_UNSPECIFIED, statemeshv1.IsolationLevel_ISOLATION_LEVEL_READ_COMMITTED:
	case statemeshv1.IsolationLevel_ISOLATION_LEVEL_READ_UNCOMMITTED:
		o.Isolation = store.ReadUncommitted
	default:
		return o, invalid("options.isolation", fmt.Sprintf("%d: no such level", i))
	}
	switch r := m.GetRole(); r {
	case statemeshv1.RolePreference_ROLE_PREFERENCE_UNSPECIFIED:
	case statemeshv1.RolePreference_ROLE_PREFERENCE_ACTIVE:
		o.OnlyActive, o.BypassCache = true, true
	default:
		return o, invalid("options.role", fmt.Sprintf("%d: no such preference", r))
	}
	if d := m.GetWait(); d != nil {
		if d.CheckValid() != nil || d.AsDuration() < 0 {
			return o, invalid("options.wait", "no duration of at least 0")
		}
		o.Wait = d.AsDuration()
	}
	o.Partial = m.GetAcceptPartial()
	return o, o.toAtLeast(name, m)
}

// toAtLeast reads the tokens and the position.
func (o *ReadOptions) toAtLeast(name store.Name, m *statemeshv1.ReadOptions) error {
	size := 0
	for _, b := range m.GetAtLeast() {
		if size += len(b); size > MaxTokenBytes {
			return invalid("options.at_least", fmt.Sprintf("more than %d bytes together", MaxTokenBytes))
		}
	}
	for _, b := range m.GetAtLeast() {
		of, t, err := ToToken(b)
		switch {
		case err != nil:
			return invalid("options.at_least", err.Error())
		case of != name:
			return invalid("options.at_least", fmt.Sprintf("it is a token of store %q", of))
		}
		o.AtLeast.Raise(t)
	}
	if pos := m.GetAtLeastPosition(); pos != nil {
		if err := knownPosition(pos); err != nil {
			return err
		}
		o.AtLeast.Raise(store.Token{Inputs: ToPosition(pos)})
	}
	return nil
}

// knownPosition checks what a caller sent as a position.
func knownPosition(m *statemeshv1.Position) error {
	const field = "options.at_least_position"
	if err := known(field, m); err != nil {
		return err
	}
	for _, t := range m.GetTopics() {
		if err := known(field, t); err != nil {
			return err
		}
		if t.GetTopic() == "" || len(t.GetTopic()) > MaxStoreNameBytes {
			return invalid(field, fmt.Sprintf("a topic has 1 to %d bytes", MaxStoreNameBytes))
		}
		for _, p := range t.GetPartitions() {
			if err := known(field, p); err != nil {
				return err
			}
			if p.GetPartition() < 0 || p.GetOffset() < 0 {
				return invalid(field, "a partition or an offset below 0")
			}
		}
	}
	return nil
}

func fromIsolation(i store.Isolation) statemeshv1.IsolationLevel {
	if i == store.ReadUncommitted {
		return statemeshv1.IsolationLevel_ISOLATION_LEVEL_READ_UNCOMMITTED
	}
	return statemeshv1.IsolationLevel_ISOLATION_LEVEL_READ_COMMITTED
}

func toIsolation(i statemeshv1.IsolationLevel) store.Isolation {
	if i == statemeshv1.IsolationLevel_ISOLATION_LEVEL_READ_UNCOMMITTED {
		return store.ReadUncommitted
	}
	return store.ReadCommitted
}

func invalid(field, reason string) error {
	return &store.InvalidRequestError{Field: field, Reason: reason}
}
