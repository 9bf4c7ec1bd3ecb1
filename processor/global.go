package processor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/statemesh/statemesh/processor/internal/restore"
	"github.com/statemesh/statemesh/processor/internal/topics"
	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

// globalStore is this instance's copy of a global store: its goroutine follows the topic, all partitions of it, and is the
// only writer. Unlike upstream's global thread it survives its failures: it begins again from its last commit, or from
// nothing when the local copy is no past of the topic.
type globalStore struct {
	rt       *Runtime
	bs       *builtStore
	id       store.TaskID
	log      *slog.Logger
	now      func() time.Time
	handlers handlers

	// restored is closed when the store first has what its topic held at the start.
	restored chan struct{}
	once     sync.Once
	mark     watermark
	state    atomic.Pointer[layered.Task] // nil before it is open and after it was closed
	topic    atomic.Pointer[topics.Info]
	follower atomic.Pointer[restore.Follower]
	view     atomic.Pointer[globalView]
	showing  sync.Mutex // held while view is replaced

	records prometheus.Counter

	// clean says that all that was applied is published. What the follower has proven counts only while it is.
	clean atomic.Bool

	mu     sync.Mutex
	proven time.Time // of what is published, as far as it was looked at

	// The rest belongs to run.
	cp    store.Checkpoint // what the next commit carries
	ready bool             // what the topic held when it was last begun is applied
}

// globalCommitBytes is how much is applied before it is committed although the topic has more: such a copy is no state that
// ever was, and answers nothing until it is.
const globalCommitBytes = 8 << 20

// partitionsInterval is how often the brokers are asked whether the topic has more partitions. What is written to a new one is
// missing for as long, whatever age the copy claims.
const partitionsInterval = 30 * time.Second

var errPartitionsAdded = errors.New("partitions were added to the topic")

func newGlobalStore(r *Runtime, bs *builtStore) *globalStore {
	g := &globalStore{
		rt: r, bs: bs, id: store.TaskID{Subtopology: bs.sub.id}, restored: make(chan struct{}),
		now: r.now, handlers: r.cfg.handlers(), log: r.cfg.Logger.With("global_store", string(bs.spec.Name), "topic", bs.source),
	}
	g.records = globalMetrics(r.cfg.Registerer, string(bs.spec.Name), g.lag, g.restoring)
	return g
}

// run keeps the copy until ctx ends. It returns what no retry mends: a record that the processor refuses, what Kafka does not
// allow, and any failure that outlasts Config.TaskTimeout before the store was ever restored.
func (g *globalStore) run(ctx context.Context) (err error) {
	state, err := g.rt.stores.OpenTask(ctx, g.id, []store.Spec{g.bs.spec})
	if err != nil {
		return err
	}
	g.state.Store(state)
	renewing, stop := context.WithCancel(ctx)
	var renewer sync.WaitGroup
	renewer.Go(func() { g.renew(renewing, state) })
	defer func() {
		stop()
		renewer.Wait()
		g.state.Store(nil)
		g.show(nil)
		g.mark.raise()
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.rt.cfg.TransactionTimeout)
		defer cancel()
		if closeErr := state.Close(closing); closeErr != nil {
			err = errors.Join(err, fmt.Errorf("close state: %w", closeErr))
		}
	}()
	info := g.rt.fed[g.bs.source]
	g.topic.Store(&info)
	began := g.rt.now()
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		runs := g.rt.now()
		err := g.attempt(ctx, state)
		state.Rollback()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		switch {
		case is[*TaskError](err), errors.Is(err, restore.ErrStopped):
			return err
		case errors.Is(err, kerr.TopicAuthorizationFailed):
			return &AuthorizationError{Resource: "topic", Name: g.bs.source, Operation: "READ", Err: err}
		case errors.Is(err, errPartitionsAdded):
			g.log.InfoContext(ctx, "partitions were added to the topic of a global store", "partitions", g.topic.Load().Partitions)
			continue
		case !g.isRestored() && g.rt.now().Sub(began) > g.rt.cfg.TaskTimeout:
			return fmt.Errorf("not restored in %s: %w", g.rt.cfg.TaskTimeout, err)
		}
		if g.rt.now().Sub(runs) > time.Minute {
			wait = 100 * time.Millisecond
		}
		g.log.WarnContext(ctx, "global store failed, beginning again", "error", err)
		if err := g.mend(ctx, state, err); err != nil {
			g.log.WarnContext(ctx, "global store not mended", "error", err)
		}
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// mend does what a failure asks for before the next attempt.
func (g *globalStore) mend(ctx context.Context, state *layered.Task, cause error) error {
	if is[*restore.RebuildError](cause) {
		g.mu.Lock()
		g.proven = time.Time{}
		g.mu.Unlock()
		g.follower.Store(nil)
		return state.Wipe(ctx)
	}
	if is[*restore.TopicChangedError](cause) { // the copy is compared with the topic there is now
		infos, err := topics.DescribeLogs(ctx, kadm.NewClient(g.rt.client), []string{g.bs.source})
		if err != nil {
			return err
		}
		info := infos[g.bs.source]
		g.topic.Store(&info)
	}
	return nil
}

// attempt follows the topic until something fails or the topic has more partitions than are followed: then the next attempt
// goes on from the last commit, with all of them.
func (g *globalStore) attempt(ctx context.Context, state *layered.Task) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { g.watchPartitions(ctx, cancel) })
	defer watch.Wait()
	defer cancel(nil)
	return g.follow(ctx, state)
}

// watchPartitions cancels with errPartitionsAdded. A topic that was made anew is noticed by those who fetch from it.
func (g *globalStore) watchPartitions(ctx context.Context, cancel context.CancelCauseFunc) {
	adm := kadm.NewClient(g.rt.client)
	for sleep(ctx, partitionsInterval) == nil {
		info := *g.topic.Load()
		now, err := topics.Describe(ctx, adm, []string{g.bs.source})
		if err != nil {
			continue // whatever it is, fetches tell it too
		}
		if is := now[g.bs.source]; is.ID == info.ID && is.Partitions > info.Partitions {
			info.Partitions = is.Partitions
			g.topic.Store(&info)
			cancel(errPartitionsAdded)
			return
		}
	}
}

// follow is one attempt, from the last commit on.
func (g *globalStore) follow(ctx context.Context, state *layered.Task) (err error) {
	if state.Unfinished() { // it could not be wiped when that was due
		if err := state.Wipe(ctx); err != nil {
			return err
		}
	}
	env := &taskEnv{application: g.rt.cfg.ApplicationID, now: g.rt.now, onDrop: g.rt.drops.drop}
	p, err := newReplay(g.id, g.bs, env, state, g.judge)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	info := *g.topic.Load()
	g.cp, g.ready = state.Checkpoint().Clone(), false
	if g.cp.Inputs == nil {
		g.cp.WallTime = g.rt.now().UnixMilli() // an empty copy lacks no deletion
		g.cp.Inputs = make(map[store.TopicPartition]store.Offset)
	}
	have := make(map[store.Partition]store.LogPosition)
	if log, ok := g.cp.Changelogs[g.bs.spec.Name]; ok {
		for tp, next := range g.cp.Inputs {
			have[tp.Partition] = store.LogPosition{TopicID: log.TopicID, LeaderEpoch: -1, Next: next}
		}
	}
	return g.rt.globalLogs.Follow(ctx, restore.FollowRequest{
		Topic: g.bs.source, ID: info.ID, Partitions: info.Partitions, Retention: info.DeleteRetention,
		Have: have, WallTime: g.cp.WallTime,
		Begun: func(f *restore.Follower) {
			g.fallBehind() // what the last one has applied and not published was rolled back
			g.follower.Store(f)
		},
		Apply: func(records []restore.Record) error { //nolint:contextcheck // there is no output: see newReplay
			err := p.apply(records)
			if err == nil {
				g.records.Add(float64(len(records)))
			}
			return err
		},
		Applied: func(part store.Partition, pos store.LogPosition, whole bool) {
			g.advance(part, pos)
			g.cp.StreamTime = max(g.cp.StreamTime, p.t.streamTime)
			switch {
			case whole && g.ready:
				g.publish(state)
				return
			case state.UncommittedBytes() >= globalCommitBytes:
				g.keep(state)
			}
			g.fallBehind()
		},
		Ready: func(positions map[store.Partition]store.LogPosition) {
			for part, pos := range positions {
				g.advance(part, pos)
			}
			g.ready = true
			g.publish(state)
			g.once.Do(func() {
				close(g.restored)
				g.log.InfoContext(ctx, "global store restored", "position", g.cp.Position)
			})
		},
	})
}

// advance moves the position that the next commit carries.
func (g *globalStore) advance(p store.Partition, pos store.LogPosition) {
	g.cp.Inputs[store.TopicPartition{Topic: g.bs.source, Partition: p}] = pos.Next
	if pos.Next > 0 {
		if g.cp.Position == nil {
			g.cp.Position = make(store.Position)
		}
		g.cp.Position.Set(g.bs.source, p, pos.Next-1)
	}
	log := store.LogPosition{TopicID: pos.TopicID, LeaderEpoch: -1}
	for _, next := range g.cp.Inputs {
		log.Next += next
	}
	g.cp.Changelogs = map[store.Name]store.LogPosition{g.bs.spec.Name: log}
}

// publish commits what was applied and lets it be read: the copy is what the topic says.
func (g *globalStore) publish(state *layered.Task) {
	g.cp.Restoring, g.cp.WallTime = false, g.now().UnixMilli()
	g.commit(state)
	g.show(state)
	g.clean.Store(true)
	g.mark.raise()
}

// fallBehind notes that more is applied, or will be, than is published.
func (g *globalStore) fallBehind() {
	g.provenAt()
	g.clean.Store(false)
}

// keep commits what was applied of more: such a copy answers nothing, and processors go on with the last that was whole. It
// is as old as that one: deletions since may be further on, and gone before they are read.
func (g *globalStore) keep(state *layered.Task) {
	g.cp.Restoring = true
	g.commit(state)
}

func (g *globalStore) commit(state *layered.Task) {
	g.cp.Sequence++
	state.Commit(g.cp.Clone())
}

// judge decides about a record that could not be processed. There is no transaction that a dead letter could go out with.
func (g *globalStore) judge(t *task, err error) error {
	reason, action, setting := g.handlers.answer(err)
	if action == Fail {
		return t.fail(fmt.Errorf("global store %s: %w (%s is %s; %s goes on without such records)", g.bs.spec.Name, err, setting, Fail, Continue))
	}
	t.dropped(reason, toNowhere)
	return nil
}

// lag counts the offsets of the topic that are known to the copy's reader and not read yet; 0 before it begins.
func (g *globalStore) lag() float64 {
	if f := g.follower.Load(); f != nil {
		return float64(f.Lag())
	}
	return 0
}

// restoring is 1 as long as no whole copy can be read, else 0.
func (g *globalStore) restoring() float64 {
	if g.view.Load() == nil {
		return 1
	}
	return 0
}

func (g *globalStore) isRestored() bool {
	select {
	case <-g.restored:
		return true
	default:
		return false
	}
}

// provenAt is a time up to which what is published has everything; zero when there is none yet. The proof is read before
// clean is: a chunk that makes a later proof has taken clean away before, or is published.
func (g *globalStore) provenAt() time.Time {
	var t time.Time
	if f := g.follower.Load(); f != nil {
		t = f.Proven()
	}
	clean := g.clean.Load()
	g.mu.Lock()
	defer g.mu.Unlock()
	if clean && t.After(g.proven) {
		g.proven = t
	}
	return g.proven
}
