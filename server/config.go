package server

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/statemesh/statemesh/internal/certs"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/serde"
)

// DefaultMaxStaleness is what a request without a bound accepts from the remote cache and from standbys: the value that
// `query.default.max.staleness` has when nobody sets it. 5 s, as long as the cache keeps an answer.
const DefaultMaxStaleness = 5 * time.Second

// Config of a server. Zero means the default, except where the comment says otherwise.
type Config struct {
	// Application is the application id. Required: a peer of another application is refused by it.
	Application string
	// Instance is the id of this instance in the metadata. Required.
	Instance string
	// Endpoint is "host:port" as peers and clients dial this instance; it labels its answers. Required.
	Endpoint string

	// Listen is the address of the gRPC server, "host:port". Ignored when Listener is set.
	Listen string
	// Listener, if set, is served and closed by Run.
	Listener net.Listener
	// AdminListen is the address of the admin endpoint (metrics, profiles, health, status) over plain HTTP. Whoever
	// reaches it can read memory through profiles, so it is an address of its own. Empty: no admin endpoint.
	AdminListen string
	// AdminListener, if set, is served and closed by Run.
	AdminListener net.Listener

	// TLS names the files of certificate and key. nil: plain text, which is refused beyond loopback unless
	// AllowInsecure is set.
	TLS *TLS
	// AllowInsecure serves plain text on any address. Everybody who reaches the port can then read every store and pass
	// for a peer.
	AllowInsecure bool

	// MaxMessageBytes is the greatest request taken and the greatest answer given. Default [wire.MaxMessageBytes], or half of
	// MaxBytes when that is less; above it, every client and peer must be configured alike.
	MaxMessageBytes int
	// MaxKeyBytes is the greatest key. Default [wire.MaxKeyBytes].
	MaxKeyBytes int
	// MaxBatchKeys is the most keys of a BatchGet. Default 10,000: more gain nothing per key and hold a slot for long.
	MaxBatchKeys int
	// MaxScanRows and MaxScanBytes end one stream of a scan, which the caller may then resume at a newer commit.
	// Defaults 1,000,000 rows and 256 MiB: a snapshot is not held open for ever.
	MaxScanRows, MaxScanBytes int64
	// ScanChunkBytes is how many bytes of rows are collected into one message. Default 128 KiB: large enough that a row
	// costs no system call, small enough that a merge of 100 partitions buffers little.
	ScanChunkBytes int

	// MaxRequests bounds the requests of clients in flight, scans apart. Default 1024. Above it: OVERLOADED.
	MaxRequests int
	// MaxScans bounds the scans of clients in flight; each holds snapshots and buffers. Default 128.
	MaxScans int
	// MaxPeerRequests and MaxPeerScans are the same for requests that peers forward. Defaults 4096 and 1024: the client's
	// instance has already admitted them, and refusing them wastes its work.
	MaxPeerRequests, MaxPeerScans int
	// MaxWatches bounds the watches of metadata. Default 1024.
	MaxWatches int
	// MaxCopies bounds the copies of tasks that are sent to peers at a time. Default 2: each reads as fast as it may. The last one of
	// several is kept for peers that are to run the task, or go on with a copy. A peer that is refused asks another one.
	MaxCopies int
	// CopyBytesPerSecond bounds what is sent of them, all together. Default 64 MiB; negative: no bound.
	CopyBytesPerSecond int64
	// CopyStallTimeout is after how long a peer is cut off that takes nothing of its copy. Default 30 s.
	CopyStallTimeout time.Duration
	// MaxBytes bounds the memory of all requests in flight, of clients and peers, scans included: what came in and what
	// is gathered to be sent. A quarter of it is for peers alone. Default 64 MiB. At least two messages. Above it: OVERLOADED.
	MaxBytes int64

	// DefaultDeadline is given to a call without one. Default 10 s; a scan gets 30 times as long.
	DefaultDeadline time.Duration
	// DefaultMaxStaleness is what a request without a bound accepts from the remote cache and from standbys. 0 means what
	// it says: neither answers such a request. See the constant for the usual value.
	DefaultMaxStaleness time.Duration
	// HedgeDelay is how long another instance is waited for before a copy is asked as well, for a request that accepts one;
	// the first good answer counts. Default 250 ms: many times what an answer takes, a small part of what a caller waits.
	// Negative: it is waited for as long as the caller does.
	HedgeDelay time.Duration
	// GracePeriod is how long Run waits for requests in flight after its context ended. Default 10 s.
	GracePeriod time.Duration

	// Formats are those that stores may declare of their keys and values. Default: those that are built in.
	Formats serde.Formats

	// Logger gets a line per change of life. nil: none.
	Logger *slog.Logger
	// Registerer takes the metrics. nil: none.
	Registerer prometheus.Registerer
	// Gatherer is what the admin endpoint shows under /metrics. nil: no such page.
	Gatherer prometheus.Gatherer
}

// inProcess is the network and the address of grpc's listener within the process.
const inProcess = "bufconn"

// scanDeadlineFactor: a scan streams at the pace of its reader.
const scanDeadlineFactor = 30

func (c Config) withDefaults() Config {
	if c.MaxMessageBytes == 0 {
		c.MaxMessageBytes = wire.MaxMessageBytes
		if c.MaxBytes > 0 {
			c.MaxMessageBytes = int(min(wire.MaxMessageBytes, c.MaxBytes/2))
		}
	}
	c.MaxKeyBytes = cmp.Or(c.MaxKeyBytes, wire.MaxKeyBytes)
	c.MaxBatchKeys = cmp.Or(c.MaxBatchKeys, 10_000)
	c.ScanChunkBytes = cmp.Or(c.ScanChunkBytes, 128<<10)
	c.MaxRequests = cmp.Or(c.MaxRequests, 1024)
	c.MaxScans = cmp.Or(c.MaxScans, 128)
	c.MaxPeerRequests = cmp.Or(c.MaxPeerRequests, 4096)
	c.MaxPeerScans = cmp.Or(c.MaxPeerScans, 1024)
	c.MaxWatches = cmp.Or(c.MaxWatches, 1024)
	c.MaxCopies = cmp.Or(c.MaxCopies, 2)
	c.CopyBytesPerSecond = cmp.Or(c.CopyBytesPerSecond, 64<<20)
	c.CopyStallTimeout = cmp.Or(c.CopyStallTimeout, 30*time.Second)
	c.MaxBytes = cmp.Or(c.MaxBytes, max(64<<20, 2*int64(c.MaxMessageBytes)))
	c.MaxScanRows = cmp.Or(c.MaxScanRows, 1_000_000)
	c.MaxScanBytes = cmp.Or(c.MaxScanBytes, 256<<20)
	c.DefaultDeadline = cmp.Or(c.DefaultDeadline, 10*time.Second)
	c.HedgeDelay = cmp.Or(c.HedgeDelay, 250*time.Millisecond)
	c.GracePeriod = cmp.Or(c.GracePeriod, 10*time.Second)
	if len(c.Formats.Names()) == 0 {
		c.Formats = serde.Builtin()
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// copyRate is how many bytes a second a copy gets at least; 0: no limit.
func (c Config) copyRate() int64 {
	if c.CopyBytesPerSecond <= 0 {
		return 0
	}
	return max(c.CopyBytesPerSecond/int64(c.MaxCopies), 1)
}

// validate reports all problems at once.
func (c Config) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Application == "" {
		bad("application: empty")
	}
	if c.Instance == "" {
		bad("instance: empty")
	}
	if host, port, err := net.SplitHostPort(c.Endpoint); err != nil || host == "" || port == "" {
		bad("endpoint %q: want host:port", c.Endpoint)
	}
	if c.Listener == nil && c.Listen == "" {
		bad("listen: empty")
	}
	for _, n := range []struct {
		name string
		v    int64
	}{
		{"max message bytes", int64(c.MaxMessageBytes)},
		{"max key bytes", int64(c.MaxKeyBytes)},
		{"max batch keys", int64(c.MaxBatchKeys)},
		{"max scan rows", c.MaxScanRows},
		{"max scan bytes", c.MaxScanBytes},
		{"scan chunk bytes", int64(c.ScanChunkBytes)},
		{"max requests", int64(c.MaxRequests)},
		{"max scans", int64(c.MaxScans)},
		{"max peer requests", int64(c.MaxPeerRequests)},
		{"max peer scans", int64(c.MaxPeerScans)},
		{"max watches", int64(c.MaxWatches)},
		{"max copies", int64(c.MaxCopies)},
		{"copy stall timeout", int64(c.CopyStallTimeout)},
		{"max bytes", c.MaxBytes},
		{"default deadline", int64(c.DefaultDeadline)},
		{"default max staleness", int64(c.DefaultMaxStaleness)},
		{"grace period", int64(c.GracePeriod)},
	} {
		if n.v < 0 {
			bad("%s: negative", n.name)
		}
	}
	if c.MaxMessageBytes < 4*c.MaxKeyBytes {
		bad("max message bytes %d: want at least four keys of %d", c.MaxMessageBytes, c.MaxKeyBytes)
	}
	if c.MaxBytes < 2*int64(c.MaxMessageBytes) {
		bad("max bytes %d: want at least two messages of %d", c.MaxBytes, c.MaxMessageBytes)
	}
	if c.ScanChunkBytes > c.MaxMessageBytes/2 {
		bad("scan chunk bytes %d: want at most half of max message bytes %d", c.ScanChunkBytes, c.MaxMessageBytes)
	}
	if c.TLS != nil {
		if err := c.TLS.validate(); err != nil {
			errs = append(errs, err)
		}
	} else if addr := c.listenAddr(); !c.AllowInsecure && addr != "" && addr != inProcess && !certs.Loopback(addr) {
		bad("listen %s: plain text beyond loopback: name tls certificate and key, or allow insecure", addr)
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("server config: %w", errors.Join(errs...))
}

func (c Config) listenAddr() string {
	if c.Listener != nil {
		return c.Listener.Addr().String()
	}
	return c.Listen
}
