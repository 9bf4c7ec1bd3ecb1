package declared

import (
	"encoding/binary"
	"errors"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/streams"
	"github.com/statemesh/statemesh/serde"
)

// carrier is a value between the operators of a join: the value, the key that was made of it, and what it has met. Only the first two are
// ever written, into a repartition topic or the store of a join, and then nothing has been met yet.
type carrier struct {
	value, key []byte
	rights     [][]byte
}

// met is the carrier with one more side; nil: none.
func (c *carrier) met(right []byte) *carrier {
	if c == nil { // of an outer join
		c = &carrier{}
	}
	out := &carrier{value: c.value, key: c.key, rights: make([][]byte, len(c.rights)+1)}
	copy(out.rights, c.rights)
	out.rights[len(c.rights)] = right
	return out
}

var errCarrier = errors.New("declared: a carried value is not whole")

// carriers is how they are written: length of the key plus one, 0 for none; key; value.
func carriers() serde.Serde[*carrier] {
	return serde.New("carrier", func(dst []byte, c *carrier) ([]byte, error) {
		n := uint64(0)
		if c.key != nil {
			n = uint64(len(c.key)) + 1
		}
		dst = append(binary.AppendUvarint(dst, n), c.key...)
		return append(dst, c.value...), nil
	}, func(b []byte) (*carrier, error) {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > uint64(len(b)-size)+1 {
			return nil, errCarrier
		}
		c := &carrier{value: b[size:]}
		if n > 0 {
			c.key, c.value = b[size:size+int(n)-1:size+int(n)-1], b[size+int(n)-1:]
		}
		return c, nil
	})
}

// take is a record's value and sides for a step.
type take[V any] func(v V) (value []byte, rights [][]byte)

func plain(v []byte) (value []byte, rights [][]byte) { return v, nil }

func carried(c *carrier) (value []byte, rights [][]byte) {
	if c == nil {
		return nil, nil
	}
	return c.value, c.rights
}

// give is what a step hands on.
type give[W any] func(o outcome) W

func value(o outcome) []byte { return o.value }

func beside(o outcome) *carrier {
	if o.value == nil {
		return nil
	}
	return &carrier{value: o.value, key: o.key}
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
	p.evaluator, err = p.step.open()
	return err
}

func (p *stepper[V, W]) Process(r *streams.Record[[]byte, V]) error {
	m, _ := p.ctx.RecordMetadata()
	v, rights := p.take(r.Value)
	o, err := p.evaluator.do(record(r.Key, v, r.Timestamp, r.Headers), rights, m)
	if err != nil || !o.keep {
		return left(err, o, p.ctx)
	}
	if o.key == nil {
		p.ctx.Drop("null key")
		return nil
	}
	return p.ctx.Forward(streams.Record[[]byte, W]{Key: o.key, Value: p.give(o), NoValue: o.value == nil, Timestamp: r.Timestamp, Headers: r.Headers})
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
	p.evaluator, err = p.step.open()
	return err
}

func (p *keeper[V, W]) Process(r streams.FixedKeyRecord[[]byte, V]) error {
	m, _ := p.ctx.RecordMetadata()
	key, _ := r.Key()
	v, rights := p.take(r.Value)
	o, err := p.evaluator.do(record(key, v, r.Timestamp, r.Headers), rights, m)
	if err != nil || !o.keep {
		return left(err, o, p.ctx)
	}
	out := streams.WithValue(r, p.give(o))
	out.NoValue = o.value == nil
	return p.ctx.Forward(out)
}

func (p *keeper[V, W]) Close() error { return nil }

// left counts a record that does not go on.
func left(err error, o outcome, ctx interface{ Drop(reason string) }) error {
	if err == nil && o.dropped != "" {
		ctx.Drop(o.dropped)
	}
	return err
}

func record(key, value []byte, at int64, headers []processor.Header) processor.Record {
	return processor.Record{Key: key, Value: value, Timestamp: at, Headers: headers}
}

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
