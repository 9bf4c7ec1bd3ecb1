package views

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/internal/decode"
	"github.com/statemesh/statemesh/store"
)

// CountRecords returns a supplier of processors that count records by key in a timestamped key-value store connected to
// them (upstream's KGroupedStream.count): int64, big-endian. Records with a null key, an empty key or a null value are
// dropped and counted. Nothing is forwarded.
func CountRecords(name store.Name) processor.Supplier {
	return func() processor.Processor { return newKeeper(View{Name: string(name), Type: Count}) }
}

// KeepTable returns a supplier of processors that keep the last value of each key, by offset, in a timestamped key-value
// store connected to them (upstream's table): an older timestamp does not matter, a null value deletes. Records with a
// null or an empty key are dropped and counted. Nothing is forwarded.
func KeepTable(name store.Name) processor.Supplier {
	return func() processor.Processor { return newKeeper(View{Name: string(name), Type: Table}) }
}

// KeepLatest is [KeepTable], but a record whose timestamp is less than that of the value in the store is dropped and
// counted. What was deleted has no timestamp any more: any record brings it back.
func KeepLatest(name store.Name) processor.Supplier {
	return func() processor.Processor { return newKeeper(View{Name: string(name), Type: Latest}) }
}

// dropError is an update's answer for a record that must not change the store.
type dropError struct{ reason string }

func (e *dropError) Error() string { return e.reason }

var (
	errOverflow = &dropError{dropOverflow}
	errOlder    = &dropError{dropOlder}
)

// update returns the new value of a key, nil to delete it. old.Data is nil when the key has none, or when the keeper
// does not read. The result is used before the next call, so it may be the record's or an own buffer.
type update func(old store.Value, r *processor.Record) ([]byte, error)

// keeper keeps one value per key.
type keeper struct {
	store  store.Name
	update update
	reads  bool // the update depends on the old value
	table  bool // a null value deletes, and the time is the record's; else it is dropped, and the time only grows

	ctx scope
	kv  store.KeyValue
}

// newKeeper makes the processor that fills the store of a view. It belongs to one task, with all that is in it.
func newKeeper(v View) *keeper {
	return &keeper{store: store.Name(v.Name), update: newUpdate(v), reads: v.Type != Table, table: v.Type.keepsValue()}
}

// newUpdate returns what a view does with a record.
func newUpdate(v View) (u update) {
	switch v.Type {
	case Table:
		u = replace
	case Latest:
		u = replaceOlder
	case Count:
		u = addOne()
	case Avg:
		u = keepStats(parseAvg, Statistics.appendAvg)
	case StatsOf:
		u = keepStats(parseStats, Statistics.appendStats)
	default:
		u = fold(folding(v.Type))
	}
	if v.Type.keepsValue() && v.Format == CSV {
		u = asJSON(decode.NewCSV(v.Columns, nil), u)
	}
	return u
}

// folding makes one number of two.
func folding(t Type) func(a, b float64) float64 {
	switch t {
	case Min:
		return func(a, b float64) float64 { return min(a, b) }
	case Max:
		return func(a, b float64) float64 { return max(a, b) }
	default:
		return func(a, b float64) float64 { return a + b }
	}
}

// Init implements processor.Processor.
func (k *keeper) Init(ctx *processor.Context) error { return k.init(ctx) }

// Close implements processor.Processor.
func (k *keeper) Close() error { return nil }

// Process implements processor.Processor.
func (k *keeper) Process(r *processor.Record) error {
	if k.table {
		if !hasKey(k.ctx, r) {
			return nil
		}
	} else if !admits(k.ctx, r) {
		return nil
	}
	var old store.Value
	if k.reads {
		var err error
		if old, err = k.kv.Get(r.Key); err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
	}
	next, err := k.update(old, r)
	if err != nil {
		if drop, ok := errors.AsType[*dropError](err); ok {
			k.ctx.Drop(drop.reason)
			return nil
		}
		return err
	}
	ts := r.Timestamp
	if !k.table && old.Data != nil {
		ts = max(ts, old.Timestamp)
	}
	return k.kv.Put(r.Key, store.Value{Data: next, Timestamp: ts})
}

func (k *keeper) init(ctx scope) (err error) {
	k.ctx = ctx
	k.kv, err = ctx.Store(k.store)
	return err
}

// hasKey drops and counts a record that belongs to no key.
func hasKey(ctx scope, r *processor.Record) bool {
	switch {
	case r.Key == nil:
		ctx.Drop(dropNullKey)
	case len(r.Key) == 0:
		ctx.Drop(dropEmptyKey)
	default:
		return true
	}
	return false
}

// admits drops and counts a record that an aggregate does not take.
func admits(ctx scope, r *processor.Record) bool {
	if !hasKey(ctx, r) {
		return false
	}
	if r.Value == nil {
		ctx.Drop(dropNullValue)
		return false
	}
	return true
}

func replace(_ store.Value, r *processor.Record) ([]byte, error) { return r.Value, nil }

func replaceOlder(old store.Value, r *processor.Record) ([]byte, error) {
	if old.Data != nil && r.Timestamp < old.Timestamp {
		return nil, errOlder
	}
	return r.Value, nil
}

func addOne() update {
	var buf [8]byte
	return func(old store.Value, _ *processor.Record) ([]byte, error) {
		n, err := stored(old)
		if err != nil {
			return nil, err
		}
		binary.BigEndian.PutUint64(buf[:], n+1)
		return buf[:], nil
	}
}

// stored reads the 8 bytes of a count or a number; 0 when there are none yet.
func stored(old store.Value) (uint64, error) {
	switch len(old.Data) {
	case 8:
		return binary.BigEndian.Uint64(old.Data), nil
	case 0:
		if old.Data == nil {
			return 0, nil
		}
	}
	return 0, fmt.Errorf("stored value of %d bytes, want 8", len(old.Data))
}

// fold returns the update for a type that keeps one number.
func fold(f func(a, b float64) float64) update {
	var buf [8]byte
	return func(old store.Value, r *processor.Record) ([]byte, error) {
		x, err := forwardedNumber(r)
		if err != nil {
			return nil, err
		}
		have, err := stored(old)
		if err != nil {
			return nil, err
		}
		if old.Data != nil {
			x = f(math.Float64frombits(have), x)
		}
		if math.IsInf(x, 0) {
			return nil, errOverflow
		}
		binary.BigEndian.PutUint64(buf[:], math.Float64bits(x))
		return buf[:], nil
	}
}

// keepStats returns the update for a type that keeps statistics in one of their JSON forms.
func keepStats(parse func([]byte) (Statistics, error), form func(Statistics, []byte) []byte) update {
	var buf []byte
	return func(old store.Value, r *processor.Record) ([]byte, error) {
		x, err := forwardedNumber(r)
		if err != nil {
			return nil, err
		}
		var s Statistics
		if old.Data != nil {
			if s, err = parse(old.Data); err != nil {
				return nil, err
			}
		}
		s, ok := s.add(x)
		if !ok {
			return nil, errOverflow
		}
		buf = form(s, buf[:0])
		return buf, nil
	}
}

// asJSON makes a JSON object of the CSV record that u keeps.
func asJSON(d *decode.CSV, u update) update {
	var buf []byte
	return func(old store.Value, r *processor.Record) ([]byte, error) {
		value, err := u(old, r)
		if err != nil || value == nil {
			return nil, err
		}
		buf, err = d.AppendObject(buf[:0], value)
		return buf, err
	}
}
