package server

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// scan is a checked ScanRequest.
type scan struct {
	rd                    *read
	parts                 []store.Partition
	key, from, to, prefix []byte // nil: open
	// Of these the one of the store's family holds the bounds in time.
	windows  store.WindowScan
	sessions store.SessionScan
	versions store.VersionScan
	reverse  bool
	limit    int64 // 0: none
	after    *resumePoint
}

func (s *Server) newScan(ctx context.Context, req *statemeshv1.ScanRequest) (*scan, error) {
	rd, err := s.newRead(ctx, req.GetStore(), req.GetOptions(), req.GetFormat())
	if err != nil {
		return nil, err
	}
	sc := &scan{rd: rd, limit: req.GetLimit()}
	if err := sc.selects(req); err != nil {
		return nil, err
	}
	switch o := req.GetOrder(); o {
	case statemeshv1.Order_ORDER_UNSPECIFIED, statemeshv1.Order_ORDER_ASCENDING:
	case statemeshv1.Order_ORDER_DESCENDING:
		sc.reverse = true
	default:
		return nil, &store.InvalidRequestError{Field: "order", Reason: fmt.Sprintf("%d: no such order", o)}
	}
	if req.Limit != nil && sc.limit <= 0 {
		return nil, &store.InvalidRequestError{Field: "limit", Reason: "want at least 1"}
	}
	if err := s.bounds(sc, req); err != nil {
		return nil, err
	}
	if sc.parts, err = s.scanPartitions(sc, req.GetPartitions()); err != nil {
		return nil, err
	}
	if token := req.GetResumeToken(); len(token) > 0 {
		after, err := parseToken(token, sc.fingerprint(sc.parts), rd.info.Partitions)
		if err != nil {
			return nil, err
		}
		sc.after = &after
	}
	return sc, nil
}

func (sc *scan) order() rowOrder {
	if sc.reverse {
		return descending
	}
	return ascending
}

// Scan streams rows in order.
func (q *queryService) Scan(req *statemeshv1.ScanRequest, out grpc.ServerStreamingServer[statemeshv1.ScanResponse]) error {
	s := q.s
	ctx, cancel := context.WithCancel(out.Context())
	defer cancel()
	sc, err := s.newScan(ctx, req)
	if err != nil {
		return err
	}
	m := &merge{heads: cursorHeap{order: sc.order()}}
	defer m.close()
	open := &opened{}
	defer open.drop()
	ask := s.opensInto(ctx, sc, open)
	ask.hedge = func() hedge {
		other := &opened{}
		return hedge{
			asker: s.opensInto(ctx, sc, other), drop: other.drop,
			adopt: func() error { open.add(other.take()...); return nil },
		}
	}
	if err := s.scatter(ctx, sc.rd, sc.parts, ask); err != nil {
		return err
	}
	m.cursors = open.take()
	if err := m.start(); err != nil {
		return err
	}
	snd := &sender{s: s, sc: sc, m: m, out: out, fingerprint: sc.fingerprint(sc.parts)}
	if sc.after != nil {
		snd.token = req.GetResumeToken()
	}
	return snd.run(ctx)
}

// opened are the cursors of a scan that is being opened. Different partitions add theirs at the same time.
type opened struct {
	mu      sync.Mutex
	cursors []cursor
}

func (o *opened) add(c ...cursor) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.cursors = append(o.cursors, c...)
}

// take hands them over.
func (o *opened) take() []cursor {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.cursors
	o.cursors = nil
	return c
}

func (o *opened) drop() {
	for _, c := range o.take() {
		c.close()
	}
}

// opensInto opens cursors. Streams live as long as ctx, that of the scan.
func (s *Server) opensInto(ctx context.Context, sc *scan, o *opened) asker {
	return asker{
		local: func(_ context.Context, p store.Partition, m manner) error {
			c, err := s.openLocal(ctx, sc, p, m)
			if err != nil {
				return err
			}
			o.add(c)
			return nil
		},
		remote: func(round context.Context, to router.Replica, parts []store.Partition, m manner) error {
			c, err := s.openRemote(ctx, round, sc, to, parts, m)
			if err != nil {
				return err
			}
			o.add(c)
			sc.rd.call.via(viaRemote)
			return nil
		},
	}
}

// sender collects rows into messages and sends them.
type sender struct {
	s           *Server
	sc          *scan
	m           *merge
	out         grpc.ServerStreamingServer[statemeshv1.ScanResponse]
	fingerprint uint64

	rows  []*statemeshv1.Row
	bytes int
	last  resumePoint // of the last of rows
	// What was sent so far. token continues behind the last row sent.
	begun                bool
	sentRows, totalBytes int64
	token                []byte
}

// What a row adds to a message beside key, value and cursor, at most: tags, lengths, timestamp and partition; the times of a
// window, session or version; what a typed form may be longer than the bytes (an instant as text, by 17 bytes).
const (
	rowOverhead   = 40
	spanOverhead  = 28
	typedOverhead = 48
)

func (sc *scan) sizeOf(r *statemeshv1.Row) int {
	size := len(r.GetKey()) + len(r.GetValue().GetData()) + rowOverhead
	if sc.rd.family != keyValues {
		size += len(r.GetCursor()) + spanOverhead
	}
	if sc.rd.typed() {
		size += typedOverhead
	}
	return size
}

// ctxCheckRows: a scan looks this often whether its caller is still there.
const ctxCheckRows = 128

func (snd *sender) run(ctx context.Context) error {
	cfg := &snd.s.cfg
	for n := int64(1); ; n++ {
		if n%ctxCheckRows == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		row, err := snd.m.next()
		if err != nil {
			return fmt.Errorf("scan %s: %w", snd.sc.rd.store, err)
		}
		if row == nil {
			_, err := snd.flush(ctx, snd.m.end())
			return err
		}
		size := snd.sc.sizeOf(row)
		if len(snd.rows) > 0 && snd.bytes+size > cfg.MaxMessageBytes-wire.MessageSlack {
			if ended, err := snd.flush(ctx, 0); ended || err != nil {
				return err
			}
		}
		snd.last = resumePoint{place: placeOf(row), partition: store.Partition(row.GetPartition())}
		snd.rows = append(snd.rows, row)
		snd.bytes += size
		snd.totalBytes += int64(size)
		var end statemeshv1.EndReason
		switch {
		case n == snd.sc.limit:
			end = statemeshv1.EndReason_END_REASON_LIMIT
		case n >= cfg.MaxScanRows || snd.totalBytes >= cfg.MaxScanBytes:
			end = statemeshv1.EndReason_END_REASON_SERVER_LIMIT
		case snd.bytes < cfg.ScanChunkBytes:
			continue
		}
		if ended, err := snd.flush(ctx, end); ended || err != nil {
			return err
		}
	}
}

// flush sends what was collected, as the last message if end says so. It checks the bound first: what has become too old
// is not sent. If something was sent before, the scan then ends where that ended, to be resumed at a newer commit.
func (snd *sender) flush(ctx context.Context, end statemeshv1.EndReason) (ended bool, err error) {
	answers, err := snd.s.sealAll(snd.sc.rd, snd.m.worths())
	switch {
	case err == nil:
	case snd.begun:
		snd.rows, answers, end = nil, nil, statemeshv1.EndReason_END_REASON_STALE
	default:
		return true, err
	}
	resp := &statemeshv1.ScanResponse{Rows: snd.rows}
	if !snd.begun {
		resp.Answers = answers
	}
	if n := len(snd.rows); n > 0 {
		snd.token = snd.last.token(snd.fingerprint)
		snd.sentRows += int64(n)
	}
	if snd.sc.rd.typed() {
		for i, r := range snd.rows {
			if snd.rows[i], err = snd.sc.rd.typeRow(r); err != nil {
				return true, err
			}
		}
	}
	resp.ResumeToken = snd.token
	if end != statemeshv1.EndReason_END_REASON_UNSPECIFIED {
		resp.End = &statemeshv1.ScanEnd{Reason: end, Rows: snd.sentRows}
		if end == statemeshv1.EndReason_END_REASON_COMPLETE {
			resp.ResumeToken = nil
		}
	}
	if n := proto.Size(resp); n > snd.s.cfg.MaxMessageBytes {
		return true, snd.s.tooLarge("response", int64(n))
	}
	if err := snd.out.Send(resp); err != nil {
		return true, sendError(ctx, err)
	}
	snd.s.m.rows.WithLabelValues(snd.sc.rd.call.originName()).Add(float64(len(snd.rows)))
	snd.begun = true
	clear(snd.rows) // Send has marshalled them
	snd.rows, snd.bytes = snd.rows[:0], 0
	return resp.GetEnd() != nil, nil
}
