package statemesh

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/statemesh/statemesh/internal/certs"
	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/declared"
	"github.com/statemesh/statemesh/processor/views"
)

// Config of an instance. The zero value of a field means its default. In brackets: the key of the configuration file.
type Config struct {
	// Processor says what the processing needs: the application's id, the brokers, the guarantee, threads and timeouts.
	// ApplicationID and Kafka.Brokers are required. ProcessID, Incarnation, Endpoint and EpochFile are the
	// instance's to set, and Logger and Registerer are those below.
	Processor processor.Config

	// Views (views) declare what is kept, without code. Exactly one of Views, Declared and Topology must be given.
	Views []views.View
	// Declared (topology) declares streams, joins and aggregates, without code.
	Declared *declared.Topology
	// Topology declares it with processors of your own.
	Topology *processor.Topology

	// Sinks (postgres, and postgres under relations) are databases that committed changes are written to, beside the processing.
	Sinks []Sink
	// SinkBytes (postgres.max.bytes) is the memory of all sinks: what they have fetched, and the rows made of it. Default: by MemoryLimit, 4 MiB to
	// 32 MiB for each.
	SinkBytes int64

	// StateDir (state.dir) holds <application.id>/ with the local copies of the state. Required: a default below a
	// temporary directory, as upstream has it, is emptied under a running application sooner or later.
	StateDir string

	// MemoryLimit (memory.limit) is how much memory the instance may take. Default: 80 % of the limit of its control group or,
	// where there is none, 25 % of the machine's memory, or what is needed up to half of it. It is split among the parts, of
	// which each may be set by itself: the rest is then split anew; [Config.Memory] shows the outcome. It becomes the Go
	// runtime's own limit while the instance runs, unless that is set already (GOMEMLIMIT). One that cannot work is a
	// [*MemoryLimitError] that says what is needed. Negative: no limit; the parts take what they have a use for, and the
	// process is left alone.
	MemoryLimit int64
	// RecentBytes (store.recent.max.bytes) is what committed changes of all tasks take before they move to the engine, hot
	// keys included. Default: by MemoryLimit, at most 256 MiB.
	RecentBytes int64
	// Engine lays out the databases.
	Engine Engine
	// MoveBytes (store.move.bytes) is how many bytes of committed changes a task keeps in memory before they move to
	// the engine. Default 32 MiB, what 100,000 hot keys of a count fit in: a task whose hot keys do not fit moves all the
	// time and does half as much. It is less while all tasks together take half of RecentBytes.
	MoveBytes int64
	// MoveInterval (store.move.interval.ms) is how long a committed change may wait before it moves to the engine.
	// Default 5s: a restart after a crash replays at most this much of the changelog.
	MoveInterval time.Duration

	// IteratorMaxAge (store.iterator.max.age.ms) is how long a query may keep what it reads open; then it is ended with an
	// error, and reported. Default 5m: the stores keep for it what nobody else needs. Negative: no limit.
	IteratorMaxAge time.Duration

	// Listen (listen) is the address of the query API, "host:port". Default "127.0.0.1:7070": nothing is exposed to a
	// network that was not asked for. Port 0 takes a free one.
	Listen string
	// Advertise (application.server) is "host:port" as peers and clients dial this instance. Default: the address of
	// Listen. Required when that is a wildcard such as 0.0.0.0, which nobody can dial. Port 0 takes that of the listener.
	Advertise string
	// TLS of the query API.
	TLS TLS

	// DefaultMaxStaleness (query.default.max.staleness.ms) is the age of an answer that a request without a bound
	// accepts from a cache. Default 5s; negative: only the owner's own answer, which turns the remote cache off for such
	// requests.
	DefaultMaxStaleness time.Duration
	// CacheTTL (query.cache.ttl.ms) is how long answers of other instances are kept. Default 5s, what a request without
	// a bound accepts; negative: no cache.
	CacheTTL time.Duration
	// CacheNegativeTTL (query.cache.negative.ttl.ms) is the same for "not found". Default 1s: the next write of the key
	// makes it wrong. Negative: absence is not cached.
	CacheNegativeTTL time.Duration
	// CacheBytes (query.cache.max.bytes) bounds the cache's memory. Default: by MemoryLimit, at most 32 MiB; negative: no cache.
	CacheBytes int64

	// Limits of queries.
	Limits Limits

	// AdminListen (admin.listen) is the address of metrics, health and profiles over HTTP, "host:port". Default: none,
	// since it is not authenticated.
	AdminListen string
	// ShutdownTimeout (shutdown.timeout.ms) is how long a stop waits for queries in flight. Default 10s: a supervisor
	// usually waits 30s before it kills, and leaving the group takes up to Processor.TransactionTimeout after that.
	ShutdownTimeout time.Duration
	// DrainTimeout (shutdown.drain.timeout.ms) is how long a stop waits, before that, for other instances to take over what this
	// one has: it processes and answers meanwhile, and nobody waits for anything. It takes as long as it takes them to have caught
	// up: with standbys well under a second. Default 15s, so that a stop fits into the 30s of a supervisor, unless queries hang and
	// brokers do not answer: then ShutdownTimeout and Processor.TransactionTimeout are used up as well. Negative: it does not wait. An
	// instance that is alone never does.
	DrainTimeout time.Duration

	// Logger receives one line per change of life cycle. nil: nothing is logged.
	Logger *slog.Logger
	// Registerer takes the metrics. nil: a registry of the instance's own, shown at AdminListen.
	Registerer prometheus.Registerer
}

// TLS secures the query API, and the connections to the other instances. The files are PEM and may be replaced at any
// time: a renewed certificate needs no restart. The zero value is plain text.
type TLS struct {
	// CertFile and KeyFile (tls.cert.file, tls.key.file) are this instance's certificate, with its chain, and key: for
	// its listener, and for itself as a client of its peers.
	CertFile, KeyFile string
	// CAFile (tls.ca.file) holds the authorities that certificates of peers and clients must be signed by.
	CAFile string
	// MeshNames (tls.mesh.names) are the names of which a peer's certificate must carry one, as a DNS or URI subject
	// alternative name: a client's certificate of the same authority does not make it a peer.
	MeshNames []string
	// OptionalClientCert (tls.client.auth: optional) also serves clients without a certificate.
	OptionalClientCert bool
	// AllowPlaintext (tls.plaintext) accepts an API without TLS at an address that is not loopback: everybody who
	// reaches it can read everything, and pass for a peer.
	AllowPlaintext bool
}

// Limits bound what queries may use. They are the server's, see server.Config.
type Limits struct {
	// Requests (query.max.requests) of clients in flight, scans apart. Default 1024; above it: OVERLOADED.
	Requests int
	// Scans (query.max.scans) of clients in flight. Default 128: each holds snapshots and buffers.
	Scans int
	// Bytes (query.max.bytes) is the memory of everything in flight: requests, what is gathered for them, answers. Default: by
	// MemoryLimit, at most 64 MiB; above it: OVERLOADED. A message may have half of it, and at most 16 MiB.
	Bytes int64
	// Copies (restore.snapshot.send.max) is how many copies of tasks are sent to other instances at a time. Default 2. The
	// last one of several is kept for instances that are to run the task. One that is refused asks another instance, or reads the changelogs.
	Copies int
	// CopyBytesPerSecond (restore.snapshot.send.bytes.per.second) bounds what is sent of them, all together. Default 64 MiB;
	// negative: no bound.
	CopyBytesPerSecond int64
	// BatchKeys (query.max.batch.keys) is the most keys of one multi-get. Default 10,000.
	BatchKeys int
	// Deadline (query.default.deadline.ms) is given to a call without one. Default 10s; a scan gets 30 times as long.
	Deadline time.Duration
}

// enabled reports whether any of the files is set.
func (t TLS) enabled() bool {
	return t.CertFile != "" || t.KeyFile != "" || t.CAFile != "" || len(t.MeshNames) > 0
}

// WithDefaults returns c with every zero field replaced by what it means, on this machine. [New] does the same; this is for
// showing it.
func (c Config) WithDefaults() Config {
	if _, divided, err := c.memory(machineLimit()); err == nil {
		c = divided
	}
	c = c.withDefaults()
	c.Processor = c.Processor.WithDefaults()
	return c
}

// FieldError is one thing that is wrong with a [Config].
type FieldError struct {
	// Field is the path of the field, such as "Advertise" or "Processor.CommitInterval".
	Field  string
	Reason string
	// Err is what Reason was made of, where a program may want to know more; else nil.
	Err error
}

// Unwrap returns Err.
func (e *FieldError) Unwrap() error { return e.Err }

func (e *FieldError) Error() string { return "config " + e.Field + ": " + e.Reason }

// Validate reports everything that is wrong, joined: *FieldError for what is the instance's own, *SinkError for what is a sink's,
// *processor.ConfigError and *views.FieldError for what is theirs.
func (c Config) Validate() error {
	given := c
	c = c.withDefaults()
	var errs []error
	bad := func(field, format string, args ...any) {
		errs = append(errs, &FieldError{Field: field, Reason: fmt.Sprintf(format, args...)})
	}
	if c.StateDir == "" {
		bad("StateDir", "required")
	}
	switch {
	case c.Topology == nil && c.Declared == nil && len(c.Views) == 0:
		bad("Views", "nothing to keep: at least one view, or a topology, is needed")
	case c.Topology != nil && (c.Declared != nil || len(c.Views) > 0), c.Declared != nil && len(c.Views) > 0:
		bad("Topology", "give either views or a topology")
	case c.Declared != nil:
		errs = append(errs, declared.Validate(*c.Declared))
	case c.Topology == nil:
		errs = append(errs, views.Validate(c.Views))
	}
	errs = append(errs, c.validateSinks()...)
	if _, err := advertised(c.Listen, c.Advertise, nil); err != nil {
		errs = append(errs, err)
	}
	if c.AdminListen != "" {
		if _, _, err := splitAddr(c.AdminListen); err != nil {
			bad("AdminListen", "%s", err)
		}
	}
	c.validateTLS(bad)
	errs = append(errs, given.validateMemory())
	for _, f := range []struct {
		name  string
		value time.Duration
	}{{"MoveInterval", c.MoveInterval}, {"ShutdownTimeout", c.ShutdownTimeout}} {
		if f.value < time.Millisecond {
			bad(f.name, "%s: at least 1ms", f.value)
		}
	}
	if c.MoveBytes < 64<<10 {
		bad("MoveBytes", "%d: at least 65536", c.MoveBytes)
	}
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"Limits.Requests", int64(c.Limits.Requests)},
		{"Limits.Scans", int64(c.Limits.Scans)},
		{"Limits.BatchKeys", int64(c.Limits.BatchKeys)},
		{"Limits.Copies", int64(c.Limits.Copies)},
		{"Limits.Deadline", int64(c.Limits.Deadline)},
	} {
		if f.value < 0 {
			bad(f.name, "negative")
		}
	}
	if c.CacheTTL > 0 && c.CacheNegativeTTL > c.CacheTTL {
		bad("CacheNegativeTTL", "%s: at most CacheTTL (%s)", c.CacheNegativeTTL, c.CacheTTL)
	}
	for _, f := range []struct{ name, value string }{
		{"Processor.ProcessID", c.Processor.ProcessID},
		{"Processor.Incarnation", c.Processor.Incarnation},
		{"Processor.Endpoint", c.Processor.Endpoint},
		{"Processor.EpochFile", c.Processor.EpochFile},
	} {
		if f.value != "" {
			bad(f.name, "%q: the instance sets it; leave it empty", f.value)
		}
	}
	if c.Processor.Peers != nil {
		bad("Processor.Peers", "the instance sets them; leave it empty")
	}
	if n := len(c.Processor.Predecessors); n > 0 {
		bad("Processor.Predecessors", "%d: the instance sets them; leave it empty", n)
	}
	p := c.Processor
	p.ProcessID, p.Incarnation = "unset", "unset" // known only at start
	errs = append(errs, p.Validate())
	if len(p.Kafka.Brokers) > 0 { // else said already
		errs = append(errs, p.Kafka.Validate())
	}
	return errors.Join(errs...)
}

// BuildTopology is the topology that an instance of this configuration runs, to be described or compared with that of another version; see
// [processor.Compare].
func (c Config) BuildTopology() (*processor.Built, error) {
	t, err := c.topology()
	if err != nil {
		return nil, err
	}
	return t.Build(c.Processor.ApplicationID)
}

func (c Config) withDefaults() Config {
	c.Listen = cmp.Or(c.Listen, "127.0.0.1:7070")
	c.MoveBytes = cmp.Or(c.MoveBytes, 32<<20)
	c.MoveInterval = cmp.Or(c.MoveInterval, 5*time.Second)
	c.Engine.Databases = cmp.Or(c.Engine.Databases, 1)
	c.Engine.Compression = cmp.Or(c.Engine.Compression, "none")
	c.Engine.BlockBytes = cmp.Or(c.Engine.BlockBytes, 4<<10)
	c.Engine.BloomFalsePositive = cmp.Or(c.Engine.BloomFalsePositive, 0.01)
	c.Engine.Levels = cmp.Or(c.Engine.Levels, 7)
	c.IteratorMaxAge = cmp.Or(c.IteratorMaxAge, 5*time.Minute)
	c.DefaultMaxStaleness = cmp.Or(c.DefaultMaxStaleness, 5*time.Second)
	c.CacheTTL = cmp.Or(c.CacheTTL, 5*time.Second)
	c.CacheNegativeTTL = cmp.Or(c.CacheNegativeTTL, min(time.Second, c.CacheTTL))
	c.ShutdownTimeout = cmp.Or(c.ShutdownTimeout, 10*time.Second)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, 15*time.Second)
	c.Limits.Requests = cmp.Or(c.Limits.Requests, 1024)
	c.Limits.Scans = cmp.Or(c.Limits.Scans, 128)
	c.Limits.Copies = cmp.Or(c.Limits.Copies, 2)
	c.Limits.CopyBytesPerSecond = cmp.Or(c.Limits.CopyBytesPerSecond, 64<<20)
	c.Limits.BatchKeys = cmp.Or(c.Limits.BatchKeys, 10_000)
	c.Limits.Deadline = cmp.Or(c.Limits.Deadline, 10*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

func (c Config) validateTLS(bad func(field, format string, args ...any)) {
	if c.TLS.enabled() {
		for _, f := range []struct{ name, value string }{
			{"TLS.CertFile", c.TLS.CertFile},
			{"TLS.KeyFile", c.TLS.KeyFile},
			{"TLS.CAFile", c.TLS.CAFile},
			{"TLS.MeshNames", strings.Join(c.TLS.MeshNames, "")},
		} {
			if f.value == "" {
				bad(f.name, "required with TLS: certificate, key, authorities and the names of the mesh go together, "+
					"or instances could not prove themselves to each other")
			}
		}
	} else if c.TLS.OptionalClientCert {
		bad("TLS.OptionalClientCert", "has no meaning without TLS.CertFile")
	}
	if c.TLS.enabled() && c.TLS.AllowPlaintext {
		bad("TLS.AllowPlaintext", "contradicts TLS.CertFile: the API is either secured or not")
	}
	if _, _, err := splitAddr(c.Listen); err == nil && !certs.Loopback(c.Listen) && !c.TLS.enabled() && !c.TLS.AllowPlaintext {
		bad("Listen", "%s is not loopback and there is no TLS: give TLS.CertFile and what belongs to it, or say TLS.AllowPlaintext", c.Listen)
	}
}

// advertised derives what peers dial from the two addresses and, once it is open, the listener's.
func advertised(listen, advertise string, bound net.Addr) (string, error) {
	lhost, lport, err := splitAddr(listen)
	if err != nil {
		return "", &FieldError{Field: "Listen", Reason: err.Error()}
	}
	if tcp, ok := bound.(*net.TCPAddr); ok {
		lport = tcp.Port
	}
	if advertise == "" {
		if unspecified(lhost) {
			return "", &FieldError{Field: "Advertise", Reason: fmt.Sprintf(
				"required, since Listen %s is a wildcard that nobody can dial; give the host name or address of this machine, as host:port", listen)}
		}
		return net.JoinHostPort(lhost, strconv.Itoa(lport)), nil
	}
	ahost, aport, err := splitAddr(advertise)
	switch {
	case err != nil:
		return "", &FieldError{Field: "Advertise", Reason: err.Error()}
	case unspecified(ahost):
		return "", &FieldError{Field: "Advertise", Reason: advertise + ": a wildcard; give an address that peers can dial"}
	case aport == 0:
		aport = lport
	}
	return net.JoinHostPort(ahost, strconv.Itoa(aport)), nil
}

func splitAddr(addr string) (host string, port int, err error) {
	host, p, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, fmt.Errorf("%q: want host:port", addr)
	}
	n, err := strconv.ParseUint(p, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("%q: port %q is not 0 to 65535", addr, p)
	}
	return host, int(n), nil
}

func unspecified(host string) bool {
	if host == "" {
		return true
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return ip != nil && ip.IsUnspecified()
}

// topology is the one that the configuration has, or that of its views.
func (c Config) topology() (*processor.Topology, error) {
	switch {
	case c.Topology != nil:
		return c.Topology, nil
	case c.Declared != nil:
		return declared.Build(*c.Declared)
	default:
		return views.Topology(c.Views)
	}
}
