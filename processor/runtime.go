package processor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/statemesh/statemesh/processor/internal/group"
	"github.com/statemesh/statemesh/processor/internal/restore"
	"github.com/statemesh/statemesh/processor/internal/topics"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

// Runtime runs a topology on one instance (upstream's KafkaStreams). Make one with [New], start it with [Runtime.Run],
// once. The methods beside Run are safe for concurrent use at any time.
type Runtime struct {
	cfg     Config
	built   *Built
	stores  *layered.Stores
	table   *router.Table
	state   *stateBox
	tasks   *registry
	metrics *metrics
	drops   *dropLog
	now     func() time.Time

	globals  map[store.Name]*globalStore
	standbys *standbys
	donor    *donor
	seeds    seedManners
	failover *failover

	started  atomic.Bool
	paused   atomic.Bool
	stopping atomic.Bool
	counts   atomic.Pointer[map[int32]store.Partition] // partitions by sub-topology; nil until they are known
	fences   fenceSet
	drains   draining
	asked    atomic.Bool   // for another placement, by the next join
	tell     chan struct{} // that others are to join
	joinedAt atomic.Int64  // the epoch before the join that they are told of
	attempts atomic.Int64  // restores begun
	// restoring is restorer, for who asks before it is there.
	restoring atomic.Pointer[restore.Restorer]

	// Set by prepare, before any thread runs.
	client           *kgo.Client // raw requests, by everybody
	coord            *coordinator
	shape            group.Shape
	taskPlans        map[store.TaskID]*TaskPlan
	inputTopics      []string
	internal         map[string]topics.Info
	fed              map[string]topics.Info // topics that stand in for a changelog
	globalLogs       *restore.Restorer
	standbyLogs      *restore.Restorer
	rounds           *restore.Rounds
	storeInfos       []router.StoreInfo
	chosenPartitions map[string]int32 // topics with a sink that chooses partitions
	manual           map[string]bool  // topics whose records name their partition
	allManual        bool             // so do those of all others, but for byKey
	byKey            map[string]bool
	maxRecord        int64
	limitedBy        string
	restorer         *restore.Restorer
	observer         *group.Observer
	purger           *topics.Purger
	env              taskEnv // that every thread's begins as
	threads          threadSet
}

// New checks the configuration and the topology. It opens nothing and starts nothing. Stores and table outlive the
// runtime: close the stores after Run has returned.
func New(cfg Config, topology *Topology, stores *layered.Stores, table *router.Table) (*Runtime, error) {
	if topology == nil || stores == nil || table == nil {
		return nil, errors.New("runtime: topology, stores and table are required")
	}
	err := cfg.Validate()
	if cfg = cfg.withDefaults(); cfg.Peers == nil {
		cfg.Peers = noPeers{}
	}
	built, buildErr := topology.Build(cfg.ApplicationID)
	if err := errors.Join(err, buildErr); err != nil {
		return nil, fmt.Errorf("runtime: %w", err)
	}
	r := &Runtime{cfg: cfg, built: built, stores: stores, table: table, now: time.Now, tasks: newRegistry(time.Now)}
	r.globals = globalsOf(r)
	r.tell = make(chan struct{}, 1)
	r.standbys, r.donor = newStandbys(r), newDonor(r)
	r.seeds = newSeedManners(cfg.RestoreMaxBytes)
	r.failover = newFailover(cfg.Registerer)
	r.metrics = newMetrics(cfg.Registerer)
	standbyMetrics(cfg.Registerer, r.Standbys)
	r.drops = newDropLog(cfg.Logger, r.metrics, cfg.Listener, r.now)
	r.state = newStateBox(func(from, to State) {
		r.metrics.state.Set(float64(to))
		cfg.Logger.Info("state changed", "from", from.String(), "to", to.String())
		cfg.Listener.StateChange(from, to)
	})
	return r, nil
}

// Run processes until ctx ends; then it commits, leaves the group and returns nil. Any other end is an error that names
// the culprit. After ctx has ended it takes at most Config.TransactionTimeout and some seconds, also when no broker
// answers; what could not be committed by then is dropped, and the error says so.
func (r *Runtime) Run(ctx context.Context) error {
	if !r.started.CompareAndSwap(false, true) {
		return errors.New("runtime: Run was called before")
	}
	r.state.become(Rebalancing)
	err := r.run(ctx)
	if err != nil {
		r.state.become(Failed)
		return fmt.Errorf("runtime: %w", err)
	}
	r.state.become(PendingShutdown)
	r.state.become(NotRunning)
	return nil
}

// State of the runtime.
func (r *Runtime) State() State { return r.state.get() }

// WaitState returns nil once the runtime is in state want, and an error when ctx ends or the state can no longer come.
func (r *Runtime) WaitState(ctx context.Context, want State) error { return r.state.wait(ctx, want) }

// Pause stops processing and punctuations (KIP-834). What is uncommitted is committed; the members stay in the group,
// tasks are restored, and queries are answered.
func (r *Runtime) Pause() { r.paused.Store(true) }

// Resume undoes [Runtime.Pause].
func (r *Runtime) Resume() { r.paused.Store(false) }

// RestoreBytes is what restores hold at this moment of what they have fetched.
func (r *Runtime) RestoreBytes() int64 {
	if restorer := r.restoring.Load(); restorer != nil {
		return restorer.Bytes()
	}
	return 0
}

// TaskInfo describes one task of this instance.
type TaskInfo struct {
	ID store.TaskID
	// Thread that runs it.
	Thread int
	// Serving says that it is restored and answers queries.
	Serving bool
	// Restored and Total count changelog offsets of a restore, or rows while the copy of another instance is taken; Left estimates
	// how long the rest takes, 0 when unknown.
	Restored, Total int64
	Left            time.Duration
	// Checkpoint of the last published commit.
	Checkpoint store.Checkpoint
}

// Tasks lists the tasks of this instance, in order.
func (r *Runtime) Tasks() []TaskInfo { return r.tasks.list() }

// run owns every goroutine of the runtime. They end in this order: the threads, which commit and leave the group; what
// serves them (restores, metadata, purge); the client; the tasks' states.
func (r *Runtime) run(ctx context.Context) (err error) {
	hard, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer kill()
	opts := append(r.cfg.Kafka.Admin(), kgo.MaxVersions(offsetVersions()), kgo.WithContext(hard))
	if r.client, err = kgo.NewClient(opts...); err != nil {
		return fmt.Errorf("kafka client: %w", err)
	}
	defer r.client.Close()
	if err := r.prepare(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer func() { err = errors.Join(err, r.closeTasks(hard)) }()
	r.failover.ready.Store(true)
	r.evictPredecessors(ctx)

	serving, stopServing := context.WithCancel(hard)
	var servants errgroup.Group
	defer func() {
		stopServing()
		err = errors.Join(err, unlessCancelled(servants.Wait()))
	}()
	work, workCtx := errgroup.WithContext(ctx)
	soft, stop := context.WithCancel(workCtx)
	defer stop()
	serve := func(name string, run func(context.Context) error) {
		servants.Go(func() error {
			if err := unlessCancelled(run(serving)); err != nil {
				stop()
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		})
	}
	serve("restore", r.restorer.Run)
	serve("global stores", r.globalLogs.Run)
	for name, g := range r.globals {
		serve("global store "+string(name), g.run)
	}
	serve("standby changelogs", r.standbyLogs.Run)
	serve("standby rounds", r.rounds.Run)
	serve("standbys", r.standbys.run)
	serve("copies", r.donor.run)
	serve("metadata", r.observer.Run)
	serve("purge", r.purger.Run)
	serve("handover", r.closeIdle)
	serve("peers", r.tellPeers)
	serve("cleanup", r.cleanUp)

	// Once the threads are told to stop, everything that still waits for a broker is cut off after a while.
	stopped := context.AfterFunc(soft, func() {
		r.stopping.Store(true)
		r.state.become(PendingShutdown)
		for _, t := range r.streamThreads() {
			t.wake()
		}
	})
	defer stopped()
	grace := time.AfterFunc(time.Duration(1<<62), kill)
	defer grace.Stop()
	armed := context.AfterFunc(soft, func() { grace.Reset(r.cfg.TransactionTimeout) })
	defer armed()

	began := r.waitGlobals(soft)
	if began {
		r.startThreads(soft, hard, stop, work)
	}
	err = work.Wait()
	if r.HasLeft() && began {
		r.cfg.Peers.Rejoin(hard, r.Epoch(), HasLeft)
	}
	if hard.Err() != nil {
		err = errors.Join(err, fmt.Errorf("stop: the brokers did not answer within %s, uncommitted work is dropped", r.cfg.TransactionTimeout))
	}
	return err
}

// reviewState moves between REBALANCING and RUNNING. Threads call it when they have changed.
func (r *Runtime) reviewState() {
	settled := true
	for _, t := range r.streamThreads() {
		settled = settled && t.settled.Load()
	}
	r.metrics.tasks.Set(float64(r.tasks.serving()))
	if r.stopping.Load() {
		return
	}
	if settled {
		r.state.become(Running)
	} else {
		r.state.become(Rebalancing)
	}
}

// partitions of a sub-topology; 0 while not known.
func (r *Runtime) partitions(sub int32) store.Partition {
	if m := r.counts.Load(); m != nil {
		return (*m)[sub]
	}
	return 0
}

// taskOf leads from an input partition to its task.
func (r *Runtime) taskOf(topic string, partition int32) (store.TaskID, bool) {
	e, ok := r.built.bySource[topic]
	if !ok {
		return store.TaskID{}, false
	}
	id := store.TaskID{Subtopology: e.sub.id, Partition: store.Partition(partition)}
	_, ok = r.taskPlans[id]
	return id, ok
}

// purge tells the purger that records of a repartition topic were consumed.
func (r *Runtime) purge(tp store.TopicPartition, next store.Offset) {
	if e := r.built.bySource[tp.Topic]; e.sub != nil && e.sub.nodes[e.node].repartition {
		r.purger.Committed(tp, next)
	}
}

// held lists what this process has on disk, for the group's leader.
func (r *Runtime) held() []group.Held {
	active := make(map[store.TaskID]bool)
	for _, t := range r.tasks.list() {
		active[t.ID] = t.Serving
	}
	var held []group.Held
	for _, h := range r.stores.Held() {
		if int(h.ID.Subtopology) < len(r.built.subs) && r.built.subs[h.ID.Subtopology].global {
			continue // everybody has it
		}
		e := group.Held{Task: h.ID, State: group.HeldOffset}
		for _, log := range h.Checkpoint.Changelogs {
			e.Offset += int64(max(log.Next, 0))
		}
		if active[h.ID] {
			e = group.Held{Task: h.ID, State: group.HeldActive}
		}
		held = append(held, e)
	}
	return held
}

// handoverWait is how long the state of a task that left its thread stays open for another thread of the instance: two
// phases of a cooperative rebalance.
const handoverWait = 5 * time.Second

// closeIdle closes the states of tasks that have left the instance.
func (r *Runtime) closeIdle(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
			if err := r.tasks.closeFree(ctx, handoverWait); err != nil && ctx.Err() == nil {
				// Nothing is lost: the changelogs have it, and what is on the disk is a commit of before. The other tasks go on.
				r.cfg.Logger.ErrorContext(ctx, "state of a task that has left", "error", err)
			}
		}
	}
}

// closeTasks closes what the threads have let go of.
func (r *Runtime) closeTasks(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.TransactionTimeout)
	defer cancel()
	return r.tasks.closeFree(ctx, 0)
}

func unlessCancelled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// fenceSet holds the transactional ids of vanished owners that are still to be barred.
type fenceSet struct {
	mu  sync.Mutex
	ids map[string]struct{}
}

func (f *fenceSet) add(ids []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ids == nil {
		f.ids = make(map[string]struct{})
	}
	for _, id := range ids {
		f.ids[id] = struct{}{}
	}
}

func (f *fenceSet) remove(ids []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range ids {
		delete(f.ids, id)
	}
}

func (f *fenceSet) list() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	ids := make([]string, 0, len(f.ids))
	for id := range f.ids {
		ids = append(ids, id)
	}
	return ids
}
