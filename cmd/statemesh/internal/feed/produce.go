package feed

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/processor"
)

// Target is where rows go.
type Target struct {
	Kafka processor.KafkaConfig
	Topic string
	// Rate limits the records per second. 0: no limit.
	Rate float64
	// OnRecord is called for each acknowledged record, from the client's goroutine; it must not block. nil: nothing.
	OnRecord func(Row)
}

// Stats is what a run did.
type Stats struct {
	Records, WithoutKey int64
	Took                time.Duration
}

// PerSecond is the rate.
func (s Stats) PerSecond() float64 {
	if s.Took <= 0 {
		return 0
	}
	return float64(s.Records) / s.Took.Seconds()
}

// Produce writes every row, in order, to the partition that Kafka's default partitioner gives its key, and returns when
// all are acknowledged. The first error ends it: rows behind it were not written, rows before it may have been.
func Produce(ctx context.Context, t Target, rows iter.Seq2[Row, error]) (Stats, error) {
	opts, err := t.Kafka.KeyedProducer()
	if err != nil {
		return Stats{}, err
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return Stats{}, fmt.Errorf("produce to %s: %w", t.Topic, err)
	}
	defer cl.Close()
	if err := reach(ctx, cl, t.Kafka.Brokers); err != nil {
		return Stats{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	// The client would wait for ever for brokers that went away. Its own limit counts from the record's timestamp, which
	// here is the event's.
	patience := t.Kafka.WithDefaults().RetryTimeout
	stalled := time.AfterFunc(patience, func() {
		cancel(fmt.Errorf("produce to %s: brokers %s acknowledged nothing for %s", t.Topic, strings.Join(t.Kafka.Brokers, ", "), patience))
	})
	defer stalled.Stop()

	begin := time.Now()
	var records, keyless, sending atomic.Int64
	var sent sync.WaitGroup
	limit := newPacer(t.Rate)
	for row, err := range rows {
		if err != nil {
			cancel(err)
			break
		}
		if limit.wait(ctx) != nil {
			break
		}
		if sending.Load() == 0 {
			stalled.Reset(patience) // nothing is due: the wait was ours
		}
		rec := &kgo.Record{Topic: t.Topic, Key: row.Key, Value: row.Value, Timestamp: row.Timestamp}
		sent.Add(1)
		sending.Add(1)
		cl.Produce(ctx, rec, func(_ *kgo.Record, err error) {
			defer sent.Done()
			sending.Add(-1)
			if err != nil {
				cancel(fmt.Errorf("produce to %s: line %d: %w", t.Topic, row.Line, err))
				return
			}
			stalled.Reset(patience)
			records.Add(1)
			if row.Key == nil {
				keyless.Add(1)
			}
			if t.OnRecord != nil {
				t.OnRecord(row)
			}
		})
		if ctx.Err() != nil {
			break
		}
	}
	sent.Wait()
	stats := Stats{Records: records.Load(), WithoutKey: keyless.Load(), Took: time.Since(begin)}
	return stats, context.Cause(ctx)
}

// reachTimeout is how long the brokers may take to answer at all.
const reachTimeout = 10 * time.Second

// reach fails early, and with the names of those who were asked, when no broker answers.
func reach(ctx context.Context, cl *kgo.Client, brokers []string) error {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	if err := cl.Ping(ctx); err != nil {
		return fmt.Errorf("brokers %s: %w", strings.Join(brokers, ", "), err)
	}
	return nil
}

// pacer spreads events evenly over time.
type pacer struct {
	interval time.Duration // 0: no limit
	next     time.Time
}

func newPacer(perSecond float64) *pacer {
	p := new(pacer)
	if perSecond > 0 {
		p.interval = time.Duration(float64(time.Second) / perSecond)
	}
	return p
}

// wait returns when the next event may happen. It sleeps in steps of a few milliseconds and lets through what fell due
// meanwhile: a timer per record could not keep up.
func (p *pacer) wait(ctx context.Context) error {
	if p.interval == 0 {
		return nil
	}
	now := time.Now()
	if p.next.IsZero() {
		p.next = now
	}
	if ahead := p.next.Sub(now); ahead > 5*time.Millisecond {
		timer := time.NewTimer(ahead)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	p.next = p.next.Add(p.interval)
	return nil
}

// NewTopic describes a topic to create.
type NewTopic struct {
	Name       string
	Partitions int32
	// ReplicationFactor; -1 is the broker's default.
	ReplicationFactor int16
	// Config are settings of the topic, such as "retention.ms".
	Config map[string]string
}

// KeepOld is what a topic needs whose records bear timestamps of the past: retention counts from those, so that a broker
// deletes them within minutes of their arrival, before or while they are read.
func KeepOld() map[string]string { return map[string]string{"retention.ms": "-1"} }

// CreateTopic creates a topic, or accepts one that exists with the same number of partitions. created says which.
func CreateTopic(ctx context.Context, k processor.KafkaConfig, t NewTopic) (created bool, err error) {
	cl, err := kgo.NewClient(k.Admin()...)
	if err != nil {
		return false, fmt.Errorf("create topic %s: %w", t.Name, err)
	}
	defer cl.Close()
	if err := reach(ctx, cl, k.Brokers); err != nil {
		return false, err
	}
	adm := kadm.NewClient(cl)
	config := make(map[string]*string, len(t.Config))
	for k, v := range t.Config {
		config[k] = &v
	}
	_, err = adm.CreateTopic(ctx, t.Partitions, t.ReplicationFactor, config, t.Name)
	switch {
	case err == nil:
		return true, nil
	case !errors.Is(err, kerr.TopicAlreadyExists):
		return false, fmt.Errorf("create topic %s: %w", t.Name, err)
	}
	have, err := adm.ListTopics(ctx, t.Name)
	if err == nil {
		err = have.Error()
	}
	if err != nil {
		return false, fmt.Errorf("describe topic %s: %w", t.Name, err)
	}
	if n := len(have[t.Name].Partitions); n != int(t.Partitions) {
		return false, fmt.Errorf("topic %s exists with %d partitions, not %d", t.Name, n, t.Partitions)
	}
	return false, nil
}

// Remove deletes every topic whose name begins with prefix, and the group. It goes on after an error and returns all.
func Remove(ctx context.Context, k processor.KafkaConfig, prefix, group string) error {
	cl, err := kgo.NewClient(k.Admin()...)
	if err != nil {
		return fmt.Errorf("remove topics: %w", err)
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	topics, err := adm.ListTopics(ctx)
	if err != nil {
		return fmt.Errorf("remove topics: %w", err)
	}
	var names []string
	for _, name := range topics.Names() {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	deleted, err := adm.DeleteTopics(ctx, names...)
	errs := []error{err, deleted.Error()}
	if _, err := adm.DeleteGroup(ctx, group); err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		errs = append(errs, fmt.Errorf("remove group %s: %w", group, err))
	}
	return errors.Join(errs...)
}
