package streamstest

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/internal/drive"
	"github.com/statemesh/statemesh/store"
)

// Config says how a topology is run. The zero value of a field means its default, so Config{} is a fine one.
type Config struct {
	// ApplicationID is part of the names of internal topics, and what Context.ApplicationID says. Default "streamstest".
	ApplicationID string
	// Partitions of topics from outside; those that are not named have one. Internal topics have as many as on a broker.
	Partitions map[string]int32
	// Start is the wall clock at the beginning. Default 2000-01-01T00:00:00Z.
	Start time.Time
	// Guarantee defaults to processor.ExactlyOnce: what a sink writes, be it into a repartition topic, can be read when it is committed.
	// Under processor.AtLeastOnce it can be read at once.
	Guarantee processor.Guarantee
	// CommitInterval is how far the wall clock must be advanced, with something uncommitted, until a commit; [Never] leaves commits to
	// [Driver.Commit]. Whatever it is, a processor may request one. Default 0: a commit after every record and every punctuation, as
	// upstream's driver does; record caches then hold nothing back.
	CommitInterval time.Duration
	// CacheMaxBytes of the record caches of all stores together. Default 10 MiB; negative: none.
	CacheMaxBytes int64
	// MaxTaskIdle is for how long, by the wall clock, a task with several inputs waits for one that is empty. Default 0: not at all.
	MaxTaskIdle time.Duration
	// DeserializationHandler and ProcessingHandler decide about records that fail. Default processor.Fail.
	DeserializationHandler, ProcessingHandler processor.HandlerAction
	// DeadLetterTopic takes what a handler sends away. Default "dead-letters".
	DeadLetterTopic string
	// Logger is told what an instance would log about dropped records and failures. Default: nothing is logged.
	Logger *slog.Logger
}

// Never is a commit interval that does not pass.
const Never = time.Duration(math.MaxInt64)

// Driver runs a topology. It belongs to one goroutine, that of the test.
//
// Methods without an error result, and those of inputs, outputs and stores, fail the test at once when something is wrong: a record was
// refused and no handler took it, bytes are not what a serde expects. [Driver.Try] returns such an error instead.
type Driver struct {
	d      *processor.Driver
	topics *drive.Topics
	ctx    context.Context //nolint:containedctx // of reads, which are of memory and wait for nothing
	// tb fails when something fails; nil: it is panicked with.
	tb testing.TB
	// trying counts the calls of Try that run.
	trying int
	closed bool
}

// New begins to run a topology. Who has a test takes [NewT]. Its errors are those of Topology.Build and Built.Plan, of a partition count
// that cannot be, and of a processor's Init.
func New(ctx context.Context, topology *processor.Topology, cfg Config) (*Driver, error) {
	topics, err := drive.NewTopics(cfg.Partitions)
	if err != nil {
		return nil, err
	}
	d, err := processor.NewDriver(ctx, topology, processor.DriverConfig{
		ApplicationID: cfg.ApplicationID, Start: cfg.Start, Guarantee: cfg.Guarantee, CommitInterval: cfg.CommitInterval,
		CacheMaxBytes: cfg.CacheMaxBytes, MaxTaskIdle: cfg.MaxTaskIdle, DeserializationHandler: cfg.DeserializationHandler,
		ProcessingHandler: cfg.ProcessingHandler, DeadLetterTopic: cfg.DeadLetterTopic, Logger: cfg.Logger,
	}, topics)
	if err != nil {
		return nil, err
	}
	return &Driver{d: d, topics: topics, ctx: context.WithoutCancel(ctx)}, nil
}

// NewT begins to run a topology for a test, which fails with whatever goes wrong, and closes the driver at its end.
func NewT(tb testing.TB, topology *processor.Topology, cfg Config) *Driver {
	tb.Helper()
	d, err := New(tb.Context(), topology, cfg)
	if err != nil {
		tb.Fatalf("streamstest: %v", err)
	}
	d.tb = tb
	tb.Cleanup(func() {
		tb.Helper()
		if err := d.Close(); err != nil {
			tb.Errorf("streamstest: close: %v", err)
		}
	})
	return d
}

// Try calls f and returns what would have failed the test in it, nil for nothing; f ends there. A failure of a task is a
// *processor.TaskError, which names the record; the application has ended then, as an instance does: everything before that record is
// committed, nothing of it. Only [Driver.Restart] goes on from there.
func (d *Driver) Try(f func()) (err error) {
	d.trying++
	defer func() {
		d.trying--
		switch v := recover().(type) {
		case nil:
		case failure:
			err = v.error
		default:
			panic(v)
		}
	}()
	f()
	return nil
}

// failure is on its way to Try.
type failure struct{ error }

// AdvanceWallClock lets the wall clock jump. Punctuations that are due fire once each, whatever number of their intervals has passed, as
// they do in upstream's driver; advance in steps for more. Then what has waited for an idle input goes on, and a commit is made if one is
// due. Stream time does not move: it is the greatest timestamp of the records.
func (d *Driver) AdvanceWallClock(by time.Duration) {
	d.helper()()
	d.check(d.d.AdvanceWallClock(by))
}

// Commit flushes the record caches and commits, and goes on with what that brings into topics that the topology reads, until nothing is
// uncommitted.
func (d *Driver) Commit() {
	d.helper()()
	d.check(d.d.Commit())
}

// Restart kills the application and begins it anew with empty stores: tasks are restored from their changelogs and go on at their
// committed offsets, with new processors; what was uncommitted is done again. Topics, commits and the wall clock stay. It fails with a
// *processor.RestoreError when a store with a changelog is not what it was at the last commit: something that a processor keeps is not
// in the changelog. A store without one begins empty.
//
// It also goes on with an application that has ended by a failure, at the record that failed.
func (d *Driver) Restart() {
	d.helper()()
	d.check(d.d.Restart())
}

// Close ends the processors, without a last commit, and returns what their Close returned. A second call does nothing.
func (d *Driver) Close() error {
	if d.closed {
		return nil
	}
	d.closed = true
	return d.d.Close()
}

// Ended is what ended the application, nil while it runs: a *processor.TaskError, or store.ErrClosed.
func (d *Driver) Ended() error { return d.d.Ended() }

// Now is the wall clock, as Context.CurrentSystemTime has it.
func (d *Driver) Now() time.Time { return d.d.Now() }

// Tasks are those of the topology, by id: one for each partition of each sub-topology.
func (d *Driver) Tasks() []store.TaskID {
	var ids []store.TaskID
	for _, t := range d.d.Plan().Tasks {
		ids = append(ids, t.ID)
	}
	return ids
}

// StreamTime of a task, in Unix milliseconds: the greatest timestamp of its records, -1 before the first.
func (d *Driver) StreamTime(task store.TaskID) int64 {
	d.helper()()
	at, ok := d.d.StreamTime(task)
	if !ok {
		d.check(fmt.Errorf("task %s: there are %v", task, d.Tasks()))
	}
	return at
}

// Dropped counts the records that were not processed, or were dropped by a processor, by reason; those that went to the dead letter
// topic are among them.
func (d *Driver) Dropped() map[string]int {
	counts := make(map[string]int)
	for _, info := range d.d.Dropped() {
		counts[info.Reason]++
	}
	return counts
}

// DroppedRecords says of each of them where it was and why.
func (d *Driver) DroppedRecords() []processor.DroppedInfo { return d.d.Dropped() }

// DeadLetters are the records in the dead letter topic, as they were read, with headers that say why they are there.
func (d *Driver) DeadLetters() []Record[[]byte, []byte] {
	return all(d.topics.Arrived(d.d.Config().DeadLetterTopic, 0))
}

// Commits counts the commits that changed anything.
func (d *Driver) Commits() int { return d.d.Commits() }

// Committed holds the offset of each input partition at which the application would go on after a kill.
func (d *Driver) Committed() map[store.TopicPartition]store.Offset { return d.d.Committed() }

// Read pins one partition of a store of any kind for reads as queries make them, in bytes. The reading must be closed, and is not to be
// used after the driver is. Typed and over all partitions: [NewKeyValue], [NewWindow], [NewSession], [NewVersioned].
func (d *Driver) Read(name store.Name, partition store.Partition, isolation store.Isolation) (store.Reading, error) {
	return d.d.Read(name, partition, isolation)
}

// Describe is the topology as text.
func (d *Driver) Describe() string { return d.d.Topology().Describe() }

// check ends what runs when err is not nil.
func (d *Driver) check(err error) {
	if err == nil {
		return
	}
	if d.trying > 0 {
		panic(failure{err})
	}
	if d.tb != nil {
		d.tb.Helper()
		d.tb.Fatalf("streamstest: %v", err)
	}
	panic(err)
}

// helper marks the caller as part of the driver in what a test reports.
func (d *Driver) helper() func() {
	if d.tb == nil {
		return func() {}
	}
	return d.tb.Helper
}

// topic checks that the topology may use a topic.
func (d *Driver) topic(name string, among []string) error {
	if slices.Contains(among, name) {
		return nil
	}
	return fmt.Errorf("topic %s: not one of the topology's: %v", name, among)
}
