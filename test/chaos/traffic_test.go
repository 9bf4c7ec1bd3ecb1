//go:build chaos

package chaos

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/client"
	"github.com/statemesh/statemesh/history"
	"github.com/statemesh/statemesh/store"
)

const (
	topic   = "events"
	keys    = 400
	groups  = 40
	hot     = 12               // keys of which the latest state is asked for
	staleOK = 20 * time.Second // a bound that no fault should break when somebody has a copy: above the longest fault
)

// mesh keeps four views of one topic: a count and the last value by the key of the record, and over a repartition topic a
// sum and a count by a field of it.
const mesh = `application.id: chaos
bootstrap.servers: [%s]
num.standby.replicas: %d
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
  - name: last
    topic: events
    format: json
    type: table
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

// views with their models, and whether a view's own partitions are those of the topic.
var views = []struct {
	name   string
	model  history.Model
	direct bool
}{{"counts", history.Counter, true}, {"last", history.Register, true}, {"totals", history.Counter, false}, {"groups", history.Counter, false}}

// row is one row of a view: what the acknowledged records make it.
type row struct {
	view string
	key  string

	mu     sync.Mutex
	number int64 // of a counter
	value  string
	offset int64 // of value
}

// traffics is what writes and reads, and records what it sees.
type traffics struct {
	rec                          *history.Recorder
	c                            *client.Client
	endpoints                    []string
	rows                         []*row
	counts, last, totals, groups []*row

	latest        *client.ReadSession // of all who ask for the latest
	acked, answer atomic.Int64
}

func newTraffic(rec *history.Recorder, c *client.Client, endpoints []string) *traffics {
	t := &traffics{rec: rec, c: c, endpoints: endpoints, latest: client.NewReadSession()}
	add := func(view string, n int, format string) (rows []*row) {
		for i := range n {
			rows = append(rows, &row{view: view, key: fmt.Sprintf(format, i), offset: -1})
		}
		t.rows = append(t.rows, rows...)
		return rows
	}
	t.counts = add("counts", keys, "key-%04d")
	t.last = add("last", keys, "key-%04d")
	t.totals = add("totals", groups, "group-%02d")
	t.groups = add("groups", groups, "group-%02d")
	for _, v := range views {
		rec.Store(v.name, v.model)
	}
	return t
}

func (r *row) add(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.number += n
}

func (r *row) set(value string, offset int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if offset > r.offset {
		r.value, r.offset = value, offset
	}
}

// want is what the row holds when everything has been processed; empty: nothing.
func (r *row) want() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.view == "last" || r.number == 0 {
		return r.value
	}
	return strconv.FormatInt(r.number, 10)
}

// produce sends numbered records of random keys until ctx ends, then waits for every acknowledgement.
func (t *traffics) produce(ctx context.Context, brokers []string, perSecond int, rng *rand.Rand) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.DefaultProduceTopic(topic),
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)), kgo.ProducerLinger(5*time.Millisecond))
	if err != nil {
		return err
	}
	defer cl.Close()
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	patient := context.WithoutCancel(ctx) // what was sent is waited for: only then is the truth known
	var failed atomic.Pointer[error]
	for n := int64(0); ctx.Err() == nil; n++ {
		k, g, amount := rng.IntN(keys), rng.IntN(groups), int64(1+rng.IntN(9))
		if rng.IntN(4) == 0 {
			k = rng.IntN(hot)
		}
		t.send(patient, cl, n, k, g, amount, &failed)
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

func (t *traffics) send(ctx context.Context, cl *kgo.Client, n int64, k, g int, amount int64, failed *atomic.Pointer[error]) {
	count, last, total, group := t.counts[k], t.last[k], t.totals[g], t.groups[g]
	value := fmt.Sprintf(`{"n":%d,"group":"%s","amount":%d}`, n, group.key, amount)
	w := t.rec.Write(history.Write{Topic: topic, Effects: []history.Effect{
		{Store: count.view, Key: history.Text(count.key), Add: 1},
		{Store: last.view, Key: history.Text(last.key), Set: history.Text(value)},
		{Store: total.view, Key: history.Text(total.key), Add: amount},
		{Store: group.view, Key: history.Text(group.key), Add: 1},
	}})
	cl.Produce(ctx, &kgo.Record{Key: []byte(count.key), Value: []byte(value)}, func(r *kgo.Record, err error) {
		if err != nil {
			w.Unknown("produce failed")
			failed.Store(&err)
			return
		}
		count.add(1)
		last.set(value, r.Offset)
		total.add(amount)
		group.add(1)
		for _, v := range views {
			if v.direct { // before the acknowledgement is recorded: who asks for the latest then insists on it
				t.latest.Wrote(store.Name(v.name), topic, store.Partition(r.Partition), store.Offset(r.Offset))
			}
		}
		t.acked.Add(1)
		w.Acked(store.Partition(r.Partition), store.Offset(r.Offset))
	})
}

// ask is how a reader chooses its next question.
type ask func(rng *rand.Rand) (q history.Read, opts []client.Option, patience time.Duration)

// readers are the kinds of readers, each with what it stands for.
func (t *traffics) readers() []ask {
	anyRow := func(rng *rand.Rand) history.Read {
		r := t.rows[rng.IntN(len(t.rows))]
		return history.Read{Store: r.view, Key: history.Text(r.key)}
	}
	session := client.NewReadSession()
	var all []ask
	for range 2 { // several of those that wait: one that waits asks nothing else
		all = append(all,
			func(rng *rand.Rand) (history.Read, []client.Option, time.Duration) { // who would rather have an old answer than none
				q := anyRow(rng)
				q.Class, q.Bound = "bounded", staleOK
				return q, []client.Option{client.MaxStaleness(q.Bound), client.NoCache()}, 5 * time.Second
			},
			func(rng *rand.Rand) (history.Read, []client.Option, time.Duration) { // who insists on the owner
				q := anyRow(rng)
				q.Active = true
				return q, []client.Option{client.OnlyActive()}, 30 * time.Second
			})
	}
	for range 2 { // whoever may answer, within bounds short and long
		all = append(all, func(rng *rand.Rand) (history.Read, []client.Option, time.Duration) {
			q := anyRow(rng)
			q.Class, q.Bound = "any bound", time.Duration(50+rng.IntN(2000))*time.Millisecond
			opts := []client.Option{client.MaxStaleness(q.Bound)}
			if rng.IntN(4) > 0 {
				opts = append(opts, client.NoCache())
			}
			if rng.IntN(2) == 0 {
				q.Class, q.Via = "direct", t.endpoints[rng.IntN(len(t.endpoints))]
				opts = append(opts, client.Via(q.Via))
			}
			return q, opts, 2 * time.Second
		})
	}
	return append(all,
		func(rng *rand.Rand) (history.Read, []client.Option, time.Duration) { // one who reads on and on
			q := anyRow(rng)
			q.Class, q.Session = "session", "reader"
			return q, []client.Option{client.InReadSession(session), client.Wait(2 * time.Second)}, 5 * time.Second
		},
		func(rng *rand.Rand) (history.Read, []client.Option, time.Duration) { // who wants the latest
			r := t.counts[rng.IntN(hot)]
			if rng.IntN(2) == 0 {
				r = t.last[rng.IntN(hot)]
			}
			q := history.Read{Store: r.view, Key: history.Text(r.key), Class: "latest", Latest: true}
			q.AtLeast = history.MarkOf(t.latest.Token(store.Name(r.view))) // and what comes to it until the request is sent
			return q, []client.Option{client.InReadSession(t.latest), client.Wait(2 * time.Second), client.NoCache()}, 5 * time.Second
		},
	)
}

// read asks until ctx ends.
func (t *traffics) read(ctx context.Context, next ask, rng *rand.Rand) {
	pace := time.NewTicker(12 * time.Millisecond)
	defer pace.Stop()
	for ctx.Err() == nil {
		q, opts, patience := next(rng)
		call, cancel := context.WithTimeout(ctx, patience)
		r := t.rec.Read(q)
		res, err := t.c.Get(call, store.Name(q.Store), []byte(q.Key), opts...)
		t.note(ctx, r, q.Store, res, err)
		cancel()
		select {
		case <-pace.C:
		case <-ctx.Done():
		}
	}
}

func (t *traffics) note(ctx context.Context, r history.Reading, view string, res client.Result, err error) {
	if ctx.Err() != nil {
		return // cut short by the end of the run: nothing can be said of it
	}
	a := history.AnswerOf(res.Answer.Partition, res.Answer.Facts).By(res.Answer.Endpoint, int64(res.Answer.Epoch))
	switch {
	case err == nil:
		t.answer.Add(1)
		r.Answered(a.With(text(view, res.Value.Data)))
	case errors.Is(err, store.ErrNotFound):
		t.answer.Add(1)
		r.Answered(a)
	default:
		r.Failed(kindOf(err))
	}
}

// scan reads whole views until ctx ends.
func (t *traffics) scan(ctx context.Context, rng *rand.Rand) {
	pace := time.NewTicker(500 * time.Millisecond)
	defer pace.Stop()
	for ctx.Err() == nil {
		view := views[rng.IntN(len(views))].name
		call, cancel := context.WithTimeout(ctx, 20*time.Second)
		r := t.rec.Read(history.Read{Store: view, Scan: true, Class: "scan"})
		a, err := t.scanned(call, view)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			r.Failed(kindOf(err))
		default:
			t.answer.Add(1)
			r.Answered(a)
		}
		select {
		case <-pace.C:
		case <-ctx.Done():
		}
	}
}

func (t *traffics) scanned(ctx context.Context, view string) (history.Answer, error) {
	oldest := time.Now()
	q := client.ScanQuery{Answers: func(all []client.Answer) {
		now := time.Now()
		for _, a := range all {
			if at := now.Add(-a.Facts.Age); at.Before(oldest) {
				oldest = at
			}
		}
	}}
	var a history.Answer
	for r, err := range t.c.Scan(ctx, store.Name(view), q) {
		if err != nil {
			return a, err
		}
		a.Rows = append(a.Rows, history.Pair{Key: history.Text(r.Key), Value: history.Text(text(view, r.Value.Data))})
	}
	a.Age = time.Since(oldest)
	return a, nil
}

// text is the value of a row as histories have it.
func text(view string, data []byte) string {
	if view == "last" {
		return string(data)
	}
	n, err := number(view, data)
	if err != nil {
		return err.Error() // no number: the judge says so
	}
	return strconv.FormatInt(n, 10)
}

// number is the value of a counter.
func number(view string, data []byte) (int64, error) {
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
	for _, kind := range []error{
		store.ErrNotReady, store.ErrMoved, store.ErrNoReplica, store.ErrBehind, store.ErrNotActive, store.ErrShuttingDown,
		store.ErrOverloaded, store.ErrClosed, client.ErrNoMap, context.DeadlineExceeded,
	} {
		if errors.Is(err, kind) {
			return kind.Error()
		}
	}
	return "unreachable"
}
