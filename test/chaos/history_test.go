//go:build chaos

package chaos

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/client"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

const (
	topic   = "events"
	keys    = 500
	groups  = 40
	staleOK = 10 * time.Second // the bound of the readers: above the session timeout, so that it decides nothing by itself
)

// mesh keeps three views of one topic: a count by the key of the record, and over a repartition topic a sum and a count
// by a field of it.
const mesh = `application.id: chaos
bootstrap.servers: [%s]
session.timeout.ms: 6s
heartbeat.interval.ms: 500ms
transaction.timeout.ms: 5s
repartition.purge.interval.ms: 5s
views:
  - name: counts
    topic: events
    format: json
    type: count
    key_format: string
  - name: totals
    topic: events
    format: json
    type: sum
    key: [group]
    field: amount
  - name: groups
    topic: events
    format: json
    type: count
    key: [group]
    partitions: 4
`

// row is one row of a view: what it should hold, and what was seen of it. Sent is raised before a record leaves, acked
// after its acknowledgement: the truth lies between.
type row struct {
	view store.Name
	key  []byte

	sent, acked atomic.Int64

	mu sync.Mutex
	// seen are answers by when they arrived, each higher than the one before; newest the one of the newest epoch.
	seen   []sighting
	newest sighting
}

type sighting struct {
	at     time.Time
	epoch  router.Epoch
	number int64
}

// history is what producers and readers did and saw.
type history struct {
	counts, totals, groups []*row
	rows                   []*row // all of them

	mu     sync.Mutex
	faults []string

	answers, refused atomic.Int64
	refusals         sync.Map // error text -> *atomic.Int64
}

func newHistory() *history {
	h := &history{}
	add := func(view store.Name, n int, format string) (rows []*row) {
		for i := range n {
			rows = append(rows, &row{view: view, key: fmt.Appendf(nil, format, i)})
		}
		h.rows = append(h.rows, rows...)
		return rows
	}
	h.counts = add("counts", keys, "key-%04d")
	h.totals = add("totals", groups, "group-%02d")
	h.groups = add("groups", groups, "group-%02d")
	return h
}

func (h *history) fault(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.faults) < 20 {
		h.faults = append(h.faults, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
	}
}

// produce sends records of random keys until ctx ends, then waits for every acknowledgement.
func (h *history) produce(ctx context.Context, brokers []string, rng *rand.Rand) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DefaultProduceTopic(topic),
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)), kgo.ProducerLinger(5*time.Millisecond))
	if err != nil {
		return err
	}
	defer cl.Close()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	patient := context.WithoutCancel(ctx) // what was sent is waited for: only then is the truth known
	var failed atomic.Pointer[error]
	for ctx.Err() == nil {
		for range 2 {
			g, amount := rng.IntN(groups), int64(1+rng.IntN(9))
			count, total, group := h.counts[rng.IntN(keys)], h.totals[g], h.groups[g]
			value := fmt.Appendf(nil, `{"group":"group-%02d","amount":%d}`, g, amount)
			count.sent.Add(1)
			total.sent.Add(amount)
			group.sent.Add(1)
			cl.Produce(patient, &kgo.Record{Key: count.key, Value: value}, func(_ *kgo.Record, err error) {
				if err != nil {
					failed.Store(&err)
					return
				}
				count.acked.Add(1)
				total.acked.Add(amount)
				group.acked.Add(1)
			})
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	flush, cancel := context.WithTimeout(patient, 90*time.Second)
	defer cancel()
	if err := cl.Flush(flush); err != nil {
		return err
	}
	if p := failed.Load(); p != nil {
		return *p
	}
	return nil
}

// read asks for random rows at random instances until ctx ends and checks each answer.
func (h *history) read(ctx context.Context, c *client.Client, endpoints []string, rng *rand.Rand) {
	for ctx.Err() == nil {
		r := h.rows[rng.IntN(len(h.rows))]
		bound := staleOK
		if rng.IntN(2) == 0 {
			bound = time.Duration(50+rng.IntN(1000)) * time.Millisecond
		}
		opts := []client.Option{client.MaxStaleness(bound)}
		if rng.IntN(4) > 0 {
			opts = append(opts, client.NoCache())
		}
		if rng.IntN(2) == 0 {
			opts = append(opts, client.Via(endpoints[rng.IntN(len(endpoints))]))
		}
		epoch := r.known()
		sent := time.Now()
		call, cancel := context.WithTimeout(ctx, 2*time.Second)
		res, err := c.Get(call, r.view, r.key, opts...)
		cancel()
		if ctx.Err() != nil {
			return
		}
		h.check(r, epoch, sent, bound, res, err)
	}
}

func (r *row) known() sighting {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.newest
}

// before is the highest number that anybody had seen by then.
func (r *row) before(then time.Time) (s sighting) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, have := range r.seen {
		if have.at.After(then) {
			break
		}
		s = have
	}
	return s
}

func (r *row) saw(s sighting) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.epoch > r.newest.epoch || s.epoch == r.newest.epoch && s.number > r.newest.number {
		r.newest = s
	}
	if n := len(r.seen); n == 0 || s.number > r.seen[n-1].number {
		if r.seen = append(r.seen, s); n >= 256 {
			r.seen = append(r.seen[:0], r.seen[n/2:]...)
		}
	}
}

func (h *history) check(r *row, known sighting, sent time.Time, bound time.Duration, res client.Result, err error) {
	now := time.Now()
	var got int64
	switch {
	case err == nil:
		var bad error
		if got, bad = number(r.view, res.Value.Data); bad != nil {
			h.fault("%s %s: %v", r.view, r.key, bad)
			return
		}
	case !errors.Is(err, store.ErrNotFound):
		h.refused.Add(1)
		n, _ := h.refusals.LoadOrStore(kindOf(err), new(atomic.Int64))
		n.(*atomic.Int64).Add(1)
		return
	}
	h.answers.Add(1)
	a := res.Answer
	said := fmt.Sprintf("%d by %s (%v) at epoch %d, age %s", got, a.Instance, a.Facts.Role, a.Epoch, a.Facts.Age)
	if most := r.sent.Load(); got > most {
		h.fault("%s %s: %s; sent %d", r.view, r.key, said, most)
	}
	if a.Facts.Age > bound {
		h.fault("%s %s: %s; bound %s", r.view, r.key, said, bound)
	}
	// Whoever answers at a later epoch, not from a cache, has all that was ever answered before.
	if a.Facts.Role == store.RoleActive && a.Epoch > known.epoch && got < known.number {
		h.fault("%s %s: %s; %d at epoch %d before", r.view, r.key, said, known.number, known.epoch)
	}
	// The state was whole at the moment of the answer less its age: it has what anybody had seen by then.
	if past := r.before(sent.Add(-a.Facts.Age)); got < past.number {
		h.fault("%s %s: %s; but %d was seen %s before the request", r.view, r.key, said, past.number, sent.Sub(past.at))
	}
	if got > 0 {
		r.saw(sighting{at: now, epoch: a.Epoch, number: got})
	}
}

// number is the value of a row.
func number(view store.Name, data []byte) (int64, error) {
	if len(data) != 8 {
		return 0, fmt.Errorf("%d bytes, want a number of 8", len(data))
	}
	n := binary.BigEndian.Uint64(data)
	if view == "totals" {
		return int64(math.Float64frombits(n)), nil
	}
	return int64(n), nil
}

// kindOf names the kind of a refusal for the summary.
func kindOf(err error) string {
	for _, kind := range []error{store.ErrNotReady, store.ErrMoved, store.ErrNoReplica, store.ErrShuttingDown, store.ErrOverloaded, context.DeadlineExceeded} {
		if errors.Is(err, kind) {
			return kind.Error()
		}
	}
	return "unreachable"
}
