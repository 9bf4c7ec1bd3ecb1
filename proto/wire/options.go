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
}

// minStaleness: below it a bound is a mistake of units, and nothing could meet it.
const minStaleness = time.Millisecond

// FromReadOptions makes the message; nil for the zero value.
func FromReadOptions(o ReadOptions) *statemeshv1.ReadOptions {
	if o == (ReadOptions{}) {
		return nil
	}
	m := &statemeshv1.ReadOptions{}
	if o.MaxStaleness > 0 {
		m.MaxStaleness = durationpb.New(o.MaxStaleness)
	}
	if o.BypassCache {
		m.Cache = statemeshv1.CacheMode_CACHE_MODE_BYPASS
	}
	if o.OnlyActive {
		m.Role = statemeshv1.RolePreference_ROLE_PREFERENCE_ACTIVE
	}
	return m
}

// ToReadOptions reads the message. What this version does not honour is an *[store.InvalidRequestError], fields it does
// not know included: an option is never ignored.
func ToReadOptions(m *statemeshv1.ReadOptions) (ReadOptions, error) {
	var o ReadOptions
	if m == nil {
		return o, nil
	}
	if n := len(m.ProtoReflect().GetUnknown()); n > 0 {
		return o, invalid("options", fmt.Sprintf("%d bytes of fields that this server does not know", n))
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
		return o, invalid("options.isolation", "READ_UNCOMMITTED: this version answers READ_COMMITTED only")
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
	return o, nil
}

func invalid(field, reason string) error {
	return &store.InvalidRequestError{Field: field, Reason: reason}
}
