package topics

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/statemesh/statemesh/store"
)

// PurgerConfig of a [Purger].
type PurgerConfig struct {
	// Admin sends the requests. Required. The caller closes its client after Run has returned.
	Admin *kadm.Client
	// Interval between two rounds. Default 30s, upstream's repartition.purge.interval.ms. Negative: nothing is purged.
	Interval time.Duration
	Logger   *slog.Logger
}

// Purger deletes the records of repartition topics that were processed. Only offsets that the group has committed are
// ever passed, so that no instance, however late, needs what is deleted. Safe for concurrent use.
type Purger struct {
	cfg PurgerConfig

	mu sync.Mutex
	// pending holds, per partition with records to delete, the newest committed offset; what was deleted is taken out.
	pending map[store.TopicPartition]store.Offset
}

// NewPurger starts nothing; Run does.
func NewPurger(cfg PurgerConfig) (*Purger, error) {
	if cfg.Admin == nil {
		return nil, errors.New("topics purger Admin: required")
	}
	cfg.Interval = cmp.Or(cfg.Interval, 30*time.Second)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	return &Purger{cfg: cfg, pending: map[store.TopicPartition]store.Offset{}}, nil
}

// Committed reports that the group has committed next, the next offset to process, for a partition of a repartition
// topic. It does no I/O.
func (p *Purger) Committed(tp store.TopicPartition, next store.Offset) {
	if next <= 0 || p.cfg.Interval < 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if next > p.pending[tp] {
		p.pending[tp] = next
	}
}

// Run purges every interval until ctx ends, all partitions in one request per broker. What could not be deleted is
// logged and tried again with the next round; it never stops the instance.
func (p *Purger) Run(ctx context.Context) error {
	if p.cfg.Interval < 0 {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	tick := time.NewTicker(p.cfg.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
			p.purge(ctx)
		}
	}
}

// purge runs one round.
func (p *Purger) purge(ctx context.Context) {
	p.mu.Lock()
	round := p.pending
	p.pending = make(map[store.TopicPartition]store.Offset, len(round))
	p.mu.Unlock()
	if len(round) == 0 {
		return
	}
	offsets := kadm.Offsets{}
	for tp, next := range round {
		offsets.AddOffset(tp.Topic, int32(tp.Partition), int64(next), -1)
	}
	answers, err := p.cfg.Admin.DeleteRecords(ctx, offsets)
	if err != nil && ctx.Err() == nil {
		p.cfg.Logger.WarnContext(ctx, "repartition purge incomplete", "error", err)
	}
	for tp, next := range round {
		a, ok := answers.Lookup(tp.Topic, int32(tp.Partition))
		switch {
		case ok && a.Err == nil:
		case ok && errors.Is(a.Err, kerr.OffsetOutOfRange):
			// A faster instance has deleted beyond, or the topic was recreated: nothing is left to do.
		case ok && !kerr.IsRetriable(a.Err):
			p.cfg.Logger.WarnContext(ctx, "repartition records not deleted", "topic", tp.Topic, "partition", tp.Partition,
				"offset", next, "error", &RequestError{Topic: tp.Topic, Operation: "delete records", Err: a.Err})
			p.Committed(tp, next)
		default:
			p.Committed(tp, next)
		}
	}
}
