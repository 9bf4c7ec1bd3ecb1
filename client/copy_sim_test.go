package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/test/bufconn"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/store"
)

// scripted is an instance that sends what it is told to.
type scripted struct {
	statemeshv1.UnimplementedMeshServiceServer

	asked []*statemeshv1.CopyTaskRequest
	send  func(req *statemeshv1.CopyTaskRequest, out grpc.ServerStreamingServer[statemeshv1.CopyTaskResponse]) error
}

func (s *scripted) CopyTask(req *statemeshv1.CopyTaskRequest, out grpc.ServerStreamingServer[statemeshv1.CopyTaskResponse]) error {
	s.asked = append(s.asked, req)
	return wire.ToStatus(s.send(req, out))
}

// copySource serves s in a bubble, and returns who asks it.
func copySource(t *testing.T, s *scripted) *Mesh {
	t.Helper()
	lis := bufconn.Listen(1 << 20)
	srv := grpc.NewServer(grpc.WaitForHandlers(true),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: wire.KeepaliveMinTime, PermitWithoutStream: true}))
	statemeshv1.RegisterMeshServiceServer(srv, s)
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(lis) }()
	pool := NewPool(PoolConfig{Dial: func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }})
	t.Cleanup(func() { _ = pool.Close(); srv.Stop(); <-done })
	return pool.Mesh("app", "b")
}

// notes is a taker that writes down what it gets.
type notes struct {
	headers []store.CopyHeader
	keys    []string
	mark    store.CopyMark
	fail    error // after the first chunk
}

func (n *notes) Begin(_ context.Context, _ string, h store.CopyHeader) error {
	n.headers = append(n.headers, h)
	return nil
}

func (n *notes) Take(_ context.Context, rows []store.CopyRow, to store.CopyMark) error {
	for _, r := range rows {
		n.keys = append(n.keys, string(r.Key))
	}
	n.mark = to
	return n.fail
}

func header(id string) *statemeshv1.CopyTaskResponse {
	h := store.CopyHeader{
		Format: store.CopyFormat, Stores: []store.CopyStore{{Name: counts, Kind: store.KindKeyValue}}, Age: time.Second,
		Checkpoint: store.Checkpoint{Changelogs: map[store.Name]store.LogPosition{counts: {Next: 5}}},
	}
	return &statemeshv1.CopyTaskResponse{Part: &statemeshv1.CopyTaskResponse_Header{Header: wire.FromCopyHeader(id, "a", h)}}
}

// rowsOf is a chunk with rows of one key each, that follow what sum has.
func rowsOf(sum *wire.CopySum, keys ...string) *statemeshv1.CopyTaskResponse {
	var b []byte
	for _, k := range keys {
		b = wire.AppendCopyRow(b, store.CopyRow{Key: []byte(k), Value: []byte("v")})
	}
	sum.Rows, sum.Checksum = sum.Rows+int64(len(keys)), wire.CopyChecksum(sum.Checksum, b)
	return &statemeshv1.CopyTaskResponse{Part: &statemeshv1.CopyTaskResponse_Chunk{Chunk: &statemeshv1.CopyChunk{
		Rows: b, Count: int32(len(keys)), Checksum: sum.Checksum,
	}}}
}

func theEnd(sum wire.CopySum) *statemeshv1.CopyTaskResponse {
	return &statemeshv1.CopyTaskResponse{Part: &statemeshv1.CopyTaskResponse_End{End: &statemeshv1.CopyEnd{Rows: sum.Rows, Checksum: sum.Checksum}}}
}

// TestCopyTask: what comes whole is taken; what breaks off can be gone on with behind the last mark, and is one copy then.
func TestCopyTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{}
		m := copySource(t, s)
		s.send = func(req *statemeshv1.CopyTaskRequest, out grpc.ServerStreamingServer[statemeshv1.CopyTaskResponse]) error {
			if a := req.GetAfter(); a == nil {
				var sum wire.CopySum
				return errors.Join(out.Send(header("x")), out.Send(rowsOf(&sum, "a", "b")), out.Send(rowsOf(&sum, "c"))) // and no end
			}
			sum := wire.CopySum{Rows: req.GetAfter().GetRows(), Checksum: req.GetAfter().GetChecksum()}
			return errors.Join(out.Send(header("x")), out.Send(rowsOf(&sum, "d")), out.Send(theEnd(sum)))
		}
		var n notes
		if err := m.CopyTask(t.Context(), "a:1", store.CopyRequest{Task: store.TaskID{Partition: 3}}, &n); !errors.Is(err, store.ErrCopyCut) {
			t.Fatalf("an end before the end: %v", err)
		}
		if n.mark.ID != "x" || n.mark.Rows != 3 || string(n.mark.Place.Key) != "c" {
			t.Fatalf("mark %+v", n.mark)
		}
		if err := m.CopyTask(t.Context(), "a:1", store.CopyRequest{Task: store.TaskID{Partition: 3}, After: &n.mark}, &n); err != nil {
			t.Fatal(err)
		}
		if have := fmt.Sprint(n.keys); have != "[a b c d]" || n.mark.Rows != 4 || len(n.headers) != 2 {
			t.Errorf("%s, mark %+v", have, n.mark)
		}
		if a := s.asked[1]; a.GetPartition() != 3 || a.GetAfter().GetId() != "x" || string(a.GetAfter().GetKey()) != "c" {
			t.Errorf("asked for %v", a)
		}
	})
}

// TestCopyTaskRefuses what is no copy, and hands on nothing of a chunk that is not what was sent.
func TestCopyTaskRefuses(t *testing.T) {
	type stream = grpc.ServerStreamingServer[statemeshv1.CopyTaskResponse]
	var sum wire.CopySum
	good := rowsOf(&sum, "a")
	bad := rowsOf(new(wire.CopySum), "a")
	bad.GetChunk().Rows[2] ^= 1
	for name, c := range map[string]struct {
		send func(out stream) error
		fail error // of the taker
		want error
		keys int
	}{
		"no header":       {func(o stream) error { return o.Send(good) }, nil, wire.ErrMalformed, 0},
		"an end alone":    {func(o stream) error { return o.Send(theEnd(wire.CopySum{})) }, nil, wire.ErrMalformed, 0},
		"two headers":     {func(o stream) error { return errors.Join(o.Send(header("x")), o.Send(header("x"))) }, nil, wire.ErrMalformed, 0},
		"an unknown part": {func(o stream) error { return o.Send(&statemeshv1.CopyTaskResponse{}) }, nil, wire.ErrMalformed, 0},
		"a changed row":   {func(o stream) error { return errors.Join(o.Send(header("x")), o.Send(bad)) }, nil, store.ErrCopyBroken, 0},
		"a chunk again":   {func(o stream) error { return errors.Join(o.Send(header("x")), o.Send(good), o.Send(good)) }, nil, store.ErrCopyBroken, 1},
		"rows left out":   {func(o stream) error { return errors.Join(o.Send(header("x")), o.Send(theEnd(sum))) }, nil, store.ErrCopyBroken, 0},
		"more after it": {func(o stream) error {
			return errors.Join(o.Send(header("x")), o.Send(good), o.Send(theEnd(sum)), o.Send(good))
		}, nil, wire.ErrMalformed, 1},
		"a taker that ends": {func(o stream) error { return errors.Join(o.Send(header("x")), o.Send(good), o.Send(theEnd(sum))) }, store.ErrCopyRefused, store.ErrCopyRefused, 1},
		"busy":              {func(stream) error { return &store.OverloadedError{Limit: "copies"} }, nil, store.ErrOverloaded, 0},
		"nothing pinned":    {func(stream) error { return store.ErrClosed }, nil, store.ErrClosed, 0},
		"leaving":           {func(stream) error { return store.ErrShuttingDown }, nil, store.ErrShuttingDown, 0},
		"too slow for it":   {func(stream) error { return context.DeadlineExceeded }, nil, store.ErrCopyCut, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &scripted{send: func(_ *statemeshv1.CopyTaskRequest, out stream) error { return c.send(out) }}
				n := notes{fail: c.fail}
				err := copySource(t, s).CopyTask(t.Context(), "a:1", store.CopyRequest{}, &n)
				if !errors.Is(err, c.want) || len(n.keys) != c.keys {
					t.Errorf("%d rows, error %v, want %d and %v", len(n.keys), err, c.keys, c.want)
				}
			})
		})
	}
}

// TestCopyTaskOfWhoIsSilent: an instance that says nothing is given up, however alive its connection is; one that takes its time with
// rows here is no such case. A caller who leaves has its own reason.
func TestCopyTaskOfWhoIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{send: func(_ *statemeshv1.CopyTaskRequest, out grpc.ServerStreamingServer[statemeshv1.CopyTaskResponse]) error {
			var sum wire.CopySum
			err := errors.Join(out.Send(header("x")), out.Send(rowsOf(&sum, "a")))
			<-out.Context().Done()
			return err
		}}
		m := copySource(t, s)
		begin := time.Now()
		slow := &slowNotes{}
		err := m.CopyTask(t.Context(), "a:1", store.CopyRequest{}, slow)
		if took := time.Since(begin); !errors.Is(err, store.ErrCopyCut) || took != slowTake+copySilence {
			t.Errorf("after %s: %v", took, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := m.CopyTask(ctx, "a:1", store.CopyRequest{}, &notes{}); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, store.ErrCopyCut) {
			t.Errorf("a caller that leaves: %v", err)
		}
	})
}

const slowTake = time.Minute

// slowNotes takes its time.
type slowNotes struct{ notes }

func (n *slowNotes) Take(ctx context.Context, rows []store.CopyRow, to store.CopyMark) error {
	time.Sleep(slowTake)
	return n.notes.Take(ctx, rows, to)
}
