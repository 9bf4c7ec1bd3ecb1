package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/store"
)

// FuzzRPCs (GN-11) sends any bytes that parse as a request to each RPC, directly and by way of a peer: the answer is a
// success or has a reason that blames the request, and the server goes on.
func FuzzRPCs(f *testing.F) {
	long := make([]int32, 5000)
	seeds := []proto.Message{
		&statemeshv1.GetRequest{},
		&statemeshv1.GetRequest{Store: "flights", Key: []byte{0xff, 0xfe, 0}, Partition: new(int32(-5)), Options: &statemeshv1.ReadOptions{Cache: -7}},
		&statemeshv1.BatchGetRequest{Store: "flights", Keys: make([][]byte, 3000)},
		&statemeshv1.BatchGetRequest{Store: "flights", Keys: [][]byte{{1}, {2}, {3}, nil}},
		&statemeshv1.ScanRequest{Store: "flights", Partitions: long, Order: -1},
		&statemeshv1.ScanRequest{Store: "flights", From: []byte{}, To: []byte{}, Prefix: []byte{}},
		&statemeshv1.ScanRequest{Store: "flights", ResumeToken: bytes.Repeat([]byte{tokenVersion}, 20)},
		&statemeshv1.CountRequest{Store: "flights", Partitions: []int32{1 << 30}},
		&statemeshv1.ListInstancesRequest{Store: new("x")},
		&statemeshv1.FindOwnerRequest{Store: "flights", Key: []byte("k")},
	}
	for which := range byte(6) {
		for _, m := range seeds {
			b, err := proto.Marshal(m)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(which, b)
		}
	}
	m := newMesh(f, 2, 4, func(p int) int { return p % 2 })
	for i := range 20 {
		m.put(fmt.Appendf(nil, "%d", i), []byte("v"))
	}
	f.Fuzz(func(t *testing.T, which byte, b []byte) {
		q, meta := m.node("a").query(), m.node("a").meta()
		var err error
		read := func(req proto.Message) bool { return proto.Unmarshal(b, req) == nil }
		switch which % 6 {
		case 0:
			if req := (&statemeshv1.GetRequest{}); read(req) {
				_, err = q.Get(t.Context(), req)
			}
		case 1:
			if req := (&statemeshv1.BatchGetRequest{}); read(req) {
				_, err = q.BatchGet(t.Context(), req)
			}
		case 2:
			if req := (&statemeshv1.ScanRequest{}); read(req) {
				var s grpc.ServerStreamingClient[statemeshv1.ScanResponse]
				if s, err = q.Scan(t.Context(), req); err == nil {
					_, _, _, err = drainScan(s)
				}
			}
		case 3:
			if req := (&statemeshv1.CountRequest{}); read(req) {
				_, err = q.Count(t.Context(), req)
			}
		case 4:
			if req := (&statemeshv1.ListInstancesRequest{}); read(req) {
				_, err = meta.ListInstances(t.Context(), req)
			}
		case 5:
			if req := (&statemeshv1.FindOwnerRequest{}); read(req) {
				_, err = meta.FindOwner(t.Context(), req)
			}
		}
		if err == nil {
			return
		}
		switch r := wire.Reason(wire.FromStatus(err)); r {
		case statemeshv1.Reason_REASON_KEY_NOT_FOUND, statemeshv1.Reason_REASON_UNKNOWN_STORE, statemeshv1.Reason_REASON_INVALID_KEY,
			statemeshv1.Reason_REASON_INVALID_REQUEST, statemeshv1.Reason_REASON_TOO_LARGE, statemeshv1.Reason_REASON_WRONG_PARTITION,
			statemeshv1.Reason_REASON_WRONG_STORE_KIND:
		case statemeshv1.Reason_REASON_NOT_READY: // a bound so tight that the way here was longer
		default:
			t.Fatalf("%s: %v", r, err)
		}
	})
}

// GN-11, SC-07: a panic in a handler, in a goroutine of one, or in a stream is an error of that call alone; it is counted,
// what the call held is released (checked when the mesh ends), and no data is logged.
func TestPanics(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var log bytes.Buffer
	m := newMesh(t, 2, 2, func(p int) int { return p }, func(_ string, c *Config, _ *Deps) {
		c.Logger = slog.New(slog.NewTextHandler(&lockedWriter{w: &log, mu: &mu}, nil))
	})
	a := m.node("a")
	m.put(m.keyIn(0), []byte("v"))
	a.stores.onGet = func() error { panic("canary-7 in a panic") }
	a.stores.onNext = func() error { panic(errors.New("canary-7 in another")) }
	for name, call := range map[string]func(context.Context) error{
		"get": func(ctx context.Context) error { _, err := a.query().Get(ctx, get(m.keyIn(0))); return err },
		"batch, a goroutine per instance": func(ctx context.Context) error {
			_, err := a.query().BatchGet(ctx, &statemeshv1.BatchGetRequest{Store: string(testStore), Keys: [][]byte{m.keyIn(0), m.keyIn(1)}})
			return err
		},
		"scan": func(ctx context.Context) error {
			s, err := a.query().Scan(ctx, &statemeshv1.ScanRequest{Store: string(testStore)})
			if err == nil {
				_, _, _, err = drainScan(s)
			}
			return err
		},
		"by way of a peer": func(ctx context.Context) error { _, err := m.node("b").query().Get(ctx, get(m.keyIn(0))); return err },
	} {
		err := call(t.Context())
		wantErr(t, err, statemeshv1.Reason_REASON_INTERNAL)
		if c := status.Code(err); c != codes.Internal || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := valueOf(t, a.srv.m.panics); n != 4 {
		t.Errorf("%v panics counted, want 4", n)
	}
	mu.Lock()
	if s := log.String(); strings.Contains(s, "canary-7 in") || !strings.Contains(s, "panicked") {
		t.Errorf("the log has %s", s)
	}
	mu.Unlock()
	a.stores.onGet, a.stores.onNext = nil, nil
	if _, err := a.query().Get(t.Context(), get(m.keyIn(0))); err != nil {
		t.Errorf("after the panics: %v", err)
	}
}

type lockedWriter struct {
	w  *bytes.Buffer
	mu *sync.Mutex
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

// GN-04: a value of 5 MiB passes every path with the defaults; what is too large says so, in whichever direction and
// however much, and does not look like overload.
func TestMessageLimits(t *testing.T) {
	t.Parallel()
	m := newMesh(t, 2, 2, func(p int) int { return p }, withCache)
	big := make([]byte, 5<<20)
	big[len(big)-1] = 1
	q := m.node("a").query()
	for p := range store.Partition(2) {
		key := m.keyIn(p)
		m.put(key, big)
		resp, err := q.Get(t.Context(), get(key))
		if err != nil || !bytes.Equal(resp.GetValue().GetData(), big) {
			t.Fatalf("partition %d: %d bytes, %v", p, len(resp.GetValue().GetData()), err)
		}
		s, err := q.Scan(t.Context(), &statemeshv1.ScanRequest{Store: string(testStore), Partitions: []int32{int32(p)}})
		if err != nil {
			t.Fatal(err)
		}
		if rows, _, _, err := drainScan(s); err != nil || len(rows) != 1 || !bytes.Equal(rows[0].GetValue().GetData(), big) {
			t.Fatalf("partition %d: %d rows, %v", p, len(rows), err)
		}
	}
	tooLarge := func(err error) {
		t.Helper()
		got := wire.FromStatus(err)
		if !errors.Is(got, store.ErrTooLarge) || errors.Is(got, store.ErrOverloaded) {
			t.Errorf("%v", got)
		}
	}
	for p := range store.Partition(2) { // 4 times 5 MiB is more than one message takes
		k := m.keyIn(p)
		_, err := q.BatchGet(t.Context(), &statemeshv1.BatchGetRequest{Store: string(testStore), Keys: [][]byte{k, k, k, k}})
		tooLarge(err)
	}
	m.put(m.keyIn(0), make([]byte, 17<<20))
	_, err := q.Get(t.Context(), get(m.keyIn(0)))
	tooLarge(err)
	s, err := q.Scan(t.Context(), &statemeshv1.ScanRequest{Store: string(testStore)})
	if err == nil {
		_, _, _, err = drainScan(s)
	}
	tooLarge(err)
	for _, size := range []int{wire.MaxMessageBytes + 1, 2 * wire.MaxMessageBytes} { // by us, and by the transport
		_, err = q.BatchGet(t.Context(), &statemeshv1.BatchGetRequest{Store: string(testStore), Keys: [][]byte{make([]byte, size)}})
		tooLarge(err)
	}
	if _, err := q.Get(t.Context(), get(m.keyIn(1))); err != nil {
		t.Error(err)
	}
}
