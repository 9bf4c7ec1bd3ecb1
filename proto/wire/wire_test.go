package wire

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// reread sends m through bytes, as the wire does.
func reread[M proto.Message](t *testing.T, m, into M) M {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := proto.Unmarshal(b, into); err != nil {
		t.Fatal(err)
	}
	return into
}

func TestDataBothWays(t *testing.T) {
	t.Parallel()
	want := router.Data{
		Application: "app", Epoch: 1_700_000_000_123,
		Instances: []router.Instance{
			{ID: "a", Incarnation: "i1", Endpoint: "h:1", Rack: "r", Active: []store.TaskID{{Partition: 0}, {Subtopology: 1, Partition: 2}}},
			{ID: "b", Incarnation: "i2", Endpoint: "h:2", Active: []store.TaskID{{Partition: 1}}, Standby: []store.TaskID{{Partition: 0}}},
		},
		Stores: []router.StoreInfo{
			{Name: "s", Kind: store.KindKeyValue, Partitions: 2, KeyFormat: "string", ValueFormat: "int64", SourceTopic: "in"},
			{Name: "t", Kind: store.KindTimestampedKeyValue, Subtopology: 1, Partitions: 3},
			{Name: "u", Kind: store.KindWindow, Partitions: 2, Retention: 24 * time.Hour, WindowSize: time.Hour},
			{Name: "v", Kind: store.KindTimestampedWindow, Partitions: 2, Retention: time.Millisecond, WindowSize: time.Millisecond},
			{Name: "w", Kind: store.KindSession, Partitions: 2, Retention: time.Minute},
			{Name: "x", Kind: store.KindVersioned, Partitions: 2, Retention: time.Minute},
			{Name: "y", Kind: store.KindTimestampedKeyValue, Subtopology: 2, Partitions: 1, Global: true},
		},
		Moving: map[store.TaskID]string{{Partition: 1}: "a"},
	}
	got, err := ToData(reread(t, FromData(want), &statemeshv1.MetadataSnapshot{}))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("\n got %+v\nwant %+v\n%v", got, want, err)
	}
	// Order does not come through: equal maps make equal bytes.
	shuffled := want
	shuffled.Instances = []router.Instance{want.Instances[1], want.Instances[0]}
	shuffled.Stores = slices.Clone(want.Stores)
	slices.Reverse(shuffled.Stores)
	if !proto.Equal(FromData(shuffled), FromData(want)) {
		t.Error("the order of instances or stores shows")
	}
	if _, err := ToData(nil); !errors.Is(err, ErrMalformed) {
		t.Error(err)
	}
}

func TestAnswerBothWays(t *testing.T) {
	t.Parallel()
	want := Answer{
		Partition: 5, Epoch: 9, Instance: "a", Endpoint: "h:1",
		Facts: store.Facts{
			Role: store.RoleActive, Sequence: 3, Age: 17 * time.Nanosecond, Position: store.Position{"x": {1: 2, 0: 9}, "w": {1: 0}},
			Token:     store.Token{Cuts: map[store.Partition]store.Cut{5: {TopicID: [16]byte{7}, Next: 12}}},
			Isolation: store.ReadUncommitted,
		},
	}
	got, err := ToAnswers(reread(t, &statemeshv1.CountResponse{Answers: []*statemeshv1.Answer{FromAnswer("s", want)}}, &statemeshv1.CountResponse{}).GetAnswers())
	if err != nil || len(got) != 1 || !reflect.DeepEqual(got[0], want) {
		t.Errorf("\n got %+v\nwant %+v\n%v", got, want, err)
	}
	for name, change := range map[string]func(*statemeshv1.Answer){
		"no age":       func(m *statemeshv1.Answer) { m.Age = nil },
		"negative age": func(m *statemeshv1.Answer) { m.Age = durationpb.New(-1) },
		"wild age":     func(m *statemeshv1.Answer) { m.Age = &durationpb.Duration{Seconds: 1, Nanos: -1} },
		"partition -1": func(m *statemeshv1.Answer) { m.Partition = -1 },
		"no role":      func(m *statemeshv1.Answer) { m.Role = 0 },
		"role 77":      func(m *statemeshv1.Answer) { m.Role = 77 },
		"no token":     func(m *statemeshv1.Answer) { m.Token = []byte("token") },
	} {
		m := FromAnswer("s", want)
		change(m)
		if _, err := ToAnswer(m); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ToAnswer(nil); !errors.Is(err, ErrMalformed) {
		t.Error(err)
	}
}

// SE-14: an empty value, a value and no value are three things on the wire too.
func TestValueBothWays(t *testing.T) {
	t.Parallel()
	for _, want := range []store.Value{{Data: []byte{}, Timestamp: -1}, {Data: []byte{}, Timestamp: 0}, {Data: []byte("\xff\x00"), Timestamp: 5}} {
		m := reread(t, &statemeshv1.GetResponse{Value: FromValue(want)}, &statemeshv1.GetResponse{})
		got, ok := ToValue(m.GetValue())
		if !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%#v became %#v, %v", want, got, ok)
		}
	}
	if v, ok := ToValue(nil); ok || v.Data != nil {
		t.Error("no value became one")
	}
}

func TestReadOptionsBothWays(t *testing.T) {
	t.Parallel()
	cut := store.Token{Cuts: map[store.Partition]store.Cut{5: {TopicID: [16]byte{7}, Next: 12}}}
	for _, want := range []ReadOptions{
		{},
		{MaxStaleness: time.Second},
		{BypassCache: true},
		{OnlyActive: true, BypassCache: true},
		{MaxStaleness: time.Millisecond, BypassCache: true, OnlyActive: true},
		{Isolation: store.ReadUncommitted},
		{Wait: time.Second},
		{AtLeast: cut, Wait: time.Nanosecond},
		{AtLeast: store.Token{Inputs: store.Position{"in": {0: 0}}}},
	} {
		m := FromReadOptions("s", &want)
		if (m == nil) != want.IsZero() {
			t.Errorf("%+v: zero %v, message %v", want, want.IsZero(), m)
		}
		got, err := ToReadOptions("s", m)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v became %+v: %v", want, got, err)
		}
	}
	if got, err := ToReadOptions("s", &statemeshv1.ReadOptions{
		Isolation: statemeshv1.IsolationLevel_ISOLATION_LEVEL_READ_COMMITTED,
	}); err != nil || !got.IsZero() {
		t.Errorf("%+v, %v", got, err)
	}
	// Tokens and a position add up.
	later := store.Token{Cuts: map[store.Partition]store.Cut{5: {TopicID: [16]byte{7}, Next: 13}, 6: {Next: 1}}}
	got, err := ToReadOptions("s", &statemeshv1.ReadOptions{
		AtLeast:         [][]byte{FromToken("s", later), FromToken("s", cut)},
		AtLeastPosition: FromPosition(store.Position{"in": {3: 4}}),
	})
	later.Inputs = store.Position{"in": {3: 4}}
	if err != nil || !reflect.DeepEqual(got.AtLeast, later) {
		t.Errorf("%s, want %s: %v", got.AtLeast, later, err)
	}
}

// A token of another store, a damaged one, or too much of it is refused, and so is a position that cannot be one.
func TestHostileTokens(t *testing.T) {
	t.Parallel()
	ok := FromToken("s", store.Token{Inputs: store.Position{"in": {3: 4}}})
	many := make([][]byte, MaxTokenBytes/len(ok)+1)
	for i := range many {
		many[i] = ok
	}
	position := func(topic string, p int32, o int64) *statemeshv1.Position {
		return &statemeshv1.Position{Topics: []*statemeshv1.TopicPosition{
			{Topic: topic, Partitions: []*statemeshv1.PartitionOffset{{Partition: p, Offset: o}}},
		}}
	}
	for name, m := range map[string]*statemeshv1.ReadOptions{
		"another store":      {AtLeast: [][]byte{FromToken("t", store.Token{Inputs: store.Position{"in": {3: 4}}})}},
		"damaged":            {AtLeast: [][]byte{ok, ok[:len(ok)-1]}},
		"empty":              {AtLeast: [][]byte{{}}},
		"too large":          {AtLeast: [][]byte{make([]byte, MaxTokenBytes+1)}},
		"too large together": {AtLeast: many},
		"no topic":           {AtLeastPosition: position("", 0, 0)},
		"negative partition": {AtLeastPosition: position("in", -1, 0)},
		"negative offset":    {AtLeastPosition: position("in", 0, -1)},
		"negative wait":      {Wait: durationpb.New(-1)},
		"wild wait":          {Wait: &durationpb.Duration{Seconds: 1, Nanos: -1}},
	} {
		if _, err := ToReadOptions("s", m); !errors.Is(err, store.ErrInvalidRequest) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Every value of every enum that a caller may send is honoured or refused: a new one must be decided about here.
func TestNoOptionIsIgnored(t *testing.T) {
	t.Parallel()
	honoured := map[string]bool{
		"CACHE_MODE_UNSPECIFIED": true, "CACHE_MODE_BYPASS": true,
		"ISOLATION_LEVEL_UNSPECIFIED": true, "ISOLATION_LEVEL_READ_COMMITTED": true,
		"ISOLATION_LEVEL_READ_UNCOMMITTED": true,
		"ROLE_PREFERENCE_UNSPECIFIED":      true, "ROLE_PREFERENCE_ACTIVE": true,
	}
	check := func(name string, m *statemeshv1.ReadOptions) {
		if _, err := ToReadOptions("s", m); (err == nil) != honoured[name] {
			t.Errorf("%s: %v", name, err)
		} else if err != nil && !errors.Is(err, store.ErrInvalidRequest) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for n, name := range statemeshv1.CacheMode_name {
		check(name, &statemeshv1.ReadOptions{Cache: statemeshv1.CacheMode(n)})
	}
	for n, name := range statemeshv1.IsolationLevel_name {
		check(name, &statemeshv1.ReadOptions{Isolation: statemeshv1.IsolationLevel(n)})
	}
	for n, name := range statemeshv1.RolePreference_name {
		check(name, &statemeshv1.ReadOptions{Role: statemeshv1.RolePreference(n)})
	}
}

func TestForwardedBothWays(t *testing.T) {
	t.Parallel()
	want := Forwarded{By: "a", Application: "app"}
	out, _ := metadata.FromOutgoingContext(want.Outgoing(metadata.AppendToOutgoingContext(t.Context(), "authorization", "secret")))
	if len(out.Get("authorization")) > 0 {
		t.Error("what a client sent along passed")
	}
	got, ok, err := ToForwarded(metadata.NewIncomingContext(t.Context(), out))
	if err != nil || !ok || got != want {
		t.Errorf("%+v, %v, %v", got, ok, err)
	}
	if _, ok, err := ToForwarded(context.WithoutCancel(t.Context())); ok || err != nil {
		t.Errorf("no mark: %v, %v", ok, err)
	}
	for _, md := range []metadata.MD{
		metadata.Pairs(forwardedByKey, "a"), metadata.Pairs(forwardedApplicationKey, "app"),
		metadata.Pairs(forwardedByKey, "a", forwardedByKey, "b", forwardedApplicationKey, "app"),
	} {
		if _, ok, err := ToForwarded(metadata.NewIncomingContext(t.Context(), md)); !ok || !errors.Is(err, store.ErrInvalidRequest) {
			t.Errorf("%v: %v, %v", md, ok, err)
		}
	}
}

// GN-03: a client never pings more often than a server allows.
func TestKeepaliveFitsPolicy(t *testing.T) {
	t.Parallel()
	if KeepaliveTime < 2*KeepaliveMinTime || KeepaliveTimeout >= KeepaliveTime {
		t.Errorf("ping every %s within %s, allowed every %s", KeepaliveTime, KeepaliveTimeout, KeepaliveMinTime)
	}
}
