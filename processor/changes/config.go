package changes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/statemesh/statemesh/processor"
)

// Config of a [Run]. The zero value of a field means its default.
type Config struct {
	// Kafka says how to reach the brokers. Required.
	Kafka processor.KafkaConfig
	// Group is the consumer group that the partitions are spread by. Required. Nothing is committed to it, and what it holds is not looked at.
	Group string
	// Topic to read. Required. While it does not exist it is waited for.
	Topic string

	// BatchRecords and BatchBytes end a batch. Defaults 1000, and 4 MiB of keys and values. A record is handed over however large it is.
	BatchRecords int
	BatchBytes   int64
	// Linger is how long a batch may wait for more records after its first. Default 50ms. Negative: not at all.
	Linger time.Duration
	// BufferBytes is how much, over all partitions, may wait to be handed over or be in the handler's hands, beyond what the client fetches ahead.
	// Default 16 MiB.
	BufferBytes int64
	// Idle is how often the ends of the log are asked for, and at most how often a partition without records gets an empty batch when it
	// has come to the end. Default 1m.
	Idle time.Duration
	// SessionTimeout of the group: default 45s. RebalanceTimeout: default 60s.
	SessionTimeout, RebalanceTimeout time.Duration

	Logger *slog.Logger
}

// ConfigError is one thing that is wrong with a [Config].
type ConfigError struct{ Field, Reason string }

func (e *ConfigError) Error() string { return fmt.Sprintf("changes %s: %s", e.Field, e.Reason) }

// Validate reports everything that is wrong, joined, each as a [*ConfigError], but for what Kafka says itself.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	bad := func(field, format string, args ...any) {
		errs = append(errs, &ConfigError{Field: field, Reason: fmt.Sprintf(format, args...)})
	}
	if c.Group == "" {
		bad("Group", "required")
	}
	if c.Topic == "" {
		bad("Topic", "required")
	}
	if c.BatchRecords < 1 {
		bad("BatchRecords", "%d, want at least 1", c.BatchRecords)
	}
	if c.BatchBytes < 1 {
		bad("BatchBytes", "%d, want at least 1", c.BatchBytes)
	}
	if c.BufferBytes < 1 {
		bad("BufferBytes", "%d, want at least 1", c.BufferBytes)
	}
	if c.Linger > time.Minute {
		bad("Linger", "%s, want at most 1m", c.Linger)
	}
	if c.Idle < time.Millisecond {
		bad("Idle", "%s, want at least 1ms", c.Idle)
	}
	return errors.Join(append(errs, c.Kafka.Validate())...)
}

// WithDefaults returns c with every zero field replaced by what it means.
func (c Config) WithDefaults() Config { return c.withDefaults() }

func (c Config) withDefaults() Config {
	c.BatchRecords = cmp.Or(c.BatchRecords, 1000)
	c.BatchBytes = cmp.Or(c.BatchBytes, 4<<20)
	c.Linger = cmp.Or(c.Linger, 50*time.Millisecond)
	c.BufferBytes = cmp.Or(c.BufferBytes, 16<<20)
	c.Idle = cmp.Or(c.Idle, time.Minute)
	c.SessionTimeout = cmp.Or(c.SessionTimeout, 45*time.Second)
	c.RebalanceTimeout = cmp.Or(c.RebalanceTimeout, time.Minute)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	c.Kafka.Logger = cmp.Or(c.Kafka.Logger, c.Logger)
	return c
}

// Log is a partition of the topic, as the brokers describe it when it is begun.
type Log struct {
	Topic string
	// ID of the topic; all zero when the brokers have no topic ids.
	ID        [16]byte
	Partition int32
	// Start is the first offset that the log has, End the one behind its last record, committed or not. Asked is when they were asked for: what
	// was committed before lies below End.
	Start, End int64
	Asked      time.Time
	// Compacts and Deletes say what the topic's cleanup.policy is. Neither: the brokers do not tell.
	Compacts, Deletes bool
	// DeleteRetention is for how long after it was written a deletion is in a compacted log at least (delete.retention.ms). 0: unknown.
	DeleteRetention time.Duration
}

// Position is where a partition stands for the handler.
type Position struct {
	// Next offset to read. What lies before the log's start is not there: reading begins at the start then, and batches say Next all the same.
	Next int64
	// Epoch is the leader epoch of the record before Next; -1 when it is not known. A log that was cut is found by it.
	Epoch int32
}

// Record is a committed record.
type Record struct {
	processor.Record
	Offset int64
}

// Batch is what was committed to a partition between two offsets. Its records are in the order of the log, and valid until Apply returns.
type Batch struct {
	Partition int32
	// From is where the handler stands: what Begin or the last Apply returned. Next is where it will stand.
	From, Next int64
	// Epoch is the leader epoch of what lies before Next; -1 when it is not known.
	Epoch   int32
	Records []Record
	// Caught says that everything committed until CaughtUp lies before Next, or did so before the batch.
	Caught   bool
	CaughtUp time.Time
}

// Handler takes the changes of partitions. Its methods are called for any number of partitions at a time, and for each partition one after
// the other. They return soon after their context has ended: a partition that is given to another member waits for that. Any error that
// they return while it has not ends Run with it.
type Handler interface {
	// Begin says where a partition stands. That may be behind log.End, when somebody else moves it; behind an end that is asked for after that it
	// is a [*CutError].
	Begin(ctx context.Context, log Log) (Position, error)
	// Apply takes a batch, and returns where the partition stands after it: b.Next when all of it is applied. Anything else means
	// that somebody else moved it, and that nothing of the batch was applied: the partition is begun again.
	Apply(ctx context.Context, b Batch) (next int64, err error)
	// Lag is told how many offsets a partition is behind the last committed record, and -1 when it is given up.
	Lag(partition int32, offsets int64)
}

// CutError reports a log that lost records that had been read from it: an unclean leader election, or a broker that lost its disk.
type CutError struct {
	Topic     string
	Partition int32
	// Read is up to where it was read, and Valid up to where what was read is what the log has.
	Read, Valid int64
}

func (e *CutError) Error() string {
	return fmt.Sprintf("topic %s-%d lost records that were read: the log agrees up to offset %d, read to %d", e.Topic, e.Partition, e.Valid, e.Read)
}

// errLeft ends what a partition does that was given to another member.
var errLeft = errors.New("changes: the partition was given up")
