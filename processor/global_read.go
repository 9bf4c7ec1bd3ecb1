package processor

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

// EveryPartition is the partition under which upstream's metadata has a global store: all of them. Reads take it for 0.
const EveryPartition store.Partition = -1

// readGlobal is Read for a global store. Its token has a cut for each partition of the topic, and is met when all of them are.
func (r *Runtime) readGlobal(ctx context.Context, g *globalStore, p store.Partition, opts store.ReadOptions) (store.Reading, error) {
	if p != 0 && p != EveryPartition {
		return nil, &store.InvalidRequestError{Field: "partition", Reason: fmt.Sprintf("%d: store %s is global and has 1", p, g.bs.spec.Name)}
	}
	bounded := ctx
	if opts.Wait > 0 && !opts.AtLeast.Empty() {
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeout(ctx, opts.Wait)
		defer cancel()
	}
	for {
		changed := g.mark.changed()
		rd, err := g.pin(opts)
		if err == nil {
			return rd, nil
		}
		if bounded == ctx || !errors.Is(err, store.ErrBehind) && !errors.Is(err, store.ErrNotReady) {
			return nil, err
		}
		var again time.Duration
		if e, ok := errors.AsType[*store.NotReadyError](err); ok && e.Reason == reasonUnproven {
			again = probeInterval // a proof wakes nobody
		}
		await(bounded, changed, again)
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("read %s: wait for %s: %w", g.bs.spec.Name, opts.AtLeast, context.Cause(ctx))
		case bounded.Err() != nil:
			return nil, err
		}
		if r.state.get().final() {
			return nil, store.ErrShuttingDown
		}
	}
}

// pin pins the last commit, if it is what the caller insists on.
func (g *globalStore) pin(opts store.ReadOptions) (*globalReading, error) {
	state := g.state.Load()
	if state == nil {
		if s := g.rt.state.get(); s == PendingShutdown || s.final() {
			return nil, store.ErrShuttingDown
		}
		return nil, g.notReady(reasonStarting)
	}
	if err := g.refuse(opts.AtLeast); err != nil {
		return nil, err
	}
	since := g.provenAt() // before the snapshot: what is applied in between is in it
	snap, err := state.Snapshot()
	switch {
	case errors.Is(err, store.ErrNotReady):
		return nil, g.notReady(reasonRestoring)
	case errors.Is(err, store.ErrClosed):
		return nil, store.ErrShuttingDown
	case err != nil:
		return nil, err
	}
	rd := &globalReading{reading: reading{name: g.bs.spec.Name, snap: snap, since: since, now: g.rt.now}, topic: g.bs.source}
	cp := snap.Checkpoint()
	switch {
	case opts.MaxAge > 0 && elapsed(since, g.rt.now()) > opts.MaxAge:
		err = g.notReady(reasonUnproven)
	case !g.met(&cp, opts.AtLeast):
		err = &store.BehindError{
			Store: g.bs.spec.Name, Have: rd.token(&cp), Want: opts.AtLeast.Clone(), RetryAfter: probeInterval,
		}
	default:
		return rd, nil
	}
	rd.Close()
	return nil, err
}

// met reports whether a commit has all that a token asks for.
func (g *globalStore) met(cp *store.Checkpoint, want store.Token) bool {
	for p, cut := range want.Cuts {
		if cp.Inputs[store.TopicPartition{Topic: g.bs.source, Partition: p}] < cut.Next {
			return false
		}
	}
	for p := range want.Inputs[g.bs.source] {
		if !cp.Position.Meets(want.Inputs, p) {
			return false
		}
	}
	return true
}

// refuse returns an error for a token that no waiting helps.
func (g *globalStore) refuse(want store.Token) error {
	invalid := func(format string, args ...any) error {
		return &store.InvalidRequestError{Field: "at_least", Reason: fmt.Sprintf("store %s: ", g.bs.spec.Name) + fmt.Sprintf(format, args...)}
	}
	info := g.topic.Load()
	for p, cut := range want.Cuts {
		switch {
		case info == nil:
		case p < 0: // one that there is not yet may have been added, and seen by another instance
			return invalid("topic %s has no partition %d", g.bs.source, p)
		case info.ID != [16]byte{} && cut.TopicID != [16]byte{} && info.ID != cut.TopicID:
			return invalid("the token is of topic %s with id %x, which was deleted: its id is %x now", g.bs.source, cut.TopicID, info.ID)
		}
	}
	for topic := range want.Inputs {
		if topic != g.bs.source {
			return invalid("topic %s is no input of it", topic)
		}
	}
	return nil
}

func (g *globalStore) notReady(reason string) error {
	e := &store.NotReadyError{Store: g.bs.spec.Name, Reason: reason, Building: reason == reasonRestoring, RetryAfter: retryRestoring}
	if f := g.follower.Load(); f != nil && reason == reasonRestoring {
		e.Restored, e.Total, e.Left = f.Progress()
	}
	return e
}

// globalReading is a pinned commit of a global store.
type globalReading struct {
	reading

	topic string
}

// Facts implements store.Reading. Any copy is as good as an owner's, so the role is the active one's.
func (r *globalReading) Facts() store.Facts {
	cp := r.snap.Checkpoint()
	return store.Facts{
		Role: store.RoleActive, Sequence: cp.Sequence, Position: cp.Position.Clone(), Token: r.token(&cp),
		Age: elapsed(r.since, r.now()), Isolation: store.ReadCommitted,
	}
}

// token has a cut for each partition of the topic.
func (r *globalReading) token(cp *store.Checkpoint) store.Token {
	cuts := make(map[store.Partition]store.Cut, len(cp.Inputs))
	for tp, next := range cp.Inputs {
		cuts[tp.Partition] = store.Cut{TopicID: cp.Changelogs[r.name].TopicID, Next: next}
	}
	return store.Token{Cuts: cuts}
}

// globalView is the commit of a global store that processors read. It lives until it is replaced and the last read of it is
// done.
type globalView struct {
	snap  *layered.Snapshot
	kv    store.KeyValueReader
	users atomic.Int64 // reads that run, plus one while it is the current view
}

// show makes the last commit the one that processors read; nil: none any more.
func (g *globalStore) show(state *layered.Task) {
	g.showing.Lock()
	defer g.showing.Unlock()
	var v *globalView
	if state != nil {
		snap, err := state.Snapshot()
		if err != nil {
			return // it is being closed, or catching up: what was whole last stays
		}
		kv, err := snap.KeyValue(g.bs.spec.Name)
		if err != nil {
			snap.Close()
			return
		}
		snap.Keep() // for as long as the topic is quiet
		v = &globalView{snap: snap, kv: kv}
		v.users.Store(1)
	}
	if old := g.view.Swap(v); old != nil {
		old.leave()
	}
}

// renew has processors read the same commit out of the engine once it is there, until ctx ends: what they read before keeps its rows in
// memory, and a quiet topic would have them stay.
func (g *globalStore) renew(ctx context.Context, state *layered.Task) {
	for sleep(ctx, renewInterval) == nil {
		if v := g.enter(); v != nil {
			outlived := v.snap.Outlived()
			v.leave()
			if outlived {
				g.show(state)
			}
		}
	}
}

// renewInterval is about how long a commit waits for its move to the engine.
const renewInterval = 5 * time.Second

// enter takes part in the current view; nil when there is none.
func (g *globalStore) enter() *globalView {
	for {
		v := g.view.Load()
		if v == nil {
			return nil
		}
		for n := v.users.Load(); n > 0; n = v.users.Load() {
			if v.users.CompareAndSwap(n, n+1) {
				return v
			}
		}
	}
}

func (v *globalView) leave() {
	if v.users.Add(-1) == 0 {
		v.snap.Close()
	}
}

// globalKeyValue is a global store in the hands of a processor: its last commit, at each call anew, and read only.
type globalKeyValue struct {
	readOnly

	g   *globalStore
	ctx context.Context //nolint:containedctx // of the runtime: a processor's reads have none
}

// keyValue is the store for a processor.
func (g *globalStore) keyValue(ctx context.Context) store.KeyValue {
	return &globalKeyValue{readOnly: readOnly{name: g.bs.spec.Name}, g: g, ctx: ctx}
}

// Get implements store.KeyValue.
func (k *globalKeyValue) Get(key []byte) (store.Value, error) {
	v := k.g.enter()
	if v == nil {
		return store.Value{}, store.ErrClosed
	}
	defer v.leave()
	return v.kv.Get(k.ctx, key)
}

// Scan implements store.KeyValue.
func (k *globalKeyValue) Scan(s store.Scan) (store.Iterator, error) {
	v := k.g.enter()
	if v == nil {
		return nil, store.ErrClosed
	}
	it, err := v.kv.Scan(k.ctx, s)
	if err != nil {
		v.leave()
		return nil, err
	}
	return &globalScan{Iterator: it, view: v}, nil
}

// ApproximateCount implements store.KeyValue.
func (k *globalKeyValue) ApproximateCount() (int64, error) {
	v := k.g.enter()
	if v == nil {
		return 0, store.ErrClosed
	}
	defer v.leave()
	return v.kv.ApproximateCount(k.ctx)
}

// globalScan keeps the view that it reads.
type globalScan struct {
	store.Iterator

	view *globalView
}

// Close ends the scan, once.
func (s *globalScan) Close() {
	s.Iterator.Close()
	if v := s.view; v != nil {
		s.view = nil
		v.leave()
	}
}

// globalsOf are the global stores of a topology.
func globalsOf(r *Runtime) map[store.Name]*globalStore {
	globals := make(map[store.Name]*globalStore)
	for name, bs := range r.built.stores {
		if bs.sub.global {
			globals[name] = newGlobalStore(r, bs)
		}
	}
	return globals
}

// waitGlobals returns when every global store is restored: processors may read them from their first record on.
func (r *Runtime) waitGlobals(ctx context.Context) bool {
	for _, g := range r.globals {
		select {
		case <-g.restored:
		case <-ctx.Done():
			return false
		}
	}
	return true
}
