package kafka

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
	"github.com/twmb/franz-go/pkg/sasl"
)

const (
	// maxRequest is Kafka's socket.request.max.bytes; no answer that we ask for is larger either.
	maxRequest = 100 << 20
	// maxInflated bounds what one batch may decompress to: a batch of MaxRecordBytes that grew 64 times.
	maxInflated = 64 << 20
	// concurrentFetches is how many brokers one stream thread fetches from at a time; each holds a part of FetchBytes.
	// Fewer save no memory that matters, more make each fetch small.
	concurrentFetches = 4
	// fetchWait is how long a broker without data keeps a fetch: it bounds what a broker with data must wait when more
	// brokers than concurrentFetches lead our partitions. Upstream's fetch.max.wait.ms: an idle thread does little else.
	fetchWait = 500 * time.Millisecond
	// mostOfPartition is how much of a fetch one partition may take.
	mostOfPartition = 1 << 20
	// connIdle closes connections that nothing used, well before the broker's connections.max.idle.ms of 10m.
	connIdle = 5 * time.Minute
)

// Opts is what every client shares: brokers, security, timeouts, retries, logging.
func (c Config) Opts() []kgo.Opt {
	c = c.withDefaults()
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...),
		kgo.ClientID(c.ClientID),
		kgo.Dialer(c.dial),
		kgo.DialTimeout(c.DialTimeout),
		kgo.RequestTimeoutOverhead(c.RequestTimeout),
		kgo.ConnIdleTimeout(connIdle),
		kgo.RequestRetries(math.MaxInt32), // RetryTimeout decides
		kgo.RetryTimeout(c.RetryTimeout),
		kgo.RetryBackoffFn(backoff),
		kgo.MetadataMaxAge(c.MetadataMaxAge),
		kgo.MetadataMinAge(min(250*time.Millisecond, c.MetadataMaxAge)),
		kgo.ConsiderMissingTopicDeletedAfter(15 * time.Second),
		kgo.BrokerMaxWriteBytes(maxRequest),
		kgo.BrokerMaxReadBytes(maxRequest),
		kgo.MaxDecompressBatchBytes(maxInflated),
		kgo.MaxVersions(stableVersions()),
		kgo.DisableClientMetrics(), // KIP-714 would push our metrics to whoever runs the brokers
		kgo.WithLogger(newLogger(c.Logger)),
	}
	if c.SASL != nil {
		opts = append(opts, kgo.SASL([]sasl.Mechanism{c.SASL.mechanism()}...))
	}
	return opts
}

// Direct is for raw requests: restore and standbys. Such a client consumes and produces nothing by itself. Should it
// ever be told to consume, an offset out of range is an event to decide about and never a silent reset.
func (c Config) Direct() []kgo.Opt {
	return append(c.Opts(),
		kgo.ConsumeStartOffset(kgo.NoResetOffset()),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.DisableFetchSessions(),
		kgo.MaxConcurrentFetches(0),
	)
}

// Admin describes and creates topics and reads groups.
func (c Config) Admin() []kgo.Opt { return c.Direct() }

// Isolation of what a stream thread consumes.
type Isolation uint8

// The isolation levels. ReadCommitted is the default, also under at_least_once: an input written by transactions is
// never processed before they commit.
const (
	ReadCommitted Isolation = iota
	ReadUncommitted
)

// Thread describes the client of one stream thread: a member of the group and, with a transactional id, the producer of
// its transactions.
type Thread struct {
	// Group is the consumer group. Required.
	Group string
	// Balancer of the group. Required.
	Balancer kgo.GroupBalancer
	// Topics to consume. Required.
	Topics []string
	// TransactionalID makes everything produced part of transactions; empty: an idempotent producer.
	TransactionalID string
	// ManualPartition tells topics whose records name their own partition (changelogs) from those whose records are
	// partitioned by key. nil: none is manual.
	ManualPartition func(topic string) bool
	Isolation       Isolation
	// Reset says where a partition without a committed offset begins. An offset that the broker no longer has is never
	// reset by the client, whatever Reset says: it comes out of a poll as an error, for the owner of the task to decide.
	Reset ResetPolicy

	// SessionTimeout: default 45s. RebalanceTimeout: default 60s. HeartbeatInterval: default 3s, at most a third of the
	// session.
	SessionTimeout, RebalanceTimeout, HeartbeatInterval time.Duration
	// TransactionTimeout: default 10s. Less than SessionTimeout, so that a new owner waits for the old one's eviction
	// and not for its transaction.
	TransactionTimeout time.Duration
	// Linger is how long a record may wait for others before it is sent; a flush sends at once. Default 5ms. Negative:
	// none.
	Linger time.Duration
}

// ResetPolicy is where a partition without a committed offset begins (upstream's auto.offset.reset).
type ResetPolicy uint8

// The policies. ResetEarliest is the default, as upstream.
const (
	ResetEarliest ResetPolicy = iota
	ResetLatest
	// ResetNone makes a missing offset an error of the poll.
	ResetNone
)

func (p ResetPolicy) start() kgo.Offset {
	switch p {
	case ResetLatest:
		return kgo.NewOffset().AtEnd()
	case ResetNone:
		return kgo.NewOffset().AtCommitted()
	default:
		return kgo.NewOffset().AtStart()
	}
}

// Validate reports everything that is wrong, in the names of the fields.
func (t Thread) Validate() error {
	t = t.withDefaults()
	var errs []error
	bad := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("stream thread %s: %s", field, fmt.Sprintf(format, args...)))
	}
	if t.Group == "" {
		bad("Group", "required")
	}
	if t.Balancer == nil {
		bad("Balancer", "required")
	}
	if len(t.Topics) == 0 {
		bad("Topics", "none given")
	}
	if slices.Contains(t.Topics, "") {
		bad("Topics", "one of %d has no name", len(t.Topics))
	}
	for _, f := range []struct {
		name string
		have time.Duration
	}{
		{"SessionTimeout", t.SessionTimeout},
		{"RebalanceTimeout", t.RebalanceTimeout},
		{"HeartbeatInterval", t.HeartbeatInterval},
		{"TransactionTimeout", t.TransactionTimeout},
	} {
		if f.have < 10*time.Millisecond || f.have > MaxTimeout {
			bad(f.name, "%s, want 10ms to %s", f.have, MaxTimeout)
		}
	}
	if t.HeartbeatInterval > t.SessionTimeout/3 {
		bad("HeartbeatInterval", "%s, want at most a third of SessionTimeout (%s)", t.HeartbeatInterval, t.SessionTimeout)
	}
	if t.TransactionalID != "" && t.TransactionTimeout >= t.SessionTimeout {
		bad("TransactionTimeout", "%s, want less than SessionTimeout (%s)", t.TransactionTimeout, t.SessionTimeout)
	}
	if t.Linger > time.Minute {
		bad("Linger", "%s, want at most 1m", t.Linger)
	}
	if t.Isolation > ReadUncommitted {
		bad("Isolation", "%d is unknown", t.Isolation)
	}
	if t.Reset > ResetNone {
		bad("Reset", "%d is unknown", t.Reset)
	}
	return errors.Join(errs...)
}

func (t Thread) withDefaults() Thread {
	t.SessionTimeout = cmp.Or(t.SessionTimeout, 45*time.Second)
	t.RebalanceTimeout = cmp.Or(t.RebalanceTimeout, 60*time.Second)
	t.HeartbeatInterval = cmp.Or(t.HeartbeatInterval, min(3*time.Second, t.SessionTimeout/3))
	t.TransactionTimeout = cmp.Or(t.TransactionTimeout, min(10*time.Second, t.SessionTimeout/2))
	t.Linger = cmp.Or(t.Linger, 5*time.Millisecond)
	t.Linger = max(t.Linger, 0)
	if t.ManualPartition == nil {
		t.ManualPartition = func(string) bool { return false }
	}
	return t
}

// Thread returns the options of a stream thread's client. Callbacks (assigned, revoked, lost, offsets) are the
// caller's to append.
func (c Config) Thread(t Thread) ([]kgo.Opt, error) {
	if err := errors.Join(c.Validate(), t.Validate()); err != nil {
		return nil, err
	}
	c, t = c.withDefaults(), t.withDefaults()
	compression, err := codec(c.Compression)
	if err != nil {
		return nil, err
	}
	isolation := kgo.ReadCommitted()
	if t.Isolation == ReadUncommitted {
		isolation = kgo.ReadUncommitted()
	}
	opts := append(append(c.Opts(), c.patience()...),
		kgo.ConsumerGroup(t.Group),
		kgo.Balancers(t.Balancer),
		kgo.ConsumeTopics(t.Topics...),
		kgo.SessionTimeout(t.SessionTimeout),
		kgo.RebalanceTimeout(t.RebalanceTimeout),
		kgo.HeartbeatInterval(t.HeartbeatInterval),
		kgo.BlockRebalanceOnPoll(),
		kgo.DisableAutoCommit(),

		kgo.ConsumeStartOffset(t.Reset.start()),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchIsolationLevel(isolation),
		kgo.FetchMinBytes(1),
		kgo.FetchMaxWait(fetchWait),
		kgo.FetchMaxBytes(newSizer(c.FetchBytes).size()),
		kgo.FetchMaxPartitionBytes(min(newSizer(c.FetchBytes).size(), mostOfPartition)),
		kgo.MaxConcurrentFetches(concurrentFetches),
		kgo.RecheckPreferredReplicaInterval(30*time.Minute),
	)
	opts = append(opts, c.produce(t, compression)...)
	if t.TransactionalID != "" {
		opts = append(opts, kgo.TransactionalID(t.TransactionalID), kgo.TransactionTimeout(t.TransactionTimeout))
	}
	return opts, nil
}

// produce is what every producer has.
func (c Config) produce(t Thread, compression kgo.CompressionCodec) []kgo.Opt {
	return []kgo.Opt{
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.MaxProduceRequestsInflightPerBroker(1), // the only legal value with idempotence: kgo pipelines by itself
		kgo.ProducerBatchCompression(compression, kgo.NoCompression()),
		kgo.ProducerBatchMaxBytes(c.MaxRecordBytes),
		kgo.MaxBufferedRecords(int(c.ProduceBytes / sentCost)), // small records: the bytes above do not count what they cost beside
		kgo.MaxBufferedBytes(int(c.ProduceBytes)),
		kgo.ProducerLinger(t.Linger),
		kgo.ProduceRequestTimeout(min(c.RequestTimeout, t.TransactionTimeout)),
		kgo.RecordRetries(math.MaxInt),                          // an abort ends a record, not a count
		kgo.RecordDeliveryTimeout(0),                            // as upstream under exactly once: no limit of its own
		kgo.UnknownTopicRetries(4),                              // topics are verified before anything is produced
		kgo.ConcurrentTransactionsBackoff(5 * time.Millisecond), // the markers of the last transaction take about this long
		kgo.StopProducerOnDataLossDetected(),
		kgo.RecordPartitioner(partitioner{manual: t.ManualPartition, byKey: kgo.StickyKeyPartitioner(nil), given: kgo.ManualPartitioner()}),
	}
}

// partitioner leaves changelog records where their task says and puts everything else where Kafka's default
// partitioner would: murmur2 of the key, modulo the partition count; keyless records stick to one partition per batch.
type partitioner struct {
	manual       func(topic string) bool
	byKey, given kgo.Partitioner
}

func (p partitioner) ForTopic(topic string) kgo.TopicPartitioner {
	if p.manual(topic) {
		return p.given.ForTopic(topic)
	}
	return p.byKey.ForTopic(topic)
}

// stableVersions are made once: kversion puts them together from every release since 0.8 each time. Nobody may change them.
var stableVersions = sync.OnceValue(kversion.Stable)

// backoff doubles from 50ms to 2s, less up to a quarter, so that a fleet does not come back in step.
func backoff(fails int) time.Duration {
	const first, last = 50 * time.Millisecond, 2 * time.Second
	d := min(first<<min(max(fails-1, 0), 10), last)
	return d - rand.N(d/4)
}

func codec(name string) (kgo.CompressionCodec, error) {
	switch name {
	case CompressionNone:
		return kgo.NoCompression(), nil
	case CompressionGzip:
		return kgo.GzipCompression(), nil
	case CompressionSnappy:
		return kgo.SnappyCompression(), nil
	case CompressionLZ4:
		return kgo.Lz4Compression(), nil
	case CompressionZstd:
		return kgo.ZstdCompression(), nil
	default:
		return kgo.NoCompression(), fmt.Errorf("kafka Compression: %q, want %s", name,
			quoted([]string{CompressionNone, CompressionGzip, CompressionSnappy, CompressionLZ4, CompressionZstd}))
	}
}
