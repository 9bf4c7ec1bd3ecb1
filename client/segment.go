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
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// segment is the part of a scan that one instance streams. It survives its streams: token is where the next one goes on.
type segment struct {
	s      *scan
	parts  []store.Partition
	target router.Replica // the owner when the scan began

	rows []*statemeshv1.Row // received, at the first not yet taken
	at   int
	got  int64 // rows received from all streams
	done bool
	// cut is what ends the scan behind the rows that were received: no stream may follow.
	cut error

	// Invariant: token continues behind the last row in rows.
	token  []byte
	stream *stream // nil between streams
}

// stream is one Scan call.
type stream struct {
	grpc.ServerStreamingClient[statemeshv1.ScanResponse]
	cancel context.CancelFunc
	sent   time.Time
	target router.Replica
	first  bool  // no message yet
	rows   int64 // received
}

func (g *segment) has() bool              { return g.at < len(g.rows) }
func (g *segment) head() *statemeshv1.Row { return g.rows[g.at] }

func (g *segment) take() Row {
	r := rowOf(g.rows[g.at])
	g.rows[g.at] = nil
	g.at++
	return r
}

// fill makes sure that there is a row to take, or that the segment is done. What fails is tried again, elsewhere and
// later, until the time without progress is up.
func (g *segment) fill(ctx context.Context) error {
	if g.has() || g.done {
		return nil
	}
	a := g.s.c.begin("scan", g.s.name, g.s.o)
	patient, cancel := g.s.c.deadline(ctx)
	defer cancel()
	if g.stream != nil {
		a.n = 1
	}
	for !g.has() && !g.done {
		if left := g.left(); left < 0 {
			g.done = true
			break
		}
		if g.cut != nil {
			return g.cut
		}
		m, f := g.step(ctx, patient, a)
		if f.err == nil {
			continue
		}
		g.drop()
		if g.got > 0 && g.s.o.read.Isolation == store.ReadUncommitted {
			// What was read may have been taken back, and going on would hide it.
			return &CallError{Op: "scan", Store: g.s.name, Endpoint: f.target.Endpoint, Attempts: a.n, Took: time.Since(a.start), Err: f.err}
		}
		if err := a.again(patient, m, f); err != nil {
			return err
		}
	}
	return nil
}

// step opens a stream if there is none and receives one message.
func (g *segment) step(ctx, patient context.Context, a *attempts) (*router.Snapshot, failure) {
	if g.stream == nil {
		a.n++
		m, err := a.topology(patient)
		if err != nil {
			return m, failure{err: err}
		}
		target, _, err := a.target(m, g.parts[0])
		if err != nil {
			return m, failure{err: err}
		}
		if err := g.open(ctx, target); err != nil {
			return m, failure{target: target, err: err}
		}
	}
	target := g.stream.target
	if err := g.receive(ctx); err != nil {
		return g.s.c.table.Load(), failure{target: target, err: err}
	}
	return nil, failure{}
}

// stall is how long a stream may be silent: half of the time without progress that ends a scan, so that the other half is
// left for another instance.
func (c *Client) stall() time.Duration { return c.cfg.Timeout / 2 }

// left is how many rows are still wanted: 0 without a limit, -1 when there are enough.
func (g *segment) left() int64 {
	switch limit := g.s.q.Limit; {
	case limit == 0:
		return 0
	case g.got >= limit:
		return -1
	default:
		return limit - g.got
	}
}

func (g *segment) open(ctx context.Context, target router.Replica) error {
	q, err := g.s.c.pool.Query(target.Endpoint)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	sent := time.Now()
	st, err := q.Scan(ctx, g.s.request(g.parts, g.token, g.left()))
	if err != nil {
		cancel()
		return wire.FromStatus(err)
	}
	g.stream = &stream{ServerStreamingClient: st, cancel: cancel, sent: sent, target: target, first: true}
	return nil
}

func (g *segment) drop() {
	if g.stream != nil {
		g.stream.cancel()
		g.stream = nil
	}
}

// receive takes in one message, all of it or nothing.
func (g *segment) receive(ctx context.Context) error {
	st := g.stream
	// The timer runs only while this waits: a slow reader of the scan is not a slow server.
	timer := time.AfterFunc(g.s.c.stall(), st.cancel)
	m, err := st.Recv()
	stalled := !timer.Stop()
	if err != nil {
		return g.broken(ctx, err, stalled)
	}
	for _, r := range m.GetRows() {
		if len(r.GetKey()) == 0 || r.GetValue() == nil {
			return fmt.Errorf("%w: scan: row without key or value", wire.ErrMalformed)
		}
		if (r.GetSpan() != nil) != (g.s.times != nil) || (len(r.GetCursor()) > 0) != (g.s.times != nil) {
			return fmt.Errorf("%w: scan: row of another kind of store", wire.ErrMalformed)
		}
	}
	if st.first {
		if err := g.answers(m.GetAnswers()); err != nil {
			return err
		}
		st.first = false
	}
	g.rows, g.at = m.GetRows(), 0
	n := int64(len(g.rows))
	g.got += n
	st.rows += n
	if t := m.GetResumeToken(); len(t) > 0 {
		g.token = t
	} else if m.GetEnd().GetReason() != statemeshv1.EndReason_END_REASON_COMPLETE && n > 0 {
		// The rows cannot be taken back, and nobody could go on behind them.
		return fmt.Errorf("%w: scan: rows without a resume token", wire.ErrMalformed)
	}
	if end := m.GetEnd(); end != nil {
		return g.ended(end.GetReason())
	}
	return nil
}

// ended acts on the last message of a stream.
func (g *segment) ended(reason statemeshv1.EndReason) error {
	st := g.stream
	g.drop()
	rows := st.rows
	switch reason {
	case statemeshv1.EndReason_END_REASON_LIMIT:
		if g.left() >= 0 {
			return fmt.Errorf("%w: scan: ended by a limit of %d after %d rows", wire.ErrMalformed, g.s.q.Limit, g.got)
		}
		g.done = true
		return nil
	case statemeshv1.EndReason_END_REASON_COMPLETE:
		g.done = true
		return nil
	case statemeshv1.EndReason_END_REASON_SERVER_LIMIT, statemeshv1.EndReason_END_REASON_STALE:
		if rows == 0 {
			return &store.NotReadyError{Store: g.s.name, Partition: g.parts[0], Reason: "the scan made no progress: " + reason.String()}
		}
		if g.s.o.read.Isolation == store.ReadUncommitted {
			// The next stream would show another state, perhaps one without what these rows were made of.
			g.cut = &CallError{
				Op: "scan", Store: g.s.name, Endpoint: st.target.Endpoint, Attempts: 1, Took: time.Since(st.sent),
				Err: fmt.Errorf("%w: %s after %d rows", ErrCut, reason, rows),
			}
		}
		return nil // the next stream goes on at a newer commit
	default:
		return fmt.Errorf("%w: scan: end reason %d", wire.ErrMalformed, reason)
	}
}

// broken says what the error of a stream means for the scan: a stream that ended early, or whose server gave up on it,
// goes on elsewhere as if its instance had been lost.
func (g *segment) broken(ctx context.Context, err error, stalled bool) error {
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: the scan ended early", wire.ErrUnreachable)
	}
	err = wire.FromStatus(err)
	if ctx.Err() != nil {
		return err
	}
	switch {
	case stalled:
		return fmt.Errorf("%w: no message within %s", wire.ErrUnreachable, g.s.c.stall())
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fmt.Errorf("%w: the server ended the scan: %s", wire.ErrUnreachable, err.Error())
	default:
		return err
	}
}

// answers checks what the first message says that its rows are worth.
func (g *segment) answers(ms []*statemeshv1.Answer) error {
	answers, err := wire.ToAnswers(ms)
	if err != nil {
		return err
	}
	for i := range answers {
		if err := g.s.c.accept(g.s.name, g.s.o, &answers[i], g.stream.sent); err != nil {
			return err
		}
		if p := answers[i].Facts.Partial; p != nil {
			g.s.partial = &CallError{
				Op: "scan", Store: g.s.name, Endpoint: g.stream.target.Endpoint, Attempts: 1, Took: time.Since(g.stream.sent),
				Err: fmt.Errorf("%w: partition %d: %s", store.ErrPartial, answers[i].Partition, p),
			}
		}
	}
	if g.s.q.Answers != nil {
		g.s.q.Answers(answers)
	}
	return nil
}
