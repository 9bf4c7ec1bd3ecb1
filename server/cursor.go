package server

import (
	"bytes"
	"cmp"
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
	s      *Server
	p      store.Partition
	pin    *pinned
	it     store.Iterator
	prefix []byte
	cur    *statemeshv1.Row
}

func (s *Server) openLocal(ctx context.Context, sc *scan, p store.Partition) (*localCursor, error) {
	r, err := s.pin(ctx, sc.rd, p)
	if err != nil {
		return nil, err
	}
	if err := s.check(sc.rd, s.localWorth(p, r)); err != nil {
		r.Close()
		return nil, err
	}
	it, err := r.scan(ctx, sc.forPartition(p))
	if err != nil {
		r.Close()
		return nil, err
	}
	return &localCursor{s: s, p: p, pin: r, it: it, prefix: sc.prefix}, nil
}

func (c *localCursor) next() (bool, error) {
	if !c.it.Next() {
		return false, c.it.Err()
	}
	e := c.it.Entry()
	if !bytes.HasPrefix(e.Key, c.prefix) {
		return false, nil // the keys with the prefix are next to each other
	}
	c.cur = &statemeshv1.Row{Key: e.Key, Value: wire.FromValue(e.Value), Partition: int32(c.p)}
	return true, nil
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
	parts  []store.Partition
	w      []worth
	rows   []*statemeshv1.Row
	cur    *statemeshv1.Row
	ended  *statemeshv1.ScanEnd
}

// openRemote starts the stream and waits for its first message: who cannot answer says so instead. ctx is that of the
// whole scan, round that of the attempt.
func (s *Server) openRemote(ctx, round context.Context, sc *scan, to router.Replica, parts []store.Partition) (*remoteCursor, error) {
	client, err := s.peer(to)
	if err != nil {
		return nil, err
	}
	hop, cancel := s.hopContext(ctx)
	stop := context.AfterFunc(round, cancel)
	defer stop()
	sent := time.Now()
	c := &remoteCursor{s: s, ctx: ctx, cancel: cancel, order: sc.order(), parts: slices.Sorted(slices.Values(parts))}
	c.stream, err = client.Scan(hop, sc.request(s.hopOptions(sc.rd, to, parts...), c.parts))
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

// rowOrder compares rows in the order of a scan: by key, in its direction, then by partition.
type rowOrder func(a, b *statemeshv1.Row) int

func ascending(a, b *statemeshv1.Row) int {
	if c := bytes.Compare(a.GetKey(), b.GetKey()); c != 0 {
		return c
	}
	return cmp.Compare(a.GetPartition(), b.GetPartition())
}

func descending(a, b *statemeshv1.Row) int {
	if c := bytes.Compare(b.GetKey(), a.GetKey()); c != 0 {
		return c
	}
	return cmp.Compare(a.GetPartition(), b.GetPartition())
}

// merge merges cursors in order. The heap holds those that stand on a row, the least one first.
type merge struct {
	order   rowOrder
	cursors []cursor // all, to be closed
	heap    []cursor
	moved   bool // the first of the heap stands on a row that was handed out
	stopped statemeshv1.EndReason
}

// start puts every cursor on its first row.
func (m *merge) start() error {
	for _, c := range m.cursors {
		if err := m.settle(c); err != nil {
			return err
		}
	}
	return nil
}

// settle moves c on and puts it into the heap, unless it is at its end.
func (m *merge) settle(c cursor) error {
	ok, err := c.next()
	switch {
	case err != nil:
		return err
	case ok:
		m.heap = append(m.heap, c)
		m.up(len(m.heap) - 1)
	case c.end() != statemeshv1.EndReason_END_REASON_COMPLETE:
		m.stopped = c.end()
	}
	return nil
}

// next returns the next row, nil at the end: see end. A cursor that stops early stops the merge, because rows that it
// still has might come before those of the others.
func (m *merge) next() (*statemeshv1.Row, error) {
	if m.moved {
		m.moved = false
		c := m.heap[0]
		ok, err := c.next()
		switch {
		case err != nil:
			return nil, err
		case ok:
			m.down(0)
		default:
			if c.end() != statemeshv1.EndReason_END_REASON_COMPLETE {
				m.stopped = c.end()
			}
			last := len(m.heap) - 1
			m.heap[0] = m.heap[last]
			m.heap = m.heap[:last]
			m.down(0)
		}
	}
	if m.stopped != statemeshv1.EndReason_END_REASON_UNSPECIFIED || len(m.heap) == 0 {
		return nil, nil //nolint:nilnil // the end is no error
	}
	m.moved = true
	return m.heap[0].row(), nil
}

// end is why there are no more rows.
func (m *merge) end() statemeshv1.EndReason {
	if m.stopped != statemeshv1.EndReason_END_REASON_UNSPECIFIED {
		return m.stopped
	}
	return statemeshv1.EndReason_END_REASON_COMPLETE
}

// worths says what the rows of all cursors are worth.
func (m *merge) worths() []worth {
	var out []worth
	for _, c := range m.cursors {
		out = append(out, c.worths()...)
	}
	return out
}

func (m *merge) close() {
	for _, c := range m.cursors {
		c.close()
	}
}

func (m *merge) less(i, j int) bool { return m.order(m.heap[i].row(), m.heap[j].row()) < 0 }

func (m *merge) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !m.less(i, parent) {
			return
		}
		m.heap[i], m.heap[parent] = m.heap[parent], m.heap[i]
		i = parent
	}
}

func (m *merge) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(m.heap); child++ {
			if m.less(child, least) {
				least = child
			}
		}
		if least == i {
			return
		}
		m.heap[i], m.heap[least] = m.heap[least], m.heap[i]
		i = least
	}
}
