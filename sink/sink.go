package sink

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

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
	rows    *semaphore.Weighted // bytes of rows that are being written

	mu    sync.Mutex
	parts map[int32]*part
	life  life
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
	s := &Sink{
		cfg: cfg, id: cfg.ID(), log: cfg.Logger.With("sink", cfg.Name), reader: r, parts: make(map[int32]*part),
		rows: semaphore.NewWeighted(cfg.RowBytes),
	}
	s.metrics = newMetrics(cfg.Registerer, cfg.Name, s.up)
	return s, nil
}

// slack is what it takes to give a partition back, beyond the transaction in flight: a member that takes longer is none any more.
const slack = 10 * time.Second

// changes is how the topic is read.
func (c Config) changes() changes.Config {
	return changes.Config{
		Kafka: c.Kafka, Group: c.ID(), Topic: c.Topic, BatchRecords: c.BatchRecords, BatchBytes: c.BatchBytes, Linger: c.Linger,
		BufferBytes: c.BufferBytes, Idle: c.Idle, SessionTimeout: c.SessionTimeout, RebalanceTimeout: c.StopTimeout + slack, Logger: c.Logger,
	}
}

// Schema of the rows that the target is given.
func (s *Sink) Schema() Schema { return s.reader.schema }

// Run reads until ctx ends, and then returns nil when the transactions in flight have ended or StopTimeout is over. Before that it returns only
// with what stays: [*SchemaError], [*RefusedError], [*RecreatedError], [*GapError], [*TruncatedError], [*StaleError],
// *processor.AuthorizationError. Either this or [Sink.Keep] is called, once; both close the target.
func (s *Sink) Run(ctx context.Context) error {
	defer s.cfg.Target.Close()
	return s.run(ctx)
}

// Keep runs the sink until ctx ends. What ends [Sink.Run] before that is logged, shown by [Sink.Status] and counted, and the sink is begun again
// after a pause: what is in the way is mended outside of this process, in the database or in the topic, and found mended then.
func (s *Sink) Keep(ctx context.Context) {
	defer s.cfg.Target.Close()
	pause := s.cfg.RestartBackoff
	for {
		began := time.Now()
		_ = s.run(ctx) // it is logged, and in the status
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > s.cfg.MaxRestartBackoff {
			pause = s.cfg.RestartBackoff
		}
		s.log.InfoContext(ctx, "sink begins again after a pause", "pause", pause)
		rest(ctx, pause)
		pause = min(2*pause, s.cfg.MaxRestartBackoff)
	}
}

// run is Run with a target that stays open.
func (s *Sink) run(ctx context.Context) error {
	s.begin()
	err := s.read(ctx)
	if cut, ok := errors.AsType[*changes.CutError](err); ok {
		err = &TruncatedError{Sink: s.id, Topic: cut.Topic, Partition: cut.Partition, Next: cut.Read, End: cut.Valid, Err: err}
	}
	if ctx.Err() != nil {
		err = nil // it was told to end
	}
	s.end(err)
	if err != nil {
		s.log.ErrorContext(ctx, "sink failed", "error", err)
	} else {
		s.log.InfoContext(ctx, "sink ended")
	}
	return err
}

func (s *Sink) read(ctx context.Context) error {
	if err := s.persist(ctx, "open", opening, func(ctx context.Context) error { return s.cfg.Target.Open(ctx, s.reader.schema) }); err != nil {
		return err
	}
	s.opened()
	s.log.InfoContext(ctx, "sink begins", "topic", s.cfg.Topic)
	return changes.Run(ctx, s.cfg.changes(), (*handler)(s))
}

// persist asks the database until it answers, for a partition or for opening. What stays is returned, and the end of ctx.
func (s *Sink) persist(ctx context.Context, what string, partition int32, ask func(context.Context) error) error {
	for pause := s.cfg.Backoff; ; pause = min(2*pause, s.cfg.MaxBackoff) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err := s.attempt(ctx, ask)
		switch {
		case err == nil:
			s.answers(partition)
			return nil
		case permanent(err):
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		s.troubled(partition, err)
		s.log.WarnContext(ctx, "database does not answer, tried again", "operation", what, "pause", pause, "error", err)
		rest(ctx, pause)
	}
}

// rest waits, or until ctx ends.
func rest(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
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
