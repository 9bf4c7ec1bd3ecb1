package processor

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/statemesh/statemesh/processor/internal/kafka"
)

// KafkaConfig says how to reach the brokers; every client of the runtime shares it.
type KafkaConfig = kafka.Config

// Guarantee is what a crash may do to the state (upstream's processing.guarantee).
type Guarantee string

// The two guarantees. ExactlyOnce is the default.
const (
	// ExactlyOnce makes state, changelog, output records and input offsets of a commit visible together or not at all.
	ExactlyOnce Guarantee = "exactly_once_v2"
	// AtLeastOnce may process records again after a crash: the state may then count them twice.
	AtLeastOnce Guarantee = "at_least_once"
)

// NeverIdle is the MaxTaskIdle of tasks that wait for no input (upstream's -1).
const NeverIdle = -time.Millisecond

func badIdle(d time.Duration) bool { return d < 0 && d != NeverIdle }

// Config of a [Runtime]. The zero value of a field means its default.
type Config struct {
	// ApplicationID is the consumer group and the prefix of every internal topic. Required.
	ApplicationID string
	// Guarantee defaults to ExactlyOnce: the state a crash leaves is the state a commit produced.
	Guarantee Guarantee
	// CommitInterval is the longest time between two commits of a thread that has something to commit. Default 100ms
	// under ExactlyOnce (a crash replays, and a reader lags, at most this much; each commit costs three round trips),
	// 30s under AtLeastOnce (nobody waits for a transaction to end), as upstream.
	CommitInterval time.Duration
	// NumStreamThreads is how many members of the group this instance runs. Default GOMAXPROCS: a thread is one
	// goroutine that processes, so more of them than cores wait for each other.
	NumStreamThreads int
	// MaxStreamThreads is how many [Runtime.AddThread] may make of them. Default 0: as many as anybody wants. Each costs up to
	// Kafka.FetchBytes and twice Kafka.ProduceBytes.
	MaxStreamThreads int
	// Kafka says how to reach the brokers. Required.
	Kafka KafkaConfig

	// ProcessID names the state directory's owner over restarts: the assignor brings tasks back to it. Required.
	ProcessID string
	// Incarnation tells one start of the process from the next, so that a late fence of a dead predecessor cannot hit
	// its successor. Required, and different at every start.
	Incarnation string
	// Endpoint is "host:port" as peers and clients reach the queries of this instance (upstream's application.server).
	// Empty: it holds tasks and answers no peer; who asks others for its keys learns from the NO_REPLICA error that it is
	// the owner and has no endpoint.
	Endpoint string
	// Rack of this instance: standbys are placed in other racks than their task where that is possible (upstream's
	// client.rack).
	Rack string
	// ClientTags say more of where the instance is, such as zone and cluster (upstream's client.tag.*), and RackAwareTags
	// which of them standbys must differ in, the most important first (upstream's rack.aware.assignment.tags, KIP-708). Empty:
	// they differ in Rack.
	ClientTags    map[string]string
	RackAwareTags []string

	// NumStandbyReplicas is how many other instances keep a copy of each task with a changelog (upstream's
	// num.standby.replicas). They follow the changelog, answer reads within the caller's bound, and take the task over without
	// reading more than the end of it. Default 0, as upstream. The setting of the member that leads the group counts.
	NumStandbyReplicas int
	// AcceptableRecoveryLag is how many offsets, over all changelogs of a task, a copy may be behind and still be given the task
	// (upstream's acceptable.recovery.lag, KIP-441). Default 10,000;
	// negative: none, the copy must have everything.
	AcceptableRecoveryLag int64
	// MaxWarmupReplicas is how many copies beyond the standbys may be built at a time, over the whole group, on instances that
	// tasks should move to; until such a copy has caught up the task stays where it is (upstream's max.warmup.replicas). Default 2.
	MaxWarmupReplicas int

	// NoEviction leaves instances that are proven to be dead in the group until their sessions time out; see [Runtime.Evict].
	NoEviction bool
	// Host says which process of which machine this is, for survivors there that want to prove it dead. Zero: it is read
	// from the system, where that tells.
	Host HostID

	// Predecessors are members of incarnations that used the same state directory before and are known to be gone, as far as
	// Listener.Member told of them. Those that have not left the group are evicted before this incarnation joins, which would
	// wait for their sessions otherwise.
	Predecessors []MemberInfo

	// Peers is how the other instances are reached, beside the group. Nil: they are not; then they take part in a placement
	// that this instance asks for with their next heartbeat, a drain does not see how far they are, and tasks are restored from
	// changelogs alone.
	Peers Peers

	// EpochFile keeps the highest epoch of the metadata over restarts; by habit a file in the state directory. Empty: in
	// memory only, and epochs may start lower after all instances have restarted with a clock set back.
	EpochFile string

	// SessionTimeout is how long the group waits for a heartbeat before it gives a member's tasks away. Default 45s,
	// Kafka's own: shorter trades false alarms for faster failover.
	SessionTimeout time.Duration
	// RebalanceTimeout is how long the group waits for a member to rejoin. Default 60s. It must exceed the longest
	// commit, since a member rejoins only between commits.
	RebalanceTimeout time.Duration
	// HeartbeatInterval defaults to 3s; it must be at most a third of SessionTimeout, or one lost heartbeat is an alarm.
	HeartbeatInterval time.Duration
	// TransactionTimeout is after how long the broker aborts a transaction whose owner is silent. Default 10s, as
	// upstream, but at most three quarters of SessionTimeout: an open transaction holds back every reader of the topics
	// it wrote to. It must be shorter than SessionTimeout (so that a new owner never waits longer for the old one's
	// transaction than for its eviction) and at least CommitInterval.
	TransactionTimeout time.Duration

	// BufferedRecordsPerPartition stops the fetching of a partition that has this many records waiting (upstream's
	// buffered.records.per.partition), until half of them are processed. Default 1000.
	BufferedRecordsPerPartition int
	// InputBufferMaxBytes stops the fetching of partitions that have records waiting while all that waits takes so much
	// (upstream's input.buffer.max.bytes, KIP-770), until half of it is free. It is divided among the threads; a record is
	// processed however large it is. Default 64 MiB per instance: a second of input at a rate no task keeps up with.
	InputBufferMaxBytes int64
	// MaxPollRecords is how many records one poll takes out of the client's buffer. Default 1000: the time between
	// two looks at timers and rebalances stays in the order of a millisecond.
	MaxPollRecords int
	// UncommittedMaxBytes forces an early commit when what a thread's tasks have written to stores and sinks since the last
	// one takes so much (upstream's statestore.uncommitted.max.bytes, KIP-892). Default 64 MiB per instance, divided among its
	// threads; -1: no bound.
	UncommittedMaxBytes int64
	// RestoreMaxBytes bounds what restores hold of their changelogs, fetched or applied and not committed, over all tasks.
	// Default 64 MiB. At least 4 MiB.
	RestoreMaxBytes int64
	// NoSnapshots keeps tasks from being restored from copies of other instances: changelogs alone are read. An instance of package
	// statemesh gives none then either.
	NoSnapshots bool
	// SnapshotMinOffsets is how many changelog offsets a task must have to read before other instances are asked for a copy of it.
	// Default 50,000: fewer are read before a peer is found.
	SnapshotMinOffsets int64
	// SnapshotOffsetsPerRow is how many changelog offsets each row of such a copy must spare. Default 2: below that, as with keys
	// that are written once, the changelog is as fast and costs no other instance anything.
	SnapshotOffsetsPerRow int
	// CacheMaxBytes is the record cache of the stores that ask for one with Spec.Caching (upstream's
	// statestore.cache.max.bytes). Default 10 MiB per instance, as upstream, divided among its threads. Negative: none,
	// every change is flushed at once.
	CacheMaxBytes int64
	// MaxTaskIdle is how long a task that has records of one input waits for the others to have some too, so that
	// records of all inputs are processed in the order of their timestamps (upstream's max.task.idle.ms). Default 0, as upstream:
	// it waits for records that the brokers are known to have, so that a backlog is processed in order, and for no others
	// (KIP-695). NeverIdle: the smallest timestamp among what was fetched goes first, and nothing waits.
	MaxTaskIdle time.Duration

	// DeserializationHandler decides about records that cannot be decoded: Fail (default, as upstream), Continue or
	// DeadLetter.
	DeserializationHandler HandlerAction
	// ProcessingHandler decides about any other error of a processor: Fail (default), Continue or DeadLetter. Continue
	// keeps what the record wrote before the error.
	ProcessingHandler HandlerAction
	// UncaughtHandler decides what follows when a thread fails with what no other handler takes, a panic of a processor among it:
	// ShutdownInstance (default, as upstream) or ReplaceThread.
	UncaughtHandler UncaughtAction
	// DeadLetterTopic receives what a handler sends away, inside the transaction. Required when one says DeadLetter.
	DeadLetterTopic string
	// OffsetReset is where a source starts whose own setting is ResetDefault, in a partition without a committed offset
	// (upstream's auto.offset.reset). It also decides when the broker has deleted records before they were processed:
	// the loss is logged and told to the listener, and ResetNone makes it an error. Default ResetEarliest, as upstream.
	OffsetReset OffsetReset
	// TaskTimeout is how long a task may fail to make progress for a reason that a retry may cure (brokers away) before
	// the runtime gives up. Default 5m, as upstream.
	TaskTimeout time.Duration

	// RepartitionPurgeInterval is how often consumed records of repartition topics are deleted. Default 30s; negative
	// switches it off.
	RepartitionPurgeInterval time.Duration
	// StateCleanupDelay is how long the copy of a task that runs on another instance stays on disk (upstream's
	// state.cleanup.delay.ms). Default 10m, as upstream: a task that comes back by then is brought up to date, and not
	// restored from nothing. Negative: copies stay for ever.
	StateCleanupDelay time.Duration
	// ReplicationFactor of internal topics that are created. Default -1: the broker's default.
	ReplicationFactor int16

	// GroupInstanceID would make the members static. It is refused: a static member keeps its tasks while it is away,
	// which leaves them without an owner, and planned moves make it needless.
	GroupInstanceID string

	// Listener is told of what happens. Its functions must not block; nil ones are skipped.
	Listener Listener
	// Logger defaults to none.
	Logger *slog.Logger
	// Registerer of the metrics; nil: no metrics.
	Registerer prometheus.Registerer
}

// Validate reports every problem at once, joined, each as a [*ConfigError]. Zero fields count as their defaults.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	bad := func(field, format string, args ...any) {
		errs = append(errs, &ConfigError{Field: field, Reason: fmt.Sprintf(format, args...)})
	}
	for _, f := range []struct{ name, value string }{
		{"ApplicationID", c.ApplicationID}, {"ProcessID", c.ProcessID}, {"Incarnation", c.Incarnation},
	} {
		if f.value == "" {
			bad(f.name, "required")
		} else if i := strings.IndexFunc(f.value, notLegal); i >= 0 {
			bad(f.name, "%q: only letters, digits, '.', '_' and '-' are legal", f.value)
		}
	}
	if len(c.ApplicationID) > maxNameLength {
		bad("ApplicationID", "%d characters, at most %d leave room for the names of internal topics", len(c.ApplicationID), maxNameLength)
	}
	if c.Guarantee != ExactlyOnce && c.Guarantee != AtLeastOnce {
		bad("Guarantee", "%q: want %s or %s", c.Guarantee, ExactlyOnce, AtLeastOnce)
	}
	if len(c.Kafka.Brokers) == 0 {
		bad("Kafka.Brokers", "required")
	}
	if c.GroupInstanceID != "" {
		bad("GroupInstanceID", "%q: static membership is not supported; a member that leaves gives its tasks away at once, and held state brings them back to it", c.GroupInstanceID)
	}
	for _, f := range []struct {
		name  string
		value time.Duration
	}{
		{"CommitInterval", c.CommitInterval},
		{"SessionTimeout", c.SessionTimeout},
		{"RebalanceTimeout", c.RebalanceTimeout},
		{"HeartbeatInterval", c.HeartbeatInterval},
		{"TransactionTimeout", c.TransactionTimeout},
		{"TaskTimeout", c.TaskTimeout},
	} {
		if f.value < time.Millisecond || f.value > kafka.MaxTimeout {
			bad(f.name, "%s: want 1ms to %s, the most that Kafka's protocol can say", f.value, kafka.MaxTimeout)
		}
	}
	if badIdle(c.MaxTaskIdle) {
		bad("MaxTaskIdle", "%s: at least 0, or %s for never", c.MaxTaskIdle, NeverIdle)
	}
	if c.HeartbeatInterval > c.SessionTimeout/3 {
		bad("HeartbeatInterval", "%s: at most a third of SessionTimeout (%s)", c.HeartbeatInterval, c.SessionTimeout)
	}
	if c.Guarantee == ExactlyOnce {
		if c.TransactionTimeout >= c.SessionTimeout {
			bad("TransactionTimeout", "%s: must be shorter than SessionTimeout (%s)", c.TransactionTimeout, c.SessionTimeout)
		}
		if c.TransactionTimeout < c.CommitInterval {
			bad("TransactionTimeout", "%s: at least CommitInterval (%s), or every transaction times out", c.TransactionTimeout, c.CommitInterval)
		}
	}
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"NumStreamThreads", int64(c.NumStreamThreads)},
		{"BufferedRecordsPerPartition", int64(c.BufferedRecordsPerPartition)},
		{"MaxPollRecords", int64(c.MaxPollRecords)},
		{"InputBufferMaxBytes", c.InputBufferMaxBytes},
		{"MaxWarmupReplicas", int64(c.MaxWarmupReplicas)},
		{"SnapshotMinOffsets", c.SnapshotMinOffsets},
		{"SnapshotOffsetsPerRow", int64(c.SnapshotOffsetsPerRow)},
	} {
		if f.value < 1 {
			bad(f.name, "%d: at least 1", f.value)
		}
	}
	if c.MaxStreamThreads != 0 && c.MaxStreamThreads < c.NumStreamThreads {
		bad("MaxStreamThreads", "%d: at least NumStreamThreads (%d)", c.MaxStreamThreads, c.NumStreamThreads)
	}
	c.validatePlacement(bad)
	if c.UncommittedMaxBytes < 1 && c.UncommittedMaxBytes != -1 {
		bad("UncommittedMaxBytes", "%d: at least 1, or -1 for no bound", c.UncommittedMaxBytes)
	}
	if c.RestoreMaxBytes < 4<<20 {
		bad("RestoreMaxBytes", "%d: at least 4 MiB", c.RestoreMaxBytes)
	}
	if c.ReplicationFactor < -1 {
		bad("ReplicationFactor", "%d: -1 (the broker's default) or at least 1", c.ReplicationFactor)
	}
	if c.OffsetReset > ResetNone {
		bad("OffsetReset", "%s: want earliest, latest or none", c.OffsetReset)
	}
	c.validateHandlers(bad)
	return errors.Join(errs...)
}

func (c Config) validatePlacement(bad func(field, format string, args ...any)) {
	if c.NumStandbyReplicas < 0 {
		bad("NumStandbyReplicas", "%d: at least 0", c.NumStandbyReplicas)
	}
	for _, tag := range c.RackAwareTags {
		if _, ok := c.ClientTags[tag]; !ok {
			bad("RackAwareTags", "%q: this instance has no such client tag", tag)
		}
	}
}

func (c Config) validateHandlers(bad func(field, format string, args ...any)) {
	if c.DeserializationHandler > DeadLetter {
		bad("DeserializationHandler", "%d: want Fail, Continue or DeadLetter", c.DeserializationHandler)
	}
	if c.UncaughtHandler > ReplaceThread {
		bad("UncaughtHandler", "%d: want ShutdownInstance or ReplaceThread", c.UncaughtHandler)
	}
	if c.ProcessingHandler > DeadLetter {
		bad("ProcessingHandler", "%d: want Fail, Continue or DeadLetter", c.ProcessingHandler)
	}
	if c.DeadLetterTopic == "" && (c.DeserializationHandler == DeadLetter || c.ProcessingHandler == DeadLetter) {
		bad("DeadLetterTopic", "required when a handler says DeadLetter")
	}
}

func (c Config) withDefaults() Config {
	c.Guarantee = cmp.Or(c.Guarantee, ExactlyOnce)
	if c.CommitInterval == 0 {
		c.CommitInterval = 100 * time.Millisecond
		if c.Guarantee == AtLeastOnce {
			c.CommitInterval = 30 * time.Second
		}
	}
	c.NumStreamThreads = cmp.Or(c.NumStreamThreads, runtime.GOMAXPROCS(0))
	c.SessionTimeout = cmp.Or(c.SessionTimeout, 45*time.Second)
	c.RebalanceTimeout = cmp.Or(c.RebalanceTimeout, 60*time.Second)
	c.Host = cmp.Or(c.Host, thisHost())
	c.HeartbeatInterval = cmp.Or(c.HeartbeatInterval, min(3*time.Second, c.SessionTimeout/3))
	c.TransactionTimeout = cmp.Or(c.TransactionTimeout, min(10*time.Second, c.SessionTimeout/4*3))
	c.TaskTimeout = cmp.Or(c.TaskTimeout, 5*time.Minute)
	c.RepartitionPurgeInterval = cmp.Or(c.RepartitionPurgeInterval, 30*time.Second)
	c.StateCleanupDelay = cmp.Or(c.StateCleanupDelay, 10*time.Minute)
	c.BufferedRecordsPerPartition = cmp.Or(c.BufferedRecordsPerPartition, 1000)
	c.MaxPollRecords = cmp.Or(c.MaxPollRecords, 1000)
	c.UncommittedMaxBytes = cmp.Or(c.UncommittedMaxBytes, 64<<20)
	c.InputBufferMaxBytes = cmp.Or(c.InputBufferMaxBytes, 64<<20)
	c.RestoreMaxBytes = cmp.Or(c.RestoreMaxBytes, 64<<20)
	c.SnapshotMinOffsets = cmp.Or(c.SnapshotMinOffsets, 50_000)
	c.SnapshotOffsetsPerRow = cmp.Or(c.SnapshotOffsetsPerRow, 2)
	c.AcceptableRecoveryLag = cmp.Or(c.AcceptableRecoveryLag, 10_000)
	c.MaxWarmupReplicas = cmp.Or(c.MaxWarmupReplicas, 2)
	c.CacheMaxBytes = cmp.Or(c.CacheMaxBytes, 10<<20)
	c.OffsetReset = cmp.Or(c.OffsetReset, ResetEarliest)
	c.ReplicationFactor = cmp.Or(c.ReplicationFactor, -1)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	c.Kafka.Logger = cmp.Or(c.Kafka.Logger, c.Logger)
	c.Kafka.ClientID = cmp.Or(c.Kafka.ClientID, c.ApplicationID)
	c.Listener = c.Listener.withDefaults()
	return c
}

// maxNameLength leaves, of Kafka's 249 characters for a topic name, room for a store's name and the suffix.
const maxNameLength = 120

func notLegal(r rune) bool {
	return !legalInTopic(r)
}
