package server

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/store"
)

// lanes let forwarded lookups of the same kind travel together. The first ones go alone and at once; while they are on
// their way, those that come wait, and go as one batch when a call comes back. So a lone caller waits for nobody, and many
// share the price of a call: a goroutine at both ends, a frame each way, the flow control.
//
// No goroutine is started: a caller in the batch carries it, in its own context. When that ends first, the others try
// again.
type lanes struct {
	// most keys travel together: not more than an instance takes; 0: laneKeys.
	most int
	// message is how many bytes of values an answer may have; 0: wire.MaxMessageBytes.
	message int

	mu sync.Mutex
	m  map[laneKey]*lane
	// sizes outlive the lanes, which end when nobody asks: by store, so that there are few.
	sizes map[store.Name]size
}

// laneKey is what lookups must have in common to share a call.
type laneKey struct {
	endpoint string
	store    store.Name
	options  string // the message that the peer gets
}

// lane is one peer for one kind of lookup. All fields are under lanes.mu.
type lane struct {
	calls   int // on their way
	waiting []*rider
}

// rider is one lookup in a lane.
type rider struct {
	item

	p store.Partition
	// turn hands the rider the batch that it shall carry, itself included. done says that the batch it was in is over.
	turn chan []*rider
	done chan struct{}
	// gone: it gave up while somebody carried its batch, and must not be handed one. Under lanes.mu.
	gone bool

	// Set before done is closed.
	value  store.Value
	span   wire.Span
	found  bool
	answer wire.Answer
	err    error
}

const (
	// laneCalls are on their way to one peer before others wait. Two keep it busy while an answer is read.
	laneCalls = 2
	// laneKeys and laneBytes bound a batch, so that the request stays far below every limit of a message. For the answer
	// there are the sizes of those before; one that is too large nevertheless is a batch that failed.
	laneKeys  = 256
	laneBytes = 256 << 10
)

// errRide says that a batch failed for a reason that need not be the rider's: who has time left should ask alone.
var errRide = errors.New("server: the batch failed")

// ride sends r on lane key with others. send carries a batch, of which it sets value, found and answer; its error
// concerns all.
func (l *lanes) ride(ctx context.Context, key laneKey, r *rider, send func(context.Context, []*rider) error) error {
	batch := l.enter(key, r)
	if batch == nil {
		select {
		case batch = <-r.turn:
		case <-r.done:
			return r.err
		case <-ctx.Done():
			if batch = l.leave(key, r); batch == nil {
				return context.Cause(ctx)
			}
		}
	}
	// Whoever gave up has no use for the answer, but the others have a use for whoever carries the batch: pass it on.
	if ctx.Err() != nil {
		l.pass(key, r, batch)
		return context.Cause(ctx)
	}
	err := send(ctx, batch)
	l.learn(key.store, batch, err)
	l.exit(key)
	if len(batch) == 1 {
		return err
	}
	all := err // what everybody in the batch is told
	if err != nil && !concernsPeer(ctx, err) {
		all = errRide
	}
	for _, o := range batch {
		if o != r {
			o.err = all
			close(o.done)
		}
	}
	if ctx.Err() != nil {
		return err
	}
	return all
}

// concernsPeer reports whether every lookup at the peer would fail with err now.
func concernsPeer(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return false // the carrier's own time was up
	}
	return errors.Is(err, wire.ErrUnreachable) || errors.Is(err, store.ErrShuttingDown) || errors.Is(err, store.ErrOverloaded)
}

// enter returns the batch that r carries at once, or nil when it waits.
func (l *lanes) enter(key laneKey, r *rider) []*rider {
	l.mu.Lock()
	defer l.mu.Unlock()
	la := l.m[key]
	if la == nil {
		la = &lane{}
		if l.m == nil {
			l.m = make(map[laneKey]*lane)
		}
		l.m[key] = la
	}
	if la.calls < laneCalls {
		la.calls++
		return []*rider{r}
	}
	r.turn, r.done = make(chan []*rider, 1), make(chan struct{})
	la.waiting = append(la.waiting, r)
	return nil
}

// exit ends a call: the first of those who wait carries the next one.
func (l *lanes) exit(key laneKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	la := l.m[key]
	n, most := 0, l.sizes[key.store].keys(cmp.Or(l.most, laneKeys), l.limit())
	for bytes := 0; n < len(la.waiting) && n < most; n++ {
		if bytes += len(la.waiting[n].key); n > 0 && bytes > laneBytes {
			break
		}
	}
	if n == 0 {
		if la.calls--; la.calls == 0 {
			delete(l.m, key)
		}
		return
	}
	batch := slices.Clone(la.waiting[:n])
	la.waiting = slices.Delete(la.waiting, 0, n)
	batch[0].turn <- batch
}

// learn notes how large the values of a call were. One lookup that is too large alone says nothing of others.
func (l *lanes) learn(name store.Name, batch []*rider, err error) {
	tooLarge := len(batch) > 1 && errors.Is(err, store.ErrTooLarge)
	if err != nil && !tooLarge {
		return
	}
	bytes := 0
	for _, r := range batch {
		bytes += len(r.value.Data)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sizes == nil {
		l.sizes = make(map[store.Name]size)
	}
	if tooLarge {
		l.sizes[name] = l.sizes[name].refused(len(batch), l.limit())
	} else {
		l.sizes[name] = l.sizes[name].seen(len(batch), bytes)
	}
}

func (l *lanes) limit() int { return cmp.Or(l.message, wire.MaxMessageBytes) }

// leave takes a waiting rider out of the lane. When it was given a batch in the meantime, it returns that.
func (l *lanes) leave(key laneKey, r *rider) []*rider {
	l.mu.Lock()
	defer l.mu.Unlock()
	if la := l.m[key]; la != nil {
		if i := slices.Index(la.waiting, r); i >= 0 {
			la.waiting = slices.Delete(la.waiting, i, i+1)
			return nil
		}
	}
	select {
	case batch := <-r.turn:
		return batch
	default:
		r.gone = true
		return nil // in somebody's batch, which goes on without it
	}
}

// pass puts a batch back whose carrier gave up, in front, and gives it to the next.
func (l *lanes) pass(key laneKey, r *rider, batch []*rider) {
	l.mu.Lock()
	la := l.m[key]
	rest := slices.DeleteFunc(slices.Clone(batch), func(o *rider) bool { return o == r || o.gone })
	la.waiting = slices.Insert(la.waiting, 0, rest...)
	l.mu.Unlock()
	l.exit(key)
}
