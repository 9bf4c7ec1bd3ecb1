package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/statemesh/statemesh/internal/certs"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// Config of a client. Zero means the default.
type Config struct {
	// Seeds are addresses "host:port" of instances, at least one. Any instance knows all the others; several seeds only
	// make it likely that one is up. Required.
	Seeds []string
	// Application is the application id that is expected. Empty: whatever the first answer says. Instances of another
	// application, which came to listen at an address of this one, are passed over.
	Application string

	// TLS secures every connection; the server's name is the host of its endpoint. nil: plain text, which is refused
	// beyond loopback unless AllowInsecure is set.
	TLS *tls.Config
	// AllowInsecure permits plain text to any address. Everybody on the way can then read and change what is sent.
	AllowInsecure bool

	// Timeout ends a call whose context has no deadline; for a scan it is the longest time without progress, and a stream
	// that is silent for half of it is given up for another one. Default 10s: longer than a fail-over should take.
	Timeout time.Duration
	// StandbyAfter is how long a read that accepts a copy ([MaxStaleness]) waits for an instance before it asks the next one that
	// has the partition, and how long, four times as much, that one is asked before the slow one again. Default 250ms: many times
	// what an answer takes, a small part of what a caller waits. Negative: it waits as long as the caller does.
	StandbyAfter time.Duration
	// MaxMessageBytes bounds a message in either direction. Default 16 MiB, like the server's: see
	// [github.com/statemesh/statemesh/proto/wire.MaxMessageBytes].
	MaxMessageBytes int

	// Logger gets a line when the map is learned or cannot be. nil: none.
	Logger *slog.Logger
	// Registerer takes the metrics, those of one client. nil: none.
	Registerer prometheus.Registerer
	// Dial replaces the TCP dialer, for tests and tunnels. addr is the endpoint.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
}

func (c Config) withDefaults() Config {
	if c.Timeout <= 0 {
		c.Timeout = 10 * time.Second
	}
	c.StandbyAfter = cmp.Or(c.StandbyAfter, 250*time.Millisecond)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// validate reports all problems at once.
func (c Config) validate() error {
	var errs []error
	if len(c.Seeds) == 0 {
		errs = append(errs, errors.New("seeds: none"))
	}
	for _, s := range c.Seeds {
		if host, port, err := net.SplitHostPort(s); err != nil || host == "" || port == "" {
			errs = append(errs, fmt.Errorf("seed %q: want host:port", s))
			continue
		}
		if c.TLS == nil && !c.AllowInsecure && c.Dial == nil && !certs.Loopback(s) {
			errs = append(errs, fmt.Errorf("seed %s: plain text beyond loopback: give a TLS configuration, or allow insecure", s))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("client config: %w", errors.Join(errs...))
}

// Client asks the instances of one application. Safe for concurrent use.
type Client struct {
	cfg    Config
	pool   *Pool
	table  *router.Table
	budget *budget
	m      *metrics

	// learning admits one caller at a time to the map's source; it is a semaphore because waiting for it must end with
	// the caller's context.
	learning chan struct{}
	// learnings counts the attempts to learn it.
	learnings atomic.Int64
	// wanted is the highest epoch that an answer mentioned: when the table's is lower, the map is old.
	wanted atomic.Int64
	// following counts the Runs and Watches that keep the map fresh.
	following atomic.Int32

	// mu guards what follows. Nothing blocks while it is held.
	mu sync.Mutex
	// moved holds what MOVED answers said about tasks, under epochs that the table has not reached.
	moved map[store.TaskID]movedTo
	app   string // the application, once known
}

// movedTo is an owner that is newer than the map.
type movedTo struct {
	replica router.Replica
	epoch   router.Epoch
}

// New checks cfg. It connects to nobody and starts nothing.
func New(cfg Config) (*Client, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	return &Client{
		cfg: cfg,
		pool: NewPool(PoolConfig{
			TLS: cfg.TLS, AllowInsecure: cfg.AllowInsecure, MaxMessageBytes: cfg.MaxMessageBytes, Dial: cfg.Dial,
		}),
		table:    router.NewTable(),
		budget:   newBudget(time.Now()),
		m:        newMetrics(cfg.Registerer),
		learning: make(chan struct{}, 1),
		moved:    make(map[store.TaskID]movedTo),
		app:      cfg.Application,
	}, nil
}

// Close closes all connections; calls in flight fail. Idempotent.
func (c *Client) Close() error { return c.pool.Close() }
