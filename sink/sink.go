package sink

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/statemesh/statemesh/processor/changes"
	"github.com/statemesh/statemesh/processor/expr"
)

// Sink reads the changes of one relation into one target.
type Sink struct {
	cfg     Config
	id      string
	log     *slog.Logger
	reader  *reader
	metrics *metrics

	mu    sync.Mutex
	parts map[int32]*part
}

// part is a partition that this instance has. It belongs to the goroutine that begins and applies it.
type part struct {
	log   changes.Log
	place Place
	row   *expr.Row
	// caughtUp is the time up to which everything that was committed is applied.
	caughtUp time.Time
}

// New checks the configuration. It starts nothing.
func New(cfg Config) (*Sink, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	r, err := newReader(cfg)
	if err != nil {
		return nil, err
	}
	return &Sink{
		cfg: cfg, id: cfg.ID(), log: cfg.Logger.With("sink", cfg.Name), reader: r, parts: make(map[int32]*part),
		metrics: newMetrics(cfg.Registerer, cfg.Name),
	}, nil
}

// changes is how the topic is read.
func (c Config) changes() changes.Config {
	return changes.Config{
		Kafka: c.Kafka, Group: c.ID(), Topic: c.Topic, BatchRecords: c.BatchRecords, BatchBytes: c.BatchBytes, Linger: c.Linger,
		BufferBytes: c.BufferBytes, Idle: c.Idle, Logger: c.Logger,
	}
}

// Schema of the rows that the target is given.
func (s *Sink) Schema() Schema { return s.reader.schema }

// Run reads until ctx ends, and then returns nil when the transactions in flight have ended or StopTimeout is over. Before that it returns only
// with what stays: [*SchemaError], [*RefusedError], [*RecreatedError], [*GapError], [*TruncatedError], [*StaleError],
// *processor.AuthorizationError. It is called once, and closes the target.
func (s *Sink) Run(ctx context.Context) error {
	defer s.cfg.Target.Close()
	err := s.persist(ctx, "open", func(ctx context.Context) error { return s.cfg.Target.Open(ctx, s.reader.schema) })
	if err == nil {
		s.log.InfoContext(ctx, "sink begins", "topic", s.cfg.Topic)
		err = changes.Run(ctx, s.cfg.changes(), (*handler)(s))
	}
	if ctx.Err() != nil {
		s.log.InfoContext(ctx, "sink ended")
		return nil
	}
	if cut, ok := errors.AsType[*changes.CutError](err); ok {
		err = &TruncatedError{Sink: s.id, Topic: cut.Topic, Partition: cut.Partition, Next: cut.Read, End: cut.Valid, Err: err}
	}
	s.log.ErrorContext(ctx, "sink failed", "error", err)
	return err
}

// persist asks the database until it answers. What stays is returned, and the end of ctx.
func (s *Sink) persist(ctx context.Context, what string, ask func(context.Context) error) error {
	for pause := s.cfg.Backoff; ; pause = min(2*pause, s.cfg.MaxBackoff) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err := s.attempt(ctx, ask)
		switch {
		case err == nil:
			return nil
		case permanent(err):
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		s.metrics.errors.Inc()
		s.log.WarnContext(ctx, "database does not answer, tried again", "operation", what, "pause", pause, "error", err)
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// attempt asks once. What is asked goes on for StopTimeout when ctx ends.
func (s *Sink) attempt(ctx context.Context, ask func(context.Context) error) error {
	work, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Timeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(s.cfg.StopTimeout)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel()
		case <-work.Done():
		}
	})
	defer stop()
	return ask(work)
}

// permanent reports whether asking again helps nobody.
func permanent(err error) bool {
	_, schema := errors.AsType[*SchemaError](err)
	_, refused := errors.AsType[*RefusedError](err)
	return schema || refused
}
