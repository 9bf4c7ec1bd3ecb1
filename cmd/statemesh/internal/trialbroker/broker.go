package trialbroker

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/statemesh/statemesh/internal/fakekafka"
)

// Config of a broker.
type Config struct {
	// Listen is the address clients dial, "host:port". Default "127.0.0.1:0", a free port. The host is also what the
	// broker tells its clients to dial, so it must be a concrete one.
	Listen string
	// DataDir keeps topics, groups and transactions over restarts. Empty: in memory.
	DataDir string
	// MaxMessageBytes is the largest batch it takes. Default 1048588, as Kafka's message.max.bytes.
	MaxMessageBytes int
	// MinSessionTimeout is the shortest session.timeout.ms a group may ask for. Default 1s: a trial wants quick
	// takeovers (Kafka's default is 6s).
	MinSessionTimeout time.Duration
	// Logger receives what the broker warns of. nil: nothing is logged.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Listen = cmp.Or(c.Listen, "127.0.0.1:0")
	c.MaxMessageBytes = cmp.Or(c.MaxMessageBytes, 1048588)
	c.MinSessionTimeout = cmp.Or(c.MinSessionTimeout, time.Second)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// Broker is a running broker. Close it.
type Broker struct {
	cluster *kfake.Cluster
	addr    string
	lock    *os.File
}

// Start opens the address and the data directory and serves until Close. It takes ctx only for opening the address.
func Start(ctx context.Context, cfg Config) (_ *Broker, err error) {
	cfg = cfg.withDefaults()
	if err := checkListen(cfg.Listen); err != nil {
		return nil, err
	}
	var lock *os.File
	if cfg.DataDir != "" {
		if lock, err = lockDir(cfg.DataDir); err != nil {
			return nil, err
		}
		defer func() {
			if err != nil {
				_ = lock.Close()
			}
		}()
	}
	opts := []kfake.Opt{
		kfake.NumBrokers(1),
		kfake.ClusterID("statemesh-trial"),
		kfake.DefaultNumPartitions(1),
		kfake.GroupMinSessionTimeout(cfg.MinSessionTimeout),
		kfake.BrokerConfigs(map[string]string{"message.max.bytes": strconv.Itoa(cfg.MaxMessageBytes)}),
		kfake.WithLogger(logAdapter{cfg.Logger}),
		kfake.ListenFn(func(network, _ string) (net.Listener, error) {
			return new(net.ListenConfig).Listen(ctx, network, cfg.Listen)
		}),
	}
	if cfg.DataDir != "" {
		opts = append(opts, kfake.DataDir(filepath.Join(cfg.DataDir, "log")))
	}
	cluster, err := fakekafka.New(opts...)
	if err != nil {
		return nil, fmt.Errorf("trial broker: %w", err)
	}
	return &Broker{cluster: cluster, addr: cluster.ListenAddrs()[0], lock: lock}, nil
}

// Addr is "host:port" as clients dial it.
func (b *Broker) Addr() string { return b.addr }

// Close stops the broker and, with a data directory, saves what it holds. It is not safe to call it twice.
func (b *Broker) Close() error {
	b.cluster.Close()
	if b.lock != nil {
		return b.lock.Close()
	}
	return nil
}

// checkListen refuses what clients could not dial: the broker advertises its own listen address.
func checkListen(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("trial broker: listen address %q: want host:port", addr)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("trial broker: listen address %q: port %q is not 0 to 65535", addr, port)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		return fmt.Errorf("trial broker: listen address %q: name a concrete host, clients are told to dial it", addr)
	}
	return nil
}

// lockDir makes dir and holds a lock in it: two brokers on one directory would overwrite each other.
func lockDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("trial broker: data directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("trial broker: data directory: %w", err)
	}
	if err := lockFile(f); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("trial broker: data directory %s: %w", dir, err)
	}
	return f, nil
}
