package wire

import (
	"context"
	"errors"
	"reflect"
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
	shuffled.Stores = []router.StoreInfo{want.Stores[1], want.Stores[0]}
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
		Facts: store.Facts{Role: store.RoleActive, Sequence: 3, Age: 17 * time.Nanosecond, Position: store.Position{"x": {1: 2, 0: 9}, "w": {1: 0}}},
	}
	got, err := ToAnswers(reread(t, &statemeshv1.CountResponse{Answers: []*statemeshv1.Answer{FromAnswer(want)}}, &statemeshv1.CountResponse{}).GetAnswers())
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
	} {
		m := FromAnswer(want)
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
	for _, want := range []ReadOptions{
		{},
		{MaxStaleness: time.Second},
		{BypassCache: true},
		{OnlyActive: true, BypassCache: true},
		{MaxStaleness: time.Millisecond, BypassCache: true, OnlyActive: true},
	} {
		got, err := ToReadOptions(FromReadOptions(want))
		if err != nil || got != want {
			t.Errorf("%+v became %+v: %v", want, got, err)
		}
	}
	if got, err := ToReadOptions(&statemeshv1.ReadOptions{
		Isolation: statemeshv1.IsolationLevel_ISOLATION_LEVEL_READ_COMMITTED,
	}); err != nil || got != (ReadOptions{}) {
		t.Errorf("%+v, %v", got, err)
	}
}

// Every value of every enum that a caller may send is honoured or refused: a new one must be decided about here.
func TestNoOptionIsIgnored(t *testing.T) {
	t.Parallel()
	honoured := map[string]bool{
		"CACHE_MODE_UNSPECIFIED": true, "CACHE_MODE_BYPASS": true,
		"ISOLATION_LEVEL_UNSPECIFIED": true, "ISOLATION_LEVEL_READ_COMMITTED": true,
		"ROLE_PREFERENCE_UNSPECIFIED": true, "ROLE_PREFERENCE_ACTIVE": true,
	}
	check := func(name string, m *statemeshv1.ReadOptions) {
		if _, err := ToReadOptions(m); (err == nil) != honoured[name] {
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
