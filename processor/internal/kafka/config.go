package kafka

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"strings"
	"time"
)

// Config says how to reach a cluster and how much memory its clients may use. The zero value of a field means its
// default. A Config is a value: it may be copied and used by any number of goroutines.
type Config struct {
	// Brokers to ask first, "host:port". Required.
	Brokers []string
	// ClientID names the application in the broker's logs, metrics and quotas. Default "statemesh".
	ClientID string
	// SASL authenticates; nil: no authentication.
	SASL *SASL
	// TLS of the connections to the brokers; nil: plain text. [TLSFiles.Load] makes one from files. An empty
	// ServerName means the name in the broker's address.
	TLS *tls.Config
	// Compression of what is produced: none, gzip, snappy, lz4 or zstd. Default snappy: changelogs are read back as
	// often as they are written, snappy and lz4 cost the least CPU on both sides for most of the gain, and the client's lz4
	// holds 12 MB of buffers.
	Compression string
	// Dial opens connections instead of a net.Dialer; TLS, if set, runs over what it returns. For tests and proxies.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Logger receives what the client library reports, at its own levels. nil: nothing.
	Logger *slog.Logger

	// DialTimeout of one connection, TLS handshake included. Default 10s.
	DialTimeout time.Duration
	// RequestTimeout is how long an answer may take beyond the waiting that the request itself asks for. Default 10s.
	// At most 15m.
	RequestTimeout time.Duration
	// RetryTimeout is how long a request is repeated while brokers are away or say "not now". Default 30s.
	RetryTimeout time.Duration
	// MetadataMaxAge is after how long partition leaders are asked for again although nothing went wrong. Default 5m.
	// At least 1s, at most 1h.
	MetadataMaxAge time.Duration

	// FetchBytes bounds the memory of what one stream thread's client fetches ahead: records as they lie in memory, unpacked,
	// for which brokers are asked for as much less as they compress. Default 16 MiB, a quarter of it per broker: a
	// fetch that brings more than a few hundredths of a second of work makes nothing faster. At least 1 MiB.
	FetchBytes int64
	// ProduceBytes bounds the keys and values that one stream thread's client holds to be produced, and once more what it
	// spends on their records beside; producing waits when either is reached. Default 16 MiB. At least 1 MiB.
	ProduceBytes int64
	// MaxRecordBytes is the largest batch, and so the largest record, that is produced: it must not exceed the smallest
	// max.message.bytes of the topics written to. Default 1,000,012, which fits in Kafka's default of 1,048,588.
	MaxRecordBytes int32
}

// Names of Config.Compression.
const (
	CompressionNone   = "none"
	CompressionGzip   = "gzip"
	CompressionSnappy = "snappy"
	CompressionLZ4    = "lz4"
	CompressionZstd   = "zstd"
)

// MaxTimeout is the longest timeout that fits into Kafka's protocol, which counts milliseconds in 32 bits: 24.8 days.
// Longer ones are refused, since they would come out at the broker as something else.
const MaxTimeout = math.MaxInt32 * time.Millisecond

const (
	minBuffer = 1 << 20
	maxBuffer = 1 << 30
)

// Validate reports everything that is wrong, in the names of the fields.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	bad := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("kafka %s: %s", field, fmt.Sprintf(format, args...)))
	}
	if len(c.Brokers) == 0 {
		bad("Brokers", "none given, want at least one host:port")
	}
	for _, b := range c.Brokers {
		if _, port, err := net.SplitHostPort(b); err != nil || port == "" {
			bad("Brokers", "%q: want host:port", b)
		}
	}
	if len(c.ClientID) > 256 {
		bad("ClientID", "%d bytes, at most 256", len(c.ClientID))
	}
	if c.SASL != nil {
		errs = append(errs, c.SASL.problems()...)
	}
	if _, err := codec(c.Compression); err != nil {
		errs = append(errs, err)
	}
	between := func(field string, have, low, high time.Duration) {
		if have < low || have > high {
			bad(field, "%s, want %s to %s", have, low, high)
		}
	}
	between("DialTimeout", c.DialTimeout, 100*time.Millisecond, MaxTimeout)
	between("RequestTimeout", c.RequestTimeout, 100*time.Millisecond, 15*time.Minute)
	between("RetryTimeout", c.RetryTimeout, 100*time.Millisecond, MaxTimeout)
	between("MetadataMaxAge", c.MetadataMaxAge, time.Second, time.Hour)
	bytes := func(field string, have, low, high int64) {
		if have < low || have > high {
			bad(field, "%d bytes, want %d to %d", have, low, high)
		}
	}
	bytes("FetchBytes", c.FetchBytes, minBuffer, maxBuffer)
	bytes("ProduceBytes", c.ProduceBytes, minBuffer, maxBuffer)
	bytes("MaxRecordBytes", int64(c.MaxRecordBytes), 1024, maxRequest-1024)
	return errors.Join(errs...)
}

// WithDefaults returns c with every zero field replaced by what it means, for showing it.
func (c Config) WithDefaults() Config { return c.withDefaults() }

func (c Config) withDefaults() Config {
	c.ClientID = cmp.Or(c.ClientID, "statemesh")
	c.Compression = cmp.Or(c.Compression, CompressionSnappy)
	c.DialTimeout = cmp.Or(c.DialTimeout, 10*time.Second)
	c.RequestTimeout = cmp.Or(c.RequestTimeout, 10*time.Second)
	c.RetryTimeout = cmp.Or(c.RetryTimeout, 30*time.Second)
	c.MetadataMaxAge = cmp.Or(c.MetadataMaxAge, 5*time.Minute)
	c.FetchBytes = cmp.Or(c.FetchBytes, 16<<20)
	c.ProduceBytes = cmp.Or(c.ProduceBytes, 16<<20)
	c.MaxRecordBytes = cmp.Or(c.MaxRecordBytes, 1_000_012)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// dial opens one connection, with TLS when it is configured.
func (c Config) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.DialTimeout)
	defer cancel()
	open := c.Dial
	if open == nil {
		open = (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext
	}
	conn, err := open(ctx, network, addr)
	if err != nil || c.TLS == nil {
		return conn, err
	}
	cfg := c.TLS
	if cfg.ServerName == "" {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("kafka broker %q: %w", addr, err), conn.Close())
		}
		cfg = cfg.Clone()
		cfg.ServerName = host
	}
	secure := tls.Client(conn, cfg)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("kafka broker %s: tls: %w", addr, err), conn.Close())
	}
	return secure, nil
}

func quoted(names []string) string { return strings.Join(names, ", ") }
