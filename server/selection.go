package server

import (
	"context"
	"fmt"
	"math"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// selects reads which rows are wanted by time. They say which kind of store is asked, too.
func (sc *scan) selects(req *statemeshv1.ScanRequest) error {
	want, query := keyValues, "scan"
	var err error
	switch sel := req.GetSelection().(type) {
	case nil:
	case *statemeshv1.ScanRequest_Windows:
		want, query = windows, "window scan"
		sc.windows, err = wire.ToWindowSelection(sel.Windows)
	case *statemeshv1.ScanRequest_Sessions:
		want, query = sessions, "session scan"
		sc.sessions, err = wire.ToSessionSelection(sel.Sessions)
	case *statemeshv1.ScanRequest_Versions:
		want, query = versions, "version scan"
		sc.versions, err = wire.ToVersionSelection(sel.Versions)
	default:
		err = &store.InvalidRequestError{Field: "selection", Reason: "unknown"}
	}
	if err == nil && want != sc.rd.family {
		err = sc.rd.wrongKind(query)
	}
	return err
}

// bounds reads which keys are wanted.
func (s *Server) bounds(sc *scan, req *statemeshv1.ScanRequest) error {
	sc.key, sc.from, sc.to, sc.prefix = req.GetKey(), req.GetFrom(), req.GetTo(), req.GetPrefix()
	for _, b := range []struct {
		field string
		typed *statemeshv1.TypedValue
		to    *[]byte
	}{{"typed_key", req.GetTypedKey(), &sc.key}, {"typed_from", req.GetTypedFrom(), &sc.from}, {"typed_to", req.GetTypedTo(), &sc.to}} {
		if b.typed == nil {
			continue
		}
		var err error
		if *b.to, err = sc.rd.typedKey(b.field, b.typed, *b.to); err != nil {
			return err
		}
	}
	for _, b := range [][]byte{sc.from, sc.to, sc.prefix} {
		if len(b) > s.cfg.MaxKeyBytes {
			return &store.TooLargeError{
				Store: sc.rd.store, What: "key", Size: int64(len(b)), Limit: int64(s.cfg.MaxKeyBytes), Setting: "server.max.key.bytes",
			}
		}
	}
	bounded := sc.from != nil || sc.to != nil
	refuse := func(field, why string) error { return &store.InvalidRequestError{Field: field, Reason: why} }
	switch fam := sc.rd.family; {
	case sc.prefix != nil && bounded:
		return refuse("prefix", "not together with from or to")
	case sc.prefix != nil && fam != keyValues:
		return refuse("prefix", "key-value stores only")
	case sc.key != nil && bounded:
		return refuse("key", "not together with from or to")
	case sc.key != nil && fam == keyValues:
		return refuse("key", "a key-value store has one row per key: get it")
	case sc.key == nil && fam == versions:
		return refuse("key", "versions are read by key")
	}
	if len(sc.prefix) == 0 {
		sc.prefix = nil // every key starts with nothing
	}
	return nil
}

// partitions are those that a scan reads: that of its key, or those named, or all.
func (s *Server) scanPartitions(sc *scan, named []int32) ([]store.Partition, error) {
	if sc.key == nil {
		return sc.rd.partitions(named)
	}
	if len(named) > 1 {
		return nil, &store.InvalidRequestError{
			Field: "partitions", Reason: fmt.Sprintf("%d of them: one has the key", len(named)),
		}
	}
	var believed *int32
	if len(named) == 1 {
		believed = &named[0]
	}
	p, err := s.partition(sc.rd, sc.key, believed)
	return []store.Partition{p}, err
}

// times are the bounds in time, whatever they mean.
func (sc *scan) times() [3]int64 {
	switch sc.rd.family {
	case windows:
		return [3]int64{sc.windows.From, sc.windows.To}
	case sessions:
		return [3]int64{sc.sessions.EarliestEnd, sc.sessions.LatestEnd, sc.sessions.LatestStart}
	default:
		return [3]int64{sc.versions.From, sc.versions.To}
	}
}

// everything is the scan of all rows of a store, whatever its kind.
func everything(rd *read) *scan {
	return &scan{
		rd:       rd,
		windows:  store.WindowScan{To: math.MaxInt64},
		sessions: store.SessionScan{LatestEnd: math.MaxInt64, LatestStart: math.MaxInt64},
	}
}

// open opens the scan of one partition, from the resume point on.
func (sc *scan) open(ctx context.Context, r *pinned, p store.Partition) (store.Iterator, error) {
	switch sc.rd.family {
	case windows:
		w, err := r.Windows()
		if err != nil {
			return nil, err
		}
		q := sc.windows
		q.Key, q.KeyFrom, q.KeyTo, q.Reverse, q.After = sc.key, sc.from, sc.to, sc.reverse, sc.afterIn(p)
		return w.Scan(ctx, q)
	case sessions:
		se, err := r.Sessions()
		if err != nil {
			return nil, err
		}
		q := sc.sessions
		q.Key, q.KeyFrom, q.KeyTo, q.Reverse, q.After = sc.key, sc.from, sc.to, sc.reverse, sc.afterIn(p)
		return se.Scan(ctx, q)
	case versions:
		v, err := r.Versions()
		if err != nil {
			return nil, err
		}
		q := sc.versions
		if q.From > q.To { // what is valid all the time in between overlaps it, as stores see it
			return noRows{}, nil
		}
		q.Key, q.Reverse, q.After = sc.key, sc.reverse, sc.afterIn(p)
		return v.Scan(ctx, q)
	default:
		kv, err := r.KeyValue()
		if err != nil {
			return nil, err
		}
		return kv.Scan(ctx, sc.keyValues(p))
	}
}

// noRows is an iterator at its end.
type noRows struct{}

func (noRows) Next() bool         { return false }
func (noRows) Entry() store.Entry { return store.Entry{} }
func (noRows) Err() error         { return nil }
func (noRows) Close()             {}

// keyValues is the scan of one partition of a key-value store. The prefix is left to the cursor when the scan has to start
// at a key of its own: an engine does not take both.
func (sc *scan) keyValues(p store.Partition) store.Scan {
	s := store.Scan{From: sc.from, To: sc.to, Prefix: sc.prefix, Reverse: sc.reverse}
	switch {
	case sc.after == nil:
	case p <= sc.after.partition:
		s.After = sc.after.place
	case sc.reverse:
		s.To, s.Prefix = sc.after.place, nil
	default:
		s.From, s.Prefix = sc.after.place, nil
	}
	return s
}

// afterIn is the place behind which the scan of one partition goes on. A partition behind that of the resume point goes on
// at its place, inclusively, where a scan only knows how to go on behind one: downwards that is the place with a byte more,
// upwards the one with a byte less, of which the cursor leaves out what lies in between (floorIn).
func (sc *scan) afterIn(p store.Partition) []byte {
	switch {
	case sc.after == nil:
		return nil
	case p <= sc.after.partition:
		return sc.after.place
	case sc.reverse:
		return append(append(make([]byte, 0, len(sc.after.place)+1), sc.after.place...), 0)
	default:
		return sc.after.place[:len(sc.after.place)-1]
	}
}

// floorIn is the place below which the rows of one partition are left out.
func (sc *scan) floorIn(p store.Partition) []byte {
	if sc.after == nil || sc.reverse || p <= sc.after.partition || sc.rd.family == keyValues {
		return nil
	}
	return sc.after.place
}

// request is the part of the scan that another instance is asked for.
func (s *Server) scanRequest(sc *scan, to router.Replica, parts []store.Partition, m manner) *statemeshv1.ScanRequest {
	req := &statemeshv1.ScanRequest{
		Store: string(sc.rd.store), Partitions: fromPartitions(parts), Key: sc.key, From: sc.from, To: sc.to, Prefix: sc.prefix,
		Options: s.hopOptions(sc.rd, to, m, parts...),
	}
	switch sc.rd.family {
	case windows:
		req.Selection = &statemeshv1.ScanRequest_Windows{Windows: wire.FromWindowSelection(&sc.windows)}
	case sessions:
		req.Selection = &statemeshv1.ScanRequest_Sessions{Sessions: wire.FromSessionSelection(&sc.sessions)}
	case versions:
		req.Selection = &statemeshv1.ScanRequest_Versions{Versions: wire.FromVersionSelection(&sc.versions)}
	default:
	}
	if sc.reverse {
		req.Order = statemeshv1.Order_ORDER_DESCENDING
	}
	if sc.limit > 0 {
		req.Limit = &sc.limit
	}
	if sc.after != nil {
		req.ResumeToken = sc.after.token(sc.fingerprint(parts))
	}
	return req
}
