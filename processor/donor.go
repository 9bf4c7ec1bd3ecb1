package processor

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

// donor gives copies of tasks to other instances, as their owner or as a standby: whatever would answer a read, and how old it is,
// by the same proof. What a copy is read from is a snapshot, so nobody who writes waits for it. It stays pinned for a while
// when the receiver is gone, for it may come back; but not for ever, whatever the receiver does: a snapshot keeps from being
// given back what has changed since. Safe for concurrent use.
type donor struct {
	rt *Runtime

	mu     sync.Mutex
	closed bool
	last   int64 // number of the last copy
	kept   map[string]*keptCopy
}

// keptCopy is a pinned state. Guarded by donor.mu but for what never changes.
type keptCopy struct {
	id    string
	task  store.TaskID
	rd    *reading
	users int
	// pinned is when it was, and most is for how long it may be in all.
	pinned time.Time
	most   time.Duration
	// until is when it is let go, once nobody uses it.
	until time.Time
	// sent: somebody has all of it.
	sent bool
}

const (
	// keepCut is how long a copy is kept for a receiver whose connection broke, and keepSent for one that may not have heard that it
	// has everything.
	keepCut, keepSent = time.Minute, 5 * time.Second
	// keptMost is how many copies are kept that nobody reads.
	keptMost = 4
	// donorInterval is how often those are looked at.
	donorInterval = time.Second

	// pinFloor is how long every copy may be pinned, however small. What is larger may be for as long as it takes to send it at a
	// pinSlack-th of the rate that it is given, and at pinSlowest where that is more: receivers write to a disk. No copy is pinned
	// for more than pinMost.
	pinFloor, pinMost = 5 * time.Minute, 24 * time.Hour
	pinSlack          = 4
	pinSlowest        = 8 << 20 // bytes a second
)

// pinFor is how long a copy of so many bytes may be pinned that is given so many bytes a second, 0 for no limit.
func pinFor(bytes, rate int64) time.Duration {
	slowest := int64(pinSlowest)
	if rate > 0 {
		slowest = min(max(rate/pinSlack, 1), slowest)
	}
	if bytes/slowest >= int64(pinMost/time.Second) {
		return pinMost
	}
	return min(pinFloor+time.Duration(bytes/slowest)*time.Second, pinMost)
}

func newDonor(r *Runtime) *donor { return &donor{rt: r, kept: make(map[string]*keptCopy)} }

// OpenCopy pins the copy of a task for an instance that needs it, or finds one that is still pinned. The copy must be closed. Errors:
// those of [Runtime.Read]; [store.ErrClosed] when what is to be gone on with is not pinned any more, a [*store.CopyExpiredError] where
// that is known to be because of its time. rate is how many bytes a second the copy is sent at least, 0 for no limit: for how long
// it may be pinned follows from that.
func (r *Runtime) OpenCopy(ctx context.Context, req store.CopyRequest, rate int64) (store.Copy, error) {
	k, err := r.donor.take(ctx, req)
	if err != nil {
		return nil, err
	}
	rows, err := k.rd.snap.Copy()
	if err != nil {
		r.donor.release(k)
		return nil, fmt.Errorf("copy of task %s: %w", req.Task, err)
	}
	c := &givenCopy{donor: r.donor, kept: k, rows: rows}
	if req.After == nil { // nobody else knows of it
		r.donor.limit(k, pinFor(rows.Header(r.now()).Bytes, rate))
	}
	return c, nil
}

func (d *donor) limit(k *keptCopy, most time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	k.most = most
}

// expired is the error of a copy that may not be pinned any longer; nil before that.
func (d *donor) expired(k *keptCopy) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.expiredLocked(k)
}

func (d *donor) expiredLocked(k *keptCopy) error {
	if d.rt.now().Sub(k.pinned) < k.most {
		return nil
	}
	return &store.CopyExpiredError{Task: k.task, After: k.most}
}

// take finds or pins what a request asks for, and counts its user.
func (d *donor) take(ctx context.Context, req store.CopyRequest) (*keptCopy, error) {
	if a := req.After; a != nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		k := d.kept[a.ID]
		if k == nil || k.task != req.Task {
			return nil, fmt.Errorf("copy %s of task %s: %w", a.ID, req.Task, store.ErrClosed)
		}
		if err := d.expiredLocked(k); err != nil {
			return nil, err
		}
		k.users++
		return k, nil
	}
	rd, err := d.rt.pinTask(ctx, req.Task)
	if err != nil {
		return nil, err
	}
	rd.snap.Keep() // for as long as the donor says
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		rd.Close()
		return nil, store.ErrShuttingDown
	}
	d.last++
	k := &keptCopy{id: d.rt.cfg.Incarnation + "-" + strconv.FormatInt(d.last, 10), task: req.Task, rd: rd, users: 1, pinned: d.rt.now(), most: pinMost}
	d.kept[k.id] = k
	return k, nil
}

// pinTask pins the last commit of a task that a read would get.
func (r *Runtime) pinTask(ctx context.Context, id store.TaskID) (*reading, error) {
	if r.state.get().final() {
		return nil, store.ErrShuttingDown
	}
	refuse := func(reason string) error {
		return &store.InvalidRequestError{Field: "task", Reason: fmt.Sprintf("%s: %s", id, reason)}
	}
	if id.Subtopology < 0 || int(id.Subtopology) >= len(r.built.subs) {
		return nil, refuse("there is no such sub-topology")
	}
	sub := r.built.subs[id.Subtopology]
	if n := r.partitions(sub.id); sub.global || id.Partition < 0 || n > 0 && id.Partition >= n {
		return nil, refuse("there is no such task")
	}
	i := slices.IndexFunc(sub.stores, func(s *builtStore) bool { return !s.spec.NoChangelog })
	if i < 0 {
		return nil, refuse("it has no store with a changelog")
	}
	return r.pin(ctx, sub.stores[i].spec.Name, id, store.ReadOptions{}, time.Time{})
}

func (d *donor) release(k *keptCopy) {
	d.mu.Lock()
	defer d.mu.Unlock()
	k.users--
	k.until = d.rt.now().Add(keepCut)
	if k.sent {
		k.until = d.rt.now().Add(keepSent)
	}
	d.sweepLocked()
}

// sweepLocked lets go of what was kept for long enough, and of what is too much.
func (d *donor) sweepLocked() {
	now := d.rt.now()
	var idle []*keptCopy
	for id, k := range d.kept {
		switch {
		case k.users > 0:
		case d.closed || !now.Before(k.until) || d.expiredLocked(k) != nil:
			delete(d.kept, id)
			k.rd.Close()
		default:
			idle = append(idle, k)
		}
	}
	slices.SortFunc(idle, func(a, b *keptCopy) int { return b.until.Compare(a.until) })
	for _, k := range idle[min(len(idle), keptMost):] {
		delete(d.kept, k.id)
		k.rd.Close()
	}
}

// run lets go of copies in time, until ctx ends, and then of all that nobody reads any more.
func (d *donor) run(ctx context.Context) error {
	tick := time.NewTicker(donorInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			d.mu.Lock()
			d.sweepLocked()
			d.mu.Unlock()
		case <-ctx.Done():
			d.mu.Lock()
			defer d.mu.Unlock()
			d.closed = true
			d.sweepLocked()
			return context.Cause(ctx)
		}
	}
}

// givenCopy is a copy that is being sent.
type givenCopy struct {
	donor *donor
	kept  *keptCopy
	rows  *layered.Copy
	once  sync.Once
}

var _ store.Copy = (*givenCopy)(nil)

// ID implements store.Copy.
func (c *givenCopy) ID() string { return c.kept.id }

// Header implements store.Copy. Its age is the one that a reader would be told.
func (c *givenCopy) Header() store.CopyHeader {
	now := c.donor.rt.now()
	h := c.rows.Header(now)
	h.Age = elapsed(c.kept.rd.since, now)
	return h
}

// Read implements store.Copy.
func (c *givenCopy) Read(ctx context.Context, after store.CopyPlace, limit int) ([]store.CopyRow, bool, error) {
	if err := c.donor.expired(c.kept); err != nil {
		return nil, false, err
	}
	return c.rows.Read(ctx, after, limit)
}

// Sent implements store.Copy.
func (c *givenCopy) Sent() {
	c.donor.mu.Lock()
	defer c.donor.mu.Unlock()
	c.kept.sent = true
}

// Close implements store.Copy.
func (c *givenCopy) Close() { c.once.Do(func() { c.donor.release(c.kept) }) }
