package processor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/statemesh/statemesh/processor/internal/topics"
	"github.com/statemesh/statemesh/store"
)

// readAtLeast is Read for a caller who insists on a token.
//
// An owner meets a cut of its changelog by the offset that its last commit reached, or by having been confirmed as the
// owner after the request arrived, with no commit on the way: then it has everything that was ever committed. The
// second is what an owner needs whose own commits ended below the token, as when a follower of the log has counted what
// an abort left behind. Positions of inputs are met by the position alone.
func (r *Runtime) readAtLeast(ctx context.Context, bs *builtStore, id store.TaskID, opts store.ReadOptions) (*reading, error) {
	w := waiting{r: r, bs: bs, id: id, opts: opts, arrived: r.now()}
	if err := w.refuse(); err != nil {
		return nil, err
	}
	changed, proven := r.changed(id)
	rd, err := w.look(ctx)
	if err == nil {
		return rd, nil
	}
	w.outcome = err // the look is not bounded: the time may be over
	bounded := ctx
	if opts.Wait > 0 {
		var cancel context.CancelFunc
		bounded, cancel = context.WithDeadline(ctx, w.arrived.Add(opts.Wait))
		defer cancel()
	}
	for {
		if w.onlyCut {
			if rd, err = w.ask(bounded); err == nil {
				return rd, nil
			}
		}
		if bounded.Err() == nil {
			if opts.Wait <= 0 || changed == nil || !passes(err) {
				return nil, err
			}
			w.outcome = err
			w.sleep(bounded, changed, proven)
		}
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("read %s partition %d: wait for %s: %w", bs.spec.Name, id.Partition, opts.AtLeast.At(id.Partition), context.Cause(ctx))
		case bounded.Err() != nil:
			return nil, w.outcome
		}
		changed, proven = r.changed(id)
		if rd, err = w.look(bounded); err == nil {
			return rd, nil
		}
	}
}

// waiting is one read on its way to a token.
type waiting struct {
	r       *Runtime
	bs      *builtStore
	id      store.TaskID
	opts    store.ReadOptions
	arrived time.Time
	// onlyCut: the last look found everything but the cut. unproven: a confirmation of the owner is missing, for which
	// nothing wakes a waiter but time.
	onlyCut, unproven bool
	// owned: the last look was at an owner.
	owned bool
	// outcome is what the caller is told when its time is over.
	outcome error
}

// look pins the last commit if it has what is wanted; *store.BehindError if not.
func (w *waiting) look(ctx context.Context) (*reading, error) {
	w.onlyCut = false
	rd, err := w.pin(ctx, time.Time{})
	if err != nil {
		return nil, err
	}
	cp := rd.snap.Checkpoint()
	read := rd.position().Meets(w.opts.AtLeast.Inputs, w.id.Partition)
	if read && w.cutMet(&cp) {
		return rd, nil
	}
	if rd.forsaken || w.owned && rd.role == store.RoleStandby {
		rd.Close() // it will never have more, or the task has left since the wait began here
		return nil, w.r.notHere(w.bs.spec.Name, w.id)
	}
	w.owned = rd.role == store.RoleActive
	w.onlyCut = read
	w.outcome = w.behind(rd.token(&cp), rd.position())
	rd.Close()
	return nil, w.outcome
}

// ask pins what is there once the instance was confirmed as the owner.
func (w *waiting) ask(ctx context.Context) (*reading, error) {
	rd, err := w.pin(ctx, w.arrived)
	if w.unproven {
		return nil, w.outcome
	}
	if err != nil {
		return nil, err
	}
	if !rd.position().Meets(w.opts.AtLeast.Inputs, w.id.Partition) {
		rd.Close() // another stay of the task, on offsets that were reset
		return nil, w.outcome
	}
	return rd, nil
}

func (w *waiting) pin(ctx context.Context, after time.Time) (*reading, error) {
	rd, err := w.r.pin(ctx, w.bs.spec.Name, w.id, w.opts, after)
	e, ok := errors.AsType[*store.NotReadyError](err)
	w.unproven = ok && e.Reason == reasonUnproven
	if w.unproven && w.outcome == nil {
		w.outcome = err
	}
	return rd, err
}

// passes reports whether waiting may change an outcome: the copy is behind or not complete yet.
func passes(err error) bool {
	if is[*store.BehindError](err) {
		return true
	}
	e, ok := errors.AsType[*store.NotReadyError](err)
	return ok && (e.Building || e.Reason == reasonStarting || e.Reason == reasonUnproven)
}

// sleep waits until looking again is worth it, at most until ctx ends: until something is published, or more is proven of it.
func (w *waiting) sleep(ctx context.Context, changed, proven <-chan struct{}) {
	var again <-chan time.Time
	if w.unproven {
		t := time.NewTimer(probeInterval)
		defer t.Stop()
		again = t.C
	}
	select {
	case <-changed:
	case <-proven:
	case <-again:
	case <-ctx.Done():
	}
}

// await waits for a change, at most until ctx ends; again is after how long to look anyway, 0 for never.
func await(ctx context.Context, changed <-chan struct{}, again time.Duration) {
	var look <-chan time.Time
	if again > 0 {
		t := time.NewTimer(again)
		defer t.Stop()
		look = t.C
	}
	select {
	case <-changed:
	case <-look:
	case <-ctx.Done():
	}
}

// cutMet reports whether a commit has reached the cut that is wanted, if one is.
func (w *waiting) cutMet(cp *store.Checkpoint) bool {
	want, ok := w.opts.AtLeast.Cuts[w.id.Partition]
	return !ok || cp.Changelogs[w.bs.spec.Name].Next >= want.Next
}

// behind says how far a copy is in what the token asks for.
func (w *waiting) behind(have store.Token, pos store.Position) error {
	want := w.opts.AtLeast.At(w.id.Partition)
	for topic := range want.Inputs {
		if o, ok := pos[topic][w.id.Partition]; ok {
			if have.Inputs == nil {
				have.Inputs = make(store.Position)
			}
			have.Inputs.Set(topic, w.id.Partition, o)
		}
	}
	return &store.BehindError{
		Store: w.bs.spec.Name, Partition: w.id.Partition, Have: have, Want: want,
		RetryAfter: min(max(w.r.cfg.CommitInterval, probeInterval), time.Second),
	}
}

// refuse returns an error for a token that no waiting helps: of a changelog that is not there any more, or of a topic
// that does not lead to the store. Nothing is refused before the topics are known.
func (w *waiting) refuse() error {
	name, p := w.bs.spec.Name, w.id.Partition
	invalid := func(format string, args ...any) error {
		return &store.InvalidRequestError{Field: "at_least", Reason: fmt.Sprintf("store %s partition %d: ", name, p) + fmt.Sprintf(format, args...)}
	}
	for topic, bound := range w.opts.AtLeast.Inputs {
		if _, ok := bound[p]; !ok {
			continue
		}
		if e, ok := w.r.built.bySource[topic]; !ok || e.sub != w.bs.sub {
			return invalid("topic %s is no input of it", topic)
		}
	}
	want, ok := w.opts.AtLeast.Cuts[p]
	if !ok {
		return nil
	}
	topic, log := w.r.logOf(w.bs)
	if topic == "" {
		return invalid("it has no changelog, and the token a place in one")
	}
	if log.ID != [16]byte{} && want.TopicID != [16]byte{} && log.ID != want.TopicID {
		return invalid("the token is of topic %s with id %x, which was deleted: its id is %x now", topic, want.TopicID, log.ID)
	}
	return nil
}

// logOf is the topic that a store is restored from, "" for none, and what is known of it: nothing before the runtime has
// asked.
func (r *Runtime) logOf(bs *builtStore) (topic string, info topics.Info) {
	topic = cmp.Or(bs.changelog, bs.source)
	if r.counts.Load() == nil {
		return topic, topics.Info{}
	}
	if bs.source != "" {
		return topic, r.fed[topic]
	}
	return topic, r.internal[topic]
}

// changed returns a channel that is closed when a task on this instance has come further or leaves, nil when it is not here; and
// one that is closed when more is proven of a copy that is followed, else nil.
func (r *Runtime) changed(id store.TaskID) (changed, proven <-chan struct{}) {
	e := r.tasks.lookup(id)
	if e == nil {
		return nil, nil
	}
	changed = e.mark.changed()
	if !e.serving && e.replica != nil && e.replica.watched != nil && e.thread == followed {
		proven = e.replica.watched.Changed()
	}
	return changed, proven
}

// token is that of a commit: how far the changelog of the store is when the commit is in it, up to its last record. A store
// without a changelog has nothing that another owner could be asked for.
func (r *reading) token(cp *store.Checkpoint) store.Token {
	log, ok := cp.Changelogs[r.name]
	if !ok {
		return store.Token{}
	}
	cut := store.Cut{TopicID: log.TopicID, Next: log.Next}
	if f := r.proven.follower; f != nil {
		cut = f.Token(r.name, log)
	}
	return store.Token{Cuts: map[store.Partition]store.Cut{r.partition: cut}}
}
