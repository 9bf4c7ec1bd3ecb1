package wire

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// Answer says what the answer of one partition is worth and who gave it.
type Answer struct {
	Partition store.Partition
	// Facts of the state that answered. Age counts up to the moment the answer was sent.
	Facts store.Facts
	// Epoch of the metadata that routed the request.
	Epoch router.Epoch
	// Instance and Endpoint of who answered.
	Instance, Endpoint string
}

// AbsentError is a [store.ErrNotFound] together with its proof.
type AbsentError struct {
	Store store.Name
	// Answer says which replica proved the absence, how old its state was and how far it had read.
	Answer Answer
}

func (e *AbsentError) Error() string {
	if p := e.Answer.Facts.Partial; p != nil {
		return fmt.Sprintf("store %s partition %d: key not found in a partial state, %s (%s at %s): it may be there",
			e.Store, e.Answer.Partition, p, e.Answer.Facts.Role, e.Answer.Endpoint)
	}
	return fmt.Sprintf("store %s partition %d: key not found (%s at %s, age %s)",
		e.Store, e.Answer.Partition, e.Answer.Facts.Role, e.Answer.Endpoint, e.Answer.Facts.Age.Round(time.Microsecond))
}

// Is matches store.ErrNotFound, and store.ErrPartial when that is no proof.
func (e *AbsentError) Is(target error) bool {
	return target == store.ErrNotFound || target == store.ErrPartial && e.Answer.Facts.Partial != nil
}

// FromAnswer makes the message of an answer of a store.
func FromAnswer(name store.Name, a Answer) *statemeshv1.Answer {
	m := &statemeshv1.Answer{
		Partition:  int32(a.Partition),
		Role:       fromRole(a.Facts.Role),
		AnsweredBy: fromInstance(a.Instance, a.Endpoint),
		Epoch:      int64(a.Epoch),
		Position:   FromPosition(a.Facts.Position),
		Sequence:   int64(a.Facts.Sequence),
		Token:      FromToken(name, a.Facts.Token),
		Isolation:  fromIsolation(a.Facts.Isolation),
	}
	p := a.Facts.Partial
	if p == nil || a.Facts.Age >= 0 {
		m.Age = durationpb.New(a.Facts.Age)
	}
	if p != nil {
		m.Partial = &statemeshv1.PartialState{Restored: p.Restored, Total: p.Total, TimeLeft: fromDuration(p.Left)}
		if p.StreamTime >= 0 {
			m.Partial.StreamTimeMs = &p.StreamTime
		}
	}
	return m
}

// toPartial reads the message; nil for a state that is whole.
func toPartial(m *statemeshv1.PartialState) *store.Partial {
	if m == nil {
		return nil
	}
	p := &store.Partial{Restored: m.GetRestored(), Total: m.GetTotal(), Left: toDuration(m.GetTimeLeft()), StreamTime: -1}
	if m.StreamTimeMs != nil {
		p.StreamTime = m.GetStreamTimeMs()
	}
	return p
}

// ToAnswer reads the message. An answer that does not say how old it is, or by whom, is worth nothing: an error.
func ToAnswer(m *statemeshv1.Answer) (Answer, error) {
	if m == nil {
		return Answer{}, malformed("answer", "absent")
	}
	age := time.Duration(-1)
	switch {
	case m.GetAge() == nil && m.GetPartial() != nil: // nothing is proven of it
	case m.GetAge() == nil || m.GetAge().CheckValid() != nil || m.GetAge().AsDuration() < 0:
		return Answer{}, malformed("answer.age", "no duration >= 0")
	default:
		age = m.GetAge().AsDuration()
	}
	if m.GetPartition() < 0 {
		return Answer{}, malformed("answer.partition", "negative")
	}
	role := toRole(m.GetRole())
	if role == store.RoleUnknown {
		return Answer{}, malformed("answer.role", "unknown")
	}
	var token store.Token
	if b := m.GetToken(); len(b) > 0 && m.GetPartial() == nil {
		var err error
		if _, token, err = ToToken(b); err != nil {
			return Answer{}, malformed("answer.token", err.Error())
		}
	}
	return Answer{
		Partition: store.Partition(m.GetPartition()),
		Facts: store.Facts{
			Role:      role,
			Sequence:  store.Sequence(m.GetSequence()),
			Position:  ToPosition(m.GetPosition()),
			Token:     token,
			Age:       age,
			Isolation: toIsolation(m.GetIsolation()),
			Partial:   toPartial(m.GetPartial()),
		},
		Epoch:    router.Epoch(m.GetEpoch()),
		Instance: m.GetAnsweredBy().GetId(),
		Endpoint: m.GetAnsweredBy().GetEndpoint(),
	}, nil
}

// ToAnswers reads the answers of several partitions.
func ToAnswers(ms []*statemeshv1.Answer) ([]Answer, error) {
	out := make([]Answer, len(ms))
	for i, m := range ms {
		a, err := ToAnswer(m)
		if err != nil {
			return nil, err
		}
		out[i] = a
	}
	return out, nil
}

// FromPosition makes the message, in order, so that equal positions make equal bytes.
func FromPosition(pos store.Position) *statemeshv1.Position {
	m := &statemeshv1.Position{Topics: make([]*statemeshv1.TopicPosition, 0, len(pos))}
	for _, topic := range slices.Sorted(maps.Keys(pos)) {
		t := &statemeshv1.TopicPosition{
			Topic: topic, Partitions: make([]*statemeshv1.PartitionOffset, 0, len(pos[topic])),
		}
		for p, o := range pos[topic] {
			t.Partitions = append(t.Partitions, &statemeshv1.PartitionOffset{Partition: int32(p), Offset: int64(o)})
		}
		slices.SortFunc(t.GetPartitions(), func(a, b *statemeshv1.PartitionOffset) int {
			return cmp.Compare(a.GetPartition(), b.GetPartition())
		})
		m.Topics = append(m.Topics, t)
	}
	return m
}

// ToPosition reads the message; of what is named twice the higher offset counts. The result is never nil.
func ToPosition(m *statemeshv1.Position) store.Position {
	pos := make(store.Position, len(m.GetTopics()))
	for _, t := range m.GetTopics() {
		for _, p := range t.GetPartitions() {
			pos.Set(t.GetTopic(), store.Partition(p.GetPartition()), store.Offset(p.GetOffset()))
		}
	}
	return pos
}

// FromValue makes the message. v.Data must not be nil.
func FromValue(v store.Value) *statemeshv1.Value {
	m := &statemeshv1.Value{Data: v.Data}
	if v.Timestamp >= 0 {
		m.TimestampMs = &v.Timestamp
	}
	return m
}

// ToValue reads the message; Data is not nil even when the value is empty. false when m is nil: no value.
func ToValue(m *statemeshv1.Value) (store.Value, bool) {
	if m == nil {
		return store.Value{}, false
	}
	v := store.Value{Data: m.GetData(), Timestamp: -1}
	if v.Data == nil {
		v.Data = []byte{}
	}
	if m.TimestampMs != nil {
		v.Timestamp = m.GetTimestampMs()
	}
	return v, true
}

func fromInstance(id, endpoint string) *statemeshv1.InstanceRef {
	if id == "" && endpoint == "" {
		return nil
	}
	return &statemeshv1.InstanceRef{Id: id, Endpoint: endpoint}
}

func fromRole(r store.Role) statemeshv1.Role {
	switch r {
	case store.RoleActive:
		return statemeshv1.Role_ROLE_ACTIVE
	case store.RoleStandby:
		return statemeshv1.Role_ROLE_STANDBY
	case store.RoleCache:
		return statemeshv1.Role_ROLE_CACHE
	default:
		return statemeshv1.Role_ROLE_UNSPECIFIED
	}
}

func toRole(r statemeshv1.Role) store.Role {
	switch r {
	case statemeshv1.Role_ROLE_ACTIVE:
		return store.RoleActive
	case statemeshv1.Role_ROLE_STANDBY:
		return store.RoleStandby
	case statemeshv1.Role_ROLE_CACHE:
		return store.RoleCache
	default:
		return store.RoleUnknown
	}
}

// kinds are the kinds of store that this version of the API knows.
var kinds = map[store.Kind]statemeshv1.StoreKind{
	store.KindKeyValue:            statemeshv1.StoreKind_STORE_KIND_KEY_VALUE,
	store.KindTimestampedKeyValue: statemeshv1.StoreKind_STORE_KIND_TIMESTAMPED_KEY_VALUE,
	store.KindWindow:              statemeshv1.StoreKind_STORE_KIND_WINDOW,
	store.KindTimestampedWindow:   statemeshv1.StoreKind_STORE_KIND_TIMESTAMPED_WINDOW,
	store.KindSession:             statemeshv1.StoreKind_STORE_KIND_SESSION,
	store.KindVersioned:           statemeshv1.StoreKind_STORE_KIND_VERSIONED,
}

func fromKind(k store.Kind) statemeshv1.StoreKind { return kinds[k] }

func toKind(k statemeshv1.StoreKind) store.Kind {
	for kind, m := range kinds {
		if m == k {
			return kind
		}
	}
	return 0
}

// malformed is what reading an answer reports: the other end is no server of this API, or a broken one.
func malformed(field, problem string) error {
	return fmt.Errorf("%w: %s: %s", ErrMalformed, field, problem)
}
