package views

import (
	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/internal/decode"
	"github.com/statemesh/statemesh/store"
)

// versionKeeper keeps the versions of a table (upstream's KTableSource over a versioned store). A version begins at the time
// of its record, so records may come in any order.
type versionKeeper struct {
	name   store.Name
	update update
	ctx    scope
	store  store.Versioned
}

// Init implements processor.Processor.
func (k *versionKeeper) Init(ctx *processor.Context) error { return k.init(ctx) }

// Close implements processor.Processor.
func (k *versionKeeper) Close() error { return nil }

// Process implements processor.Processor.
func (k *versionKeeper) Process(r *processor.Record) error {
	if !hasKey(k.ctx, r) {
		return nil
	}
	next, err := k.update(store.Value{}, r)
	if err != nil {
		return err
	}
	validTo, err := k.store.Put(r.Key, store.Value{Data: next, Timestamp: r.Timestamp})
	if err == nil && validTo == store.NotPut {
		k.ctx.Drop(dropHistory)
	}
	return err
}

func (k *versionKeeper) init(ctx scope) (err error) {
	k.ctx = ctx
	k.store, err = ctx.VersionedStore(k.name)
	return err
}

// globalKeeper keeps a global table. Nothing is between it and the topic, so it judges the values itself.
type globalKeeper struct {
	*keeper

	decoder decode.Decoder
}

func newGlobalKeeper(v View) *globalKeeper {
	return &globalKeeper{keeper: newKeeper(v), decoder: decode.New(string(v.Format), v.Columns, nil)}
}

// Process implements processor.Processor.
func (k *globalKeeper) Process(r *processor.Record) error {
	if r.Value != nil {
		if err := k.decoder.Decode(r.Value, nil); err != nil {
			return err
		}
	}
	return k.keeper.Process(r)
}
