package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/client"
	"github.com/statemesh/statemesh/processor/views"
	"github.com/statemesh/statemesh/store"
)

// The application of the memory part: 200 tasks, in 40 partitions of each of five views, and a global table beside them.
const (
	memoryLimit      = 512 << 20
	memoryPartitions = 40
)

func memoryViews() []views.View {
	return []views.View{
		{Name: "counts", Topic: "memory-counts", Format: views.Bytes, Type: views.Count},
		{Name: "latest", Topic: "memory-latest", Format: views.Bytes, Type: views.Table},
		{Name: "hourly", Topic: "memory-hourly", Format: views.Bytes, Type: views.Count, Window: views.Window{Tumbling: time.Hour, Grace: time.Hour}},
		{Name: "visits", Topic: "memory-visits", Format: views.Bytes, Type: views.Count, Window: views.Window{Session: time.Minute, Grace: time.Hour}},
		{Name: "history", Topic: "memory-history", Format: views.Bytes, Type: views.Table, History: time.Hour},
		{Name: "everywhere", Topic: "memory-everywhere", Format: views.Bytes, Type: views.Table, Global: true},
	}
}

// memory runs an instance of 200 tasks under a limit: it processes everything while it is read, is stopped, loses its
// directory, and restores everything while it is read and written. What counts is the most it ever took.
func memory(ctx context.Context, b *bench) error {
	for _, v := range memoryViews() {
		var configs map[string]*string
		if v.Global { // the topic is its changelog
			configs = map[string]*string{"cleanup.policy": new("compact")}
		}
		if err := b.create(ctx, v.Topic, memoryPartitions, configs); err != nil {
			return err
		}
		if err := b.load(ctx, v.Topic, b.records/10, b.input); err != nil {
			return err
		}
	}
	if err := b.memoryRound(ctx, "200 tasks, reads and writes"); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(b.dir, memoryApp)); err != nil {
		return err
	}
	return b.memoryRound(ctx, "200 tasks, restore, reads and writes")
}

const memoryApp = "memory"

// memoryRound is one life of the instance: it starts, catches up with twice what the topics have while it is asked.
func (b *bench) memoryRound(ctx context.Context, name string) (err error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.brokers...))
	if err != nil {
		return err
	}
	defer cl.Close()
	listen, err := freeAddr(ctx)
	if err != nil {
		return err
	}
	child, err := b.startChild(ctx, memoryApp, "-listen", listen, "-memory", fmt.Sprint(memoryLimit))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, child.stop()) }()
	reading, stop := context.WithCancel(ctx)
	asked := new(atomic.Int64)
	var readers sync.WaitGroup
	readers.Go(func() { b.ask(reading, listen, asked) })
	defer readers.Wait()
	defer stop()
	for _, v := range memoryViews() {
		if err := b.load(ctx, v.Topic, b.records/10, b.input); err != nil {
			return err
		}
	}
	for _, v := range memoryViews() {
		if v.Global {
			continue // it has no place in the group: it is live before anything else begins
		}
		if err := caughtUpWith(ctx, kadm.NewClient(cl), memoryApp, v.Topic, child.exited); err != nil {
			return err
		}
	}
	for _, f := range []struct{ field, what, goal string }{
		{"VmHWM:", "most resident", fmt.Sprintf("< %d", memoryLimit>>20)},
		{"VmRSS:", "resident at the end", ""},
		{"RssAnon:", "of it without mapped files", ""},
	} {
		mb, err := child.memory(f.field)
		if err != nil {
			return err
		}
		b.table.figure(name+": "+f.what, "MB", mb, f.goal)
	}
	b.table.figure(name, "answers", float64(asked.Load()), "")
	return nil
}

// points are the views that are asked for a key.
var points = []store.Name{"counts", "latest", "history", "everywhere"}

// ask asks until ctx ends, points and scans of all kinds in turn, and counts the answers. An instance that restores refuses.
func (b *bench) ask(ctx context.Context, addr string, answers *atomic.Int64) {
	c, err := client.New(client.Config{Seeds: []string{addr}, Application: memoryApp, Timeout: time.Second})
	if err != nil {
		return
	}
	defer func() { _ = c.Close() }() // nothing is lost
	for i := 0; ctx.Err() == nil; i++ {
		var err error
		k := key(rand.IntN(b.keys))
		switch i % 200 {
		case 0:
			err = drainScan(c.Scan(ctx, "counts", client.ScanQuery{Limit: 10_000}))
		case 50:
			err = drainScan(c.ScanVersions(ctx, "history", client.VersionQuery{Key: k}))
		case 100:
			err = drainScan(c.ScanWindows(ctx, "hourly", client.WindowQuery{}))
		case 150:
			err = drainScan(c.ScanSessions(ctx, "visits", client.SessionQuery{Key: k}))
		default:
			_, err = c.Get(ctx, points[i%len(points)], k)
			if errors.Is(err, store.ErrNotFound) {
				err = nil
			}
		}
		if err == nil {
			answers.Add(1)
		} else if pause(ctx, 20*time.Millisecond) != nil {
			return
		}
	}
}

func drainScan(rows func(func(client.Row, error) bool)) (err error) {
	n := 0
	for _, e := range rows {
		if err = e; err != nil {
			return err
		}
		if n++; n == 20_000 {
			break
		}
	}
	return nil
}

func freeAddr(ctx context.Context) (string, error) {
	lis, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return lis.Addr().String(), lis.Close()
}
