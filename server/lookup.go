package server

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// lookupAt asks a peer for one value, together with others that ask it for the same kind of thing.
func (s *Server) lookupAt(ctx context.Context, rd *read, to router.Replica, p store.Partition, it item, m manner) (*rider, error) {
	client, err := s.peer(to)
	if err != nil {
		return nil, err
	}
	options := s.hopOptions(rd, to, m, p)
	r := &rider{item: it, p: p}
	alone := func() error { return s.lookupAlone(ctx, rd, client, options, r) }
	if rd.family != keyValues || len(options.GetAtLeast()) > 0 || options.GetWait() != nil {
		return r, alone() // one window of a key goes with no other; what a caller waits for is its own
	}
	shared, err := proto.MarshalOptions{Deterministic: true}.Marshal(options)
	if err != nil {
		return nil, fmt.Errorf("read options: %w", err)
	}
	err = s.lanes.ride(ctx, laneKey{to.Endpoint, rd.store, string(shared)}, r, func(ctx context.Context, batch []*rider) error {
		if len(batch) == 1 {
			return s.lookupAlone(ctx, rd, client, options, batch[0])
		}
		return s.lookupTogether(ctx, rd, client, options, batch)
	})
	if errors.Is(err, errRide) {
		err = alone()
	}
	return r, err
}

func (s *Server) lookupAlone(
	ctx context.Context, rd *read, client statemeshv1.QueryServiceClient, options *statemeshv1.ReadOptions, r *rider,
) error {
	r.value, r.span, r.found = store.Value{}, wire.Span{}, false // a batch that failed halfway may have left something
	hop, cancel := s.hopContext(ctx)
	defer cancel()
	resp, err := client.Get(hop, &statemeshv1.GetRequest{
		Store: string(rd.store), Key: r.key, Partition: new(int32(r.p)), Options: options,
		Instant: wire.FromInstant(r.at),
	})
	err = s.hopError(ctx, err)
	absent, ok := errors.AsType[*wire.AbsentError](err)
	switch {
	case ok:
		r.answer = absent.Answer
	case errors.Is(err, store.ErrNotFound):
		return fmt.Errorf("%w: an absence without a proof", wire.ErrMalformed)
	case err != nil:
		return err
	default:
		if r.value, r.found = wire.ToValue(resp.GetValue()); !r.found {
			return fmt.Errorf("%w: no value", wire.ErrMalformed)
		}
		var timed bool
		if r.span, timed = wire.ToSpan(resp.GetSpan()); timed != (rd.family != keyValues) {
			return fmt.Errorf("%w: a value of a %s store: with times %v", wire.ErrMalformed, rd.info.Kind, timed)
		}
		if r.answer, err = wire.ToAnswer(resp.GetAnswer()); err != nil {
			return err
		}
	}
	if r.answer.Partition != r.p {
		return fmt.Errorf("%w: an answer for partition %d, asked for %d", wire.ErrMalformed, r.answer.Partition, r.p)
	}
	return nil
}

// lookupTogether asks for a batch. An error means that nobody has an answer.
func (s *Server) lookupTogether(
	ctx context.Context, rd *read, client statemeshv1.QueryServiceClient, options *statemeshv1.ReadOptions, batch []*rider,
) error {
	req := &statemeshv1.BatchGetRequest{Store: string(rd.store), Options: options, Keys: make([][]byte, len(batch))}
	for i, r := range batch {
		req.Keys[i] = r.key
	}
	hop, cancel := s.hopContext(ctx)
	defer cancel()
	resp, err := client.BatchGet(hop, req)
	if err := s.hopError(ctx, err); err != nil {
		return err
	}
	answers, err := wire.ToAnswers(resp.GetAnswers())
	if err != nil {
		return err
	}
	if n := len(resp.GetResults()); n != len(batch) {
		return fmt.Errorf("%w: %d results for %d keys", wire.ErrMalformed, n, len(batch))
	}
	byPartition := make(map[store.Partition]wire.Answer, len(answers))
	for _, a := range answers {
		byPartition[a.Partition] = a
	}
	for i, r := range batch {
		a, ok := byPartition[r.p]
		if got := store.Partition(resp.GetResults()[i].GetPartition()); got != r.p || !ok {
			return fmt.Errorf("%w: a result of partition %d, asked for %d", wire.ErrMalformed, got, r.p)
		}
		r.answer = a
		r.value, r.found = wire.ToValue(resp.GetResults()[i].GetValue())
	}
	return nil
}
