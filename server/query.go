package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/router/remotecache"
	"github.com/statemesh/statemesh/store"
)

// queryService is the QueryService. Handlers return errors of the domain; the interceptors translate them.
type queryService struct {
	statemeshv1.UnsafeQueryServiceServer

	s *Server
}

// lookup is a read of one key.
type lookup struct {
	key   []byte
	value store.Value
	found bool
	worth worth
}

// Get answers one key.
func (q *queryService) Get(ctx context.Context, req *statemeshv1.GetRequest) (*statemeshv1.GetResponse, error) {
	s := q.s
	rd, err := s.newRead(ctx, req.GetStore(), req.GetOptions(), "get")
	if err != nil {
		return nil, err
	}
	p, err := s.partition(rd, req.GetKey(), req.Partition)
	if err != nil {
		return nil, err
	}
	l := &lookup{key: req.GetKey()}
	if err := s.scatter(ctx, rd, []store.Partition{p}, asker{
		local: func(ctx context.Context, p store.Partition) error { return s.getLocal(ctx, rd, p, l) },
		remote: func(ctx context.Context, to router.Replica, _ []store.Partition) error {
			return s.getRemote(ctx, rd, to, p, l)
		},
	}); err != nil {
		return nil, err
	}
	answer, err := s.seal(rd, l.worth)
	if err != nil {
		return nil, err
	}
	if !l.found {
		return nil, &wire.AbsentError{Store: rd.store, Answer: answer}
	}
	return &statemeshv1.GetResponse{Value: wire.FromValue(l.value), Answer: wire.FromAnswer(rd.store, answer)}, nil
}

func (s *Server) getLocal(ctx context.Context, rd *read, p store.Partition, l *lookup) error {
	r, err := s.pin(ctx, rd, p)
	if err != nil {
		return err
	}
	defer r.Close()
	l.value, err = r.get(ctx, l.key)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	l.found = err == nil
	l.worth = s.localWorth(p, r)
	return s.check(rd, l.worth)
}

// getRemote asks the remote cache, which asks the replica if it has nothing that satisfies the caller.
func (s *Server) getRemote(ctx context.Context, rd *read, to router.Replica, p store.Partition, l *lookup) error {
	var sent time.Time
	var endpoint string
	a, err := s.deps.Cache.Get(ctx,
		remotecache.Key{Store: rd.store, Partition: p, Query: "get\x00" + string(l.key)},
		remotecache.Want{MaxStaleness: s.bound(rd, store.RoleCache), Fresh: rd.opts.BypassCache},
		func(ctx context.Context) (remotecache.Answer, error) {
			sent = time.Now()
			a, e, err := s.getFrom(ctx, rd, to, p, l.key)
			endpoint = e
			return a, err
		})
	if err != nil {
		return err
	}
	l.value, l.found = a.Value, a.Found
	l.worth = worth{at: sent, answer: wire.Answer{
		Partition: p, Epoch: a.Epoch, Instance: a.Instance, Endpoint: endpoint,
		Facts: store.Facts{Role: a.Role, Sequence: a.Sequence, Position: a.Position, Age: a.Age},
	}}
	if a.Role != store.RoleCache {
		rd.call.via(viaRemote)
		return s.check(rd, l.worth)
	}
	rd.call.via(viaCache)
	l.worth.at, l.worth.answer.Instance, l.worth.answer.Endpoint = time.Now(), s.cfg.Instance, s.cfg.Endpoint
	return nil
}

// getFrom asks one replica. The age of its answer is that of the moment the replica sent it.
func (s *Server) getFrom(ctx context.Context, rd *read, to router.Replica, p store.Partition, key []byte) (remotecache.Answer, string, error) {
	client, err := s.peer(to)
	if err != nil {
		return remotecache.Answer{}, "", err
	}
	hop, cancel := s.hopContext(ctx)
	defer cancel()
	resp, err := client.Get(hop, &statemeshv1.GetRequest{
		Store: string(rd.store), Key: key, Partition: new(int32(p)), Options: s.hopOptions(rd, to, p),
	})
	err = s.hopError(ctx, err)
	var answer wire.Answer
	var value store.Value
	absent, ok := errors.AsType[*wire.AbsentError](err)
	switch {
	case ok:
		answer = absent.Answer
	case errors.Is(err, store.ErrNotFound):
		return remotecache.Answer{}, "", fmt.Errorf("%w: an absence without a proof", wire.ErrMalformed)
	case err != nil:
		return remotecache.Answer{}, "", err
	default:
		var has bool
		if value, has = wire.ToValue(resp.GetValue()); !has {
			return remotecache.Answer{}, "", fmt.Errorf("%w: no value", wire.ErrMalformed)
		}
		if answer, err = wire.ToAnswer(resp.GetAnswer()); err != nil {
			return remotecache.Answer{}, "", err
		}
	}
	if answer.Partition != p {
		return remotecache.Answer{}, "", fmt.Errorf("%w: an answer for partition %d, asked for %d", wire.ErrMalformed, answer.Partition, p)
	}
	f := answer.Facts
	return remotecache.Answer{
		Value: value, Found: !ok, Sequence: f.Sequence, Position: f.Position, Age: f.Age, Epoch: answer.Epoch,
		Role: f.Role, Instance: answer.Instance,
	}, answer.Endpoint, nil
}

// batch is a read of many keys. Different partitions fill in different places at the same time.
type batch struct {
	keys    [][]byte
	byPart  map[store.Partition][]int // indexes into keys
	results []*statemeshv1.BatchGetResult

	mu     sync.Mutex // guards the rest
	worths []worth
	bytes  int
}

// BatchGet answers many keys: one request per instance that owns some of them.
func (q *queryService) BatchGet(ctx context.Context, req *statemeshv1.BatchGetRequest) (*statemeshv1.BatchGetResponse, error) {
	s := q.s
	rd, err := s.newRead(ctx, req.GetStore(), req.GetOptions(), "batch get")
	if err != nil {
		return nil, err
	}
	if n := len(req.GetKeys()); n > s.cfg.MaxBatchKeys {
		return nil, &store.TooLargeError{
			Store: rd.store, What: "batch", Size: int64(n), Limit: int64(s.cfg.MaxBatchKeys), Setting: "server.max.batch.keys",
		}
	}
	b := &batch{
		keys: req.GetKeys(), byPart: make(map[store.Partition][]int),
		results: make([]*statemeshv1.BatchGetResult, len(req.GetKeys())),
	}
	var parts []store.Partition
	for i, key := range b.keys {
		p, err := s.partition(rd, key, nil)
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
		local: func(ctx context.Context, p store.Partition) error { return s.batchLocal(ctx, rd, p, b) },
		remote: func(ctx context.Context, to router.Replica, parts []store.Partition) error {
			return s.batchRemote(ctx, rd, to, parts, b)
		},
	}); err != nil {
		return nil, err
	}
	answers, err := s.sealAll(rd, b.worths)
	if err != nil {
		return nil, err
	}
	return &statemeshv1.BatchGetResponse{Results: b.results, Answers: answers}, nil
}

func (s *Server) batchLocal(ctx context.Context, rd *read, p store.Partition, b *batch) error {
	r, err := s.pin(ctx, rd, p)
	if err != nil {
		return err
	}
	defer r.Close()
	indexes := b.byPart[p]
	keys := make([][]byte, len(indexes))
	for i, at := range indexes {
		keys[i] = b.keys[at]
	}
	values, found, err := r.getMany(ctx, keys)
	if err != nil {
		return err
	}
	bytes := 0
	for i, at := range indexes {
		res := &statemeshv1.BatchGetResult{Partition: int32(p)}
		if found[i] {
			res.Value = wire.FromValue(values[i])
			bytes += len(values[i].Data)
		}
		b.results[at] = res
	}
	return s.batchDone(rd, b, bytes, s.localWorth(p, r))
}

func (s *Server) batchRemote(ctx context.Context, rd *read, to router.Replica, parts []store.Partition, b *batch) error {
	client, err := s.peer(to)
	if err != nil {
		return err
	}
	req := &statemeshv1.BatchGetRequest{Store: string(rd.store), Options: s.hopOptions(rd, to, parts...)}
	var at []int
	for _, p := range parts {
		for _, i := range b.byPart[p] {
			req.Keys = append(req.Keys, b.keys[i])
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
		if want := router.PartitionFor(req.GetKeys()[i], rd.info.Partitions); store.Partition(res.GetPartition()) != want {
			return fmt.Errorf("%w: result %d is of partition %d, want %d", wire.ErrMalformed, i, res.GetPartition(), want)
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
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bytes += bytes; b.bytes > s.cfg.MaxMessageBytes {
		return s.tooLarge("response", int64(b.bytes))
	}
	b.worths = append(b.worths, worths...)
	return nil
}

// Count estimates the number of keys of a store, or of some of its partitions.
func (q *queryService) Count(ctx context.Context, req *statemeshv1.CountRequest) (*statemeshv1.CountResponse, error) {
	s := q.s
	rd, err := s.newRead(ctx, req.GetStore(), req.GetOptions(), "count")
	if err != nil {
		return nil, err
	}
	parts, err := rd.partitions(req.GetPartitions())
	if err != nil {
		return nil, err
	}
	var (
		mu     sync.Mutex
		total  int64
		worths []worth
	)
	add := func(n int64, w ...worth) {
		mu.Lock()
		defer mu.Unlock()
		total += n
		worths = append(worths, w...)
	}
	if err := s.scatter(ctx, rd, parts, asker{
		local: func(ctx context.Context, p store.Partition) error {
			r, err := s.pin(ctx, rd, p)
			if err != nil {
				return err
			}
			defer r.Close()
			n, err := r.approximateCount(ctx)
			if err != nil {
				return err
			}
			w := s.localWorth(p, r)
			if err := s.check(rd, w); err != nil {
				return err
			}
			add(n, w)
			return nil
		},
		remote: func(ctx context.Context, to router.Replica, parts []store.Partition) error {
			n, w, err := s.countRemote(ctx, rd, to, parts)
			if err != nil {
				return err
			}
			add(n, w...)
			return nil
		},
	}); err != nil {
		return nil, err
	}
	answers, err := s.sealAll(rd, worths)
	if err != nil {
		return nil, err
	}
	return &statemeshv1.CountResponse{ApproximateCount: total, Answers: answers}, nil
}

func (s *Server) countRemote(ctx context.Context, rd *read, to router.Replica, parts []store.Partition) (int64, []worth, error) {
	client, err := s.peer(to)
	if err != nil {
		return 0, nil, err
	}
	hop, cancel := s.hopContext(ctx)
	defer cancel()
	sent := time.Now()
	resp, err := client.Count(hop, &statemeshv1.CountRequest{
		Store: string(rd.store), Partitions: fromPartitions(parts), Options: s.hopOptions(rd, to, parts...),
	})
	if err := s.hopError(ctx, err); err != nil {
		return 0, nil, err
	}
	worths, err := checkAnswers(resp.GetAnswers(), parts, sent)
	if err != nil {
		return 0, nil, err
	}
	rd.call.via(viaRemote)
	return resp.GetApproximateCount(), worths, s.check(rd, worths...)
}

// sealAll seals the answers of several partitions, ascending.
func (s *Server) sealAll(rd *read, worths []worth) ([]*statemeshv1.Answer, error) {
	slices.SortFunc(worths, func(a, b worth) int { return cmp.Compare(a.answer.Partition, b.answer.Partition) })
	out := make([]*statemeshv1.Answer, len(worths))
	for i, w := range worths {
		a, err := s.seal(rd, w)
		if err != nil {
			return nil, err
		}
		out[i] = wire.FromAnswer(rd.store, a)
	}
	return out, nil
}

func fromPartitions(parts []store.Partition) []int32 {
	out := make([]int32, len(parts))
	for i, p := range parts {
		out[i] = int32(p)
	}
	return out
}
