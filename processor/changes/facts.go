package changes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/internal/topics"
)

// describe asks the brokers about a partition until they answer. What they refuse for good is an error.
func (r *reader) describe(ctx context.Context, partition int32) (Log, error) {
	for try := 0; ; try++ {
		log, err := r.facts(ctx, partition)
		switch {
		case err == nil:
			return log, nil
		case ctx.Err() != nil:
			return Log{}, context.Cause(ctx)
		case errors.Is(err, kerr.TopicAuthorizationFailed):
			return Log{}, &processor.AuthorizationError{Resource: "topic", Name: r.cfg.Topic, Operation: "DESCRIBE", Err: err}
		}
		r.cfg.Logger.WarnContext(ctx, "topic not described", "topic", r.cfg.Topic, "partition", partition, "error", err)
		if err := wait(ctx, backoff(try)); err != nil {
			return Log{}, err
		}
	}
}

func (r *reader) facts(ctx context.Context, partition int32) (Log, error) {
	log := Log{Topic: r.cfg.Topic, Partition: partition}
	infos, err := topics.DescribeLimits(ctx, r.admin, []string{r.cfg.Topic})
	if err != nil {
		return log, err
	}
	info := infos[r.cfg.Topic]
	log.ID, log.DeleteRetention = info.ID, info.DeleteRetention
	log.Compacts, log.Deletes = strings.Contains(info.Cleanup, "compact"), strings.Contains(info.Cleanup, "delete")
	log.Asked = time.Now()
	starts, err := r.admin.ListStartOffsets(ctx, r.cfg.Topic)
	if err != nil {
		return log, err
	}
	ends, err := r.admin.ListEndOffsets(ctx, r.cfg.Topic)
	if err != nil {
		return log, err
	}
	start, ok1 := starts.Lookup(r.cfg.Topic, partition)
	end, ok2 := ends.Lookup(r.cfg.Topic, partition)
	if !ok1 || !ok2 {
		return log, fmt.Errorf("topic %s has no partition %d", r.cfg.Topic, partition)
	}
	if err := errors.Join(start.Err, end.Err); err != nil {
		return log, err
	}
	log.Start, log.End = start.Offset, end.Offset
	r.mu.Lock()
	defer r.mu.Unlock()
	r.retention = log.DeleteRetention
	return log, nil
}

// survey asks for the ends of all partitions from time to time, so that those are known to be at the end which nothing comes from.
func (r *reader) survey(ctx context.Context) {
	for wait(ctx, r.interval()) == nil {
		at := time.Now() // before the question: what was committed by now is below the answer
		stable, err := r.admin.ListCommittedOffsets(ctx, r.cfg.Topic)
		if err != nil {
			if ctx.Err() == nil {
				r.cfg.Logger.WarnContext(ctx, "ends of the log not listed", "topic", r.cfg.Topic, "error", err)
			}
			continue
		}
		r.mu.Lock()
		for id, p := range r.parts {
			if o, ok := stable.Lookup(r.cfg.Topic, id); ok && o.Err == nil {
				p.noteEnd(o.Offset, at)
			}
		}
		r.mu.Unlock()
	}
}

// interval between two surveys: several while a deletion is kept, whose age is told by them.
func (r *reader) interval() time.Duration {
	const least = time.Second
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.retention <= 0 {
		return r.cfg.Idle
	}
	return min(r.cfg.Idle, max(r.retention/4, least))
}

// backoff doubles from 50ms to 5s.
func backoff(try int) time.Duration {
	return min(50*time.Millisecond<<min(try, 10), 5*time.Second)
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
