package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"google.golang.org/grpc"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// cursor is an ordered source of rows of a scan: one partition of this instance, or those of another one. It belongs to
// one goroutine.
type cursor interface {
	// next moves to the next row and reports whether there is one. Without one, end says why.
	next() (bool, error)
	row() *statemeshv1.Row
	end() statemeshv1.EndReason
	// worths says what the rows are worth, as of now or with the moment it was so.
	worths() []worth
	close()
}

// localCursor reads one partition of this instance.
type localCursor struct {
	s   *Server
	p   store.Partition
	pin *pinned
	it  store.Iterator
	sc  *scan
	// floor is the place below which rows are left out; nil: none.
	floor []byte
	cur   *statemeshv1.Row
}

func (s *Server) openLocal(ctx context.Context, sc *scan, p store.Partition, m manner) (*localCursor, error) {
	r, err := s.pin(ctx, sc.rd, p, m)
	if err != nil {
		return nil, err
	}
	if err := s.check(sc.rd, s.localWorth(p, r)); err != nil {
		r.Close()
		return nil, err
	}
	it, err := sc.open(ctx, r, p)
	if err != nil {
		r.Close()
		return nil, err
	}
	return &localCursor{s: s, p: p, pin: r, it: it, sc: sc, floor: sc.floorIn(p)}, nil
}

func (c *localCursor) next() (bool, error) {
	for c.it.Next() {
		e := c.it.Entry()
		if c.sc.rd.family == keyValues {
			if !bytes.HasPrefix(e.Key, c.sc.prefix) {
				return false, nil // the keys with the prefix are next to each other
			}
			c.cur = &statemeshv1.Row{Key: e.Key, Value: wire.FromValue(e.Value), Partition: int32(c.p)}
			return true, nil
		}
		if c.floor != nil {
			if bytes.Compare(e.Cursor, c.floor) < 0 {
				continue
			}
			c.floor = nil // the rows that follow are above it
		}
		c.cur = &statemeshv1.Row{
			Key: e.Key, Value: wire.FromValue(e.Value), Partition: int32(c.p), Cursor: e.Cursor,
			Span: wire.FromSpan(wire.Span{Start: e.Start, End: e.End}),
		}
		return true, nil
	}
	return false, c.it.Err()
}

func (c *localCursor) row() *statemeshv1.Row      { return c.cur }
func (c *localCursor) end() statemeshv1.EndReason { return statemeshv1.EndReason_END_REASON_COMPLETE }
func (c *localCursor) worths() []worth            { return []worth{c.s.localWorth(c.p, c.pin)} }

// close releases iterator and snapshot, once each, also when closed twice (SE-16).
func (c *localCursor) close() {
	if c.it != nil {
		c.it.Close()
		c.it = nil
	}
	c.pin.Close()
}

// remoteCursor reads partitions of another instance: one stream, merged over there. What is buffered here is one message
// and what flow control lets the transport hold.
type remoteCursor struct {
	s      *Server
	ctx    context.Context //nolint:containedctx // of the stream that the cursor is
	cancel context.CancelFunc
	stream grpc.ServerStreamingClient[statemeshv1.ScanResponse]
	order  rowOrder
	timed  bool // rows have times and cursors
	parts  []store.Partition
	w      []worth
	rows   []*statemeshv1.Row
	cur    *statemeshv1.Row
	ended  *statemeshv1.ScanEnd
}

// openRemote starts the stream and waits for its first message: who cannot answer says so instead. ctx is that of the
// whole scan, round that of the attempt.
func (s *Server) openRemote(ctx, round context.Context, sc *scan, to router.Replica, parts []store.Partition, m manner) (*remoteCursor, error) {
	client, err := s.peer(to)
	if err != nil {
		return nil, err
	}
	if err := sc.rd.call.hold(int64(s.cfg.ScanChunkBytes)); err != nil { // the message that is merged
		return nil, err
	}
	hop, cancel := s.hopContext(ctx)
	stop := context.AfterFunc(round, cancel)
	defer stop()
	sent := time.Now()
	c := &remoteCursor{s: s, ctx: ctx, cancel: cancel, order: sc.order(), timed: sc.rd.family != keyValues, parts: slices.Sorted(slices.Values(parts))}
	c.stream, err = client.Scan(hop, s.scanRequest(sc, to, c.parts, m))
	if err != nil {
		cancel()
		return nil, s.hopError(round, err)
	}
	first, err := c.stream.Recv()
	if errors.Is(err, io.EOF) {
		err = cutShort()
	}
	if err := s.hopError(round, err); err != nil {
		cancel()
		return nil, err
	}
	if c.w, err = checkAnswers(first.GetAnswers(), parts, sent); err == nil {
		err = s.check(sc.rd, c.w...)
	}
	if err != nil {
		cancel()
		return nil, err
	}
	c.rows, c.ended = first.GetRows(), first.GetEnd()
	if !stop() { // overtaken by a moment: the stream is cancelled
		cancel()
		return nil, context.Cause(round)
	}
	return c, nil
}

func cutShort() error {
	return fmt.Errorf("%w: the stream ended before the scan did", wire.ErrUnreachable)
}

func (c *remoteCursor) next() (bool, error) {
	for len(c.rows) == 0 {
		if c.ended != nil {
			return false, nil
		}
		m, err := c.stream.Recv()
		if errors.Is(err, io.EOF) {
			err = cutShort()
		}
		if err != nil {
			return false, c.s.hopError(c.ctx, err)
		}
		c.rows, c.ended = m.GetRows(), m.GetEnd()
	}
	r := c.rows[0]
	c.rows = c.rows[1:]
	switch {
	case r.GetValue() == nil || len(r.GetKey()) == 0:
		return false, fmt.Errorf("%w: a row without key or value", wire.ErrMalformed)
	case (r.GetSpan() != nil) != c.timed || (len(r.GetCursor()) > 0) != c.timed:
		return false, fmt.Errorf("%w: a row with times and cursor that is of another kind of store", wire.ErrMalformed)
	case c.cur != nil && c.order(c.cur, r) >= 0:
		return false, fmt.Errorf("%w: rows out of order", wire.ErrMalformed)
	}
	if _, ok := slices.BinarySearch(c.parts, store.Partition(r.GetPartition())); !ok {
		return false, fmt.Errorf("%w: a row of partition %d, which was not asked for", wire.ErrMalformed, r.GetPartition())
	}
	c.cur = r
	return true, nil
}

func (c *remoteCursor) row() *statemeshv1.Row      { return c.cur }
func (c *remoteCursor) end() statemeshv1.EndReason { return c.ended.GetReason() }
func (c *remoteCursor) worths() []worth            { return c.w }
func (c *remoteCursor) close()                     { c.cancel() }
