package server

import (
	"cmp"
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

// counts is a Count under way. Different partitions add to it at the same time.
type counts struct {
	exact bool

	mu     sync.Mutex // guards the rest
	parts  []*statemeshv1.PartitionCount
	worths []worth
}

func (c *counts) add(parts []*statemeshv1.PartitionCount, worths ...worth) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.parts = append(c.parts, parts...)
	c.worths = append(c.worths, worths...)
}

// Count tells the number of rows of a store, or of some of its partitions.
func (q *queryService) Count(ctx context.Context, req *statemeshv1.CountRequest) (*statemeshv1.CountResponse, error) {
	s := q.s
	rd, err := s.newRead(ctx, req.GetStore(), req.GetOptions(), statemeshv1.Format_FORMAT_UNSPECIFIED)
	if err != nil {
		return nil, err
	}
	parts, err := rd.partitions(req.GetPartitions())
	if err != nil {
		return nil, err
	}
	c := &counts{exact: req.GetExact()}
	if c.exact {
		if rd.family == versions { // versions are read by key
			return nil, rd.wrongKind("exact count")
		}
		limit := s.limits.scans
		if rd.origin == router.OriginPeer {
			limit = s.limits.peerScans
		}
		if err := limit.acquire(); err != nil {
			return nil, err
		}
		defer limit.release()
	}
	ask := s.countsInto(rd, c)
	if !c.exact { // which takes as long as there are rows
		ask.hedge = func() hedge {
			other := &counts{}
			return hedge{asker: s.countsInto(rd, other), adopt: func() error { c.add(other.parts, other.worths...); return nil }, drop: func() {}}
		}
	}
	if err := s.scatter(ctx, rd, parts, ask); err != nil {
		return nil, err
	}
	answers, err := s.sealAll(rd, c.worths)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(c.parts, func(a, b *statemeshv1.PartitionCount) int { return cmp.Compare(a.GetPartition(), b.GetPartition()) })
	resp := &statemeshv1.CountResponse{Answers: answers, Partitions: c.parts}
	for _, p := range c.parts {
		resp.ApproximateCount += p.GetRows()
	}
	if c.exact {
		resp.ExactCount = &resp.ApproximateCount
	}
	return resp, nil
}

func (s *Server) countsInto(rd *read, c *counts) asker {
	return asker{
		local: func(ctx context.Context, p store.Partition, m manner) error { return s.countLocal(ctx, rd, p, m, c) },
		remote: func(ctx context.Context, to router.Replica, parts []store.Partition, m manner) error {
			return s.countRemote(ctx, rd, to, parts, m, c)
		},
	}
}

func (s *Server) countLocal(ctx context.Context, rd *read, p store.Partition, m manner, c *counts) error {
	r, err := s.pin(ctx, rd, p, m)
	if err != nil {
		return err
	}
	defer r.Close()
	reader, err := r.reader(rd)
	if err != nil {
		return err
	}
	n := &statemeshv1.PartitionCount{Partition: int32(p)}
	if c.exact {
		n.Rows, err = s.countRows(ctx, rd, r, p)
	} else {
		n.Rows, err = reader.ApproximateCount(ctx)
	}
	if err != nil {
		return err
	}
	if sized, ok := reader.(store.Sized); ok {
		bytes, err := sized.ApproximateBytes(ctx)
		if err != nil {
			return err
		}
		n.ApproximateBytes = &bytes
	}
	w := s.localWorth(p, r)
	if err := s.check(rd, w); err != nil {
		return err
	}
	c.add([]*statemeshv1.PartitionCount{n}, w)
	return nil
}

// countRows counts every row of a partition, up to what one stream of a scan may have.
func (s *Server) countRows(ctx context.Context, rd *read, r *pinned, p store.Partition) (int64, error) {
	it, err := everything(rd).open(ctx, r, p)
	if err != nil {
		return 0, err
	}
	defer it.Close()
	var n int64
	for it.Next() {
		if n++; n > s.cfg.MaxScanRows {
			return 0, &store.TooLargeError{
				Store: rd.store, What: "exact count", Size: n, Limit: s.cfg.MaxScanRows, Setting: "server.max.scan.rows",
			}
		}
		if n%ctxCheckRows == 0 && ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
	}
	return n, it.Err()
}

func (s *Server) countRemote(ctx context.Context, rd *read, to router.Replica, parts []store.Partition, m manner, c *counts) error {
	client, err := s.peer(to)
	if err != nil {
		return err
	}
	hop, cancel := s.hopContext(ctx)
	defer cancel()
	sent := time.Now()
	resp, err := client.Count(hop, &statemeshv1.CountRequest{
		Store: string(rd.store), Partitions: fromPartitions(parts), Options: s.hopOptions(rd, to, m, parts...), Exact: c.exact,
	})
	if err := s.hopError(ctx, err); err != nil {
		return err
	}
	worths, err := checkAnswers(resp.GetAnswers(), parts, sent)
	if err != nil {
		return err
	}
	counted := resp.GetPartitions()
	if len(counted) != len(parts) || (resp.ExactCount != nil) != c.exact {
		return fmt.Errorf("%w: counts of %d partitions for %d", wire.ErrMalformed, len(counted), len(parts))
	}
	slices.Sort(parts)
	for i, n := range counted {
		if store.Partition(n.GetPartition()) != parts[i] || n.GetRows() < 0 {
			return fmt.Errorf("%w: a count of partition %d: %d", wire.ErrMalformed, n.GetPartition(), n.GetRows())
		}
	}
	if err := s.check(rd, worths...); err != nil {
		return err
	}
	rd.call.via(viaRemote)
	c.add(counted, worths...)
	return nil
}
