package streams

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/internal/suppliers"
	"github.com/statemesh/statemesh/store"
)

// Processor handles the records of a stream, and makes those of another (upstream's api.Processor). There is one for each task; its methods
// are called on the task's stream thread. An error ends the task, unless the handler of processing errors says otherwise.
type Processor[K, V, L, W any] interface {
	// Init is called once, before the first record: stores are opened and punctuations scheduled here.
	Init(ctx *Context[L, W]) error
	// Process handles one record. The record is the processor's until it returns; what its key, value and headers refer to is only lent.
	Process(r *Record[K, V]) error
	// Close is called once, also after a failed Init.
	Close() error
}

// Process puts a processor of one's own behind a stream (upstream's KStream.process). supplier makes one for each task, a new one at each
// call. Keys may have changed afterwards, so what needs all records of a key in one task repartitions; ProcessValues keeps them. A
// processor that forwards nothing may have any output, as in Process[string, Click, none, none]. Option: Uses.
func Process[K, V, L, W any](s *Stream[K, V], supplier func() Processor[K, V, L, W], opts ...Option) *Stream[L, W] {
	o := s.b.read("Process", opts, "Uses")
	name := s.b.unlessNamed(o, "KSTREAM-PROCESSOR-")
	s.b.supplies(name, suppliers.Reason(supplier))
	return process(s, name, o, processing(supplier)).changesKeys()
}

// processing is the operator that runs a user's processor.
func processing[K, V, L, W any](supplier func() Processor[K, V, L, W]) operator[Record[K, V], Record[L, W]] {
	return func(sc *scope[Record[L, W]]) (func(*Record[K, V]) error, error) {
		ctx := &Context[L, W]{processorContext: processorContext{raw: sc.Context}, sc: sc, keys: nullsOf[L](), values: nullsOf[W]()}
		p := supplier()
		sc.onClose = append(sc.onClose, p.Close)
		if err := p.Init(ctx); err != nil {
			return nil, err
		}
		var in Record[K, V] // its own copy
		return func(r *Record[K, V]) error {
			before, now := in, ctx.now // a flush comes in the middle of anything: see scope.emit
			in, ctx.now = *r, r.Timestamp
			// What the processor changes or keeps must not be taken for the bytes that were read.
			in.key, in.value = encoded[K]{}, encoded[V]{}
			err := p.Process(&in)
			in, ctx.now = before, now
			return err
		}, nil
	}
}

// process adds an operator that runs a user's processor.
func process[K, V, L, W any](s *Stream[K, V], name string, o options, op operator[Record[K, V], Record[L, W]]) *Stream[L, W] {
	d := derive(s, name, op)
	d.node.add = s.b.using(name, o.uses, d.node.add)
	return d
}

// supplies reports what is wrong with a supplier, unless nothing is.
func (b *Builder) supplies(node, reason string) {
	if reason != "" {
		b.fail(node, "%s", reason)
	}
}

// using is what writes a node, and then connects it to stores.
func (b *Builder) using(node string, stores []StateStore, write func(*processor.Topology, ...string)) func(*processor.Topology, ...string) {
	for _, st := range stores {
		if reason := st.check(b); reason != "" {
			b.fail(node, "%s", reason)
		}
	}
	return func(t *processor.Topology, parents ...string) {
		write(t, parents...)
		for _, st := range stores {
			st.connect(b, t, node)
		}
	}
}

// unlessNamed is the name that was given, or the next by position, which is used up only then (upstream's process and processValues).
func (b *Builder) unlessNamed(o options, prefix string) string {
	if o.named != "" {
		return o.named
	}
	return b.name(prefix)
}

// Context is what a processor may do (upstream's api.ProcessorContext). It belongs to the stream thread of its task.
type Context[K, V any] struct {
	processorContext

	sc     *scope[Record[K, V]]
	keys   nulls[K]
	values nulls[V]
	out    Record[K, V]
}

// Forward hands a record to all children, at once, depth first. Headers are those of r: pass on what is to be kept. The error is that of a child
// and must be returned.
func (c *Context[K, V]) Forward(r Record[K, V]) error {
	if err := c.take(r); err != nil {
		return err
	}
	return c.sc.emit(&c.out)
}

// ForwardTo hands a record to one child, by the name of its operator (upstream's forward to a named child).
func (c *Context[K, V]) ForwardTo(child string, r Record[K, V]) error {
	to, err := c.sc.child(child)
	if err != nil {
		return err
	}
	if err := c.take(r); err != nil {
		return err
	}
	return to.receive(&c.out)
}

// take puts a record of the user in hand.
func (c *Context[K, V]) take(r Record[K, V]) error {
	if r.Timestamp < 0 {
		return negative(r.Timestamp)
	}
	c.out = r
	c.out.key, c.out.value = encoded[K]{}, encoded[V]{}
	if r.NoKey || c.keys.null(&c.out.Key) {
		var none K
		c.out.Key, c.out.NoKey = none, true
	}
	if r.NoValue || c.values.null(&c.out.Value) {
		var none V
		c.out.Value, c.out.NoValue = none, true
	}
	return nil
}

// negative is what upstream's Record refuses.
func negative(timestamp int64) error {
	return fmt.Errorf("forward: timestamp %d is negative", timestamp)
}

// child finds the way to a child by its name.
func (s *scope[Out]) child(name string) (receiver[Out], error) {
	for i, c := range s.Children() {
		if c.Name == name {
			return s.to[i], nil
		}
	}
	return nil, fmt.Errorf("forward: no child is called %q", name)
}

// processorContext is what the contexts of all processors have.
type processorContext struct {
	raw *processor.Context
	// now is the time of the record or punctuation in hand, for stores that keep none.
	now int64
}

// ApplicationID of the instance.
func (c *processorContext) ApplicationID() string { return c.raw.ApplicationID() }

// TaskID of the task.
func (c *processorContext) TaskID() store.TaskID { return c.raw.TaskID() }

// NodeName is the name of the operator.
func (c *processorContext) NodeName() string { return c.raw.NodeName() }

// RecordMetadata says where the record in hand came from; ok is false inside Init and a punctuation.
func (c *processorContext) RecordMetadata() (m processor.RecordMetadata, ok bool) {
	return c.raw.RecordMetadata()
}

// CurrentStreamTime is the greatest record timestamp of the task so far, in Unix milliseconds, -1 before the first.
func (c *processorContext) CurrentStreamTime() int64 { return c.raw.CurrentStreamTime() }

// CurrentSystemTime is the wall clock of the runtime.
func (c *processorContext) CurrentSystemTime() time.Time { return c.raw.CurrentSystemTime() }

// Schedule calls fn every interval by one of the two clocks, with its time in Unix milliseconds, until cancel is called; see
// [processor.Context.Schedule].
func (c *processorContext) Schedule(interval time.Duration, clock processor.PunctuationType, fn func(timestamp int64) error) (cancel func(), err error) {
	return c.raw.Schedule(interval, clock, func(timestamp int64) error {
		before := c.now
		c.now = timestamp
		err := fn(timestamp)
		c.now = before
		return err
	})
}

// RequestCommit asks for a commit as soon as the record in hand is done (upstream's commit).
func (c *processorContext) RequestCommit() { c.raw.RequestCommit() }

// Drop counts the record in hand as dropped for reason, a short constant, and logs the first of a burst.
func (c *processorContext) Drop(reason string) { c.raw.Drop(reason) }

// Registerer takes metrics of a processor's own; see [processor.Context.Registerer].
func (c *processorContext) Registerer() prometheus.Registerer { return c.raw.Registerer() }

func (c *processorContext) base() *processorContext { return c }
