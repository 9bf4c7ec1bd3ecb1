package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/store"
)

// fakeCopies has one copy, of rows that are numbered.
type fakeCopies struct {
	rows, size   int
	open, opened atomic.Int64
	sent, rate   atomic.Int64
	fail         error // of a read
}

func (f *fakeCopies) OpenCopy(_ context.Context, req store.CopyRequest, rate int64) (store.Copy, error) {
	f.rate.Store(rate)
	if req.After != nil && req.After.ID != "the copy" {
		return nil, store.ErrClosed
	}
	f.open.Add(1)
	f.opened.Add(1)
	return &fakeCopy{f: f, task: req.Task}, nil
}

type fakeCopy struct {
	f    *fakeCopies
	task store.TaskID
}

func (c *fakeCopy) ID() string { return "the copy" }

func (c *fakeCopy) Header() store.CopyHeader {
	return store.CopyHeader{
		Format: store.CopyFormat, Task: c.task, Rows: int64(c.f.rows), Age: time.Second,
		Stores:     []store.CopyStore{{Name: testStore, Kind: store.KindKeyValue}},
		Checkpoint: store.Checkpoint{Changelogs: map[store.Name]store.LogPosition{testStore: {Next: 7}}},
	}
}

func copyKey(i int) []byte { return fmt.Appendf(nil, "key-%06d", i) }

func (c *fakeCopy) Read(_ context.Context, after store.CopyPlace, limit int) (rows []store.CopyRow, done bool, err error) {
	from, bytes := 0, 0
	if len(after.Key) > 0 {
		if _, err := fmt.Sscanf(string(after.Key), "key-%d", &from); err != nil {
			return nil, false, err
		}
		from++
	}
	for i := from; i < c.f.rows; i++ {
		if c.f.fail != nil && i >= c.f.rows/2 {
			return nil, false, c.f.fail
		}
		if bytes >= limit {
			return rows, false, nil
		}
		r := store.CopyRow{Key: copyKey(i), Value: make([]byte, c.f.size)}
		rows, bytes = append(rows, r), bytes+len(r.Key)+len(r.Value)
	}
	return rows, true, nil
}

func (c *fakeCopy) Sent()  { c.f.sent.Add(1) }
func (c *fakeCopy) Close() { c.f.open.Add(-1) }

// copyMesh is an instance with a copy, and the context of a peer that asks for it.
func copyMesh(t *testing.T, f *fakeCopies, set func(*Config)) (*node, statemeshv1.MeshServiceClient, context.Context) {
	t.Helper()
	m := newMesh(t, 1, 1, func(int) int { return 0 }, func(_ string, c *Config, d *Deps) {
		d.Copies = f
		if set != nil {
			set(c)
		}
	})
	a := m.node("a")
	return a, statemeshv1.NewMeshServiceClient(a.conn), wire.Forwarded{By: "b", Application: "app"}.Outgoing(t.Context())
}

// taken reads a stream to its end or for so many messages (0: all), and checks it. mark is where to go on.
func taken(stream grpc.ServerStreamingClient[statemeshv1.CopyTaskResponse], mark *store.CopyMark, messages int) (rows int, err error) {
	sum := wire.CopySum{Rows: mark.Rows, Checksum: mark.Checksum}
	for n := 1; ; n++ {
		m, err := stream.Recv()
		if err != nil {
			return rows, wire.FromStatus(err)
		}
		switch {
		case n == 1 && m.GetHeader() != nil:
			mark.ID = m.GetHeader().GetId()
		case m.GetChunk() != nil:
			got, err := sum.ToCopyRows(store.TaskID{}, m.GetChunk(), nil)
			if err != nil {
				return rows, err
			}
			for _, r := range got {
				if string(r.Key) != string(copyKey(int(mark.Rows)+rows)) {
					return rows, fmt.Errorf("row %s, want number %d", r.Key, int(mark.Rows)+rows)
				}
				rows++
			}
			if n == messages {
				mark.Rows, mark.Checksum, mark.Place = sum.Rows, sum.Checksum, got[len(got)-1].Place()
				return rows, nil
			}
		case m.GetEnd() != nil:
			if err := sum.ToCopyEnd(store.TaskID{}, m.GetEnd()); err != nil {
				return rows, err
			}
			if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
				return rows, fmt.Errorf("after the end: %w", err)
			}
			return rows, nil
		default:
			return rows, fmt.Errorf("message %d: %v", n, m)
		}
	}
}

// TestCopyTask: all rows come, in chunks; from a mark on, those behind it, with a checksum that goes on. A copy that is not pinned is
// refused, and so is everybody who is no peer.
func TestCopyTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeCopies{rows: 20_000, size: 100}
		a, c, peer := copyMesh(t, f, nil)
		var mark store.CopyMark
		stream, err := c.CopyTask(peer, wire.FromCopyRequest(store.CopyRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		if n, err := taken(stream, &mark, 0); n != f.rows || err != nil {
			t.Fatalf("%d rows: %v", n, err)
		}
		synctest.Wait()
		if f.sent.Load() != 1 || f.open.Load() != 0 {
			t.Errorf("sent %d times, %d are open", f.sent.Load(), f.open.Load())
		}
		broken, cancel := context.WithCancel(peer)
		mark = store.CopyMark{}
		if stream, err = c.CopyTask(broken, wire.FromCopyRequest(store.CopyRequest{})); err != nil {
			t.Fatal(err)
		}
		before, err := taken(stream, &mark, 3)
		if err != nil || before == 0 || before == f.rows {
			t.Fatalf("%d rows: %v", before, err)
		}
		cancel()
		if stream, err = c.CopyTask(peer, wire.FromCopyRequest(store.CopyRequest{After: &mark})); err != nil {
			t.Fatal(err)
		}
		if n, err := taken(stream, &mark, 0); n != f.rows-before || err != nil {
			t.Fatalf("%d rows behind %d: %v", n, before, err)
		}
		refused := func(ctx context.Context, req *statemeshv1.CopyTaskRequest, want error) {
			t.Helper()
			stream, err := c.CopyTask(ctx, req)
			if err == nil {
				_, err = stream.Recv()
			}
			if err = wire.FromStatus(err); !errors.Is(err, want) {
				t.Errorf("error %v, want %v", err, want)
			}
		}
		refused(peer, &statemeshv1.CopyTaskRequest{Partition: -1}, store.ErrInvalidRequest)
		refused(peer, wire.FromCopyRequest(store.CopyRequest{After: &store.CopyMark{ID: "another"}}), store.ErrClosed)
		refused(t.Context(), &statemeshv1.CopyTaskRequest{}, store.ErrPermissionDenied)
		refused(wire.Forwarded{By: "b", Application: "other"}.Outgoing(t.Context()), &statemeshv1.CopyTaskRequest{}, store.ErrPermissionDenied)
		// Of short rows there are more in a read than in a message.
		f.rows, f.size, mark = 60_000, 0, store.CopyMark{}
		if stream, err = c.CopyTask(peer, wire.FromCopyRequest(store.CopyRequest{})); err != nil {
			t.Fatal(err)
		}
		if n, err := taken(stream, &mark, 0); n != f.rows || err != nil {
			t.Errorf("%d short rows: %v", n, err)
		}
		f.fail = store.ErrCorrupt
		mark = store.CopyMark{}
		if stream, err = c.CopyTask(peer, wire.FromCopyRequest(store.CopyRequest{})); err != nil {
			t.Fatal(err)
		}
		if _, err := taken(stream, &mark, 0); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("a read that fails: %v", err)
		}
		synctest.Wait()
		if f.open.Load() != 0 || a.srv.Bytes() != 0 {
			t.Errorf("%d copies are open, %d bytes held", f.open.Load(), a.srv.Bytes())
		}
	})
}

// TestCopiesAreBounded: more than so many at a time are refused, and those that run share so many bytes a second. The last place is kept
// for who has a task to run.
func TestCopiesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeCopies{rows: 8_000, size: 1000}
		_, c, peer := copyMesh(t, f, func(c *Config) { c.MaxCopies, c.CopyBytesPerSecond = 2, 1<<20 })
		began := time.Now()
		standby, owner := store.CopyRequest{}, store.CopyRequest{ForOwner: true}
		var wg sync.WaitGroup
		take := func(req store.CopyRequest) {
			wg.Go(func() {
				var mark store.CopyMark
				stream, err := c.CopyTask(peer, wire.FromCopyRequest(req))
				if err != nil {
					t.Error(err)
					return
				}
				if n, err := taken(stream, &mark, 0); n != f.rows || err != nil {
					t.Errorf("%d rows: %v", n, err)
				}
			})
		}
		refused := func(req store.CopyRequest) {
			t.Helper()
			stream, err := c.CopyTask(peer, wire.FromCopyRequest(req))
			if err != nil {
				t.Fatal(err)
			}
			_, err = stream.Recv()
			busy, ok := errors.AsType[*store.OverloadedError](wire.FromStatus(err))
			if !ok || busy.Limit != "server.max.copies" {
				t.Errorf("one too many, for an owner %t: %v", req.ForOwner, err)
			}
		}
		take(standby)
		time.Sleep(time.Second)
		for range 5 { // whoever is refused takes no place meanwhile
			refused(standby)
		}
		take(owner)
		time.Sleep(time.Second)
		refused(standby)
		refused(owner)
		wg.Wait()
		// Of 16 MB in all.
		if took := time.Since(began); took < 14*time.Second || took > 18*time.Second {
			t.Errorf("took %s", took)
		}
		if f.opened.Load() != 2 || f.rate.Load() != 512<<10 {
			t.Errorf("%d were opened, with a share of %d bytes a second", f.opened.Load(), f.rate.Load())
		}
	})
}

// TestCopyToNobody: a peer that takes nothing is cut off, and holds nothing any longer.
func TestCopyToNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeCopies{rows: 20_000, size: 1000}
		a, c, peer := copyMesh(t, f, func(c *Config) { c.CopyStallTimeout, c.CopyBytesPerSecond = 10*time.Second, -1 })
		var mark store.CopyMark
		stream, err := c.CopyTask(peer, wire.FromCopyRequest(store.CopyRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := taken(stream, &mark, 2); err != nil {
			t.Fatal(err)
		}
		time.Sleep(8 * time.Second)
		if f.open.Load() != 1 {
			t.Error("cut off too soon")
		}
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if f.open.Load() != 0 || a.srv.Bytes() != 0 || f.sent.Load() != 0 {
			t.Errorf("%d copies are open, %d bytes held", f.open.Load(), a.srv.Bytes())
		}
		if _, err := taken(stream, &mark, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the peer hears %v", err)
		}
	})
}

// TestStopEndsCopies: an instance that is leaving sends no more of them.
func TestStopEndsCopies(t *testing.T) {
	for name, rate := range map[string]int64{"paced": 1 << 20, "to nobody": -1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeCopies{rows: 20_000, size: 1000}
				a, c, peer := copyMesh(t, f, func(c *Config) { c.CopyBytesPerSecond = rate })
				var mark store.CopyMark
				stream, err := c.CopyTask(peer, wire.FromCopyRequest(store.CopyRequest{}))
				if err != nil {
					t.Fatal(err)
				}
				if _, err := taken(stream, &mark, 2); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				begin := time.Now()
				a.stop()
				if _, err := taken(stream, &mark, 0); !errors.Is(err, store.ErrShuttingDown) {
					t.Errorf("the peer hears %v", err)
				}
				if err := <-a.done; err != nil {
					t.Error(err)
				}
				a.done <- nil
				if took := time.Since(begin); took > time.Second {
					t.Errorf("the stop took %s", took)
				}
			})
		})
	}
}

// levels notes at which levels something is said of copies.
type levels struct {
	slog.Handler

	mu   sync.Mutex
	seen []string
}

func (l *levels) Handle(ctx context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "copy of a task") {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.seen = append(l.seen, r.Level.String()+" "+r.Message)
	}
	return nil
}

func (l *levels) Enabled(context.Context, slog.Level) bool { return true }

func (l *levels) WithAttrs([]slog.Attr) slog.Handler { return l }

// TestCopyIsLogged: at a level that says whether somebody has to look into it.
func TestCopyIsLogged(t *testing.T) {
	for name, c := range map[string]struct {
		fail  error
		takes int // messages; 0: all
		want  string
	}{
		"sent":           {nil, 0, "INFO copy of a task sent"},
		"left by a peer": {nil, 2, "INFO copy of a task broken off"},
		"failed":         {store.ErrCorrupt, 0, "WARN copy of a task not sent"},
		"expired":        {&store.CopyExpiredError{After: time.Minute}, 0, "WARN copy of a task not sent"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				said := &levels{Handler: slog.DiscardHandler}
				f := &fakeCopies{rows: 20_000, size: 1000, fail: c.fail}
				_, asked, peer := copyMesh(t, f, func(c *Config) { c.Logger = slog.New(said) })
				ctx, leave := context.WithCancel(peer)
				defer leave()
				stream, err := asked.CopyTask(ctx, wire.FromCopyRequest(store.CopyRequest{}))
				if err != nil {
					t.Fatal(err)
				}
				_, err = taken(stream, &store.CopyMark{}, c.takes)
				if c.fail != nil && errors.Is(c.fail, store.ErrOpenTooLong) != errors.Is(err, store.ErrClosed) {
					t.Errorf("the peer hears %v", err)
				}
				leave()
				synctest.Wait()
				said.mu.Lock()
				defer said.mu.Unlock()
				if len(said.seen) != 1 || said.seen[0] != c.want {
					t.Errorf("said %q, want %q", said.seen, c.want)
				}
			})
		})
	}
}
