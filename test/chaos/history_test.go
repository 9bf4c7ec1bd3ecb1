//go:build chaos

package chaos

import (
	"context"
	"errors"
	"fmt"
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
	view    = "counts"
	topic   = "events"
	keys    = 500
	staleOK = 10 * time.Second // the bound of the readers: above the session timeout, so that it decides nothing by itself
)

func keyOf(i int) []byte { return fmt.Appendf(nil, "key-%04d", i) }

// history is what producers and readers did and saw. Sent counts are raised before a record leaves, acked ones after its
// acknowledgement: the truth lies between.
type history struct {
	sent, acked [keys]atomic.Int64

	mu     sync.Mutex
	newest [keys]seen
	faults []string

	answers, refused atomic.Int64
	refusals         sync.Map // error text -> *atomic.Int64
}

// seen is the newest answer for a key by the epoch it was given under.
type seen struct {
	epoch router.Epoch
	count int64
}

func (h *history) fault(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.faults) < 20 {
		h.faults = append(h.faults, fmt.Sprintf(format, args...))
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
		for range 4 {
			i := rng.IntN(keys)
			h.sent[i].Add(1)
			cl.Produce(patient, &kgo.Record{Key: keyOf(i), Value: []byte("x")}, func(_ *kgo.Record, err error) {
				if err != nil {
					failed.Store(&err)
					return
				}
				h.acked[i].Add(1)
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

// read asks for random keys at random instances until ctx ends and checks each answer.
func (h *history) read(ctx context.Context, c *client.Client, endpoints []string, rng *rand.Rand) {
	for ctx.Err() == nil {
		i := rng.IntN(keys)
		opts := []client.Option{client.MaxStaleness(staleOK), client.NoCache()}
		if rng.IntN(2) == 0 {
			opts = append(opts, client.Via(endpoints[rng.IntN(len(endpoints))]))
		}
		before := h.known(i)
		call, cancel := context.WithTimeout(ctx, 2*time.Second)
		r, err := c.Get(call, view, keyOf(i), opts...)
		cancel()
		if ctx.Err() != nil {
			return
		}
		h.check(i, before, r, err)
	}
}

// known is the newest answer for a key before a request is sent.
func (h *history) known(i int) seen {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.newest[i]
}

func (h *history) check(i int, before seen, r client.Result, err error) {
	if errors.Is(err, store.ErrNotFound) {
		h.answers.Add(1)
		// The proof of absence bears the epoch it was given under: an older owner may be within the bound.
		if before.count > 0 && r.Answer.Epoch > before.epoch {
			h.fault("key %d: not found at epoch %d, %d at epoch %d before", i, r.Answer.Epoch, before.count, before.epoch)
		}
		return
	}
	if err != nil {
		h.refused.Add(1)
		n, _ := h.refusals.LoadOrStore(kindOf(err), new(atomic.Int64))
		n.(*atomic.Int64).Add(1)
		return
	}
	h.answers.Add(1)
	got, derr := client.Int64().Decode(r.Value.Data)
	if derr != nil {
		h.fault("key %d: %v", i, derr)
		return
	}
	if sent := h.sent[i].Load(); got > sent {
		h.fault("key %d: counted %d, sent %d", i, got, sent)
	}
	if r.Answer.Facts.Age > staleOK {
		h.fault("key %d: age %s above the bound", i, r.Answer.Facts.Age)
	}
	if r.Answer.Epoch > before.epoch && got < before.count {
		h.fault("key %d: %d at epoch %d, %d at epoch %d before", i, got, r.Answer.Epoch, before.count, before.epoch)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := &h.newest[i]; r.Answer.Epoch > n.epoch || r.Answer.Epoch == n.epoch && got > n.count {
		*n = seen{epoch: r.Answer.Epoch, count: got}
	}
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
