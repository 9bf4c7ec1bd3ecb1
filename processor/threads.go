package processor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// threadSet has the stream threads of an instance, whose number may change while it runs.
type threadSet struct {
	// all are those that run, in the order of their numbers; replaced whole, under mu. The first is never removed: it says for the
	// process what that holds.
	all atomic.Pointer[[]*thread]
	// lingers: one that was removed may still be in the group, since the broker has not said that it has left.
	lingers atomic.Bool

	mu sync.Mutex
	// next is the number of the next thread. None is used twice: it is part of the transactional id, and a late fence that is meant
	// for a thread that was removed must hit nobody.
	next int
	// begin starts a thread; nil while none may begin.
	begin func(*thread)
	ended bool // none begins any more
}

// streamThreads are those that run, or are about to. The list is immutable.
func (r *Runtime) streamThreads() []*thread {
	if all := r.threads.all.Load(); all != nil {
		return *all
	}
	return nil
}

// share is a thread's part of what all of them share.
func (r *Runtime) share(bytes int64) int64 { return bytes / int64(max(1, len(r.streamThreads()))) }

// AddThread begins one more stream thread (upstream's KafkaStreams.addStreamThread, KIP-663) and returns its name once the group knows it.
// Tasks come to it as the group places them; their stores stay open. Bounds that all threads share are divided anew: of input buffers,
// uncommitted writes and record caches. What each thread fetches ahead and holds to be produced comes on top.
//
// Errors: *[router.ThreadLimitError] beyond Config.MaxStreamThreads, [store.ErrNotReady] before threads have begun,
// [store.ErrShuttingDown] once they end, and the cause of ctx's end: the thread then goes on, under the name that is returned.
func (r *Runtime) AddThread(ctx context.Context) (name string, err error) {
	t, err := r.addThread()
	if err != nil {
		return "", fmt.Errorf("add a stream thread: %w", err)
	}
	t.log.InfoContext(ctx, "stream thread added", "threads", len(r.streamThreads()))
	r.reviewState()
	select {
	case <-t.joined:
		return t.name(), nil
	case <-t.ended:
		return t.name(), fmt.Errorf("%s ended before it had joined the group: %w", t.name(), store.ErrShuttingDown)
	case <-ctx.Done():
		return t.name(), fmt.Errorf("%s joins the group: %w", t.name(), context.Cause(ctx))
	}
}

func (r *Runtime) addThread() (*thread, error) {
	c := &r.threads
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.open(); err != nil {
		return nil, err
	}
	threads := r.streamThreads()
	if limit := r.cfg.MaxStreamThreads; limit > 0 && len(threads) >= limit {
		return nil, &router.ThreadLimitError{Threads: len(threads), Limit: limit}
	}
	t := r.newThread(c.next)
	c.next++
	c.put(append(slices.Clip(threads), t))
	c.begin(t)
	return t, nil
}

// RemoveThread ends the stream thread that was begun last (upstream's removeStreamThread) and returns its name once it has: it commits,
// leaves the group, which need not wait for its session, and its tasks go to where the group places them: their stores stay open for
// the other threads of this instance. It must not be called by a processor, which might wait for its own thread.
//
// Errors: [router.ErrLastThread], [store.ErrNotReady] before threads have begun, [store.ErrShuttingDown] once all end,
// [router.ErrThreadLingers] when the broker was not there to hear that the thread leaves, what its last commit has failed with, and the
// cause of ctx's end: the thread then goes on ending.
func (r *Runtime) RemoveThread(ctx context.Context) (name string, err error) {
	t, err := r.dismiss()
	if err != nil {
		return "", fmt.Errorf("remove a stream thread: %w", err)
	}
	t.log.InfoContext(ctx, "stream thread is removed")
	select {
	case <-t.ended:
		if t.failure != nil {
			return t.name(), fmt.Errorf("remove %s: %w", t.name(), t.failure)
		}
		return t.name(), nil
	case <-ctx.Done():
		return t.name(), fmt.Errorf("%s is being removed: %w", t.name(), context.Cause(ctx))
	}
}

// dismiss tells the youngest thread to end. One that is being removed already is passed over.
func (r *Runtime) dismiss() (*thread, error) {
	c := &r.threads
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.open(); err != nil {
		return nil, err
	}
	var last *thread
	n := 0
	for _, t := range r.streamThreads() {
		if !t.dismissed.Load() {
			last = t
			n++
		}
	}
	if n <= 1 {
		return nil, router.ErrLastThread
	}
	last.dismissed.Store(true)
	last.cancel()
	last.wake()
	return last, nil
}

// Threads lists the stream threads with their tasks, in the order in which they began.
func (r *Runtime) Threads() []router.Thread {
	tasks := make(map[int][]store.TaskID)
	for _, info := range r.tasks.list() {
		tasks[info.Thread] = append(tasks[info.Thread], info.ID)
	}
	threads := []router.Thread{}
	for _, t := range r.streamThreads() {
		threads = append(threads, router.Thread{Name: t.name(), State: t.state(), Tasks: tasks[t.index]})
	}
	return threads
}

// MaxThreads is how many stream threads there may be; 0: as many as anybody wants.
func (r *Runtime) MaxThreads() int { return r.cfg.MaxStreamThreads }

// startThreads begins the threads there are, and lets more begin until soft ends. They are part of work.
func (r *Runtime) startThreads(soft, hard context.Context, stop context.CancelFunc, work *errgroup.Group) {
	c := &r.threads
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begin = func(t *thread) {
		ctx, cancel := context.WithCancel(soft)
		t.cancel = cancel
		work.Go(func() error {
			defer cancel()
			defer close(t.ended)
			if err := r.runThread(ctx, hard, t); err != nil {
				stop()
				return fmt.Errorf("stream thread %d: %w", t.index, err)
			}
			return nil
		})
	}
	work.Go(func() error { // so that there is something to wait for as long as a thread may begin
		<-soft.Done()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.begin, c.ended = nil, true
		return nil
	})
	for _, t := range r.streamThreads() {
		c.begin(t)
	}
}

// runThread runs a thread until it is to end. One that is removed takes the instance with it only if any failure would.
func (r *Runtime) runThread(ctx, hard context.Context, t *thread) error {
	err := r.keepThread(ctx, hard, t)
	if !t.dismissed.Load() || r.stopping.Load() {
		return err
	}
	t.failure = err
	r.retire(hard, t)
	if err != nil && r.cfg.UncaughtHandler == ReplaceThread && mayPass(err) {
		t.log.ErrorContext(ctx, "stream thread failed while it was removed", "error", err)
		return nil
	}
	return err
}

// retire forgets a thread that has ended, and has the group place what it had.
func (r *Runtime) retire(ctx context.Context, t *thread) {
	lingers := t.inside.Load()
	if lingers {
		r.threads.lingers.Store(true)
		t.failure = errors.Join(t.failure, router.ErrThreadLingers)
	}
	t.env.cache.Close()
	r.standbys.forget(t.index)
	c := &r.threads
	c.mu.Lock()
	c.put(slices.DeleteFunc(slices.Clone(r.streamThreads()), func(x *thread) bool { return x == t }))
	c.mu.Unlock()
	t.log.InfoContext(ctx, "stream thread removed", "threads", len(r.streamThreads()))
	r.reviewState()
	if !lingers { // a join would wait for it, and everybody with that
		r.rejoin()
	}
}

// open says why threads can neither begin nor be removed.
func (c *threadSet) open() error {
	switch {
	case c.ended:
		return store.ErrShuttingDown
	case c.begin == nil:
		return &store.NotReadyError{Reason: reasonStarting, RetryAfter: retryRestoring}
	default:
		return nil
	}
}

func (c *threadSet) put(threads []*thread) { c.all.Store(&threads) }

// newThread makes a thread, which does not run yet.
func (r *Runtime) newThread(index int) *thread {
	t := &thread{
		rt: r, index: index, env: r.env, log: r.cfg.Logger.With("thread", index),
		joined: make(chan struct{}), ended: make(chan struct{}),
	}
	t.env.cache = r.stores.NewRecordCache(0) // sized when it runs
	return t
}

// name is what the thread is called by operators.
func (t *thread) name() string { return fmt.Sprintf("stream-thread-%d", t.index) }

func (t *thread) state() router.ThreadState {
	select {
	case <-t.joined:
	default:
		return router.ThreadStarting
	}
	switch {
	case t.dismissed.Load():
		return router.ThreadLeaving
	case t.settled.Load():
		return router.ThreadRunning
	default:
		return router.ThreadRebalancing
	}
}
