package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/store"
)

// Copies gives whole copies of the tasks of this instance. Safe for concurrent use.
type Copies interface {
	// OpenCopy pins the copy of a task, or finds one that is pinned still. The result must be closed. Errors:
	// [*store.MovedError] when the task is not here, [*store.NotReadyError] when the copy that is here cannot be read,
	// [store.ErrClosed] when what is to be gone on with is not pinned any more, [*store.InvalidRequestError],
	// [*store.OverloadedError].
	//
	// rate is how many bytes a second the copy is sent at least while its receiver takes them, 0 for no limit: how long it may be
	// pinned follows from it. Reads end with [store.ErrOpenTooLong] after that.
	OpenCopy(ctx context.Context, req store.CopyRequest, rate int64) (store.Copy, error)
}

// CopyTask sends the copy of a task.
func (m *meshService) CopyTask(req *statemeshv1.CopyTaskRequest, out grpc.ServerStreamingServer[statemeshv1.CopyTaskResponse]) error {
	s, ctx := m.s, out.Context()
	want, err := wire.ToCopyRequest(req)
	if err != nil {
		return err
	}
	if s.deps.Copies == nil {
		return &store.InvalidRequestError{Field: "call", Reason: "this instance gives no copies"}
	}
	most := int64(s.cfg.MaxCopies)
	if !want.ForOwner && want.After == nil {
		// The last one is kept for who has a task to run, and for who goes on: this end may not know yet that the connection broke.
		most = max(1, most-1)
	}
	if err := s.limits.copies.acquireOf(most); err != nil {
		return err
	}
	defer s.limits.copies.release()
	c, err := s.deps.Copies.OpenCopy(ctx, want, s.cfg.copyRate())
	if err != nil {
		return err
	}
	defer c.Close()
	snd := newCopySender(s, out)
	defer snd.end()
	err = snd.run(ctx, c, want.After)
	snd.report(ctx, want, err)
	if err != nil {
		return err
	}
	c.Sent()
	return nil
}

// report logs how a copy ended. A receiver that has gone, and a stop of this instance, are nothing to look into.
func (snd *copySender) report(ctx context.Context, want store.CopyRequest, err error) {
	by, _, _ := wire.ToForwarded(ctx) // it was let in with it
	log := snd.s.log.With("task", want.Task.String(), "to", by.By, "gone_on_with", want.After != nil, "rows", snd.sum.Rows,
		"took", time.Since(callOf(ctx).start))
	switch {
	case err == nil:
		log.InfoContext(ctx, "copy of a task sent")
	case ctx.Err() != nil, errors.Is(err, store.ErrShuttingDown):
		log.InfoContext(ctx, "copy of a task broken off", "reason", err)
	default:
		log.WarnContext(ctx, "copy of a task not sent", "error", err)
	}
}

// copySender sends a copy: while one message is on its way the next is read.
type copySender struct {
	s *Server
	// The message in hand, and what came of the last one.
	messages chan *statemeshv1.CopyTaskResponse
	results  chan error
	waits    bool // for a result

	free, busy []byte // buffers of chunks
	sum        wire.CopySum
}

// newCopySender starts a goroutine that ends with the stream at the latest. It is the server's, and not the call's: grpc sends in
// vain for as long as nobody reads, and only the end of the call ends that.
func newCopySender(s *Server, out grpc.ServerStreamingServer[statemeshv1.CopyTaskResponse]) *copySender {
	snd := &copySender{s: s, messages: make(chan *statemeshv1.CopyTaskResponse), results: make(chan error, 1)}
	s.senders.Go(func() {
		for m := range snd.messages {
			snd.results <- out.Send(m)
		}
	})
	return snd
}

func (snd *copySender) end() { close(snd.messages) }

func (snd *copySender) run(ctx context.Context, c store.Copy, after *store.CopyMark) error {
	header := wire.FromCopyHeader(c.ID(), snd.s.cfg.Instance, c.Header())
	if err := snd.send(ctx, &statemeshv1.CopyTaskResponse{Part: &statemeshv1.CopyTaskResponse_Header{Header: header}}, 0); err != nil {
		return err
	}
	var place store.CopyPlace
	if after != nil {
		place, snd.sum = after.Place, wire.CopySum{Rows: after.Rows, Checksum: after.Checksum}
	}
	for done := false; !done; {
		var rows []store.CopyRow
		var err error
		if rows, done, err = c.Read(ctx, place, wire.CopyChunkBytes); err != nil {
			return fmt.Errorf("read a copy: %w", err)
		}
		if len(rows) == 0 {
			break
		}
		place = rows[len(rows)-1].Place().Clone()
		for part := range slices.Chunk(rows, wire.CopyChunkRows) {
			if err := snd.chunk(ctx, part); err != nil {
				return err
			}
		}
	}
	end := &statemeshv1.CopyEnd{Rows: snd.sum.Rows, Checksum: snd.sum.Checksum}
	if err := snd.send(ctx, &statemeshv1.CopyTaskResponse{Part: &statemeshv1.CopyTaskResponse_End{End: end}}, 0); err != nil {
		return err
	}
	return snd.wait(ctx)
}

// chunk sends rows as one message, with the checksum of all rows up to them.
func (snd *copySender) chunk(ctx context.Context, rows []store.CopyRow) error {
	// The message before this one may be on its way with the other buffer.
	b := snd.free[:0]
	for _, r := range rows {
		b = wire.AppendCopyRow(b, r)
	}
	snd.free, snd.busy = snd.busy, b
	if n := len(b); n > snd.s.cfg.MaxMessageBytes {
		return snd.s.tooLarge("row of a copy", int64(n))
	}
	snd.sum.Rows += int64(len(rows))
	snd.sum.Checksum = wire.CopyChecksum(snd.sum.Checksum, b)
	return snd.send(ctx, &statemeshv1.CopyTaskResponse{Part: &statemeshv1.CopyTaskResponse_Chunk{Chunk: &statemeshv1.CopyChunk{
		Rows: b, Count: int32(len(rows)), Checksum: snd.sum.Checksum,
	}}}, len(b))
}

// send hands on a message when the one before is sent and the limit allows for its bytes.
func (snd *copySender) send(ctx context.Context, m *statemeshv1.CopyTaskResponse, bytes int) error {
	if err := snd.s.copyPace.wait(ctx, snd.s.stopping, bytes); err != nil {
		return err
	}
	if err := snd.wait(ctx); err != nil {
		return err
	}
	snd.messages <- m // the sender is idle
	snd.waits = true
	snd.s.m.copyBytes.Add(float64(bytes))
	return nil
}

// wait returns when the last message is on its way: flow control has let it go.
func (snd *copySender) wait(ctx context.Context) error {
	if !snd.waits {
		return nil
	}
	idle := time.NewTimer(snd.s.cfg.CopyStallTimeout)
	defer idle.Stop()
	select {
	case err := <-snd.results:
		snd.waits = false
		if err != nil {
			return sendError(ctx, err)
		}
		return nil
	case <-idle.C:
		return fmt.Errorf("copy: the receiver took nothing for %s: %w", snd.s.cfg.CopyStallTimeout, context.DeadlineExceeded)
	case <-snd.s.stopping:
		return store.ErrShuttingDown
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// pace spreads what is sent over time, over all copies: any number of senders share so many bytes a second. Safe for concurrent
// use.
type pace struct {
	perSecond float64 // 0: no limit

	mu   sync.Mutex
	next time.Time // when the next bytes may go
}

// paceSlack is how much of the time in which nothing was sent may be caught up with.
const paceSlack = 100 * time.Millisecond

// wait returns when so many bytes may go.
func (p *pace) wait(ctx context.Context, stop <-chan struct{}, bytes int) error {
	if p.perSecond <= 0 || bytes == 0 {
		return nil
	}
	p.mu.Lock()
	now := time.Now()
	if earliest := now.Add(-paceSlack); p.next.Before(earliest) {
		p.next = earliest
	}
	at := p.next
	p.next = at.Add(time.Duration(float64(bytes) / p.perSecond * float64(time.Second)))
	p.mu.Unlock()
	left := at.Sub(now)
	if left <= 0 {
		return nil
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-stop:
		return store.ErrShuttingDown
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
