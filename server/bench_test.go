package server

import (
	"context"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/store"
)

// echo is the floor: a handler that answers with a message of the same size at once, without interceptors.
type echo struct {
	statemeshv1.UnimplementedQueryServiceServer

	resp *statemeshv1.GetResponse
}

func (e *echo) Get(context.Context, *statemeshv1.GetRequest) (*statemeshv1.GetResponse, error) {
	return e.resp, nil
}

// BenchmarkGet compares a get over loopback with a bare grpc echo of the same messages, at concurrency 1 and 64: the owner
// asked directly, and by way of another instance.
func BenchmarkGet(b *testing.B) {
	var listeners []net.Listener
	listen := func() net.Listener {
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		listeners = append(listeners, lis)
		return lis
	}
	m := newMesh(b, 2, 2, func(p int) int { return p }, func(_ string, c *Config, _ *Deps) { c.Listener = listen() })
	m.dialPeer = func(_ context.Context, endpoint string) (net.Conn, error) {
		for i, n := range m.nodes {
			if endpointOf(n.id) == endpoint {
				return net.Dial("tcp", listeners[i].Addr().String())
			}
		}
		return nil, net.ErrClosed
	}
	for p := range store.Partition(2) {
		m.put(m.keyIn(p), make([]byte, 100))
	}
	direct := dialAddr(b, listeners[0].Addr().String())
	floorLis := listen()
	resp, err := direct.Get(b.Context(), get(m.keyIn(0)))
	if err != nil {
		b.Fatal(err)
	}
	srv := grpc.NewServer()
	statemeshv1.RegisterQueryServiceServer(srv, &echo{resp: resp})
	done := make(chan error, 1)
	go func() { done <- srv.Serve(floorLis) }()
	defer func() {
		srv.Stop()
		if err := <-done; err != nil {
			b.Error(err)
		}
	}()
	floor := dialAddr(b, floorLis.Addr().String())

	for _, conc := range []int{1, 64} {
		for _, c := range []struct {
			name string
			q    statemeshv1.QueryServiceClient
			p    store.Partition
		}{{"echo", floor, 0}, {"owner", direct, 0}, {"hop", direct, 1}} {
			b.Run(c.name+"/concurrency="+map[int]string{1: "1", 64: "64"}[conc], func(b *testing.B) {
				key := m.keyIn(c.p)
				b.ReportAllocs()
				var wg sync.WaitGroup
				work := make(chan struct{}, conc)
				for range conc {
					wg.Go(func() {
						for range work {
							if _, err := c.q.Get(b.Context(), get(key)); err != nil {
								b.Error(err)
							}
						}
					})
				}
				begin := cpuTime(b)
				for b.Loop() {
					work <- struct{}{}
				}
				close(work)
				wg.Wait()
				b.ReportMetric(float64(cpuTime(b)-begin)/float64(b.N), "cpu-ns/op")
			})
		}
	}
}

// cpuTime is what the process, both ends of it, has used: unlike the time on the wall it means something on a busy machine.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func dialAddr(b *testing.B, addr string) statemeshv1.QueryServiceClient {
	b.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	return statemeshv1.NewQueryServiceClient(conn)
}
