package server

import (
	"context"
	"errors"
	"math"

	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/store"
)

// family is the set of reads that a kind of store answers.
type family uint8

const (
	keyValues family = iota + 1
	windows
	sessions
	versions
)

// familyOf is 0 for a kind that a later version has.
func familyOf(k store.Kind) family {
	switch k {
	case store.KindKeyValue, store.KindTimestampedKeyValue:
		return keyValues
	case store.KindWindow, store.KindTimestampedWindow:
		return windows
	case store.KindSession:
		return sessions
	case store.KindVersioned:
		return versions
	default:
		return 0
	}
}

// asks is the family whose values the instant names, and what such a read is called. The zero instant is a key-value
// read, which a versioned store answers with its latest version.
func asks(at wire.Instant) (family, string) {
	switch at.Of {
	case wire.WindowInstant:
		return windows, "window fetch"
	case wire.SessionInstant:
		return sessions, "session fetch"
	case wire.AsOfInstant:
		return versions, "as-of get"
	default:
		return keyValues, "get"
	}
}

// mayAsk refuses a read that the store does not answer.
func (rd *read) mayAsk(at wire.Instant) error {
	want, query := asks(at)
	if want == rd.family || want == keyValues && rd.family == versions {
		return nil
	}
	return rd.wrongKind(query)
}

func (rd *read) wrongKind(query string) error {
	return &store.WrongKindError{Store: rd.store, Kind: rd.info.Kind, Query: query}
}

// fetch reads one value; absence is [store.ErrNotFound].
func (p *pinned) fetch(ctx context.Context, rd *read, key []byte, at wire.Instant) (store.Value, wire.Span, error) {
	switch rd.family {
	case windows:
		w, err := p.Windows()
		if err != nil {
			return store.Value{}, wire.Span{}, err
		}
		v, err := w.Fetch(ctx, key, at.Start)
		return v, rd.span(at), err
	case sessions:
		se, err := p.Sessions()
		if err != nil {
			return store.Value{}, wire.Span{}, err
		}
		v, err := se.Fetch(ctx, key, at.Start, at.End)
		return v, rd.span(at), err
	case versions:
		vs, err := p.Versions()
		if err != nil {
			return store.Value{}, wire.Span{}, err
		}
		var v store.Version
		if at.Of == wire.AsOfInstant {
			v, err = vs.GetAsOf(ctx, key, at.Start)
		} else {
			v, err = vs.Get(ctx, key)
		}
		return v.Value, wire.Span{Start: v.Timestamp, End: v.ValidTo}, err
	default:
		kv, err := p.KeyValue()
		if err != nil {
			return store.Value{}, wire.Span{}, err
		}
		v, err := kv.Get(ctx, key)
		return v, wire.Span{}, err
	}
}

// span is what a window or a session that was asked for is about.
func (rd *read) span(at wire.Instant) wire.Span {
	if at.Of != wire.WindowInstant {
		return wire.Span{Start: at.Start, End: at.End}
	}
	size := rd.info.WindowSize.Milliseconds()
	if at.Start > math.MaxInt64-size {
		return wire.Span{Start: at.Start, End: math.MaxInt64}
	}
	return wire.Span{Start: at.Start, End: at.Start + size}
}

// fetchMany reads one value per item; found[i] is false where there is none.
func (p *pinned) fetchMany(ctx context.Context, rd *read, items []item) (values []store.Value, spans []wire.Span, found []bool, err error) {
	if rd.family == keyValues {
		kv, err := p.KeyValue()
		if err != nil {
			return nil, nil, nil, err
		}
		keys := make([][]byte, len(items))
		for i := range items {
			keys[i] = items[i].key
		}
		values, found, err = kv.GetMany(ctx, keys)
		return values, nil, found, err
	}
	values, spans, found = make([]store.Value, len(items)), make([]wire.Span, len(items)), make([]bool, len(items))
	for i, it := range items {
		if i%ctxCheckRows == ctxCheckRows-1 && ctx.Err() != nil {
			return nil, nil, nil, context.Cause(ctx)
		}
		values[i], spans[i], err = p.fetch(ctx, rd, it.key, it.at)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, nil, nil, err
		}
		found[i] = err == nil
	}
	return values, spans, found, nil
}

// counter is what the readers of all kinds have in common.
type counter interface {
	ApproximateCount(ctx context.Context) (int64, error)
}

// reader is the reader of the store's kind.
func (p *pinned) reader(rd *read) (counter, error) {
	switch rd.family {
	case windows:
		return p.Windows()
	case sessions:
		return p.Sessions()
	case versions:
		return p.Versions()
	default:
		return p.KeyValue()
	}
}
