package sink

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/declared"
	"github.com/statemesh/statemesh/processor/expr"
)

// Source says what a sink reads.
type Source string

// The sources.
const (
	// FromChangelog reads the changelog of a table's store. Keys of windows have the changelog's bytes.
	FromChangelog Source = "changelog"
	// FromTopic reads a topic that a relation is written to, or read from.
	FromTopic Source = "topic"
)

// Policy says what becomes of a record that cannot be a row: one that cannot be decoded, or that the database refuses.
type Policy string

// The policies.
const (
	// Fail ends Run with a [*RefusedError].
	Fail Policy = "fail"
	// Skip counts it, logs its place, and goes on.
	Skip Policy = "skip"
)

// Config of a [Sink]. The zero value of a field means its default.
type Config struct {
	// ApplicationID of the application, and Name of the sink in it: the consumer group, and the sink's name in the database, are
	// "<ApplicationID>-sink-<Name>". Required.
	ApplicationID, Name string
	// Kafka says how to reach the brokers; processor.Config.Kafka. Required.
	Kafka processor.KafkaConfig
	// Content is what the relation holds. Its Kind decides what a record is: of a stream a row of its own, of a table the state of a key.
	// Required.
	Content declared.Content
	// Source says which topic of the relation is read. Default: FromChangelog for a table that has a changelog, else FromTopic.
	Source Source
	// Topic is the full name of what is read. Default: "<ApplicationID>-<Content.Changelog>", or Content.Topic.
	Topic string
	// Layout says how the values of Topic are written, and is that of the relation's source where Topic is what the relation is read
	// from. nil: JSON objects, with a member of each column's name; members that are missing are null.
	Layout *expr.Layout
	// WindowSize is the size of the windows of a table that is windowed and has no sessions: keys say only where a window begins.
	WindowSize time.Duration

	// Target takes the rows. Run closes it. Required.
	Target Target
	// OnError decides about records that cannot be rows. Default Fail: a row that is missing is found late.
	OnError Policy

	// BatchRecords, BatchBytes and Linger bound a transaction: see changes.Config. Defaults 1000, 4 MiB, 50ms.
	BatchRecords int
	BatchBytes   int64
	Linger       time.Duration
	// BufferBytes is how much of the topic may wait for the database, beyond Kafka.FetchBytes. Default 16 MiB.
	BufferBytes int64
	// RowBytes bounds the memory of rows that are made of it and being written, of all partitions together, estimated as 1 KiB for each record
	// and four times its bytes. Default 64 MiB. A batch that alone takes more goes alone.
	RowBytes int64
	// Timeout of one transaction with the database. Default 1m. Whatever takes longer is cut off and tried again.
	Timeout time.Duration
	// StopTimeout is how long the transaction in flight is waited for when Run ends, or a partition goes to another instance. Default 10s.
	StopTimeout time.Duration
	// Backoff and MaxBackoff are the shortest and the longest wait before a database that is away is tried again. Defaults 100ms and 30s.
	Backoff, MaxBackoff time.Duration
	// RestartBackoff and MaxRestartBackoff are the shortest and the longest wait before [Sink.Keep] begins a sink again that has ended with an
	// error. Defaults 1s and 1m.
	RestartBackoff, MaxRestartBackoff time.Duration
	// SessionTimeout of the consumer group: how long the partitions of a killed instance wait for another one. Default 45s.
	SessionTimeout time.Duration
	// Idle is how often a partition without changes moves its offset, behind control records for example. Default 1m, or a quarter of the
	// topic's delete.retention.ms, if that is shorter.
	Idle time.Duration

	Logger *slog.Logger
	// Registerer of the metrics, which bear the label sink; nil: no metrics.
	Registerer prometheus.Registerer
}

// ID is the name of the consumer group, and that of the sink in the database.
func (c Config) ID() string { return c.ApplicationID + "-sink-" + c.Name }

// ConfigError is one thing that is wrong with a [Config].
type ConfigError struct{ Field, Reason string }

func (e *ConfigError) Error() string { return fmt.Sprintf("sink %s: %s", e.Field, e.Reason) }

var legalName = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

// Validate reports everything that is wrong, joined, each as a [*ConfigError].
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	bad := func(field, format string, args ...any) {
		errs = append(errs, &ConfigError{Field: field, Reason: fmt.Sprintf(format, args...)})
	}
	for _, f := range []struct{ name, value string }{{"ApplicationID", c.ApplicationID}, {"Name", c.Name}} {
		if !legalName.MatchString(f.value) {
			bad(f.name, "%q: want letters, digits, '.', '_' and '-'", f.value)
		}
	}
	if len(c.Content.Columns) == 0 {
		bad("Content.Columns", "none given")
	}
	if c.Source != FromChangelog && c.Source != FromTopic {
		bad("Source", "%q: want %s or %s", c.Source, FromChangelog, FromTopic)
	}
	if c.Topic == "" {
		bad("Topic", "required: the content names neither a changelog nor a topic")
	}
	if c.stream() && c.Source == FromChangelog {
		bad("Source", "a stream has no changelog")
	}
	if c.Content.Windowed && !c.Content.Session && c.WindowSize < time.Millisecond {
		bad("WindowSize", "%s: keys of windows do not say how long they are; want at least 1ms", c.WindowSize)
	}
	if c.Target == nil {
		bad("Target", "required")
	}
	if c.OnError != Fail && c.OnError != Skip {
		bad("OnError", "%q: want %s or %s", c.OnError, Fail, Skip)
	}
	for _, f := range []struct {
		name  string
		value time.Duration
	}{
		{"Timeout", c.Timeout},
		{"StopTimeout", c.StopTimeout},
		{"Backoff", c.Backoff},
		{"MaxBackoff", c.MaxBackoff},
		{"RestartBackoff", c.RestartBackoff},
		{"MaxRestartBackoff", c.MaxRestartBackoff},
	} {
		if f.value < time.Millisecond {
			bad(f.name, "%s: at least 1ms", f.value)
		}
	}
	if c.RowBytes < 1 {
		bad("RowBytes", "%d: at least 1", c.RowBytes)
	}
	if err := c.changes().Validate(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// WithDefaults returns c with every zero field replaced by what it means.
func (c Config) WithDefaults() Config { return c.withDefaults() }

// Schema of the rows that a sink of this configuration makes, without running one. Errors are of what it reads: keys and layouts that it does
// not know, as [*ConfigError] where a field is wrong.
func (c Config) Schema() (Schema, error) {
	r, err := newReader(c.withDefaults())
	if err != nil {
		return Schema{}, err
	}
	return r.schema, nil
}

func (c Config) stream() bool { return c.Content.Kind == declared.Stream }

func (c Config) withDefaults() Config {
	if c.Source == "" {
		c.Source = FromTopic
		if c.Content.Changelog != "" && !c.stream() {
			c.Source = FromChangelog
		}
	}
	if c.Topic == "" {
		c.Topic = c.Content.Topic
		if c.Source == FromChangelog && c.Content.Changelog != "" {
			c.Topic = c.ApplicationID + "-" + c.Content.Changelog
		}
	}
	c.OnError = cmp.Or(c.OnError, Fail)
	c.Timeout = cmp.Or(c.Timeout, time.Minute)
	c.StopTimeout = cmp.Or(c.StopTimeout, 10*time.Second)
	c.Backoff = cmp.Or(c.Backoff, 100*time.Millisecond)
	c.MaxBackoff = cmp.Or(c.MaxBackoff, 30*time.Second)
	c.RestartBackoff = cmp.Or(c.RestartBackoff, time.Second)
	c.MaxRestartBackoff = cmp.Or(c.MaxRestartBackoff, time.Minute)
	c.RowBytes = cmp.Or(c.RowBytes, 64<<20)
	d := c.changes().WithDefaults()
	c.BatchRecords, c.BatchBytes, c.Linger, c.BufferBytes, c.Idle = d.BatchRecords, d.BatchBytes, d.Linger, d.BufferBytes, d.Idle
	c.SessionTimeout = d.SessionTimeout
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}
