package client

import (
	"bytes"
	"context"
	"iter"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// ScanQuery describes an ordered read. Order is unsigned lexicographic over the key bytes.
type ScanQuery struct {
	// From and To are inclusive bounds; nil means open. From > To is an empty result, not an error.
	From, To []byte
	// Prefix restricts the scan to keys that start with it; it may not be combined with From or To. nil: no restriction.
	Prefix []byte
	// Reverse returns rows in descending order. From stays the lower bound.
	Reverse bool
	// Limit is the most rows wanted; 0: all.
	Limit int64
	// Answers, if set, is told what rows are worth whenever the stream of an instance begins, at the start and after a
	// move, before the first of its rows. It is called in the goroutine that ranges over the scan.
	Answers func([]Answer)
}

// Row is one row of a scan.
type Row struct {
	Key   []byte
	Value store.Value
	// Span is the window, the session, or the time the version was valid; zero in key-value stores.
	Span      Span
	Partition store.Partition
}

// Scan reads rows in key order, over all partitions merged or the one of [InPartition]:
//
//	for row, err := range c.Scan(ctx, "counts", client.ScanQuery{Prefix: []byte("a")}) {
//		if err != nil { return err } // the last thing a scan yields; the rows before it are right, but not all
//		use(row)
//	}
//
// Each owner streams its own partitions, read at one commit each. When a stream breaks or its partitions move, the scan
// goes on behind the last row at whoever owns them then, at a newer commit: no row is lost or repeated, and [Config].Timeout
// without progress ends it. Breaking out of the loop ends the streams.
func (c *Client) Scan(ctx context.Context, name store.Name, q ScanQuery, opts ...Option) iter.Seq2[Row, error] {
	return c.scan(ctx, scan{name: name, q: q}, opts)
}

func (c *Client) scan(ctx context.Context, what scan, opts []Option) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()  // ends what is still streaming
		started := what // each range over it is a scan of its own
		s := &started
		s.c, s.o = c, gather(opts)
		if err := s.plan(ctx); err != nil {
			yield(Row{}, err)
			return
		}
		for _, seg := range s.segments { // all owners begin at once
			if seg.target.Endpoint != "" {
				_ = seg.open(ctx, seg.target) // whatever is wrong with it, fill finds out and does something about it
			}
		}
		for n := int64(0); s.q.Limit == 0 || n < s.q.Limit; n++ {
			seg, err := s.least(ctx)
			if seg != nil && ctx.Err() != nil { // what has arrived already would still flow
				err = &CallError{Op: "scan", Store: s.name, Attempts: 1, Err: context.Cause(ctx)}
			}
			if err != nil {
				yield(Row{}, err)
				return
			}
			if seg == nil {
				break
			}
			if !yield(seg.take(), nil) {
				return
			}
		}
		if s.partial != nil {
			yield(Row{}, s.partial)
		}
	}
}

// scan is a Scan under way: one segment per instance, merged.
type scan struct {
	c        *Client
	name     store.Name
	q        ScanQuery
	o        *callOptions
	segments []*segment
	partial  error // some of the rows are of a copy that is being restored

	// Of stores with times: only rows of this key; nil: of any. And the times, put into a request.
	key   []byte
	times func(*statemeshv1.ScanRequest)
}

// plan divides the partitions among their owners.
func (s *scan) plan(ctx context.Context) error {
	if s.o.err != nil {
		return s.o.err
	}
	if len(s.q.Prefix) > 0 && (s.q.From != nil || s.q.To != nil) {
		return &store.InvalidRequestError{Field: "prefix", Reason: "may not be combined with from or to"}
	}
	if s.q.Limit < 0 {
		return &store.InvalidRequestError{Field: "limit", Reason: "negative"}
	}
	ctx, cancel := s.c.deadline(ctx)
	defer cancel()
	a := s.c.begin("scan", s.name, s.o)
	for {
		a.n++
		m, err := a.topology(ctx)
		if err == nil {
			if s.segments, err = s.divide(a, m); err == nil {
				return nil
			}
		}
		if err := a.again(ctx, m, failure{err: err}); err != nil {
			return err
		}
	}
}

func (s *scan) divide(a *attempts, m *router.Snapshot) ([]*segment, error) {
	parts, err := s.partitions(m)
	if err != nil {
		return nil, err
	}
	if s.o.via != "" || s.o.anyone {
		return []*segment{{s: s, parts: parts}}, nil // one instance merges all
	}
	groups, err := a.group(m, parts)
	if err != nil {
		return nil, err
	}
	segments := make([]*segment, len(groups))
	for i := range groups {
		segments[i] = &segment{s: s, parts: groups[i].parts, target: groups[i].target}
	}
	return segments, nil
}

// partitions are those that have rows: that of the key, or all.
func (s *scan) partitions(m *router.Snapshot) ([]store.Partition, error) {
	if s.key == nil {
		return partitionsOf(m, s.name, s.o)
	}
	p, err := partitionOf(m, s.name, s.key, s.o)
	return []store.Partition{p}, err
}

// least returns the segment with the next row in order, nil when there is none. There are few segments, one per owner.
func (s *scan) least(ctx context.Context) (*segment, error) {
	var best *segment
	for _, seg := range s.segments {
		if err := seg.fill(ctx); err != nil {
			return nil, err
		}
		if !seg.has() {
			continue
		}
		if best == nil || s.before(seg.head(), best.head()) {
			best = seg
		}
	}
	return best, nil
}

// placeOf is where a row is in the order of its scan.
func placeOf(r *statemeshv1.Row) []byte {
	if c := r.GetCursor(); len(c) > 0 {
		return c
	}
	return r.GetKey()
}

// before orders rows by place in the direction of the scan, equal places in different partitions by partition.
func (s *scan) before(a, b *statemeshv1.Row) bool {
	switch cmp := bytes.Compare(placeOf(a), placeOf(b)); {
	case cmp == 0:
		return a.GetPartition() < b.GetPartition()
	case s.q.Reverse:
		return cmp > 0
	default:
		return cmp < 0
	}
}

// request is the request for a segment behind token, for at most limit rows; 0: no limit.
func (s *scan) request(parts []store.Partition, token []byte, limit int64) *statemeshv1.ScanRequest {
	req := &statemeshv1.ScanRequest{
		Store: string(s.name), Partitions: toInt32(parts), From: s.q.From, To: s.q.To, Prefix: s.q.Prefix,
		Order: statemeshv1.Order_ORDER_ASCENDING, ResumeToken: token, Options: s.o.proto(s.name),
	}
	if s.times != nil {
		req.Key = s.key
		s.times(req)
	}
	if s.q.Reverse {
		req.Order = statemeshv1.Order_ORDER_DESCENDING
	}
	if limit > 0 {
		req.Limit = &limit
	}
	return req
}

// rowOf reads a row of a message.
func rowOf(m *statemeshv1.Row) Row {
	r := Row{Key: m.GetKey(), Span: spanOf(m.GetSpan()), Partition: store.Partition(m.GetPartition())}
	r.Value, _ = wire.ToValue(m.GetValue()) // its presence was checked when the message came
	return r
}
