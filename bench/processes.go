package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/client"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// processes is a fleet in which each instance is a process, so that one can be killed. Its application, and its topic, is called app.
type processes struct {
	b        *bench
	app      string
	view     store.Name
	standbys int
	listen   []string
	children []*child
	client   *client.Client
}

// startProcesses starts n instances and returns when each partition has its owner and its copies, and all is committed.
func (b *bench) startProcesses(ctx context.Context, app string, view store.Name, n, standbys int) (f *processes, err error) {
	f = &processes{b: b, app: app, view: view, standbys: standbys}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.stop())
		}
	}()
	for range n {
		if err := f.add(ctx); err != nil {
			return f, err
		}
	}
	if f.client, err = client.New(client.Config{Seeds: f.listen, Application: app}); err != nil {
		return f, err
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.brokers...))
	if err != nil {
		return f, err
	}
	defer cl.Close()
	if err := caughtUp(ctx, kadm.NewClient(cl), app, nil); err != nil {
		return f, err
	}
	return f, f.whole(ctx)
}

// add starts one more.
func (f *processes) add(ctx context.Context) error {
	listen, err := freeAddr(ctx)
	if err != nil {
		return err
	}
	c, err := f.launch(ctx, len(f.children), listen)
	if err != nil {
		return err
	}
	f.listen, f.children = append(f.listen, listen), append(f.children, c)
	return nil
}

func (f *processes) launch(ctx context.Context, i int, listen string) (*child, error) {
	dir := filepath.Join(f.b.dir, fmt.Sprintf("%s-%d", f.app, i))
	return f.b.startChild(ctx, f.app, "-listen", listen, "-dir", dir, "-view", string(f.view), "-standbys", strconv.Itoa(f.standbys))
}

// kill ends the i-th instance without a word; again starts it on what it left.
func (f *processes) kill(i int) error {
	err := f.children[i].cmd.Process.Kill()
	<-f.children[i].exited
	return err
}

func (f *processes) again(ctx context.Context, i int) (err error) {
	f.children[i], err = f.launch(ctx, i, f.listen[i])
	return err
}

// await asks for the map until it is as wanted.
func (f *processes) await(ctx context.Context, what string, ok func(*router.Snapshot) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Minute, fmt.Errorf("%s: not after 5 minutes", what))
	defer cancel()
	for {
		m, err := f.client.Metadata(ctx)
		if err == nil && ok(m) {
			return nil
		}
		if wait := pause(ctx, 50*time.Millisecond); wait != nil {
			return errors.Join(wait, err)
		}
	}
}

// whole waits for all owners and copies, evenly on all instances.
func (f *processes) whole(ctx context.Context) error {
	return f.await(ctx, "owners and copies", func(m *router.Snapshot) bool {
		all, tasks := m.Instances(), 0
		for i := range all {
			tasks += len(all[i].Active)
		}
		for i := range all {
			if len(all[i].Active) < tasks/len(f.children) {
				return false
			}
		}
		for p := range f.partitions(m) {
			if len(m.Replicas(f.view, p)) <= f.standbys {
				return false
			}
		}
		return len(all) == len(f.children)
	})
}

func (f *processes) partitions(m *router.Snapshot) store.Partition {
	for _, s := range m.Stores() {
		if s.Name == f.view {
			return store.Partition(s.Partitions)
		}
	}
	return 0
}

// owns returns what the instance at the i-th address owns.
func (f *processes) owns(m *router.Snapshot, i int) []store.TaskID {
	for _, inst := range m.Instances() {
		if inst.Endpoint == f.listen[i] {
			return inst.Active
		}
	}
	return nil
}

func (f *processes) stop() error {
	var errs []error
	if f.client != nil {
		errs = append(errs, f.client.Close())
	}
	for _, c := range f.children {
		errs = append(errs, c.stop())
	}
	return errors.Join(errs...)
}
