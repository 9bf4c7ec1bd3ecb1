package server

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/router/remotecache"
	"github.com/statemesh/statemesh/store"
)

// item is one value that is asked for.
type item struct {
	key []byte
	at  wire.Instant
}

// lookup is a read of one value.
type lookup struct {
	item

	value store.Value
	span  wire.Span
	found bool
	worth worth
}

// Get answers one value.
func (q *queryService) Get(ctx context.Context, req *statemeshv1.GetRequest) (*statemeshv1.GetResponse, error) {
	s := q.s
	rd, err := s.newRead(ctx, req.GetStore(), req.GetOptions(), req.GetFormat())
	if err != nil {
		return nil, err
	}
	l := &lookup{}
	if l.item, err = s.item(rd, req.GetKey(), req.GetTypedKey(), req.GetInstant()); err != nil {
		return nil, err
	}
	p, err := s.partition(rd, l.key, req.Partition)
	if err != nil {
		return nil, err
	}
	if err := s.scatter(ctx, rd, []store.Partition{p}, asker{
		local: func(ctx context.Context, p store.Partition, m manner) error { return s.getLocal(ctx, rd, p, m, l) },
		remote: func(ctx context.Context, to router.Replica, _ []store.Partition, m manner) error {
			if m == partially { // nothing to be kept
				return s.getDirect(ctx, rd, to, p, m, l)
			}
			return s.getRemote(ctx, rd, to, p, l)
		},
		hedge: func() hedge { return s.hedgeGet(rd, p, l) },
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
	resp := &statemeshv1.GetResponse{Answer: wire.FromAnswer(rd.store, answer)}
	if resp.Value, err = rd.fromValue(p, l.value); err != nil {
		return nil, err
	}
	if rd.family != keyValues {
		resp.Span = wire.FromSpan(l.span)
	}
	return resp, nil
}

// item checks what names one value.
func (s *Server) item(rd *read, key []byte, typed *statemeshv1.TypedValue, instant *statemeshv1.Instant) (item, error) {
	it := item{key: key}
	var err error
	if typed != nil {
		if it.key, err = rd.typedKey("typed_key", typed, key); err != nil {
			return item{}, err
		}
	}
	if it.at, err = wire.ToInstant(instant); err != nil {
		return item{}, err
	}
	return it, rd.mayAsk(it.at)
}

// hedgeGet looks l up in a place of its own, and not in the cache, where it would wait for the call that is slow.
func (s *Server) hedgeGet(rd *read, p store.Partition, l *lookup) hedge {
	other := &lookup{item: l.item}
	return hedge{
		asker: asker{
			local: func(ctx context.Context, p store.Partition, m manner) error { return s.getLocal(ctx, rd, p, m, other) },
			remote: func(ctx context.Context, to router.Replica, _ []store.Partition, m manner) error {
				return s.getDirect(ctx, rd, to, p, m, other)
			},
		},
		adopt: func() error { *l = *other; return nil },
		drop:  func() {},
	}
}

// getDirect asks a replica without the remote cache.
func (s *Server) getDirect(ctx context.Context, rd *read, to router.Replica, p store.Partition, m manner, l *lookup) error {
	sent := time.Now()
	r, err := s.lookupAt(ctx, rd, to, p, l.item, m)
	if err != nil {
		return err
	}
	l.value, l.found, l.span, l.worth = r.value, r.found, r.span, worth{at: sent, answer: r.answer}
	rd.call.via(viaRemote)
	return s.check(rd, l.worth)
}

func (s *Server) getLocal(ctx context.Context, rd *read, p store.Partition, m manner, l *lookup) error {
	r, err := s.pin(ctx, rd, p, m)
	if err != nil {
		return err
	}
	defer r.Close()
	l.value, l.span, err = r.fetch(ctx, rd, l.key, l.at)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	l.found = err == nil
	l.worth = s.localWorth(p, r)
	return s.check(rd, l.worth)
}

// cacheQuery is the canonical form of a lookup: its kind, its times, the key.
func (l *lookup) cacheQuery() string {
	if l.at.Of == wire.NoInstant {
		return "get\x00" + string(l.key)
	}
	b := make([]byte, 0, 2+16+len(l.key))
	b = append(b, 'i', byte(l.at.Of)) // no "get"
	b = binary.BigEndian.AppendUint64(b, uint64(l.at.Start))
	b = binary.BigEndian.AppendUint64(b, uint64(l.at.End))
	return string(append(b, l.key...))
}

// getRemote asks the remote cache, which asks the replica if it has nothing that satisfies the caller.
func (s *Server) getRemote(ctx context.Context, rd *read, to router.Replica, p store.Partition, l *lookup) error {
	var sent time.Time
	var endpoint string
	key := remotecache.Key{Store: rd.store, Partition: p, Query: l.cacheQuery()}
	if rd.opts.Isolation != store.ReadCommitted {
		key.Isolation = rd.opts.Isolation.String()
	}
	want := remotecache.Want{MaxStaleness: s.bound(rd, store.RoleCache), Fresh: rd.opts.BypassCache}
	if !rd.opts.AtLeast.Empty() {
		want.AtLeast, want.Patient = rd.opts.AtLeast.At(p), rd.opts.Wait > 0
	}
	a, err := s.deps.Cache.Get(ctx, key, want, func(ctx context.Context) (remotecache.Answer, error) {
		sent = time.Now()
		a, e, err := s.getFrom(ctx, rd, to, p, l)
		endpoint = e
		return a, err
	})
	if err != nil {
		return err
	}
	l.value, l.found, l.span = a.Value, a.Found, wire.Span{Start: a.Start, End: a.End}
	l.worth = worth{at: sent, answer: wire.Answer{
		Partition: p, Epoch: a.Epoch, Instance: a.Instance, Endpoint: endpoint,
		Facts: store.Facts{
			Role: a.Role, Sequence: a.Sequence, Position: a.Position, Token: a.Token, Age: a.Age, Isolation: a.Isolation,
		},
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
func (s *Server) getFrom(ctx context.Context, rd *read, to router.Replica, p store.Partition, l *lookup) (remotecache.Answer, string, error) {
	r, err := s.lookupAt(ctx, rd, to, p, l.item, thorough)
	if err != nil {
		return remotecache.Answer{}, "", err
	}
	f := r.answer.Facts
	return remotecache.Answer{
		Value: r.value, Start: r.span.Start, End: r.span.End, Found: r.found, Sequence: f.Sequence, Position: f.Position, Token: f.Token,
		Age: f.Age, Isolation: f.Isolation, Epoch: r.answer.Epoch, Role: f.Role, Instance: r.answer.Instance,
	}, r.answer.Endpoint, nil
}
