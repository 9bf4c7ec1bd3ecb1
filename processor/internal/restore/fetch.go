package restore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/statemesh/statemesh/store"
)

// worker sends the fetches of one broker, one at a time, each for every partition that is ready there.
type worker struct {
	r      *Restorer
	broker int32
	wake   chan struct{}

	queue   []*stream // guarded by r.mu
	fetches int64     // answered so far; guarded by r.mu
}

// Run fetches what restores ask for until ctx ends. It is called once.
func (r *Restorer) Run(ctx context.Context) error {
	defer close(r.done)
	var workers sync.WaitGroup
	defer workers.Wait()
	start := func(w *worker) { workers.Go(func() { w.run(ctx) }) }
	for ctx.Err() == nil {
		due, next := r.due(time.Now())
		if len(due) > 0 {
			r.resolve(ctx, due, start)
			continue
		}
		var timer <-chan time.Time
		if !next.IsZero() {
			timer = time.After(time.Until(next))
		}
		select {
		case <-ctx.Done():
		case <-r.unresolvedWake:
		case <-timer:
		}
	}
	return context.Cause(ctx)
}

// due takes the streams whose leader may be looked for now, and says when the next of the others may.
func (r *Restorer) due(now time.Time) (due []*stream, next time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unresolved = slices.DeleteFunc(r.unresolved, func(s *stream) bool {
		switch {
		case s.state != resolving:
			return true
		case !s.retryAt.After(now):
			due = append(due, s)
			return true
		case next.IsZero() || s.retryAt.Before(next):
			next = s.retryAt
		}
		return false
	})
	return due, next
}

// resolve finds the leaders of streams and queues them there.
func (r *Restorer) resolve(ctx context.Context, todo []*stream, start func(*worker)) {
	var topics []string
	for _, s := range todo {
		if !slices.Contains(topics, s.topic) {
			topics = append(topics, s.topic)
		}
	}
	meta, metaErr := metadata(ctx, r.cfg.Client, topics)
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range todo {
		if s.state != resolving {
			continue
		}
		err := metaErr
		var f logFacts
		if err == nil {
			f, err = meta.partition(s.topic, s.id, s.partition)
		}
		if err == nil {
			s.leader, s.leaderEpoch, s.denied = f.leader, f.leaderEpoch, 0
			r.enqueue(s, start)
			continue
		}
		gone, changed := errors.AsType[*TopicChangedError](err)
		if changed && !known(gone.Have) {
			s.denied++
			changed = s.denied >= missingAsks
		}
		if changed || (metaErr == nil && refused(err)) {
			s.state = finished
			s.out <- event{s: s, err: err} // never blocks: there is room for a last event
			continue
		}
		s.failed(err, now)
		r.unresolved = append(r.unresolved, s)
	}
}

// enqueue hands a stream to its leader's worker. r.mu is held.
func (r *Restorer) enqueue(s *stream, start func(*worker)) {
	w := r.workers[s.leader]
	if w == nil {
		w = &worker{r: r, broker: s.leader, wake: make(chan struct{}, 1)}
		r.workers[s.leader] = w
		start(w)
	}
	s.state = ready
	w.queue = append(w.queue, s)
	signal(w.wake)
}

// unresolve sends a stream back to look for its leader. r.mu is held.
func (r *Restorer) unresolve(s *stream) {
	s.state = resolving
	r.unresolved = append(r.unresolved, s)
	signal(r.unresolvedWake)
}

func signal(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

func (w *worker) run(ctx context.Context) {
	bytes := int64(w.r.cfg.FetchBytes)
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		}
		for w.waiting() {
			if w.r.budget.acquire(ctx, bytes) != nil {
				return
			}
			sent, paced := time.Now(), false
			if streams := w.take(); len(streams) > 0 {
				held := w.fetch(ctx, streams)
				w.r.budget.charge(held)
				paced = held < bytes/4 && !slices.ContainsFunc(streams, func(s *stream) bool { return !s.standby })
			}
			w.r.budget.release(bytes)
			if paced {
				w.rest(ctx, sent.Add(standbyPace))
			}
			if ctx.Err() != nil {
				return
			}
		}
	}
}

// standbyPace is the time from one fetch to the next while nobody but standbys reads, and they have caught up: a fetch names
// all of their partitions, and would else be answered, and sent again, for each commit of any of them.
const standbyPace = 20 * time.Millisecond

// rest waits until a time, or until somebody who is in a hurry is queued.
func (w *worker) rest(ctx context.Context, until time.Time) {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	for !w.hurried() {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		case <-w.wake:
		}
	}
}

func (w *worker) hurried() bool {
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	return slices.ContainsFunc(w.queue, func(s *stream) bool { return !s.standby })
}

func (w *worker) waiting() bool {
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	return len(w.queue) > 0
}

// take empties the queue, those first whose turn it is.
func (w *worker) take() []*stream {
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	streams := make([]*stream, 0, len(w.queue))
	for _, s := range w.queue {
		if s.state != ready {
			continue
		}
		s.state = fetching
		streams = append(streams, s)
	}
	clear(w.queue)
	w.queue = w.queue[:0]
	slices.SortStableFunc(streams, func(a, b *stream) int { return cmp.Compare(a.turn(), b.turn()) })
	return streams
}

// fetch sends one request and hands its answer over. It returns the bytes that are now held.
func (w *worker) fetch(ctx context.Context, streams []*stream) (held int64) {
	req, fetched := w.request(streams)
	sent := time.Now()
	kresp, err := w.r.cfg.Client.Broker(int(w.broker)).Request(ctx, req)
	var resp *kmsg.FetchResponse
	if err == nil {
		resp = kresp.(*kmsg.FetchResponse)
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	now := time.Now()
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	if err != nil {
		for _, s := range streams {
			if s.state == fetching {
				s.failed(fmt.Errorf("fetch from broker %d: %w", w.broker, err), now)
				w.r.unresolve(s)
			}
		}
		return 0
	}
	for _, t := range resp.Topics {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			s := fetched[fetchKey{topic: t.Topic, id: t.TopicID, partition: p.Partition}]
			if s == nil {
				s = fetched[fetchKey{id: t.TopicID, partition: p.Partition}]
			}
			if s == nil || s.state != fetching {
				continue
			}
			held += w.answered(s, p, s == streams[0], sent, now)
		}
	}
	w.fetches++
	for _, s := range streams {
		if s.state == fetching {
			w.requeue(s)
		}
	}
	return held
}

// fetchKey finds a stream by what the answer names: the topic before version 13, its id since.
type fetchKey struct {
	topic     string
	id        [16]byte
	partition int32
}

func (w *worker) request(streams []*stream) (*kmsg.FetchRequest, map[fetchKey]*stream) {
	cfg := &w.r.cfg
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis = int32(cfg.FetchWait.Milliseconds())
	req.MinBytes = 1
	req.MaxBytes = cfg.FetchBytes
	req.IsolationLevel = 1
	req.SessionEpoch = -1 // no session: the partitions change from one fetch to the next
	fetched := make(map[fetchKey]*stream, 2*len(streams))
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	for _, s := range streams {
		fetched[fetchKey{topic: s.topic, partition: s.partition}] = s
		if known(s.id) {
			fetched[fetchKey{id: s.id, partition: s.partition}] = s
		}
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition = s.partition
		p.CurrentLeaderEpoch = s.leaderEpoch
		p.FetchOffset = int64(s.next)
		if s.standby {
			p.LastFetchedEpoch = s.lastEpoch
		}
		p.PartitionMaxBytes = cfg.PartitionBytes
		// Neighbours of one topic share an entry; a topic may come twice, since the order says who is served first.
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != s.topic {
			t := kmsg.NewFetchRequestTopic()
			t.Topic, t.TopicID = s.topic, s.id
			req.Topics = append(req.Topics, t)
		}
		t := &req.Topics[len(req.Topics)-1]
		t.Partitions = append(t.Partitions, p)
	}
	return req, fetched
}

// answered takes in the answer for one partition. A stream that may go on is still fetching afterwards. r.mu is held.
func (w *worker) answered(s *stream, p *kmsg.FetchResponseTopicPartition, first bool, sent, now time.Time) (held int64) {
	switch err := kerr.ErrorForCode(p.ErrorCode); {
	case err == nil && s.standby && p.DivergingEpoch.EndOffset >= 0:
		s.state = finished
		s.out <- event{s: s, err: &divergedError{read: s.lastEpoch, epoch: p.DivergingEpoch.Epoch, end: store.Offset(p.DivergingEpoch.EndOffset)}}
	case err == nil:
		before := s.next
		e, ok := s.advanced(p, first, now)
		if s.standby && e.err == nil {
			e, ok = s.told(e, ok, before)
		}
		if s.follow && e.err == nil {
			s.note(sent, s.high)
			e.seen, e.whole = s.seen, s.next >= s.stable
		}
		if ok {
			s.served = w.fetches + 1
			s.out <- e // never blocks: pending <= depth, and there is room for a last event
		}
		if s.lastErr != nil {
			w.r.unresolve(s)
		}
		return e.held
	case errors.Is(err, kerr.OffsetOutOfRange):
		s.state = finished
		s.out <- event{s: s, err: errOutOfRange}
	case errors.Is(err, kerr.UnknownTopicOrPartition), !refused(err):
		// The leader has moved, or does not know it yet, or the topic is gone: metadata will tell.
		s.failed(fmt.Errorf("fetch from broker %d: %w", w.broker, err), now)
		w.r.unresolve(s)
	default:
		s.state = finished
		s.out <- event{s: s, err: fmt.Errorf("changelog %s-%d: read: %w", s.topic, s.partition, err)}
	}
	return 0
}

// requeue lets a stream wait for its next turn, if there is room for what it would bring. r.mu is held.
func (w *worker) requeue(s *stream) {
	if s.pending >= depth {
		s.state = parked
		return
	}
	s.state = ready
	w.queue = append(w.queue, s)
	signal(w.wake)
}

// applied frees what an event held and lets its stream go on.
func (r *Restorer) applied(e event) {
	r.budget.release(e.held)
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.counted {
		e.s.pending--
	}
	if e.seen.After(e.s.proven) {
		e.s.proven = e.seen
	}
	if e.s.state == parked {
		r.workers[e.s.leader].requeue(e.s)
	}
}

// open begins to read streams. Their events arrive on the channel returned.
func (r *Restorer) open(streams []*stream) <-chan event {
	out := make(chan event, len(streams)*(depth+1))
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range streams {
		s.out = out
		if s.follow && s.next >= s.bound {
			s.state, s.leader = idle, -1
			continue
		}
		r.unresolve(s)
	}
	return out
}

// raise moves the bound of a stream that follows a source topic.
func (r *Restorer) raise(s *stream, bound store.Offset) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if bound <= s.bound {
		return
	}
	s.bound = bound
	if s.state != idle {
		return
	}
	if w := r.workers[s.leader]; w != nil {
		w.requeue(s)
	} else {
		r.unresolve(s)
	}
}

// tell asks for an event by the next answer for a stream.
func (r *Restorer) tell(s *stream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.tell = true
}

// close ends streams before their time: what they still hand over, or have handed over, is released.
func (r *Restorer) close(streams []*stream, out <-chan event) {
	r.mu.Lock()
	for _, s := range streams {
		s.state = finished
	}
	r.mu.Unlock()
	for {
		select {
		case e := <-out: // nothing is sent after the lock was released: streams are finished
			r.budget.release(e.held)
		default:
			return
		}
	}
}

// stuck returns the first stream's reason to give up, or nil.
func (r *Restorer) stuck(streams []*stream) error {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range streams {
		if err := s.stuck(now, r.cfg.HangingTimeout, r.cfg.StallTimeout); err != nil {
			return err
		}
	}
	return nil
}
