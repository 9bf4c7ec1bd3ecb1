package processor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/statemesh/statemesh/internal/joined"
	"github.com/statemesh/statemesh/processor/internal/group"
	"github.com/statemesh/statemesh/processor/internal/restore"
	"github.com/statemesh/statemesh/processor/internal/topics"
	"github.com/statemesh/statemesh/store"
)

// prepare gets everything ready that the threads lean on: topics described, created or verified, the shape of the group,
// and the parts that serve all threads. Brokers that are away are waited for, up to Config.TaskTimeout. A topic that is missing is
// asked for again for three seconds: a broker does not know at once of one that was just created.
func (r *Runtime) prepare(ctx context.Context) error {
	began, missing := r.now(), 0
	for wait := 200 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		err := r.look(ctx)
		if err == nil {
			break
		}
		if is[*topics.MissingError](err) && missing < 4 {
			missing++
		} else if !answeredLater(err) || r.now().Sub(began) > r.cfg.TaskTimeout {
			return err
		}
		r.cfg.Logger.WarnContext(ctx, "not ready to start, the brokers are asked again", "brokers", strings.Join(r.cfg.Kafka.Brokers, ","), "error", err)
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
	if err := r.parts(); err != nil {
		return err
	}
	handlers := r.cfg.handlers()
	r.env = taskEnv{
		application: r.cfg.ApplicationID, now: r.now, onError: handlers.judge, maxRecord: r.maxRecord, limitedBy: r.limitedBy,
		directory: newDirectory(r, kadm.NewClient(r.client)), maxIdle: r.cfg.MaxTaskIdle, globals: r.globals, registerer: r.cfg.Registerer, ctx: context.WithoutCancel(ctx), onDrop: r.drops.drop,
	}
	var threads []*thread
	for ; r.threads.next < r.cfg.NumStreamThreads; r.threads.next++ {
		threads = append(threads, r.newThread(r.threads.next))
	}
	r.threads.put(threads)
	return nil
}

// answeredLater reports whether the same question may get a better answer later: all of the error is brokers that are away, or "not now".
func answeredLater(err error) bool {
	for _, e := range joined.Errors(err) {
		for _, lasts := range []func(error) bool{
			is[*topics.MissingError], is[*topics.MismatchError], is[*topics.LostError], is[*TopologyError], is[*AuthorizationError],
		} {
			if lasts(e) {
				return false
			}
		}
		if !retriable(e) {
			return false
		}
	}
	return true
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// look asks the brokers what there is, and makes what is missing.
func (r *Runtime) look(ctx context.Context) error {
	var err error
	if r.coord, err = newCoordinator(ctx, r.client, r.cfg.ApplicationID); err != nil {
		return err
	}
	adm := kadm.NewClient(r.client)
	external := slices.Concat(r.built.SourceTopics(), r.built.GlobalTopics(), r.built.SinkTopics())
	if r.cfg.DeadLetterTopic != "" {
		external = append(external, r.cfg.DeadLetterTopic)
	}
	infos, err := topics.Describe(ctx, adm, external)
	if err != nil {
		return err
	}
	if r.fed, err = topics.DescribeLogs(ctx, adm, r.built.FedTopics()); err != nil {
		return err
	}
	counts := make(map[string]int32, len(infos))
	for topic, info := range infos {
		counts[topic] = info.Partitions
	}
	plan, err := r.built.Plan(counts)
	if err != nil {
		return err
	}
	if r.internal, err = r.ensureInternal(ctx, adm, plan); err != nil {
		return err
	}
	for topic, info := range r.internal {
		counts[topic] = info.Partitions
	}
	r.usePlan(plan, counts)
	r.limitRecords()
	return nil
}

// ensureInternal makes or verifies changelogs and repartition topics. What the group's offsets prove to have existed is
// not made anew: an empty changelog would be lost state (CR-15).
func (r *Runtime) ensureInternal(ctx context.Context, adm *kadm.Client, plan *Plan) (map[string]topics.Info, error) {
	ran, err := r.ranBefore(ctx, plan)
	if err != nil {
		return nil, err
	}
	proof := fmt.Sprintf("group %s has committed offsets of this application", r.cfg.ApplicationID)
	var want []topics.Internal
	for _, c := range plan.Changelogs {
		w := topics.Internal{
			Topic: c.Topic, Kind: topics.Changelog, Partitions: c.Partitions,
			ReplicationFactor: r.cfg.ReplicationFactor, Config: c.Store.ChangelogConfig,
		}
		if k := c.Store.Kind; k == store.KindWindow || k == store.KindTimestampedWindow || k == store.KindSession {
			w.Retention = c.Store.Retention
		} else if k == store.KindVersioned {
			w.History = c.Store.Retention
		}
		if ran[r.built.stores[c.Store.Name].sub.id] {
			w.MustExist = proof
		}
		want = append(want, w)
	}
	for _, p := range plan.Repartitions {
		w := topics.Internal{
			Topic: p.Topic, Kind: topics.Repartition, Partitions: p.Partitions,
			ReplicationFactor: r.cfg.ReplicationFactor,
		}
		if ran[r.built.bySource[p.Topic].sub.id] || r.feeds(p.Topic, ran) {
			w.MustExist = proof
		}
		want = append(want, w)
	}
	return topics.Ensure(ctx, adm, want)
}

// feeds reports whether one of the sub-topologies writes to a repartition topic. If such a one has commits, what it read
// so far never went into a topic that is created now: the store behind it would lack that, and say "not found" of it.
func (r *Runtime) feeds(topic string, subs map[int32]bool) bool {
	for _, sub := range r.built.subs {
		if !subs[sub.id] {
			continue
		}
		for i := range sub.nodes {
			if n := &sub.nodes[i]; n.kind == nodeSink && n.repartition && n.topics[0] == topic {
				return true
			}
		}
	}
	return false
}

// ranBefore says of which sub-topologies the group has commits.
func (r *Runtime) ranBefore(ctx context.Context, plan *Plan) (map[int32]bool, error) {
	var tps []store.TopicPartition
	for _, t := range plan.Tasks {
		tps = append(tps, t.Inputs...)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*r.cfg.TransactionTimeout)
	defer cancel()
	// An open transaction is no reason to wait: of the task it belongs to, its restore does.
	committed, err := r.coord.committed(ctx, tps, lastKnown)
	switch {
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		return nil, &AuthorizationError{Resource: "group", Name: r.cfg.ApplicationID, Operation: "DESCRIBE", Err: err}
	case errors.Is(err, kerr.GroupIDNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("committed offsets of group %s: %w", r.cfg.ApplicationID, err)
	}
	ran := make(map[int32]bool)
	for _, t := range plan.Tasks {
		for _, tp := range t.Inputs {
			if committed[tp].meta.Sequence > 0 {
				ran[t.ID.Subtopology] = true
			}
		}
	}
	return ran, nil
}

// usePlan keeps what the threads need of the plan.
func (r *Runtime) usePlan(plan *Plan, counts map[string]int32) {
	r.taskPlans = make(map[store.TaskID]*TaskPlan, len(plan.Tasks))
	r.shape = group.Shape{Topology: r.built.ShapeHash()}
	partitions := make(map[int32]store.Partition)
	for i := range plan.Tasks {
		t := &plan.Tasks[i]
		r.taskPlans[t.ID] = t
		r.shape.Tasks = append(r.shape.Tasks, group.TaskShape{ID: t.ID, Inputs: t.Inputs, Stateful: t.Stateful})
		partitions[t.ID.Subtopology] = max(partitions[t.ID.Subtopology], t.ID.Partition+1)
	}
	r.storeInfos = plan.Stores
	r.inputTopics = append(r.built.SourceTopics(), r.built.RepartitionTopics()...)
	slices.Sort(r.inputTopics)
	r.chosenPartitions = r.built.chosenPartitions(counts)
	r.byKey, r.allManual = r.built.keyed(r.cfg.DeadLetterTopic), r.built.chooses()
	r.manual = make(map[string]bool)
	for topic := range r.chosenPartitions {
		r.manual[topic] = true
	}
	for _, c := range plan.Changelogs {
		r.manual[c.Topic] = true
	}
	r.counts.Store(&partitions)
}

// limitRecords makes the largest batch fit into every internal topic, and the largest record into a batch.
func (r *Runtime) limitRecords() {
	r.cfg.Kafka = r.cfg.Kafka.WithDefaults()
	r.limitedBy = "Kafka.MaxRecordBytes"
	for topic, info := range r.internal {
		if info.MaxMessageBytes > 0 && info.MaxMessageBytes < int64(r.cfg.Kafka.MaxRecordBytes) {
			r.cfg.Kafka.MaxRecordBytes = int32(info.MaxMessageBytes)
			r.limitedBy = "max.message.bytes of topic " + topic
		}
	}
	r.maxRecord = int64(r.cfg.Kafka.MaxRecordBytes) - recordOverhead
}

// parts makes what serves all threads.
func (r *Runtime) parts() error {
	var err error
	r.restorer, err = restore.New(restore.Config{
		Client: r.client, Group: r.cfg.ApplicationID, StallTimeout: r.cfg.TaskTimeout, BufferBytes: r.cfg.RestoreMaxBytes / 2,
		CommitBytes:    min(8<<20, r.cfg.RestoreMaxBytes/4), // beside what is fetched, what is applied and not committed
		PartitionBytes: int32(min(2<<20, r.cfg.RestoreMaxBytes/16)),
		Logger:         r.cfg.Logger, Registerer: r.cfg.Registerer,
	})
	if err != nil {
		return err
	}
	r.restoring.Store(r.restorer)
	// Followers of global stores, and those of standbys, wait at the brokers most of the time, each with a fetch that it has the bytes for: they have a budget of their
	// own, or restores would wait for them.
	share := max(r.cfg.RestoreMaxBytes/8, 2<<20)
	r.globalLogs, err = restore.New(restore.Config{
		Client: r.client, Group: r.cfg.ApplicationID, StallTimeout: r.cfg.TaskTimeout, BufferBytes: share,
		FetchBytes: int32(min(share/2, 4<<20)), PartitionBytes: int32(min(share/4, 1<<20)), Logger: r.cfg.Logger,
	})
	if err != nil {
		return err
	}
	r.standbyLogs, err = restore.New(restore.Config{
		Client: r.client, Group: r.cfg.ApplicationID, StallTimeout: r.cfg.TaskTimeout, BufferBytes: share / 2,
		FetchBytes: int32(min(share/4, 4<<20)), PartitionBytes: int32(min(share/8, 1<<20)), CommitBytes: min(8<<20, share/2),
		Logger: r.cfg.Logger,
	})
	if err != nil {
		return err
	}
	r.rounds, err = restore.NewRounds(restore.RoundsConfig{
		Client: r.client, Group: r.cfg.ApplicationID, Now: r.now, Logger: r.cfg.Logger, Registerer: r.cfg.Registerer,
	})
	if err != nil {
		return err
	}
	r.observer, err = group.NewObserver(group.ObserverConfig{
		Application: r.cfg.ApplicationID, Group: r.cfg.ApplicationID,
		Stores: r.storeInfos, Table: r.table, Client: r.client, EpochFile: r.cfg.EpochFile, Logger: r.cfg.Logger,
		Registerer: r.cfg.Registerer,
	})
	if err != nil {
		return err
	}
	r.purger, err = topics.NewPurger(topics.PurgerConfig{
		Admin:    kadm.NewClient(r.client),
		Interval: r.cfg.RepartitionPurgeInterval, Logger: r.cfg.Logger,
	})
	return err
}
