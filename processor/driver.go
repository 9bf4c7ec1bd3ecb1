package processor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/processor/internal/drive"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

// DriverConfig says how a [Driver] runs a topology. The zero value of a field means its default.
type DriverConfig struct {
	// ApplicationID is part of the names of internal topics. Default "streamstest".
	ApplicationID string
	// Start is the wall clock at the beginning. Default 2000-01-01T00:00:00Z.
	Start time.Time
	// Guarantee defaults to ExactlyOnce: what a sink writes can be read when it is committed. Under AtLeastOnce it can be read at once.
	Guarantee Guarantee
	// CommitInterval is how far the wall clock must be advanced, with something uncommitted, until a commit. Default 0: a commit after
	// every record and every punctuation.
	CommitInterval time.Duration
	// CacheMaxBytes of the record caches of all stores together. Default 10 MiB, as for an instance; negative: none.
	CacheMaxBytes int64
	// MaxTaskIdle is for how long, by the wall clock, a task waits for an input that is empty. Default 0: not at all.
	MaxTaskIdle time.Duration
	// DeserializationHandler and ProcessingHandler decide about records that fail, as Config has them.
	DeserializationHandler, ProcessingHandler HandlerAction
	// DeadLetterTopic takes what a handler sends away. Default "dead-letters".
	DeadLetterTopic string
	// Logger is told what an instance would log about dropped records and failures. Default: nothing is logged.
	Logger *slog.Logger
}

func (c DriverConfig) withDefaults() DriverConfig {
	c.ApplicationID = cmp.Or(c.ApplicationID, "streamstest")
	if c.Start.IsZero() {
		c.Start = time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)
	}
	c.Guarantee = cmp.Or(c.Guarantee, ExactlyOnce)
	c.CacheMaxBytes = cmp.Or(c.CacheMaxBytes, 10<<20)
	c.DeadLetterTopic = cmp.Or(c.DeadLetterTopic, "dead-letters")
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

func (c DriverConfig) validate() error {
	var errs []error
	bad := func(field, format string, args ...any) {
		errs = append(errs, &ConfigError{Field: field, Reason: fmt.Sprintf(format, args...)})
	}
	if c.Guarantee != ExactlyOnce && c.Guarantee != AtLeastOnce {
		bad("Guarantee", "%q: want %s or %s", c.Guarantee, ExactlyOnce, AtLeastOnce)
	}
	if c.CommitInterval < 0 {
		bad("CommitInterval", "%s is negative", c.CommitInterval)
	}
	if badIdle(c.MaxTaskIdle) {
		bad("MaxTaskIdle", "%s is negative", c.MaxTaskIdle)
	}
	Config{
		DeserializationHandler: c.DeserializationHandler, ProcessingHandler: c.ProcessingHandler, DeadLetterTopic: c.DeadLetterTopic,
	}.validateHandlers(bad)
	return errors.Join(errs...)
}

// Driver runs a topology without brokers and in virtual time: the tasks of all partitions, as one stream thread runs them, with
// everything of a task that is not Kafka's. Topics, the group's offsets and transactions are in memory; nothing happens but in its
// methods, in one order. It belongs to one goroutine.
//
// It is what package streamstest is made of, and tests use that. Its topics are of an internal type, so nothing else can make one.
type Driver struct {
	cfg    DriverConfig
	ctx    context.Context //nolint:containedctx // memory is never waited for: no method has a use for one of its own
	built  *Built
	plan   *Plan
	topics *drive.Topics
	// group holds the committed offsets.
	group map[store.TopicPartition]committedOffset
	now   time.Time

	stores *layered.Stores
	env    taskEnv
	out    *output
	// tasks in the order of their ids; globals by the names of their stores.
	tasks   []*task
	globals []*drivenGlobal

	// dirtySince is when the oldest uncommitted work was done; zero: there is none.
	dirtySince time.Time
	// ended is what ended the application; nil while it runs.
	ended   error
	dropped []DroppedInfo
	commits int
	// piped counts the records from outside.
	piped int
	// before is what the stores were when they were last closed.
	before stateRows
}

// driverThread is the name under which the driver commits: any will do.
const driverThread = "streamstest-0"

// NewDriver builds a topology and begins to run it. The error is what the topology, the partition counts of its topics, or the Init of
// a processor say.
func NewDriver(ctx context.Context, t *Topology, cfg DriverConfig, topics *drive.Topics) (*Driver, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	built, err := t.Build(cfg.ApplicationID)
	if err != nil {
		return nil, err
	}
	d := &Driver{
		cfg: cfg, ctx: context.WithoutCancel(ctx), built: built, topics: topics, now: cfg.Start,
		group: make(map[store.TopicPartition]committedOffset),
	}
	if err := d.makeTopics(); err != nil {
		return nil, err
	}
	if err := d.begin(); err != nil { //nolint:contextcheck // records outlive any context: see output.produce
		return nil, errors.Join(err, d.end())
	}
	return d, nil
}

// Close ends the processors and forgets all state. What is uncommitted is dropped.
func (d *Driver) Close() error {
	if d.ended == nil {
		d.ended = store.ErrClosed
	}
	return d.end()
}

// Now is the wall clock.
func (d *Driver) Now() time.Time { return d.now }

// Config is how the driver runs, with every default.
func (d *Driver) Config() DriverConfig { return d.cfg }

// Topology that runs.
func (d *Driver) Topology() *Built { return d.built }

// Plan of the topology.
func (d *Driver) Plan() *Plan { return d.plan }

// Ended is what ended the application, nil while it runs: the failure of a task, or store.ErrClosed.
func (d *Driver) Ended() error { return d.ended }

// Dropped are the records that were not processed, in their order.
func (d *Driver) Dropped() []DroppedInfo { return slices.Clone(d.dropped) }

// Commits counts the commits so far that changed anything.
func (d *Driver) Commits() int { return d.commits }

// StreamTime of a task, in Unix milliseconds, -1 before its first record. ok is false for a task that there is not.
func (d *Driver) StreamTime(id store.TaskID) (at int64, ok bool) {
	i := slices.IndexFunc(d.tasks, func(t *task) bool { return t.id == id })
	if i < 0 {
		return -1, false
	}
	return d.tasks[i].streamTime, true
}

// Topics that the topology may use, sorted: those from outside, the internal ones, and that of dead letters.
func (d *Driver) Topics() []string {
	names := slices.Concat(d.built.SourceTopics(), d.built.GlobalTopics(), d.built.SinkTopics(), []string{d.cfg.DeadLetterTopic})
	for _, internal := range slices.Concat(d.plan.Repartitions, d.plan.Changelogs) {
		names = append(names, internal.Topic)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// WritesAny reports whether a sink chooses its topics, which may be any.
func (d *Driver) WritesAny() bool {
	return slices.ContainsFunc(d.built.subs, func(sub *subtopology) bool {
		return slices.ContainsFunc(sub.nodes, func(n node) bool { return n.dynamic })
	})
}

// Committed holds the offsets that the application has committed: of each input partition the next one to process.
func (d *Driver) Committed() map[store.TopicPartition]store.Offset {
	offsets := make(map[store.TopicPartition]store.Offset, len(d.group))
	for tp, c := range d.group {
		offsets[tp] = c.next
	}
	return offsets
}

// Store is what callers know of a store.
func (d *Driver) Store(name store.Name) (router.StoreInfo, error) {
	for _, info := range d.plan.Stores {
		if info.Name == name {
			return info, nil
		}
	}
	return router.StoreInfo{}, &store.UnknownStoreError{Store: name, Known: slices.Sorted(maps.Keys(d.built.stores))}
}

// Pipe writes a record to a topic, as another program does, and runs until nothing moves. With a partition of -1 the key decides. An
// error is the *TaskError that ended the application; see [Driver.Ended].
func (d *Driver) Pipe(r *kgo.Record) error {
	return d.run(func() error {
		if _, err := d.topics.Append(r); err != nil {
			return err
		}
		d.piped++
		return d.settle()
	})
}

// AdvanceWallClock lets the wall clock jump by an amount. Punctuations that are due fire once, however many of their intervals have passed
// (as upstream's driver does, and an instance that could not run for as long); then a commit is made if one is due.
func (d *Driver) AdvanceWallClock(by time.Duration) error {
	if by < 0 {
		return fmt.Errorf("wall clock: advanced by %s: time does not go back", by)
	}
	return d.run(func() error {
		d.now = d.now.Add(by)
		if err := d.settle(); err != nil { // what waited for an idle input
			return err
		}
		for _, t := range d.tasks {
			if err := t.punctuate(d.now.UnixMilli()); err != nil {
				return err
			}
			if err := d.progress(t); err != nil {
				return err
			}
		}
		return d.settle()
	})
}

// Commit commits, and whatever that sets going, until nothing is uncommitted.
func (d *Driver) Commit() error {
	return d.run(func() error {
		for {
			if err := d.commit(); err != nil {
				return err
			}
			if err := d.settle(); err != nil {
				return err
			}
			if d.dirtySince.IsZero() {
				return nil
			}
		}
	})
}
