package restore

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Config of a [Restorer]. The zero value of a field means its default.
type Config struct {
	// Client sends the requests: one of the direct role (kafka.Config.Direct). Required. The caller closes it after Run
	// has returned.
	Client *kgo.Client
	// Group whose committed offsets say where the inputs stand. Required.
	Group string

	// BufferBytes bounds what was fetched and is not yet applied, over all restores, in bytes as they come from the
	// brokers. Default 32 MiB: two large fetches on the way while others are applied. At least 1 MiB.
	BufferBytes int64
	// FetchBytes is the size of one fetch request. Default 8 MiB, at most a half of BufferBytes: large enough that the
	// round trip does not count.
	FetchBytes int32
	// PartitionBytes is how much of it one partition may take. Default 2 MiB.
	PartitionBytes int32
	// FetchWait is how long a broker that has nothing new keeps a fetch. Default 250ms. A partition that is added
	// meanwhile waits for it.
	FetchWait time.Duration
	// CommitBytes is how much a task applies between two commits of its copy; a restore that is interrupted goes on
	// from the last one. Default 8 MiB.
	CommitBytes int64
	// CommitInterval bounds the same in time. Default 5s.
	CommitInterval time.Duration

	// FenceTimeout is how long InitProducerId is repeated. Default 60s.
	FenceTimeout time.Duration
	// StableTimeout is how long an offset with an open transaction on it is waited for. Default 60s, well above the
	// transaction timeout after which the broker itself ends one.
	StableTimeout time.Duration
	// HangingTimeout is how long a transaction may stay open below the bound. Default 2m. Whoever writes to a changelog
	// has a transaction timeout; one that outlasts it hangs.
	HangingTimeout time.Duration
	// StallTimeout is how long brokers may fail to answer before a restore gives up. Default 5m, upstream's
	// task.timeout.ms.
	StallTimeout time.Duration

	// ProgressInterval is the time between two reports of a restore. Default 1s.
	ProgressInterval time.Duration
	Logger           *slog.Logger
	// Registerer of the metrics; nil: no metrics.
	Registerer prometheus.Registerer
}

// Validate reports everything that is wrong, in the names of the fields.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	bad := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("restore %s: %s", field, fmt.Sprintf(format, args...)))
	}
	if c.Client == nil {
		bad("Client", "required")
	}
	if c.Group == "" {
		bad("Group", "required")
	}
	if c.BufferBytes < 1<<20 {
		bad("BufferBytes", "%d bytes, want at least %d", c.BufferBytes, 1<<20)
	}
	if c.FetchBytes < 1024 || int64(c.FetchBytes) > c.BufferBytes/2 {
		bad("FetchBytes", "%d bytes, want 1024 to half of BufferBytes (%d)", c.FetchBytes, c.BufferBytes)
	}
	if c.PartitionBytes < 1024 || c.PartitionBytes > c.FetchBytes {
		bad("PartitionBytes", "%d bytes, want 1024 to FetchBytes (%d)", c.PartitionBytes, c.FetchBytes)
	}
	if c.CommitBytes < 1024 {
		bad("CommitBytes", "%d bytes, want at least 1024", c.CommitBytes)
	}
	for _, f := range []struct {
		name string
		have time.Duration
		low  time.Duration
	}{
		{"FetchWait", c.FetchWait, time.Millisecond},
		{"CommitInterval", c.CommitInterval, time.Millisecond},
		{"FenceTimeout", c.FenceTimeout, time.Millisecond},
		{"StableTimeout", c.StableTimeout, time.Millisecond},
		{"HangingTimeout", c.HangingTimeout, 2 * c.FetchWait},
		{"StallTimeout", c.StallTimeout, time.Millisecond},
		{"ProgressInterval", c.ProgressInterval, time.Millisecond},
	} {
		if f.have < f.low {
			bad(f.name, "%s, want at least %s", f.have, f.low)
		}
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	c.BufferBytes = cmp.Or(c.BufferBytes, 32<<20)
	c.FetchBytes = cmp.Or(c.FetchBytes, int32(min(8<<20, c.BufferBytes/2)))
	c.PartitionBytes = cmp.Or(c.PartitionBytes, min(2<<20, c.FetchBytes))
	c.FetchWait = cmp.Or(c.FetchWait, 250*time.Millisecond)
	c.CommitBytes = cmp.Or(c.CommitBytes, 8<<20)
	c.CommitInterval = cmp.Or(c.CommitInterval, 5*time.Second)
	c.FenceTimeout = cmp.Or(c.FenceTimeout, time.Minute)
	c.StableTimeout = cmp.Or(c.StableTimeout, time.Minute)
	c.HangingTimeout = cmp.Or(c.HangingTimeout, 2*time.Minute)
	c.StallTimeout = cmp.Or(c.StallTimeout, 5*time.Minute)
	c.ProgressInterval = cmp.Or(c.ProgressInterval, time.Second)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}
