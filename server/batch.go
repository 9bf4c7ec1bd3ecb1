package server

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// batch is a read of many values. Different partitions fill in different places at the same time.
type batch struct {
	items   []item
	byPart  map[store.Partition][]int // indexes into items
	results []*statemeshv1.BatchGetResult

	mu     sync.Mutex // guards the rest
	worths []worth
	bytes  int
}

// BatchGet answers many values: one request per instance that owns some of them.
func (q *queryService) BatchGet(ctx context.Context, req *statemeshv1.BatchGetRequest) (*statemeshv1.BatchGetResponse, error) {
	s := q.s
	rd, err := s.newRead(ctx, req.GetStore(), req.GetOptions(), req.GetFormat())
	if err != nil {
		return nil, err
	}
	items, err := s.items(rd, req)
	if err != nil {
		return nil, err
	}
	b := &batch{
		items: items, byPart: make(map[store.Partition][]int), results: make([]*statemeshv1.BatchGetResult, len(items)),
	}
	var parts []store.Partition
	for i := range items {
		p, err := s.partition(rd, items[i].key, nil)
		if err != nil {
			return nil, err
		}
		if b.byPart[p] == nil {
			parts = append(parts, p)
		}
		b.byPart[p] = append(b.byPart[p], i)
	}
	slices.Sort(parts)
	if err := s.scatter(ctx, rd, parts, asker{
		local: func(ctx context.Context, p store.Partition, m manner) error { return s.batchLocal(ctx, rd, p, m, b) },
		remote: func(ctx context.Context, to router.Replica, parts []store.Partition, m manner) error {
			return s.batchRemote(ctx, rd, to, parts, m, b)
		},
		hedge: func() hedge { return s.hedgeBatch(rd, b) },
	}); err != nil {
		return nil, err
	}
	answers, err := s.sealAll(rd, b.worths)
	if err != nil {
		return nil, err
	}
	if rd.typed() {
		for _, r := range b.results {
			if r.GetValue() == nil {
				continue
			}
			if err := rd.typeValue(store.Partition(r.GetPartition()), r.GetValue()); err != nil {
				return nil, err
			}
		}
	}
	return &statemeshv1.BatchGetResponse{Results: b.results, Answers: answers}, nil
}

// items checks what is looked up.
func (s *Server) items(rd *read, req *statemeshv1.BatchGetRequest) ([]item, error) {
	n := len(req.GetKeys()) + len(req.GetLookups())
	switch {
	case n > s.cfg.MaxBatchKeys:
		return nil, &store.TooLargeError{
			Store: rd.store, What: "batch", Size: int64(n), Limit: int64(s.cfg.MaxBatchKeys), Setting: "server.max.batch.keys",
		}
	case len(req.GetLookups()) == 0: // also when there is nothing at all
		items := make([]item, len(req.GetKeys()))
		for i, key := range req.GetKeys() {
			items[i].key = key
		}
		return items, rd.mayAsk(wire.Instant{})
	case len(req.GetKeys()) > 0:
		return nil, &store.InvalidRequestError{Field: "lookups", Reason: "not together with keys"}
	}
	items := make([]item, len(req.GetLookups()))
	for i, l := range req.GetLookups() {
		if err := wire.CheckLookup(l); err != nil {
			return nil, err
		}
		var err error
		if items[i], err = s.item(rd, l.GetKey(), l.GetTypedKey(), l.GetInstant()); err != nil {
			return nil, err
		}
	}
	return items, nil
}

// hedgeBatch looks some partitions of b up into a place of their own.
func (s *Server) hedgeBatch(rd *read, b *batch) hedge {
	other := &batch{items: b.items, byPart: b.byPart, results: make([]*statemeshv1.BatchGetResult, len(b.items))}
	return hedge{
		asker: asker{
			local: func(ctx context.Context, p store.Partition, m manner) error {
				return s.batchLocal(ctx, rd, p, m, other)
			},
			remote: func(ctx context.Context, to router.Replica, parts []store.Partition, m manner) error {
				return s.batchRemote(ctx, rd, to, parts, m, other)
			},
		},
		adopt: func() error {
			for i, r := range other.results {
				if r != nil {
					b.results[i] = r
				}
			}
			return s.addTo(b, other.bytes, other.worths...)
		},
		drop: func() {},
	}
}

func (s *Server) batchLocal(ctx context.Context, rd *read, p store.Partition, m manner, b *batch) error {
	r, err := s.pin(ctx, rd, p, m)
	if err != nil {
		return err
	}
	defer r.Close()
	indexes := b.byPart[p]
	items := make([]item, len(indexes))
	for i, at := range indexes {
		items[i] = b.items[at]
	}
	values, spans, found, err := r.fetchMany(ctx, rd, items)
	if err != nil {
		return err
	}
	bytes := 0
	for i, at := range indexes {
		res := &statemeshv1.BatchGetResult{Partition: int32(p)}
		if found[i] {
			res.Value = wire.FromValue(values[i])
			if spans != nil {
				res.Span = wire.FromSpan(spans[i])
			}
			bytes += len(values[i].Data)
		}
		b.results[at] = res
	}
	return s.batchDone(rd, b, bytes, s.localWorth(p, r))
}

func (s *Server) batchRemote(ctx context.Context, rd *read, to router.Replica, parts []store.Partition, m manner, b *batch) error {
	client, err := s.peer(to)
	if err != nil {
		return err
	}
	req := &statemeshv1.BatchGetRequest{Store: string(rd.store), Options: s.hopOptions(rd, to, m, parts...)}
	var at []int
	for _, p := range parts {
		for _, i := range b.byPart[p] {
			it := &b.items[i]
			if rd.family == keyValues {
				req.Keys = append(req.Keys, it.key)
			} else {
				req.Lookups = append(req.Lookups, &statemeshv1.Lookup{Key: it.key, Instant: wire.FromInstant(it.at)})
			}
			at = append(at, i)
		}
	}
	hop, cancel := s.hopContext(ctx)
	defer cancel()
	sent := time.Now()
	resp, err := client.BatchGet(hop, req)
	if err := s.hopError(ctx, err); err != nil {
		return err
	}
	worths, err := checkAnswers(resp.GetAnswers(), parts, sent)
	if err != nil {
		return err
	}
	if len(resp.GetResults()) != len(at) {
		return fmt.Errorf("%w: %d results for %d keys", wire.ErrMalformed, len(resp.GetResults()), len(at))
	}
	bytes := 0
	for i, res := range resp.GetResults() {
		if want := router.PartitionFor(b.items[at[i]].key, rd.info.Partitions); store.Partition(res.GetPartition()) != want {
			return fmt.Errorf("%w: result %d is of partition %d, want %d", wire.ErrMalformed, i, res.GetPartition(), want)
		}
		if has := res.GetSpan() != nil; has != (rd.family != keyValues && res.GetValue() != nil) {
			return fmt.Errorf("%w: result %d of a %s store: with times %v", wire.ErrMalformed, i, rd.info.Kind, has)
		}
		bytes += len(res.GetValue().GetData())
		b.results[at[i]] = res
	}
	rd.call.via(viaRemote)
	return s.batchDone(rd, b, bytes, worths...)
}

// batchDone adds what some partitions answered, unless all of it is more than one message takes.
func (s *Server) batchDone(rd *read, b *batch, bytes int, worths ...worth) error {
	if err := s.check(rd, worths...); err != nil {
		return err
	}
	// First what no repetition mends: a caller who is told so asks for less at once.
	if err := s.addTo(b, bytes); err != nil {
		return err
	}
	if err := rd.call.holdAnswer(int64(bytes)); err != nil {
		return err
	}
	return s.addTo(b, 0, worths...)
}

// addTo counts what was answered to a batch.
func (s *Server) addTo(b *batch, bytes int, worths ...worth) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bytes += bytes; b.bytes > s.cfg.MaxMessageBytes {
		return s.tooLarge("response", int64(b.bytes))
	}
	b.worths = append(b.worths, worths...)
	return nil
}
