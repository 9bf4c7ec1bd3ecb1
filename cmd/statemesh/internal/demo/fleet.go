package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// stopTimeout is how long a child has to end in order.
const stopTimeout = 20 * time.Second

// fleet is the instances, as processes.
type fleet struct {
	binary string
	dir    string
	config string // path of the configuration file
	sets   []string
	env    []string
	nodes  []*node
}

// node is one instance over its lives.
type node struct {
	number   int
	endpoint string // kept over restarts
	instance string // id, kept with the state directory
	proc     *process
}

func (n *node) name() string { return fmt.Sprintf("instance-%d", n.number) }

// startAll starts n instances side by side and waits until each of them serves.
func (f *fleet) startAll(ctx context.Context, n int) error {
	for i := range n {
		node := &node{number: i + 1, endpoint: "127.0.0.1:0"}
		f.nodes = append(f.nodes, node)
		if err := f.launch(node); err != nil {
			return err
		}
	}
	for _, node := range f.nodes {
		if err := f.awaitServing(ctx, node); err != nil {
			return err
		}
	}
	return nil
}

func (f *fleet) launch(n *node) (err error) {
	args := []string{"serve", "-o", "json", "-c", f.config}
	for _, s := range append(slices.Clone(f.sets),
		"listen="+n.endpoint, "application.server="+n.endpoint, "state.dir="+filepath.Join(f.dir, n.name())) {
		args = append(args, "--set", s)
	}
	n.proc, err = start(f.binary, f.dir, n.name(), f.env, args...)
	return err
}

func (f *fleet) awaitServing(ctx context.Context, n *node) error {
	e, err := n.proc.await(ctx, "listening")
	if err != nil {
		return err
	}
	n.endpoint, n.instance = e.Endpoint, e.Instance
	_, err = n.proc.await(ctx, "serving")
	return err
}

// survivors are the nodes whose process lives.
func (f *fleet) survivors() []*node {
	return slices.DeleteFunc(slices.Clone(f.nodes), func(n *node) bool { return n.proc == nil || !n.proc.alive() })
}

// stopAll asks all to end, at the same time, and waits.
func (f *fleet) stopAll() error {
	errs := make(chan error, len(f.nodes))
	for _, n := range f.nodes {
		go func() {
			if n.proc == nil {
				errs <- nil
				return
			}
			errs <- n.proc.stop(stopTimeout)
		}()
	}
	var all []error
	for range f.nodes {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}

// binaryPath is the program that runs.
func binaryPath() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	return path, nil
}
