package server

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/store"
)

// halfPeer answers the first key of a batch and none of the others; alone, no key has a value.
type halfPeer struct{ statemeshv1.QueryServiceClient }

var halfAnswer = wire.Answer{
	Instance: "b", Endpoint: "b.test:7070", Epoch: 1,
	Facts: store.Facts{Role: store.RoleActive, Sequence: 1, Age: time.Millisecond},
}

func (halfPeer) BatchGet(_ context.Context, in *statemeshv1.BatchGetRequest, _ ...grpc.CallOption) (*statemeshv1.BatchGetResponse, error) {
	out := &statemeshv1.BatchGetResponse{Answers: []*statemeshv1.Answer{wire.FromAnswer(testStore, halfAnswer)}}
	for i := range in.GetKeys() {
		out.Results = append(out.Results, &statemeshv1.BatchGetResult{
			Partition: int32(i), Value: wire.FromValue(store.Value{Data: []byte("stale")}),
		})
	}
	return out, nil
}

func (halfPeer) Get(context.Context, *statemeshv1.GetRequest, ...grpc.CallOption) (*statemeshv1.GetResponse, error) {
	return nil, wire.ToStatus(&wire.AbsentError{Store: testStore, Answer: halfAnswer})
}

// Who asks again alone, after a batch that failed halfway, has nothing of that batch in its answer.
func TestLookupAfterHalfABatch(t *testing.T) {
	t.Parallel()
	m := newMesh(t, 1, 1, func(int) int { return 0 })
	s := m.node("a").srv
	rd := &read{store: testStore, family: keyValues}
	batch := []*rider{{item: item{key: []byte("k")}}, {item: item{key: []byte("l")}}}
	if err := s.lookupTogether(t.Context(), rd, halfPeer{}, nil, batch); err == nil {
		t.Fatal("a result of a wrong partition was taken")
	}
	if err := s.lookupAlone(t.Context(), rd, halfPeer{}, nil, batch[0]); err != nil {
		t.Fatal(err)
	}
	if r := batch[0]; r.found || r.value.Data != nil {
		t.Errorf("an absent key has the value %q", r.value.Data)
	}
}
