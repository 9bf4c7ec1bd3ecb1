package streams

import (
	"errors"
	"fmt"

	"github.com/statemesh/statemesh/processor"
)

// receiver is a node, or the way into a sink, that takes what a node hands on: a *Record[K, V] of a stream, a *Change[K, V] of a table. It
// must not keep or change it.
type receiver[M any] interface {
	receive(m *M) error
}

// operator makes the handler of a node for one task, in Init. What the handler needs between records belongs to the task: it is made here.
type operator[In, Out any] func(s *scope[Out]) (func(m *In) error, error)

// scope is what an operator has of its node in one task.
type scope[Out any] struct {
	*processor.Context

	to      []receiver[Out]
	onClose []func() error
	// emitted counts what went to several children.
	emitted uint64
}

// emit hands a message to every child, at once, depth first. Its error must be returned. A child that writes to a cached store may have
// the cache let go of a change further up, which comes through here before emit returns and finds the same memory: the message is what
// it was for the next child, but not for the caller afterwards.
func (s *scope[Out]) emit(m *Out) error {
	if len(s.to) == 1 {
		return s.to[0].receive(m)
	}
	s.emitted++
	sent, number := *m, s.emitted
	for _, to := range s.to {
		if s.emitted != number {
			*m, s.emitted = sent, number
		}
		if err := to.receive(m); err != nil {
			return err
		}
	}
	return nil
}

// outlet is the far side of a node as the builder knows it: how what it hands on becomes bytes, for children that are not nodes of this
// package. It is shared by all tasks and written only while the topology is built.
type outlet[M any] struct {
	// ways leads from the name of a child to what makes the way into it for a task.
	ways map[string]func(ctx *processor.Context) receiver[M]
}

func newOutlet[M any]() *outlet[M] {
	return &outlet[M]{ways: make(map[string]func(*processor.Context) receiver[M])}
}

// node runs an operator in the topology: one for each task. Nodes hand messages on by calling each other, so nothing is encoded between them.
type node[In, Out any] struct {
	operator operator[In, Out]
	outlet   *outlet[Out]
	// entry makes messages of bytes, for a node whose parent is a source; nil for all others.
	entry func() func(r *processor.Record) (*In, error)

	scope  scope[Out]
	handle func(m *In) error
	enter  func(r *processor.Record) (*In, error)
}

// Init implements processor.Processor.
func (n *node[In, Out]) Init(ctx *processor.Context) (err error) {
	n.scope.Context = ctx
	for _, c := range ctx.Children() {
		if to, ok := c.Processor.(receiver[Out]); ok {
			n.scope.to = append(n.scope.to, to)
		} else if way := n.outlet.ways[c.Name]; way != nil {
			n.scope.to = append(n.scope.to, way(ctx))
		} else {
			return fmt.Errorf("child %s takes no %T", c.Name, *new(Out))
		}
	}
	if n.entry != nil {
		n.enter = n.entry()
	}
	n.handle, err = n.operator(&n.scope)
	return err
}

// Process implements processor.Processor: it is the way in from a source.
func (n *node[In, Out]) Process(r *processor.Record) error {
	if n.enter == nil {
		return errors.New("takes no bytes: a parent that is not of this package cannot be one")
	}
	m, err := n.enter(r)
	if err != nil {
		return err
	}
	return n.handle(m)
}

// Close implements processor.Processor.
func (n *node[In, Out]) Close() error {
	var errs []error
	for _, f := range n.scope.onClose {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

func (n *node[In, Out]) receive(m *In) error {
	if err := n.handle(m); err != nil {
		return n.scope.Fail(err)
	}
	return nil
}

// supplier makes the nodes of an operator.
func supplier[In, Out any](op operator[In, Out], out *outlet[Out], entry func() func(r *processor.Record) (*In, error)) processor.Supplier {
	return func() processor.Processor { return &node[In, Out]{operator: op, outlet: out, entry: entry} }
}
