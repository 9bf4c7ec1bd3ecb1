package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/statemesh/statemesh"
	"github.com/statemesh/statemesh/client"
	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/views"
	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/store"
)

// remote asks a fleet of two over loopback: straight at the owner, as the Go client does, and by way of the other
// instance. The floor is a bare grpc-go server that answers messages of the same size. Client, servers and floor share
// this process.
func remote(ctx context.Context, b *bench) error {
	const view = "latest"
	if err := b.create(ctx, "rows", 4, nil); err != nil {
		return err
	}
	if err := b.load(ctx, "rows", b.keys, keyed); err != nil {
		return err
	}
	f, err := b.startFleet(ctx, 2, view)
	if err != nil {
		return err
	}
	defer func() { _ = f.stop() }()
	if err := f.loaded(ctx, view, b.keys); err != nil {
		return err
	}
	echo, err := startEcho(ctx)
	if err != nil {
		return err
	}
	defer echo.stop()

	for _, c := range []struct {
		concurrency        int
		direct, hop, cache string
	}{{1, "<= 1.5", "<= 3", ""}, {64, ">= 0.7", "", ""}} {
		ways := []struct {
			name, goal string
			ask        func(context.Context) error
		}{
			{"echo", "", echo.ask},
			{"remote get, at the owner", c.direct, f.ask(view, b.keys, client.NoCache())},
			{"remote get, by one hop", c.hop, f.ask(view, b.keys, client.NoCache(), client.Via(f.endpoints[0]))},
			{"remote get, hot keys, cache on", c.cache, f.ask(view, 100, client.Via(f.endpoints[0]))},
		}
		var asks []func(context.Context) error
		for _, w := range ways {
			asks = append(asks, w.ask)
		}
		var got []calls
		err := b.profile(fmt.Sprintf("remote-%d", c.concurrency), func() (err error) {
			got, err = hammer(ctx, c.concurrency, asks)
			return err
		})
		if err != nil {
			return err
		}
		floor := got[0]
		for i, w := range ways[1:] {
			got := got[i+1]
			name := fmt.Sprintf("%s, %d at once", w.name, c.concurrency)
			if c.concurrency == 1 {
				b.table.cost(name, "us/op", 1e6/got.perSecond, "bare grpc echo", 1e6/floor.perSecond, w.goal)
			} else {
				b.table.rate(name, "op/s", got.perSecond, "bare grpc echo", floor.perSecond, w.goal)
			}
			b.table.cost(name, "CPU us/op", got.cpu, "bare grpc echo", floor.cpu, "")
		}
	}
	return nil
}

// calls is what calling costs: calls per second, and CPU us of both sides per call.
type calls struct{ perSecond, cpu float64 }

// hammer calls each of asks from n goroutines: the medians of many short rounds in turn, so that all have the same share
// of whatever else the machine does.
func hammer(ctx context.Context, n int, asks []func(context.Context) error) ([]calls, error) {
	const rounds = 16
	rates, cpus := make([][]float64, len(asks)), make([][]float64, len(asks))
	for round := range rounds {
		for i, ask := range asks {
			count, wall, cpu, err := hammerOnce(ctx, n, ask)
			if err != nil {
				return nil, err
			}
			if round == 0 {
				continue // connections and maps are made by the first
			}
			rates[i] = append(rates[i], perSecond(count, wall))
			cpus[i] = append(cpus[i], float64(cpu.Microseconds())/float64(count))
		}
	}
	out := make([]calls, len(asks))
	for i := range asks {
		out[i] = calls{perSecond: median(rates[i]), cpu: median(cpus[i])}
	}
	return out, nil
}

func hammerOnce(ctx context.Context, n int, ask func(context.Context) error) (count int, wall, cpu time.Duration, err error) {
	const length = 250 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	counts, errs := make([]int, n), make([]error, n)
	begin := used()
	for i := range n {
		wg.Go(func() {
			for time.Since(begin.at) < length && errs[i] == nil {
				errs[i] = ask(ctx)
				counts[i]++
			}
		})
	}
	wg.Wait()
	wall, cpu = used().since(begin)
	for _, c := range counts {
		count += c
	}
	return count, wall, cpu, errors.Join(errs...)
}

// fleet is some instances in this process.
type fleet struct {
	endpoints []string
	client    *client.Client
	cancel    context.CancelFunc
	ended     []chan error
}

func (b *bench) startFleet(ctx context.Context, n int, view string) (f *fleet, err error) {
	f = &fleet{}
	ctx, f.cancel = context.WithCancel(ctx)
	defer func() {
		if err != nil {
			err = errors.Join(err, f.stop())
		}
	}()
	var all []*statemesh.Instance
	for i := range n {
		inst, err := statemesh.New(statemesh.Config{
			Processor: processor.Config{ApplicationID: "remote", Kafka: processor.KafkaConfig{Brokers: b.brokers}, NumStreamThreads: 1},
			Views:     []views.View{{Name: view, Topic: "rows", Format: views.Bytes, Type: views.Table}},
			StateDir:  filepath.Join(b.dir, fmt.Sprintf("remote-%d", i)),
			Listen:    "127.0.0.1:0",
		})
		if err != nil {
			return nil, err
		}
		end := make(chan error, 1)
		go func() { end <- inst.Run(ctx) }()
		f.ended = append(f.ended, end)
		if err := inst.WaitState(ctx, statemesh.Serving); err != nil {
			return nil, err
		}
		all = append(all, inst)
	}
	for _, inst := range all {
		f.endpoints = append(f.endpoints, inst.Endpoint())
	}
	f.client, err = client.New(client.Config{Seeds: f.endpoints})
	return f, err
}

// loaded waits until every key is there and both instances hold some.
func (f *fleet) loaded(ctx context.Context, view string, keys int) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		rows := 0
		var failed error
		for _, err := range f.client.Scan(ctx, store.Name(view), client.ScanQuery{}) {
			if failed = err; err != nil {
				break
			}
			rows++
		}
		if failed == nil && rows == keys {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d rows of %d: %w", rows, keys, errors.Join(failed, ctx.Err()))
		case <-tick.C:
		}
	}
}

func (f *fleet) ask(view string, keys int, opts ...client.Option) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := f.client.Get(ctx, store.Name(view), key(rand.IntN(keys)), opts...)
		return err
	}
}

func (f *fleet) stop() error {
	f.cancel()
	var errs []error
	if f.client != nil {
		errs = append(errs, f.client.Close())
	}
	for _, end := range f.ended {
		errs = append(errs, <-end)
	}
	return errors.Join(errs...)
}

// echo is a bare grpc-go server and its client: one message in, one of the size of an answer out.
type echo struct {
	statemeshv1.UnimplementedQueryServiceServer
	server *grpc.Server
	conn   *grpc.ClientConn
	client statemeshv1.QueryServiceClient
	value  []byte
}

func startEcho(ctx context.Context) (*echo, error) {
	lis, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	e := &echo{server: grpc.NewServer(), value: value(0)}
	statemeshv1.RegisterQueryServiceServer(e.server, e)
	go func() { _ = e.server.Serve(lis) }()
	e.conn, err = grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		e.server.Stop()
		return nil, err
	}
	e.client = statemeshv1.NewQueryServiceClient(e.conn)
	return e, nil
}

// Get answers with a value of the usual size.
func (e *echo) Get(context.Context, *statemeshv1.GetRequest) (*statemeshv1.GetResponse, error) {
	return &statemeshv1.GetResponse{Value: &statemeshv1.Value{Data: e.value}}, nil
}

func (e *echo) ask(ctx context.Context) error {
	_, err := e.client.Get(ctx, &statemeshv1.GetRequest{Store: "latest", Key: key(0)})
	return err
}

func (e *echo) stop() {
	_ = e.conn.Close()
	e.server.Stop()
}
