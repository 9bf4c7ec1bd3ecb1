package processor

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
)

// nodeRun is a node of a sub-topology as one task runs it.
type nodeRun struct {
	def      *node
	task     *task
	proc     Processor // nil of sinks, and of sources that hand on what they read
	ctx      Context
	children []*nodeRun
	// in is the record the node has in hand: handing on a record allocates nothing. A graph has no cycle, so a node has
	// at most one at a time.
	in Record
	// initialized says that Close is owed.
	initialized bool
	// mute: what is forwarded goes nowhere; the node has no children then.
	mute bool
}

// nodeError says which node of a task failed.
type nodeError struct {
	node string
	err  error
}

func (e *nodeError) Error() string { return fmt.Sprintf("processor %s: %v", e.node, e.err) }

func (e *nodeError) Unwrap() error { return e.err }

// wrap names the node, unless one further down is named already.
func (n *nodeRun) wrap(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*nodeError](err); ok {
		return err
	}
	return &nodeError{node: n.def.name, err: err}
}

func (n *nodeRun) process(r *Record) error {
	switch n.def.kind {
	case nodeProcessor:
		return n.failed(n.proc.Process(r))
	case nodeSink:
		return n.failed(n.sink(r))
	default:
		if n.proc != nil {
			return n.failed(n.proc.Process(r))
		}
		return n.ctx.Forward(*r)
	}
}

// failed is what becomes of an error of the node: nil if the exception handler goes on without what the node was given, and its parents with
// what they have for others (as upstream, where each node asks the handler, KIP-1033). Without a record in hand nobody may go on.
func (n *nodeRun) failed(err error) error {
	if err == nil {
		return nil
	}
	err = n.wrap(err)
	if t := n.task; t.hasCurrent && t.raw != nil && !is[*TaskError](err) {
		return t.env.onError(t, t.raw, err)
	}
	return err
}

// buildGraph makes the nodes of a task, each with a new processor.
func buildGraph(t *task, sub *subtopology) []*nodeRun {
	nodes := make([]*nodeRun, len(sub.nodes))
	for i := range sub.nodes {
		nodes[i] = &nodeRun{def: &sub.nodes[i], task: t}
		nodes[i].ctx = Context{node: nodes[i], task: t}
	}
	for i, n := range nodes {
		for _, c := range sub.nodes[i].children {
			n.children = append(n.children, nodes[c])
		}
		if n.def.supplier != nil {
			n.proc = n.def.supplier()
		}
	}
	return nodes
}

// initGraph calls Init of every processor, parents first. After an error closeGraph is still owed.
func initGraph(nodes []*nodeRun) error {
	for _, n := range nodes {
		if n.proc == nil {
			continue
		}
		n.initialized = true
		if err := n.proc.Init(&n.ctx); err != nil {
			return n.wrap(fmt.Errorf("init: %w", err))
		}
	}
	return nil
}

// closeGraph calls Close of every processor that was initialised, children first.
func closeGraph(nodes []*nodeRun) error {
	var errs []error
	for _, n := range slices.Backward(nodes) {
		if !n.initialized {
			continue
		}
		n.initialized = false
		if err := n.close(); err != nil {
			errs = append(errs, n.wrap(fmt.Errorf("close: %w", err)))
		}
	}
	return errors.Join(errs...)
}

// close calls the processor's Close; what it panics with is an error, so that the others are closed all the same.
func (n *nodeRun) close() (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return n.proc.Close()
}
