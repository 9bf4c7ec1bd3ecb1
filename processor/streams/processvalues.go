package streams

import (
	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/internal/suppliers"
)

// FixedKeyProcessor is a [Processor] that cannot change keys (upstream's api.FixedKeyProcessor, KIP-820), so nothing is repartitioned after
// it.
type FixedKeyProcessor[K, V, W any] interface {
	// Init is called once, before the first record.
	Init(ctx *FixedKeyContext[K, W]) error
	// Process handles one record. What it refers to is only lent.
	Process(r FixedKeyRecord[K, V]) error
	// Close is called once, also after a failed Init.
	Close() error
}

// FixedKeyRecord is a record whose key is what was read. WithValue gives it another value; the other fields may be set.
type FixedKeyRecord[K, V any] struct {
	Value     V
	NoValue   bool
	Timestamp int64 // Unix milliseconds
	Headers   []processor.Header

	key   K
	noKey bool
	// of is the number of the record that it was made of, by which the bytes of its key are known; 0 for none.
	of uint64
}

// Key of the record; ok is false for a record without one.
func (r *FixedKeyRecord[K, V]) Key() (k K, ok bool) { return r.key, !r.noKey }

// WithValue is r with another value (upstream's FixedKeyRecord.withValue).
func WithValue[K, V, W any](r FixedKeyRecord[K, V], value W) FixedKeyRecord[K, W] {
	return FixedKeyRecord[K, W]{Value: value, Timestamp: r.Timestamp, Headers: r.Headers, key: r.key, noKey: r.noKey, of: r.of}
}

// ProcessValues puts a processor of one's own behind a stream that keeps keys (upstream's KStream.processValues). supplier makes one for each
// task, a new one at each call. Option: Uses.
func ProcessValues[K, V, W any](s *Stream[K, V], supplier func() FixedKeyProcessor[K, V, W], opts ...Option) *Stream[K, W] {
	o := s.b.read("ProcessValues", opts, "Uses")
	name := s.b.unlessNamed(o, "KSTREAM-PROCESSVALUES-")
	s.b.supplies(name, suppliers.Reason(supplier))
	d := process(s, name, o, func(sc *scope[Record[K, W]]) (func(*Record[K, V]) error, error) {
		ctx := &FixedKeyContext[K, W]{processorContext: processorContext{raw: sc.Context}, sc: sc, values: nullsOf[W]()}
		p := supplier()
		sc.onClose = append(sc.onClose, p.Close)
		if err := p.Init(ctx); err != nil {
			return nil, err
		}
		return func(r *Record[K, V]) error {
			now := ctx.now
			ctx.number++
			ctx.now, ctx.known = r.Timestamp, r.key
			err := p.Process(FixedKeyRecord[K, V]{
				Value: r.Value, NoValue: r.NoValue, Timestamp: r.Timestamp, Headers: r.Headers, key: r.Key, noKey: r.NoKey, of: ctx.number,
			})
			ctx.now, ctx.known = now, encoded[K]{}
			return err
		}, nil
	}).changesValues()
	d.keys = s.keys
	return d
}

// FixedKeyContext is what a [FixedKeyProcessor] may do. It belongs to the stream thread of its task.
type FixedKeyContext[K, V any] struct {
	processorContext

	sc     *scope[Record[K, V]]
	values nulls[V]
	out    Record[K, V]
	// number of the record in hand, and the bytes of its key while it is.
	number uint64
	known  encoded[K]
}

// Forward hands a record to all children, at once, depth first. The error is that of a child and must be returned.
func (c *FixedKeyContext[K, V]) Forward(r FixedKeyRecord[K, V]) error {
	if err := c.take(r); err != nil {
		return err
	}
	return c.sc.emit(&c.out)
}

// ForwardTo hands a record to one child, by the name of its operator.
func (c *FixedKeyContext[K, V]) ForwardTo(child string, r FixedKeyRecord[K, V]) error {
	to, err := c.sc.child(child)
	if err != nil {
		return err
	}
	if err := c.take(r); err != nil {
		return err
	}
	return to.receive(&c.out)
}

func (c *FixedKeyContext[K, V]) take(r FixedKeyRecord[K, V]) error {
	if r.Timestamp < 0 {
		return negative(r.Timestamp)
	}
	c.out = Record[K, V]{
		Key: r.key, NoKey: r.noKey, Value: r.Value, NoValue: r.NoValue, Timestamp: r.Timestamp, Headers: r.Headers,
	}
	if r.of == c.number {
		c.out.key = c.known
	}
	if r.NoValue || c.values.null(&c.out.Value) {
		noValue(&c.out)
	}
	return nil
}
