package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/store"
)

// copySilence is how long the sender of a copy may say nothing: it reads a chunk, or waits for its turn under a limit.
const copySilence = 30 * time.Second

// CopyTask takes the copy of a task from the instance at endpoint, or what is left of one. Each chunk is checked before it is
// handed on. It returns nil when all has come and was taken. [store.ErrCopyCut] is a connection that broke: the copy may be
// gone on with behind the last mark that was taken. Further errors: [store.ErrCopyBroken] for a chunk that is not what was
// sent; what the taker said; what the instance said: [store.ErrOverloaded], [store.ErrClosed] when it has nothing pinned to
// go on with, [store.ErrMoved], [store.ErrNotReady], [store.ErrShuttingDown].
func (m *Mesh) CopyTask(ctx context.Context, endpoint string, req store.CopyRequest, to store.CopyTaker) error {
	pe, err := m.pool.peer(endpoint)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(copySilence, func() {
		cancel(fmt.Errorf("%w: %s said nothing for %s", store.ErrCopyCut, endpoint, copySilence))
	})
	defer silence.Stop()
	stream, err := statemeshv1.NewMeshServiceClient(pe).CopyTask(m.mark.Outgoing(ctx), wire.FromCopyRequest(req))
	if err != nil {
		return copyError(ctx, err)
	}
	c := &copying{task: req.Task, to: to}
	if req.After != nil {
		c.mark = *req.After
	}
	for {
		msg, err := stream.Recv()
		if err != nil {
			return copyError(ctx, err)
		}
		// What takes its time here is no silence of the sender's.
		silence.Stop()
		switch ended, err := c.take(ctx, msg); {
		case err != nil:
			return err
		case ended:
			return finish(stream)
		}
		silence.Reset(copySilence)
	}
}

// copying is a copy on its way in.
type copying struct {
	task  store.TaskID
	to    store.CopyTaker
	mark  store.CopyMark
	begun bool
	rows  []store.CopyRow
}

func (c *copying) take(ctx context.Context, m *statemeshv1.CopyTaskResponse) (ended bool, err error) {
	sum := wire.CopySum{Rows: c.mark.Rows, Checksum: c.mark.Checksum}
	switch part := m.GetPart().(type) {
	case *statemeshv1.CopyTaskResponse_Header:
		id, h, err := wire.ToCopyHeader(c.task, part.Header)
		switch {
		case err != nil:
			return true, err
		case c.begun, c.mark.ID != "" && c.mark.ID != id:
			return true, fmt.Errorf("%w: a header of another copy", wire.ErrMalformed)
		}
		c.begun, c.mark.ID = true, id
		return false, c.to.Begin(ctx, id, h)
	case *statemeshv1.CopyTaskResponse_Chunk:
		if !c.begun {
			return true, fmt.Errorf("%w: a copy without a header", wire.ErrMalformed)
		}
		if c.rows, err = sum.ToCopyRows(c.task, part.Chunk, c.rows); err != nil {
			return true, err
		}
		c.mark.Rows, c.mark.Checksum = sum.Rows, sum.Checksum
		c.mark.Place = c.rows[len(c.rows)-1].Place().Clone()
		return false, c.to.Take(ctx, c.rows, c.mark)
	case *statemeshv1.CopyTaskResponse_End:
		if !c.begun {
			return true, fmt.Errorf("%w: a copy without a header", wire.ErrMalformed)
		}
		return true, sum.ToCopyEnd(c.task, part.End)
	default:
		return true, fmt.Errorf("%w: a part of a copy that this version does not know", wire.ErrMalformed)
	}
}

// finish waits for the end of a stream whose last message has come. All of it is checked then, so how the stream ends does not
// matter, unless it goes on.
func finish(stream grpc.ServerStreamingClient[statemeshv1.CopyTaskResponse]) error {
	if _, err := stream.Recv(); err == nil {
		return fmt.Errorf("%w: more of a copy after its end", wire.ErrMalformed)
	}
	return nil
}

// copyError is what a stream of a copy ended with. An end before the last message is a broken connection.
func copyError(ctx context.Context, err error) error {
	end, limited := ctx.Deadline()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case limited && !time.Now().Before(end): // the other end knows of it, and was faster
		return context.DeadlineExceeded
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%w: the stream ended before the copy did", store.ErrCopyCut)
	}
	if err = wire.FromStatus(err); errors.Is(err, wire.ErrUnreachable) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", store.ErrCopyCut, err)
	}
	return err
}
