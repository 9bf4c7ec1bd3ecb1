package configfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"strings"

	"github.com/statemesh/statemesh"
	"github.com/statemesh/statemesh/internal/joined"
	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/declared"
	"github.com/statemesh/statemesh/processor/expr"
	"github.com/statemesh/statemesh/processor/views"
)

// Source is where a configuration comes from.
type Source struct {
	// Path of the YAML file, for messages. Empty with no Data: no file.
	Path string
	Data []byte
	// Env holds "name=value", as os.Environ returns it.
	Env []string
	// Set holds "key=value", from --set flags.
	Set []string
}

// ReadFile returns a source with the content of the file at path, which may be empty for none.
func ReadFile(path string) (Source, error) {
	if path == "" {
		return Source{}, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return Source{}, fmt.Errorf("configuration file: %w", err)
	}
	return Source{Path: path, Data: data}, nil
}

// Loaded is a configuration that passed every check.
type Loaded struct {
	Config statemesh.Config
	// Log says how to log.
	Log Log
}

// Log says how to log.
type Log struct {
	// Level and KafkaLevel are debug, info, warn or error; Format is text or json.
	Level, KafkaLevel, Format string
}

// Loggers write to w as the configuration says: one for the instance, one for what the Kafka client says.
func (l Log) Loggers(w io.Writer) (instance, kafka *slog.Logger) {
	level := new(slog.LevelVar)
	opts := &slog.HandlerOptions{Level: level}
	var h slog.Handler = slog.NewTextHandler(w, opts)
	if l.Format == "json" {
		h = slog.NewJSONHandler(w, opts)
	}
	own, client := parseLevel(l.Level), parseLevel(l.KafkaLevel)
	level.Set(min(own, client))
	return slog.New(atLeast{h, own}), slog.New(atLeast{h, client}).With("from", "kafka client")
}

func parseLevel(s string) slog.Level {
	var level slog.Level
	if err := level.UnmarshalText([]byte(s)); err != nil {
		return slog.LevelInfo // the table of settings admits nothing else
	}
	return level
}

// atLeast drops what is less important than a level.
type atLeast struct {
	slog.Handler

	level slog.Level
}

func (h atLeast) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level }

func (h atLeast) WithAttrs(attrs []slog.Attr) slog.Handler {
	return atLeast{h.Handler.WithAttrs(attrs), h.level}
}

func (h atLeast) WithGroup(name string) slog.Handler {
	return atLeast{h.Handler.WithGroup(name), h.level}
}

// Load reads a source. What is wrong is returned as [LoadError], all of it.
func Load(src Source) (*Loaded, error) {
	d := newDraft()
	p := newParser(src.Path, d)
	p.parse(src.Data)
	p.environment(src.Env)
	p.sets(src.Set)
	p.finish()
	if err := p.problems.orNil(); err != nil {
		return nil, err
	}
	return &Loaded{Config: d.cfg, Log: d.log}, nil
}

// LoadKafka reads only how to reach the brokers: what commands need that run no instance. Settings of an instance may be
// missing; what is there must still be right. brokers is the default of bootstrap.servers.
func LoadKafka(src Source, brokers string) (processor.KafkaConfig, error) {
	d := newDraft()
	p := newParser(src.Path, d)
	p.parse(src.Data)
	p.environment(src.Env)
	p.sets(src.Set)
	p.security(d)
	k := &d.cfg.Processor.Kafka
	if _, given := p.places["bootstrap.servers"]; !given {
		k.Brokers = []string{brokers}
	}
	if len(p.problems) == 0 {
		for _, err := range joined.Errors(k.Validate()) {
			p.report(err)
		}
	}
	return *k, p.problems.orNil()
}

// offsetReset is the configuration's word for a processor.OffsetReset.
type offsetReset string

const (
	earliest offsetReset = "earliest"
	latest   offsetReset = "latest"
	none     offsetReset = "none"
)

// draft is what is being read: the configuration, and what becomes part of it only when all is known.
type draft struct {
	cfg                         statemesh.Config
	protocol                    protocol
	sasl                        processor.KafkaSASL
	ssl                         processor.KafkaTLSFiles
	reset                       offsetReset
	deserialization, processing handler
	uncaught                    string
	clientAuth                  clientAuth
	log                         Log
	database                    database
}

func newDraft() *draft {
	return &draft{
		protocol: plaintext, reset: earliest, deserialization: handlerFail, processing: handlerFail,
		uncaught:   processor.ShutdownInstance.String(),
		clientAuth: required,
		log:        Log{Level: "info", KafkaLevel: "warn", Format: "text"},
		database:   newDatabase(),
	}
}

// finish joins what belongs together and checks the whole.
func (p *parser) finish() {
	d := p.draft
	p.security(d)
	d.cfg.Processor.OffsetReset = map[offsetReset]processor.OffsetReset{
		earliest: processor.ResetEarliest, latest: processor.ResetLatest, none: processor.ResetNone,
	}[d.reset]
	d.cfg.TLS.OptionalClientCert = d.clientAuth == optional
	d.cfg.Processor.DeserializationHandler = d.deserialization.action()
	d.cfg.Processor.ProcessingHandler = d.processing.action()
	if d.uncaught == processor.ReplaceThread.String() {
		d.cfg.Processor.UncaughtHandler = processor.ReplaceThread
	}
	if p.unreadable {
		return
	}
	p.databases(d)
	for _, err := range joined.Errors(d.cfg.Validate()) {
		p.report(err)
	}
}

func (h handler) action() processor.HandlerAction {
	switch h {
	case handlerContinue:
		return processor.Continue
	case handlerDeadLetter:
		return processor.DeadLetter
	default:
		return processor.Fail
	}
}

// security turns the protocol and what it needs into clients' settings. A setting that the protocol does not use is a
// problem: it would be ignored.
func (p *parser) security(d *draft) {
	withSASL := d.protocol == saslPlaintext || d.protocol == saslSSL
	withTLS := d.protocol == ssl || d.protocol == saslSSL
	for _, name := range p.names {
		switch place, given := p.places[name]; {
		case !given:
		case strings.HasPrefix(name, "sasl.") && !withSASL:
			p.at(place, name+" is not used with security.protocol "+string(d.protocol), "write SASL_SSL or SASL_PLAINTEXT")
		case strings.HasPrefix(name, "ssl.") && !withTLS:
			p.at(place, name+" is not used with security.protocol "+string(d.protocol), "write SSL or SASL_SSL")
		}
	}
	if withSASL {
		for _, f := range []struct{ name, value string }{
			{"sasl.mechanism", d.sasl.Mechanism}, {"sasl.username", d.sasl.User}, {"sasl.password", d.sasl.Password},
		} {
			if _, given := p.places[f.name]; f.value == "" && !given {
				p.at(p.places["security.protocol"], f.name+" is required with security.protocol "+string(d.protocol), "")
			}
		}
		d.cfg.Processor.Kafka.SASL = &d.sasl
	}
	if withTLS {
		conf, err := d.ssl.Load()
		if err != nil {
			p.at(p.firstPlace("ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "security.protocol"), err.Error(), "")
			return
		}
		d.cfg.Processor.Kafka.TLS = conf
	}
}

func (p *parser) at(place Problem, text, hint string) {
	if place.Origin == "" {
		place.Origin = p.file
	}
	place.Text, place.Hint = text, hint
	p.problems = append(p.problems, place)
}

func (p *parser) firstPlace(names ...string) Problem {
	for _, n := range names {
		if pl, ok := p.places[n]; ok {
			return pl
		}
	}
	return Problem{}
}

// fields names the setting behind each field of the configuration: findings of Validate are told in the file's words.
var fields = map[string]string{
	"ApplicationID": "application.id", "Guarantee": "processing.guarantee", "CommitInterval": "commit.interval.ms",
	"NumStreamThreads": "num.stream.threads", "MaxStreamThreads": "max.stream.threads", "Rack": "client.rack", "OffsetReset": "auto.offset.reset",
	"ClientTags": "client.tags", "RackAwareTags": "rack.aware.assignment.tags", "NumStandbyReplicas": "num.standby.replicas",
	"AcceptableRecoveryLag": "acceptable.recovery.lag", "MaxWarmupReplicas": "max.warmup.replicas",
	"NoEviction": "failover.eviction", "SessionTimeout": "session.timeout.ms", "HeartbeatInterval": "heartbeat.interval.ms",
	"RebalanceTimeout": "rebalance.timeout.ms", "TransactionTimeout": "transaction.timeout.ms",
	"SnapshotMinOffsets": "restore.snapshot.min.offsets", "SnapshotOffsetsPerRow": "restore.snapshot.offsets.per.row",
	"NoSnapshots": "restore.snapshot.enabled", "Limits.Copies": "restore.snapshot.send.max",
	"Limits.CopyBytesPerSecond":   "restore.snapshot.send.bytes.per.second",
	"BufferedRecordsPerPartition": "buffered.records.per.partition", "MaxPollRecords": "max.poll.records",
	"UncommittedMaxBytes": "statestore.uncommitted.max.bytes", "InputBufferMaxBytes": "input.buffer.max.bytes",
	"CacheMaxBytes": "statestore.cache.max.bytes", "MaxTaskIdle": "max.task.idle.ms",
	"TaskTimeout": "task.timeout.ms", "DeserializationHandler": "deserialization.exception.handler",
	"ProcessingHandler": "processing.exception.handler", "UncaughtHandler": "uncaught.exception.handler", "DeadLetterTopic": "errors.dead.letter.queue.topic.name",
	"RepartitionPurgeInterval": "repartition.purge.interval.ms", "StateCleanupDelay": "state.cleanup.delay.ms", "ReplicationFactor": "replication.factor",
	"Kafka.Brokers": "bootstrap.servers", "Brokers": "bootstrap.servers", "ClientID": "client.id",
	"Compression": "compression.type", "SASL.Mechanism": "sasl.mechanism", "SASL.User": "sasl.username",
	"SASL.Password": "sasl.password", "MaxRecordBytes": "max.request.size", "FetchBytes": "fetch.max.bytes",
	"ProduceBytes": "buffer.memory", "RequestTimeout": "request.timeout.ms", "RetryTimeout": "retry.timeout.ms",
	"DialTimeout": "socket.connection.setup.timeout.ms", "MetadataMaxAge": "metadata.max.age.ms",
	"StateDir": "state.dir", "Listen": "listen", "Advertise": "application.server", "AdminListen": "admin.listen",
	"ShutdownTimeout": "shutdown.timeout.ms", "DrainTimeout": "shutdown.drain.timeout.ms", "MoveBytes": "store.move.bytes", "MoveInterval": "store.move.interval.ms",
	"IteratorMaxAge": "store.iterator.max.age.ms",
	"MemoryLimit":    "memory.limit", "RecentBytes": "store.recent.max.bytes", "RestoreMaxBytes": "restore.max.bytes",
	"Limits.Bytes": "query.max.bytes", "Engine.Databases": "store.databases", "Engine.MemtableBytes": "store.memtable.bytes",
	"Engine.Compression": "store.compression", "Engine.BlockCacheBytes": "store.block.cache.bytes",
	"Engine.BlockBytes": "store.block.bytes", "Engine.BloomFalsePositive": "store.bloom.false.positive", "Engine.Levels": "store.levels",
	"Processor.UncommittedMaxBytes": "statestore.uncommitted.max.bytes",
	"DefaultMaxStaleness":           "query.default.max.staleness.ms", "CacheTTL": "query.cache.ttl.ms",
	"CacheNegativeTTL": "query.cache.negative.ttl.ms", "CacheBytes": "query.cache.max.bytes",
	"TLS.CertFile": "tls.cert.file", "TLS.KeyFile": "tls.key.file", "TLS.CAFile": "tls.ca.file",
	"TLS.MeshNames": "tls.mesh.names", "TLS.OptionalClientCert": "tls.client.auth", "Limits.Requests": "query.max.requests",
	"Limits.Scans": "query.max.scans", "Limits.BatchKeys": "query.max.batch.keys", "Limits.Deadline": "query.default.deadline.ms",
	"TLS.AllowPlaintext": "tls.plaintext", "Views": viewsKey, "Declared": topologyKey, "SinkBytes": "postgres.max.bytes",
	"DeadLetter": "dead-letter", "Fail": "fail", "Continue": "continue",
}

var fieldName = regexp.MustCompile(`\b(?:(?:Kafka|TLS|SASL|Limits|Engine|Processor)\.)?[A-Z][A-Za-z]+\b`)

// inKeys replaces the names of fields in text by those of settings.
func inKeys(text string) string {
	return fieldName.ReplaceAllStringFunc(text, func(f string) string {
		if name, ok := fields[f]; ok {
			return name
		}
		return f
	})
}

// report places a finding of Validate.
func (p *parser) report(err error) {
	var name, reason string
	if e, ok := errors.AsType[*views.FieldError](err); ok {
		p.reportView(e)
		return
	} else if p.reportDeclared(err) {
		return
	} else if e, ok := errors.AsType[*statemesh.SinkError](err); ok {
		p.reportSink(e)
		return
	} else if e, ok := errors.AsType[*statemesh.FieldError](err); ok {
		name, reason = e.Field, e.Reason
	} else if e, ok := errors.AsType[*processor.ConfigError](err); ok {
		name, reason = e.Field, e.Reason
	} else {
		p.at(Problem{}, inKeys(err.Error()), "")
		return
	}
	name = inKeys(name)
	place := p.places[name]
	if place.Origin == "" {
		// Not given itself: another setting that the finding names is what the reader has to look at.
		for _, other := range fieldName.FindAllString(reason, -1) {
			if pl, ok := p.places[fields[other]]; ok {
				place = pl
				break
			}
		}
	}
	p.at(place, name+": "+inKeys(reason), "")
}

// reportView places a finding about a view.
func (p *parser) reportView(e *views.FieldError) {
	if e.Path == viewsKey && len(p.draft.cfg.Views) == 0 {
		p.at(p.places[viewsKey], viewsKey+": "+e.Reason, "")
		return
	}
	p.at(p.closest(e.Path), e.Path+": "+e.Reason, "")
}

// closest is where the closest thing to a path was written: views[1].columns[0], views[1].columns, views[1].
func (p *parser) closest(path string) Problem {
	for {
		if place, ok := p.places[path]; ok {
			return place
		}
		cut := strings.LastIndexAny(path, ".[")
		if cut < 0 {
			return Problem{}
		}
		path = path[:cut]
	}
}

// reportDeclared places a finding about a declared topology: of an expression where that says, of all else where it was written.
func (p *parser) reportDeclared(err error) bool {
	if e, ok := errors.AsType[*expr.Error](err); ok {
		p.at(Problem{Origin: e.File, Line: e.Line, Column: e.Column}, e.Reason, e.Hint)
		return true
	}
	e, ok := errors.AsType[*declared.Error](err)
	if ok && !p.halfRead {
		p.at(p.closest(e.Path), e.Path+": "+e.Reason, e.Hint)
	}
	return ok
}
