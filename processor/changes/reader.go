package changes

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/internal/kafka"
)

// reader is a member of the group: one goroutine that polls, and one for each partition.
type reader struct {
	cfg     Config
	handler Handler
	client  *kgo.Client
	admin   *kadm.Client
	ended   context.Context //nolint:containedctx // a constant: a context that has ended
	// made is closed when client and admin are there: the client joins the group before whoever makes it has it.
	made chan struct{}
	// hangUp ends the client's requests: one to join waits for the other members, whoever wants to stop.
	hangUp context.CancelFunc
	// fail ends Run with an error.
	fail context.CancelCauseFunc
	// room is signalled when the loop, which waits for it, may go on.
	room chan struct{}

	mu     sync.Mutex
	parts  map[int32]*partition
	queued int64 // bytes that wait or are being applied, over all partitions
	// retention of deletions in the topic; 0 when it is not known.
	retention time.Duration
	// cancel ends the poll that waits; poked lets the next one not wait.
	cancel context.CancelFunc
	poked  bool
}

// Run reads until ctx ends, and then returns nil when what was being applied is. It returns before that with an error of the handler, or
// with what no retry cures: *processor.AuthorizationError, *CutError.
func Run(ctx context.Context, cfg Config, h Handler) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	reading, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	r := &reader{
		cfg: cfg.withDefaults(), handler: h, ended: ended, fail: fail, room: make(chan struct{}, 1),
		made: make(chan struct{}), parts: make(map[int32]*partition),
	}
	var life context.Context
	life, r.hangUp = context.WithCancel(context.WithoutCancel(ctx))
	defer r.hangUp()
	opts, err := r.cfg.Kafka.Member(kafka.Thread{
		Group: r.cfg.Group, Balancer: kgo.CooperativeStickyBalancer(), Topics: []string{r.cfg.Topic},
		SessionTimeout: r.cfg.SessionTimeout, RebalanceTimeout: r.cfg.RebalanceTimeout,
	})
	if err != nil {
		return err
	}
	if r.client, err = kgo.NewClient(append(append(opts, kgo.WithContext(life)), r.callbacks(reading)...)...); err != nil {
		return fmt.Errorf("changes of %s: %w", r.cfg.Topic, err)
	}
	r.admin = kadm.NewClient(r.client)
	close(r.made)
	var surveys sync.WaitGroup
	surveys.Go(func() { r.survey(reading) })
	r.loop(reading)
	r.drop(r.held())
	surveys.Wait()
	r.leave(context.WithoutCancel(ctx))
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(reading)
}

// callbacks of the group. Polls do not run beside them.
func (r *reader) callbacks(ctx context.Context) []kgo.Opt {
	gone := func(_ context.Context, _ *kgo.Client, gone map[string][]int32) { r.drop(gone[r.cfg.Topic]) }
	return []kgo.Opt{
		kgo.OnPartitionsAssigned(func(_ context.Context, cl *kgo.Client, added map[string][]int32) {
			cl.PauseFetchPartitions(added) // until the handler has said where to begin
			<-r.made
			for _, id := range added[r.cfg.Topic] {
				r.add(ctx, id)
			}
		}),
		kgo.OnPartitionsRevoked(gone),
		kgo.OnPartitionsLost(gone),
		// What the group has committed is nobody's word here: an epoch in it would be compared with the log, and may end Run.
		kgo.AdjustFetchOffsetsFn(func(_ context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
			for _, partitions := range offsets {
				for id := range partitions {
					partitions[id] = kgo.NewOffset().AtStart()
				}
			}
			return offsets, nil
		}),
	}
}

// add begins a partition, unless Run ends.
func (r *reader) add(ctx context.Context, id int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctx.Err() != nil || r.parts[id] != nil {
		return
	}
	p := &partition{r: r, id: id, wake: make(chan struct{}, 1), done: make(chan struct{})}
	ctx, p.cancel = context.WithCancelCause(ctx)
	r.parts[id] = p
	go func() {
		defer close(p.done)
		if err := p.run(ctx); ctx.Err() == nil {
			r.fail(err)
		}
	}()
}

// drop ends partitions, and returns when none of them is being applied any more.
func (r *reader) drop(ids []int32) {
	var ending []*partition
	r.mu.Lock()
	for _, id := range ids {
		if p := r.parts[id]; p != nil {
			p.cancel(errLeft)
			ending = append(ending, p)
		}
	}
	r.mu.Unlock()
	for _, p := range ending {
		<-p.done
		r.mu.Lock()
		p.forget()
		delete(r.parts, p.id)
		r.mu.Unlock()
		r.handler.Lag(p.id, -1)
	}
}

// held lists the partitions.
func (r *reader) held() (ids []int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range r.parts {
		ids = append(ids, id)
	}
	return ids
}

// loop polls and hands out until ctx ends.
func (r *reader) loop(ctx context.Context) {
	for ctx.Err() == nil {
		if r.mustWait() {
			select {
			case <-ctx.Done():
			case <-r.room:
			}
			continue
		}
		fetches := r.poll(ctx)
		if err := r.take(ctx, fetches); err != nil {
			r.fail(err)
		}
		r.seek()
		r.client.AllowRebalance()
	}
}

// full reports whether enough waits. r.mu is held.
func (r *reader) full() bool { return r.queued >= r.cfg.BufferBytes }

// mustWait reports whether there is nothing to do before somebody has taken something.
func (r *reader) mustWait() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.full() {
		return false
	}
	for _, p := range r.parts {
		if p.target != nil {
			return false
		}
	}
	return true
}

// poll waits for records, and leaves rebalances blocked. It brings none when enough waits.
func (r *reader) poll(ctx context.Context) kgo.Fetches {
	const longest = time.Second
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	r.mu.Lock()
	full, poked := r.full(), r.poked
	r.poked = false
	if !poked {
		r.cancel = cancel
	}
	r.mu.Unlock()
	var fetches kgo.Fetches
	switch {
	case full:
	case poked:
		fetches = r.client.PollRecords(nil, r.cfg.BatchRecords) //nolint:staticcheck,contextcheck // the client's way of saying: do not wait
	default:
		fetches = r.client.PollRecords(ctx, r.cfg.BatchRecords)
	}
	r.mu.Lock()
	r.cancel = nil
	r.mu.Unlock()
	if len(fetches) == 0 {
		r.holdOff()
	}
	if fetches.NumRecords() == 0 {
		// A fetch loop that starts while offsets are set twice may miss its wake-up (franz-go v1.22.3, see processor's member).
		r.client.ResumeFetchPartitions(nil)
	}
	return fetches
}

// holdOff blocks rebalances, as a poll does that brings something, and takes no records: the poll's context has ended.
func (r *reader) holdOff() { r.client.PollRecords(r.ended, 1) }

// wakeLoop has the loop look around. r.mu is held.
func (r *reader) wakeLoop() {
	r.poked = true
	if r.cancel != nil {
		r.cancel()
	}
	signal(r.room)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// take hands records to their partitions.
func (r *reader) take(ctx context.Context, fetches kgo.Fetches) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var pause []int32
	fetches.EachPartition(func(f kgo.FetchTopicPartition) {
		p := r.parts[f.Partition]
		for _, rec := range f.Records {
			if p == nil || !p.reading {
				rec.Recycle()
				continue
			}
			p.push(rec)
		}
		if p != nil && p.reading {
			p.stable = max(p.stable, f.LastStableOffset)
			if p.crowded() && !p.paused {
				p.paused = true
				pause = append(pause, p.id)
			}
			signal(p.wake)
		}
	})
	if len(pause) > 0 {
		r.client.PauseFetchPartitions(map[string][]int32{r.cfg.Topic: pause})
	}
	var errs []error
	fetches.EachError(func(topic string, id int32, err error) { errs = append(errs, r.problem(ctx, topic, id, err)) })
	return errors.Join(errs...)
}

// problem deals with an error that came out of a poll. What it returns ends Run. r.mu is held.
func (r *reader) problem(ctx context.Context, topic string, id int32, err error) error {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, kgo.ErrClientClosed):
		return nil // the poll ended
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		return &processor.AuthorizationError{Resource: "group", Name: r.cfg.Group, Operation: "READ", Err: err}
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return &processor.AuthorizationError{Resource: "topic", Name: topic, Operation: "READ", Err: err}
	case errors.Is(err, kerr.OffsetOutOfRange):
		if p := r.parts[id]; p != nil {
			p.beginAgain()
		}
		return nil
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID):
		for _, p := range r.parts {
			p.beginAgain()
		}
		return nil
	}
	if e, ok := errors.AsType[*kgo.ErrDataLoss](err); ok {
		return &CutError{Topic: e.Topic, Partition: e.Partition, Read: e.ConsumedTo, Valid: e.ResetTo}
	}
	r.cfg.Logger.WarnContext(ctx, "fetch failed", "topic", topic, "partition", id, "error", err)
	return nil
}

// seek moves the fetching of the partitions that have asked for it. Rebalances are blocked: what asks is still ours.
func (r *reader) seek() {
	r.mu.Lock()
	var moved []*partition
	offsets, resume := make(map[int32]kgo.EpochOffset), []int32(nil)
	for id, p := range r.parts {
		if p.target != nil {
			offsets[id] = *p.target
			moved, resume = append(moved, p), append(resume, id)
		}
	}
	r.mu.Unlock()
	if len(moved) == 0 {
		return
	}
	r.client.SetOffsets(map[string]map[int32]kgo.EpochOffset{r.cfg.Topic: offsets})
	r.client.ResumeFetchPartitions(map[string][]int32{r.cfg.Topic: resume})
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range moved {
		p.becomeReading()
	}
}

// leave leaves the group and closes the client.
func (r *reader) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	r.client.AllowRebalance()
	if err := r.client.LeaveGroupContext(ctx); err != nil && !errors.Is(err, kerr.UnknownMemberID) {
		r.cfg.Logger.WarnContext(ctx, "group not left, the session times out", "group", r.cfg.Group, "error", err)
		r.hangUp()
	}
	r.client.CloseAllowingRebalance()
	r.client.AllowRebalance() // closing drains what is buffered, which counts as a poll
}
