package client

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// Count is a number of rows: of keys, windows, sessions, or keys that have a latest version.
type Count struct {
	// Approximate number; see upstream's approximateNumEntries. The exact one, of [Client.CountExact].
	Approximate int64
	// Partitions are the parts of the sum, in no particular order.
	Partitions []PartitionCount
	// Answers say what it is worth, one per partition, in no particular order.
	Answers []Answer
}

// PartitionCount is the size of one partition.
type PartitionCount struct {
	Partition store.Partition
	Rows      int64
	// Bytes of keys and values, approximately; -1 when the replica cannot tell.
	Bytes int64
}

// Count estimates the number of rows of a store, over all partitions or the one of [InPartition]. Owners are asked side
// by side.
func (c *Client) Count(ctx context.Context, name store.Name, opts ...Option) (Count, error) {
	return c.count(ctx, &statemeshv1.CountRequest{Store: string(name)}, opts)
}

// CountExact counts every row: each partition's at its own commit, as costly as a scan, and within its limits. Versioned
// stores refuse it.
func (c *Client) CountExact(ctx context.Context, name store.Name, opts ...Option) (Count, error) {
	return c.count(ctx, &statemeshv1.CountRequest{Store: string(name), Exact: true}, opts)
}

// count asks what says for all partitions that are wanted.
func (c *Client) count(ctx context.Context, what *statemeshv1.CountRequest, opts []Option) (Count, error) {
	name := store.Name(what.GetStore())
	o := gather(opts)
	var mu sync.Mutex // guards what follows
	var out Count
	counted := make(map[store.Partition]bool)

	open := func(s *router.Snapshot) ([]store.Partition, error) {
		all, err := partitionsOf(s, name, o)
		if err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		left := all[:0]
		for _, p := range all {
			if !counted[p] {
				left = append(left, p)
			}
		}
		return left, nil
	}
	send := func(ctx context.Context, q statemeshv1.QueryServiceClient, parts []store.Partition) error {
		sent := time.Now()
		resp, err := q.Count(ctx, &statemeshv1.CountRequest{
			Store: string(name), Partitions: toInt32(parts), Options: o.proto(name), Exact: what.GetExact(),
		})
		if err != nil {
			return err
		}
		answers, err := wire.ToAnswers(resp.GetAnswers())
		if err != nil {
			return err
		}
		for i := range answers {
			if err := c.accept(name, o, &answers[i], sent); err != nil {
				return err
			}
		}
		if what.GetExact() && resp.ExactCount == nil {
			return fmt.Errorf("%w: no exact count", wire.ErrMalformed)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, m := range resp.GetPartitions() {
			n := PartitionCount{Partition: store.Partition(m.GetPartition()), Rows: m.GetRows(), Bytes: -1}
			if m.ApproximateBytes != nil {
				n.Bytes = m.GetApproximateBytes()
			}
			out.Partitions = append(out.Partitions, n)
		}
		out.Approximate += resp.GetApproximateCount()
		out.Answers = append(out.Answers, answers...)
		for _, p := range parts {
			counted[p] = true
		}
		return nil
	}
	if err := c.ask(ctx, "count", name, o, open, send); err != nil {
		return Count{}, err
	}
	return out, nil
}

// partitionsOf are all partitions of a store, or the one that was given.
func partitionsOf(s *router.Snapshot, name store.Name, o *callOptions) ([]store.Partition, error) {
	st, err := s.Store(name)
	if err != nil {
		return nil, err
	}
	if o.placed {
		return []store.Partition{o.partition}, nil
	}
	all := make([]store.Partition, st.Partitions)
	for i := range all {
		all[i] = store.Partition(i)
	}
	return all, nil
}

func toInt32(parts []store.Partition) []int32 {
	out := make([]int32, len(parts))
	for i, p := range parts {
		out[i] = int32(p)
	}
	return out
}
