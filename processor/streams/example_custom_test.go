package streams_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/streams"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// Indexed is a store of one's own: values by key, and their keys by a text that is in the values, such as a city.
type Indexed[V any] struct {
	of          func(V) string
	values      serde.Serde[V]
	rows, index store.KeyValue
}

// IndexedStore declares it, with the text that a value is found by.
func IndexedStore[V any](name store.Name, values serde.Serde[V], of func(V) string) *processor.CustomStore[*Indexed[V]] {
	open := func(p *processor.Parts) (*Indexed[V], error) {
		rows, err := p.KeyValue(name)
		index, indexErr := p.KeyValue(name + "-index")
		return &Indexed[V]{of: of, values: values, rows: rows, index: index}, errors.Join(err, indexErr)
	}
	return processor.NewCustomStore(open,
		store.Spec{Name: name, Kind: store.KindKeyValue, KeyFormat: "string", ValueFormat: values.Format()},
		store.Spec{Name: name + "-index", Kind: store.KindKeyValue})
}

// entry is the key of a row of the index: text, a zero and the key, so that the keys of one text lie together.
func entry(text, key string) []byte { return []byte(text + "\x00" + key) }

// Put sets the value of a key, and moves its entry of the index.
func (s *Indexed[V]) Put(key string, v V) error {
	data, err := s.values.Encode(v)
	if err != nil {
		return err
	}
	old, err := s.rows.Get([]byte(key))
	switch {
	case err == nil:
		before, err := s.values.Decode(old.Data)
		if err != nil {
			return err
		}
		if _, _, err := s.index.Delete(entry(s.of(before), key)); err != nil {
			return err
		}
	case !errors.Is(err, store.ErrNotFound):
		return err
	}
	return errors.Join(s.rows.Put([]byte(key), store.Value{Data: data}), s.index.Put(entry(s.of(v), key), store.Value{Data: []byte{}}))
}

// Keys are those of the values with a text.
func (s *Indexed[V]) Keys(text string) (keys []string, err error) {
	it, err := s.index.Scan(store.Scan{Prefix: entry(text, "")})
	if err != nil {
		return nil, err
	}
	defer it.Close()
	for it.Next() {
		keys = append(keys, string(it.Entry().Key[len(text)+1:]))
	}
	return keys, it.Err()
}

// neighbours tells of each person who else is in the same city.
type neighbours struct {
	declared *streams.Store[*Indexed[string]]
	ctx      *streams.FixedKeyContext[string, []string]
	people   *Indexed[string]
}

func (p *neighbours) Init(ctx *streams.FixedKeyContext[string, []string]) (err error) {
	p.ctx = ctx
	p.people, err = p.declared.Open(ctx)
	return err
}

func (p *neighbours) Process(r streams.FixedKeyRecord[string, string]) error {
	k, _ := r.Key()
	if err := p.people.Put(k, r.Value); err != nil {
		return err
	}
	keys, err := p.people.Keys(r.Value)
	if err != nil {
		return err
	}
	return p.ctx.Forward(streams.WithValue(r, keys))
}

func (*neighbours) Close() error { return nil }

// A kind of store of one's own, with an index. Restored, followed and asked it is like any: it is made of two.
func ExampleCustom() {
	people := streams.Custom(IndexedStore("people", serde.String(), func(city string) string { return city }))
	b := streams.NewBuilder()
	moves := streams.From(b, "moves", serde.String(), serde.String())
	streams.ProcessValues(moves, func() streams.FixedKeyProcessor[string, string, []string] {
		return &neighbours{declared: people}
	}, streams.Uses(people)).WithValues(serde.JSON[[]string]()).To("neighbours")

	topology, err := b.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	d, err := streamstest.New(context.Background(), topology, streamstest.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = d.Close() }()
	in := streamstest.NewInput(d, "moves", serde.String(), serde.String())
	out := streamstest.NewOutput(d, "neighbours", serde.String(), serde.String())
	in.Pipe("ann", "ulm", 0)
	in.Pipe("bob", "ulm", 0)
	d.Restart() // both parts come back from their changelogs
	in.Pipe("ann", "bonn", 0)
	in.Pipe("cy", "ulm", 0)
	fmt.Println(out.ReadStrings())
	fmt.Println(streamstest.NewKeyValue(d, "people", serde.String(), serde.String()).Rows())
	// Output:
	// [ann=["ann"]@0 bob=["ann","bob"]@0 ann=["ann"]@0 cy=["bob","cy"]@0]
	// [ann=bonn@-1 bob=ulm@-1 cy=ulm@-1]
}
