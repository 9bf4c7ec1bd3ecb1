package configfile

import (
	"slices"
	"time"

	"github.com/statemesh/statemesh/processor"
)

// Section groups settings for people.
type Section struct {
	Title    string
	Settings []Setting
}

// Settings lists every setting, in the order of [Sections].
func Settings() []Setting {
	var all []Setting
	for _, s := range Sections() {
		all = append(all, s.Settings...)
	}
	return all
}

// protocol is upstream's security.protocol.
type protocol string

const (
	plaintext     protocol = "PLAINTEXT"
	ssl           protocol = "SSL"
	saslPlaintext protocol = "SASL_PLAINTEXT"
	saslSSL       protocol = "SASL_SSL"
)

// clientAuth is upstream's ssl.client.auth, for the query API.
type clientAuth string

const (
	required clientAuth = "required"
	optional clientAuth = "optional"
)

// handler is the configuration's word for a processor.HandlerAction.
type handler string

const (
	handlerFail       handler = "fail"
	handlerContinue   handler = "continue"
	handlerDeadLetter handler = "dead-letter"
)

// Sections lists the settings by what they are about.
func Sections() []Section {
	return slices.Concat([]Section{instance(), memory(), kafka()}, []Section{processing(), snapshots(), stores(), queries(), security(), postgresql(), logging()})
}

func instance() Section {
	return Section{"Instance", []Setting{
		text("application.id", "", func(d *draft) *string { return &d.cfg.Processor.ApplicationID },
			"Name of the application: its consumer group, the prefix of its internal topics and its directory below state.dir. Required; the same on every instance."),
		file("state.dir", "", func(d *draft) *string { return &d.cfg.StateDir },
			"Directory of the local copies of the state. Required; one per process."),
		text("listen", "127.0.0.1:7070", func(d *draft) *string { return &d.cfg.Listen },
			"Address of the query API, host:port. Port 0 takes a free one."),
		text("application.server", "(that of listen)", func(d *draft) *string { return &d.cfg.Advertise },
			"Address that peers and clients dial, host:port. Required when listen is a wildcard. Port 0 takes that of listen."),
		text("admin.listen", "", func(d *draft) *string { return &d.cfg.AdminListen },
			"Address of metrics, health and profiles over HTTP, host:port. It is not authenticated; empty: none."),
		text("client.rack", "", func(d *draft) *string { return &d.cfg.Processor.Rack },
			"Rack or zone of this instance; standbys of a task are kept in other racks than it."),
		pairs("client.tags", func(d *draft) *map[string]string { return &d.cfg.Processor.ClientTags },
			"More of where this instance is, as name=value (upstream's client.tag.*), for rack.aware.assignment.tags."),
		offAtZero(duration("shutdown.drain.timeout.ms", "15s", func(d *draft) *time.Duration { return &d.cfg.DrainTimeout },
			"How long a stop waits, while it processes and answers, for other instances to take over what this one has")),
		duration("shutdown.timeout.ms", "10s", func(d *draft) *time.Duration { return &d.cfg.ShutdownTimeout },
			"How long a stop waits for queries in flight. Leaving the group takes up to transaction.timeout.ms after that."),
	}}
}

func kafka() Section {
	return Section{"Kafka", []Setting{
		list("bootstrap.servers", "", func(d *draft) *[]string { return &d.cfg.Processor.Kafka.Brokers },
			"Brokers to ask first, host:port. Required."),
		text("client.id", "(application.id)", func(d *draft) *string { return &d.cfg.Processor.Kafka.ClientID },
			"Name in the brokers' logs, metrics and quotas."),
		choice("security.protocol", string(plaintext), func(d *draft) *protocol { return &d.protocol },
			[]protocol{plaintext, ssl, saslPlaintext, saslSSL}, "How to talk to the brokers."),
		choice("sasl.mechanism", "", func(d *draft) *string { return &d.sasl.Mechanism },
			[]string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}, "How to authenticate. Required with SASL_PLAINTEXT and SASL_SSL."),
		text("sasl.username", "", func(d *draft) *string { return &d.sasl.User }, "User. Required with SASL."),
		secret("sasl.password", func(d *draft) *string { return &d.sasl.Password },
			"Password. Required with SASL; better given as an environment variable."),
		file("ssl.ca.location", "(the system's)", func(d *draft) *string { return &d.ssl.CA },
			"PEM file with the certificates that brokers must be signed by."),
		file("ssl.certificate.location", "", func(d *draft) *string { return &d.ssl.Cert },
			"PEM file with this client's certificate (mutual TLS)."),
		file("ssl.key.location", "", func(d *draft) *string { return &d.ssl.Key },
			"PEM file with the key of that certificate."),
		text("ssl.server.name", "(host of the broker)", func(d *draft) *string { return &d.ssl.ServerName },
			"Name the brokers' certificates must bear."),
		choice("compression.type", "snappy", func(d *draft) *string { return &d.cfg.Processor.Kafka.Compression },
			[]string{"none", "gzip", "snappy", "lz4", "zstd"}, "Compression of changelog and output records."),
		integer("replication.factor", "-1", -1, 32767, func(d *draft) *int16 { return &d.cfg.Processor.ReplicationFactor },
			"Replication factor of internal topics that are created; -1 is the broker's default."),
		size("max.request.size", "1000012", func(d *draft) *int32 { return &d.cfg.Processor.Kafka.MaxRecordBytes },
			"Largest batch, and so the largest record, that is produced. At most the smallest max.message.bytes of the topics written to."),
		size("fetch.max.bytes", "(by memory.limit, at most 16MiB)", func(d *draft) *int64 { return &d.cfg.Processor.Kafka.FetchBytes },
			"Memory of what one stream thread fetches ahead; brokers are asked for as much less as the records compress."),
		size("buffer.memory", "(by memory.limit, at most 16MiB)", func(d *draft) *int64 { return &d.cfg.Processor.Kafka.ProduceBytes },
			"What one stream thread holds to be produced; processing waits when it is reached."),
		duration("request.timeout.ms", "10s", func(d *draft) *time.Duration { return &d.cfg.Processor.Kafka.RequestTimeout },
			"How long a broker's answer may take beyond the waiting that the request itself asks for."),
		duration("retry.timeout.ms", "30s", func(d *draft) *time.Duration { return &d.cfg.Processor.Kafka.RetryTimeout },
			"How long a request is repeated while brokers are away."),
		duration("socket.connection.setup.timeout.ms", "10s", func(d *draft) *time.Duration { return &d.cfg.Processor.Kafka.DialTimeout },
			"How long opening a connection to a broker may take."),
		duration("metadata.max.age.ms", "5m0s", func(d *draft) *time.Duration { return &d.cfg.Processor.Kafka.MetadataMaxAge },
			"After how long the leaders of partitions are asked for again although nothing went wrong."),
	}}
}

func memory() Section {
	return Section{"Memory", []Setting{
		offAtZero(size("memory.limit", "(80 % of the control group's limit, else 25 % of the machine's memory, or what is needed up to half of it)", func(d *draft) *int64 { return &d.cfg.MemoryLimit },
			"Memory of the instance, split among its parts; `statemesh config memory` shows how. Parts that are set themselves are taken out first. Sets GOMEMLIMIT unless that is set")),
		size("restore.max.bytes", "(by memory.limit, at most 64MiB)", func(d *draft) *int64 { return &d.cfg.Processor.RestoreMaxBytes },
			"What restores hold of their changelogs, over all tasks. At least 4MiB."),
	}}
}

func processing() Section {
	return Section{"Processing", []Setting{
		choice("processing.guarantee", string(processor.ExactlyOnce), func(d *draft) *processor.Guarantee { return &d.cfg.Processor.Guarantee },
			[]processor.Guarantee{processor.ExactlyOnce, processor.AtLeastOnce},
			"What a crash may do: nothing, or count records again."),
		duration("commit.interval.ms", "(100ms; 30s with at_least_once)", func(d *draft) *time.Duration { return &d.cfg.Processor.CommitInterval },
			"Longest time between two commits of a thread that has something to commit. A reader sees what is committed."),
		integer("num.stream.threads", "(number of cores)", 1, 1024, func(d *draft) *int { return &d.cfg.Processor.NumStreamThreads },
			"Stream threads of this instance, each a member of the group."),
		integer("max.stream.threads", "(as many as memory.limit carries, at least num.stream.threads)", 1, 1024, func(d *draft) *int { return &d.cfg.Processor.MaxStreamThreads },
			"How many stream threads `statemesh threads add` may make of them. What each fetches ahead and holds to be produced is taken out of memory.limit for so many."),
		count("num.standby.replicas", "0", 100, func(d *draft) *int { return &d.cfg.Processor.NumStandbyReplicas },
			"Other instances that keep a copy of each task: they answer reads within their bound, and take the task over at once."),
		offAtZero(integer("acceptable.recovery.lag", "10000", -1, 1<<62, func(d *draft) *int64 { return &d.cfg.Processor.AcceptableRecoveryLag },
			"Offsets that a copy may be behind and still be given its task")),
		integer("max.warmup.replicas", "2", 1, 1<<31-1, func(d *draft) *int { return &d.cfg.Processor.MaxWarmupReplicas },
			"Copies that are built at a time, over all instances, where tasks should move to; until then the tasks stay where they are."),
		list("rack.aware.assignment.tags", "", func(d *draft) *[]string { return &d.cfg.Processor.RackAwareTags },
			"Client tags in which the copies of a task differ, the most important first. Empty: they differ in client.rack."),
		choice("auto.offset.reset", string(earliest), func(d *draft) *offsetReset { return &d.reset },
			[]offsetReset{earliest, latest, none}, "Where to start in a topic that the application has not read before."),
		duration("session.timeout.ms", "45s", func(d *draft) *time.Duration { return &d.cfg.Processor.SessionTimeout },
			"How long the group waits for a silent instance before it gives its tasks away."),
		negated("failover.eviction", func(d *draft) *bool { return &d.cfg.Processor.NoEviction },
			"Whether instances that are proven to be dead are removed from the group by the others, without waiting for session.timeout.ms."),
		duration("heartbeat.interval.ms", "(3s, at most session.timeout.ms / 3)", func(d *draft) *time.Duration { return &d.cfg.Processor.HeartbeatInterval },
			"Time between two heartbeats. At most a third of session.timeout.ms."),
		duration("rebalance.timeout.ms", "1m0s", func(d *draft) *time.Duration { return &d.cfg.Processor.RebalanceTimeout },
			"How long the group waits for an instance to rejoin; more than the longest commit."),
		duration("transaction.timeout.ms", "(10s, at most 3/4 of session.timeout.ms)", func(d *draft) *time.Duration { return &d.cfg.Processor.TransactionTimeout },
			"After how long the broker aborts the transaction of a silent instance. Between commit.interval.ms and session.timeout.ms."),
		integer("buffered.records.per.partition", "1000", 1, 1<<31-1, func(d *draft) *int { return &d.cfg.Processor.BufferedRecordsPerPartition },
			"Records of a partition that may wait before its fetching pauses."),
		size("input.buffer.max.bytes", "(by memory.limit, at most 64MiB)", func(d *draft) *int64 { return &d.cfg.Processor.InputBufferMaxBytes },
			"Memory of the records of all partitions that may wait before fetching pauses. One record may be larger."),
		integer("max.poll.records", "1000", 1, 1<<31-1, func(d *draft) *int { return &d.cfg.Processor.MaxPollRecords },
			"Records taken at a time between two looks at timers and rebalances."),
		size("statestore.uncommitted.max.bytes", "(by memory.limit, at most 64MiB)", func(d *draft) *int64 { return &d.cfg.Processor.UncommittedMaxBytes },
			"Uncommitted writes of the instance, to stores and to sinks, that force an early commit; -1: no bound."),
		offAtZero(size("statestore.cache.max.bytes", "(by memory.limit, at most 10MiB)", func(d *draft) *int64 { return &d.cfg.Processor.CacheMaxBytes },
			"Record cache of the stores that have one: changes go downstream when it is flushed")),
		duration("max.task.idle.ms", "0s", func(d *draft) *time.Duration { return &d.cfg.Processor.MaxTaskIdle },
			"How long a task waits for records of its other inputs, so that all are processed in the order of their timestamps. 0: for those that "+
				"brokers are known to have; -1: not at all."),
		duration("task.timeout.ms", "5m0s", func(d *draft) *time.Duration { return &d.cfg.Processor.TaskTimeout },
			"How long a task may fail for a reason that a retry may cure before the instance gives up."),
		choice("deserialization.exception.handler", string(handlerFail), func(d *draft) *handler { return &d.deserialization },
			[]handler{handlerFail, handlerContinue, handlerDeadLetter}, "What becomes of records that cannot be decoded."),
		choice("processing.exception.handler", string(handlerFail), func(d *draft) *handler { return &d.processing },
			[]handler{handlerFail, handlerContinue, handlerDeadLetter}, "What becomes of records that a processor refuses."),
		choice("uncaught.exception.handler", processor.ShutdownInstance.String(), func(d *draft) *string { return &d.uncaught },
			[]string{processor.ShutdownInstance.String(), processor.ReplaceThread.String()},
			"What follows when a stream thread fails with what no other handler takes."),
		text("errors.dead.letter.queue.topic.name", "", func(d *draft) *string { return &d.cfg.Processor.DeadLetterTopic },
			"Topic for records that a handler sends away; it must exist. Required with dead-letter."),
		offAtZero(duration("repartition.purge.interval.ms", "30s", func(d *draft) *time.Duration { return &d.cfg.Processor.RepartitionPurgeInterval },
			"How often consumed records of repartition topics are deleted")),
		offAtZero(duration("state.cleanup.delay.ms", "10m0s", func(d *draft) *time.Duration { return &d.cfg.Processor.StateCleanupDelay },
			"How long the local copy of a task that has moved to another instance is kept")),
	}}
}

func snapshots() Section {
	return Section{"Restore from other instances", []Setting{
		negated("restore.snapshot.enabled", func(d *draft) *bool { return &d.cfg.Processor.NoSnapshots },
			"Whether tasks are restored from copies that other instances have, where that is faster than their changelogs, and copies are given to others."),
		integer("restore.snapshot.min.offsets", "50000", 1, 1<<62, func(d *draft) *int64 { return &d.cfg.Processor.SnapshotMinOffsets },
			"Changelog offsets that a task must have to read before others are asked."),
		integer("restore.snapshot.offsets.per.row", "2", 1, 1<<20, func(d *draft) *int { return &d.cfg.Processor.SnapshotOffsetsPerRow },
			"Changelog offsets that each row of a copy must spare: with fewer the changelogs are as fast, and cost no other instance anything."),
		integer("restore.snapshot.send.max", "2", 1, 1024, func(d *draft) *int { return &d.cfg.Limits.Copies },
			"Copies that are sent to others at a time; the last one of several is kept for instances that are to run the task. "+
				"Who is refused asks another instance; a standby waits for a while."),
		offAtZero(size("restore.snapshot.send.bytes.per.second", "64MiB", func(d *draft) *int64 { return &d.cfg.Limits.CopyBytesPerSecond },
			"Most that is sent of them in a second, all together")),
	}}
}

func stores() Section {
	return Section{"Stores", []Setting{
		size("store.recent.max.bytes", "(by memory.limit, at most 256MiB)", func(d *draft) *int64 { return &d.cfg.RecentBytes },
			"Committed changes of all tasks that wait to move to the engine, hot keys included."),
		size("store.move.bytes", "32MiB", func(d *draft) *int64 { return &d.cfg.MoveBytes },
			"Committed changes that a task keeps in memory before they move to the engine; less while all tasks together take half of store.recent.max.bytes."),
		duration("store.move.interval.ms", "5s", func(d *draft) *time.Duration { return &d.cfg.MoveInterval },
			"How long a committed change may wait before it moves to the engine. A restart after a crash replays at most this much."),
		offAtZero(duration("store.iterator.max.age.ms", "5m0s", func(d *draft) *time.Duration { return &d.cfg.IteratorMaxAge },
			"How long a query may keep a snapshot or an iterator open; then it ends with an error and is reported")),
		integer("store.databases", "1", 1, 1024, func(d *draft) *int { return &d.cfg.Engine.Databases },
			"Databases among which tasks are spread, at most the number of cores; each has memtables of its own."),
		size("store.memtable.bytes", "(by memory.limit and max.request.size, at most 8MiB)", func(d *draft) *int64 { return &d.cfg.Engine.MemtableBytes },
			"Size of a memtable, of which a database has up to three. A record may have 15 % of it; larger ones are refused at put."),
		choice("store.compression", "none", func(d *draft) *string { return &d.cfg.Engine.Compression },
			[]string{"none", "snappy", "zstd"}, "Compression of what is on disk, for all stores: they share one database."),
		size("store.block.cache.bytes", "(by memory.limit, with store.compression at most 64MiB)", func(d *draft) *int64 { return &d.cfg.Engine.BlockCacheBytes },
			"Unpacked blocks of each database. Refused without store.compression, where blocks lie in mapped files."),
		size("store.block.bytes", "4KiB", func(d *draft) *int { return &d.cfg.Engine.BlockBytes },
			"Size of a block on disk, 1KiB to 64KiB."),
		number("store.bloom.false.positive", "0.01", func(d *draft) *float64 { return &d.cfg.Engine.BloomFalsePositive },
			"How often a table is searched for a key that it does not have."),
		integer("store.levels", "7", 3, 12, func(d *draft) *int { return &d.cfg.Engine.Levels },
			"Levels of tables. Fewer than the state directory has are refused."),
	}}
}

func queries() Section {
	return Section{"Queries", []Setting{
		offAtZero(duration("query.default.max.staleness.ms", "5s", func(d *draft) *time.Duration { return &d.cfg.DefaultMaxStaleness },
			"Age that a request without a bound accepts of a cached answer")),
		offAtZero(duration("query.cache.ttl.ms", "5s", func(d *draft) *time.Duration { return &d.cfg.CacheTTL },
			"How long answers of other instances are kept")),
		offAtZero(duration("query.cache.negative.ttl.ms", "1s", func(d *draft) *time.Duration { return &d.cfg.CacheNegativeTTL },
			"The same for \"not found\"; at most query.cache.ttl.ms")),
		offAtZero(size("query.cache.max.bytes", "(by memory.limit, at most 32MiB)", func(d *draft) *int64 { return &d.cfg.CacheBytes },
			"Memory of that cache")),
		integer("query.max.requests", "1024", 1, 1<<31-1, func(d *draft) *int { return &d.cfg.Limits.Requests },
			"Requests of clients in flight, scans apart; more are refused as overload."),
		integer("query.max.scans", "128", 1, 1<<31-1, func(d *draft) *int { return &d.cfg.Limits.Scans },
			"Scans of clients in flight; each holds snapshots and buffers."),
		size("query.max.bytes", "(by memory.limit, at most 64MiB)", func(d *draft) *int64 { return &d.cfg.Limits.Bytes },
			"Memory of all requests in flight with what is gathered for them; more are refused as overload. A message may have half of it."),
		integer("query.max.batch.keys", "10000", 1, 1<<31-1, func(d *draft) *int { return &d.cfg.Limits.BatchKeys },
			"Most keys of one multi-get."),
		duration("query.default.deadline.ms", "10s", func(d *draft) *time.Duration { return &d.cfg.Limits.Deadline },
			"Time given to a call that states none; a scan gets 30 times as long."),
	}}
}

func security() Section {
	return Section{"TLS of the query API", []Setting{
		file("tls.cert.file", "", func(d *draft) *string { return &d.cfg.TLS.CertFile },
			"PEM file with this instance's certificate, for its listener and as a client of its peers."),
		file("tls.key.file", "", func(d *draft) *string { return &d.cfg.TLS.KeyFile }, "PEM file with its key."),
		file("tls.ca.file", "", func(d *draft) *string { return &d.cfg.TLS.CAFile },
			"PEM file with the authorities that certificates of peers and clients must be signed by."),
		list("tls.mesh.names", "", func(d *draft) *[]string { return &d.cfg.TLS.MeshNames },
			"Names of which a peer's certificate must carry one, as a DNS or URI subject alternative name."),
		choice("tls.client.auth", string(required), func(d *draft) *clientAuth { return &d.clientAuth },
			[]clientAuth{required, optional}, "Whether clients need a certificate."),
		boolean("tls.plaintext", "false", func(d *draft) *bool { return &d.cfg.TLS.AllowPlaintext },
			"Accept an API without TLS at an address that is not loopback. Everybody who reaches it can read everything."),
	}}
}

func logging() Section {
	return Section{"Logging", []Setting{
		choice("log.level", "info", func(d *draft) *string { return &d.log.Level },
			[]string{"debug", "info", "warn", "error"}, "Least important level that is logged, to standard error."),
		choice("log.kafka.level", "warn", func(d *draft) *string { return &d.log.KafkaLevel },
			[]string{"debug", "info", "warn", "error"}, "The same for what the Kafka client says, which at info is several lines per commit."),
		choice("log.format", "text", func(d *draft) *string { return &d.log.Format },
			[]string{"text", "json"}, "Form of the log."),
	}}
}
