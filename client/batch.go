package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// Lookup is the result for one key of a batch.
type Lookup struct {
	// Value is meaningful when Found.
	Value store.Value
	// Found is false when the key has no value, which is as much a proof as a [store.ErrNotFound].
	Found bool
	// Span is the window, the session, or the time the version was valid; zero in key-value stores.
	Span Span
	// Partition of the key.
	Partition store.Partition
	// Answer says what the result is worth. The results of one partition share its Position.
	Answer *Answer
}

// BatchGet returns one result per key, in order. Keys are grouped by owner, one request each, side by side. Each partition
// is read at one commit; different partitions may be read at different moments. An error means that at least one key was
// not answered; no results are returned then.
func (c *Client) BatchGet(ctx context.Context, name store.Name, keys [][]byte, opts ...Option) ([]Lookup, error) {
	points := make([]Point, len(keys))
	for i, key := range keys {
		points[i].Key = key
	}
	return c.BatchFetch(ctx, name, points, opts...)
}

// BatchFetch is [Client.BatchGet] of windows, sessions or versions.
func (c *Client) BatchFetch(ctx context.Context, name store.Name, points []Point, opts ...Option) ([]Lookup, error) {
	if len(points) == 0 {
		return nil, nil
	}
	b := &batch{c: c, name: name, o: gather(opts), points: points, results: make([]Lookup, len(points))}
	if err := c.ask(ctx, "batch get", name, b.o, b.open, b.send); err != nil {
		return nil, err
	}
	return b.results, nil
}

// batch is a BatchGet under way.
type batch struct {
	c       *Client
	name    store.Name
	o       *callOptions
	points  []Point
	results []Lookup

	mu sync.Mutex // guards byPart and results
	// byPart holds the indexes of the keys without a result, by partition.
	byPart map[store.Partition][]int
}

// open returns the partitions of the keys that have no result.
func (b *batch) open(s *router.Snapshot) ([]store.Partition, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	byPart := make(map[store.Partition][]int)
	var parts []store.Partition
	for i := range b.points {
		if b.results[i].Answer != nil {
			continue
		}
		p, err := partitionOf(s, b.name, b.points[i].Key, b.o)
		if err != nil {
			return nil, fmt.Errorf("key %d of %d: %w", i, len(b.points), err)
		}
		if byPart[p] == nil {
			parts = append(parts, p)
		}
		byPart[p] = append(byPart[p], i)
	}
	b.byPart = byPart
	return parts, nil
}

// send asks for the keys of some partitions.
func (b *batch) send(ctx context.Context, q statemeshv1.QueryServiceClient, parts []store.Partition) error {
	var indexes []int
	b.mu.Lock()
	for _, p := range parts {
		indexes = append(indexes, b.byPart[p]...)
	}
	b.mu.Unlock()
	return b.lookup(ctx, q, indexes)
}

// request is the request for some values: keys alone where that says it all.
func (b *batch) request(indexes []int) *statemeshv1.BatchGetRequest {
	req := &statemeshv1.BatchGetRequest{Store: string(b.name), Options: b.o.proto(b.name)}
	plain := !slices.ContainsFunc(indexes, func(at int) bool { return b.points[at].at != wire.Instant{} })
	for _, at := range indexes {
		if p := &b.points[at]; plain {
			req.Keys = append(req.Keys, p.Key)
		} else {
			req.Lookups = append(req.Lookups, &statemeshv1.Lookup{Key: p.Key, Instant: wire.FromInstant(p.at)})
		}
	}
	return req
}

// lookup asks for values. What is too much for one message, of the request, the answer, or in number, goes in two halves.
func (b *batch) lookup(ctx context.Context, q statemeshv1.QueryServiceClient, indexes []int) error {
	req := b.request(indexes)
	sent := time.Now()
	resp, err := q.BatchGet(ctx, req)
	if err = wire.FromStatus(err); err != nil {
		if e, ok := errors.AsType[*store.TooLargeError](err); ok && len(indexes) > 1 && e.What != "key" {
			half := len(indexes) / 2
			if err := b.lookup(ctx, q, indexes[:half]); err != nil {
				return err
			}
			return b.lookup(ctx, q, indexes[half:])
		}
		return err
	}
	answers := make(map[store.Partition]*Answer, len(resp.GetAnswers()))
	for _, m := range resp.GetAnswers() {
		a, err := wire.ToAnswer(m)
		if err != nil {
			return err
		}
		if err := b.c.accept(b.name, b.o, &a, sent); err != nil {
			return err
		}
		answers[a.Partition] = &a
	}
	if len(resp.GetResults()) != len(indexes) {
		return fmt.Errorf("%w: %d results for %d keys", wire.ErrMalformed, len(resp.GetResults()), len(indexes))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, at := range indexes {
		r := resp.GetResults()[i]
		l := Lookup{Partition: store.Partition(r.GetPartition())}
		if l.Answer = answers[l.Partition]; l.Answer == nil {
			return fmt.Errorf("%w: no answer for partition %d", wire.ErrMalformed, l.Partition)
		}
		l.Value, l.Found = wire.ToValue(r.GetValue())
		l.Span = spanOf(r.GetSpan())
		b.results[at] = l
	}
	return nil
}
