package declared

import (
	"encoding/binary"
	"errors"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/streams"
	"github.com/statemesh/statemesh/serde"
)

// carrier is a value between the operators of a join: the value, the key that was made of it (or, of the other side of two streams, was its
// own), and what it has met. Only the first two are ever written, into a repartition topic or the store of a join, and then nothing has been
// met yet.
type carrier struct {
	value, key []byte
	rights     []right
	first      [1]right // what rights begins in
}

// right is what was met; no value: nothing. Its key is known where nothing else tells it.
type right struct{ value, key []byte }

// met is the carrier with one more side.
func (c *carrier) met(r right) *carrier {
	if c == nil { // of an outer join
		c = &carrier{}
	}
	out := &carrier{value: c.value, key: c.key}
	out.rights = append(append(out.first[:0], c.rights...), r)
	return out
}

// plainRight is a value that was met.
func plainRight(v []byte) right { return right{value: v} }

// keyedRight is one that has its key with it.
func keyedRight(c *carrier) right {
	if c == nil {
		return right{}
	}
	return right{c.value, c.key}
}

var errCarrier = errors.New("declared: a carried value is not whole")

// carriers is how they are written: key; value.
func carriers() serde.Serde[*carrier] {
	return serde.New("carrier", func(dst []byte, c *carrier) ([]byte, error) {
		return append(appendPart(dst, c.key), c.value...), nil
	}, func(b []byte) (*carrier, error) {
		c := &carrier{}
		var err error
		if c.key, c.value, err = cutPart(b); err != nil {
			return nil, err
		}
		return c, nil
	})
}

// metCarriers is how those are written that a join by a foreign key keeps, with what they have met: the number of rights; key and value of
// each; key; value.
func metCarriers() serde.Serde[*carrier] {
	return serde.New("met-carrier", func(dst []byte, c *carrier) ([]byte, error) {
		dst = binary.AppendUvarint(dst, uint64(len(c.rights)))
		for _, r := range c.rights {
			dst = appendPart(appendPart(dst, r.key), r.value)
		}
		return append(appendPart(dst, c.key), c.value...), nil
	}, func(b []byte) (*carrier, error) {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > uint64(len(b)) {
			return nil, errCarrier
		}
		c := &carrier{rights: make([]right, n)}
		var err error
		b = b[size:]
		for i := range c.rights {
			if c.rights[i].key, b, err = cutPart(b); err != nil {
				return nil, err
			}
			if c.rights[i].value, b, err = cutPart(b); err != nil {
				return nil, err
			}
		}
		if c.key, c.value, err = cutPart(b); err != nil {
			return nil, err
		}
		return c, nil
	})
}

// appendPart writes the length plus one, 0 for nil, and the bytes.
func appendPart(dst, part []byte) []byte {
	if part == nil {
		return append(dst, 0)
	}
	return append(binary.AppendUvarint(dst, uint64(len(part))+1), part...)
}

func cutPart(b []byte) (part, rest []byte, err error) {
	n, size := binary.Uvarint(b)
	if size <= 0 || n > uint64(len(b)-size)+1 {
		return nil, nil, errCarrier
	}
	if b = b[size:]; n == 0 {
		return nil, b, nil
	}
	return b[: n-1 : n-1], b[n-1:], nil
}

// take is a record's value and sides for a step.
type take[V any] func(v V) carrier

func plain(v []byte) carrier { return carrier{value: v} }

func carried(c *carrier) carrier {
	if c == nil {
		return carrier{}
	}
	return *c
}

// give is what a step hands on. key is that of the record.
type give[W any] func(o outcome, key []byte) W

func value(o outcome, _ []byte) []byte { return o.value }

func beside(o outcome, _ []byte) *carrier {
	if o.value == nil {
		return nil
	}
	return &carrier{value: o.value, key: o.key}
}

// withOwnKey hands the key on that the record had before.
func withOwnKey(o outcome, key []byte) *carrier {
	if o.value == nil {
		return nil
	}
	return &carrier{value: o.value, key: key}
}

// stepper does a step in a task, with keys that change.
type stepper[V, W any] struct {
	step *step
	take take[V]
	give give[W]

	evaluator *evaluator
	ctx       *streams.Context[[]byte, W]
}

func (p *stepper[V, W]) Init(ctx *streams.Context[[]byte, W]) (err error) {
	p.ctx = ctx
	p.evaluator, err = p.step.open(ctx.Drop)
	return err
}

func (p *stepper[V, W]) Process(r *streams.Record[[]byte, V]) error {
	m, _ := p.ctx.RecordMetadata()
	in := processor.Record{Key: r.Key, Timestamp: r.Timestamp, Headers: r.Headers}
	out, err := p.evaluator.do(in, p.take(r.Value), m)
	if err != nil {
		return err
	}
	defer p.evaluator.done(out)
	for _, o := range out {
		if o.key == nil {
			p.ctx.Drop("null key")
			continue
		}
		next := streams.Record[[]byte, W]{Key: o.key, Value: p.give(o, in.Key), NoValue: o.value == nil, Timestamp: in.Timestamp, Headers: in.Headers}
		if err := p.ctx.Forward(next); err != nil {
			return err
		}
	}
	return nil
}

func (p *stepper[V, W]) Close() error { return nil }

// keeper does a step that leaves keys as they are.
type keeper[V, W any] struct {
	step *step
	take take[V]
	give give[W]

	evaluator *evaluator
	ctx       *streams.FixedKeyContext[[]byte, W]
}

func (p *keeper[V, W]) Init(ctx *streams.FixedKeyContext[[]byte, W]) (err error) {
	p.ctx = ctx
	p.evaluator, err = p.step.open(ctx.Drop)
	return err
}

func (p *keeper[V, W]) Process(r streams.FixedKeyRecord[[]byte, V]) error {
	m, _ := p.ctx.RecordMetadata()
	key, _ := r.Key()
	out, err := p.evaluator.do(processor.Record{Key: key, Timestamp: r.Timestamp, Headers: r.Headers}, p.take(r.Value), m)
	if err != nil {
		return err
	}
	defer p.evaluator.done(out)
	for _, o := range out {
		next := streams.WithValue(r, p.give(o, key))
		next.NoValue = o.value == nil
		if err := p.ctx.Forward(next); err != nil {
			return err
		}
	}
	return nil
}

func (p *keeper[V, W]) Close() error { return nil }

// run puts a step behind a stream.
func run[V, W any](s *streams.Stream[[]byte, V], st *step, name string, take take[V], give give[W]) *streams.Stream[[]byte, W] {
	if st.key != nil && !st.aside {
		return streams.Process(s, func() streams.Processor[[]byte, V, []byte, W] {
			return &stepper[V, W]{step: st, take: take, give: give}
		}, streams.Named(name))
	}
	return streams.ProcessValues(s, func() streams.FixedKeyProcessor[[]byte, V, W] {
		return &keeper[V, W]{step: st, take: take, give: give}
	}, streams.Named(name))
}
