package processor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/processor/internal/topics"
	"github.com/statemesh/statemesh/store"
)

const (
	tableTopic = "table"
	tableStore = store.Name("latest")
)

// tableTopology keeps the latest value of each key of a topic, which is its own changelog, and writes each change out as
// "old>new".
func tableTopology() *Topology {
	return NewTopology().
		AddSource("table-source", SourceOptions{}, tableTopic).
		AddProcessor("latest", func() Processor { return &latest{} }, "table-source").
		AddStateStore(store.Spec{Name: tableStore, Kind: store.KindTimestampedKeyValue}, "latest").
		ReuseSourceTopic(tableStore, "latest").
		AddSink("changes", SinkOptions{}, testOut, "latest")
}

type latest struct {
	ctx *Context
	kv  store.KeyValue
}

func (l *latest) Init(ctx *Context) (err error) {
	l.ctx = ctx
	l.kv, err = ctx.Store(tableStore)
	return err
}

func (l *latest) Process(r *Record) error {
	switch {
	case r.Key == nil:
		l.ctx.Drop("null key")
		return nil
	case string(r.Value) == "bad":
		return &DeserializationError{Reason: "bad value", Err: errors.New("it is bad")}
	}
	old, err := l.kv.Get(r.Key)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	value := r.Value
	for _, h := range r.Headers { // a restore must see them too
		value = append(slices.Clone(value), h.Value...)
	}
	if err := l.kv.Put(r.Key, store.Value{Data: value, Timestamp: r.Timestamp}); err != nil {
		return err
	}
	return l.ctx.ForwardTo("changes", Record{Key: r.Key, Value: fmt.Appendf(nil, "%s>%s", old.Data, value), Timestamp: r.Timestamp})
}

func (l *latest) Close() error { return nil }

// compacted creates a topic that keeps the last record of each key.
func (f *fleet) compacted(topic string, partitions int32) {
	f.t.Helper()
	adm := kadm.NewClient(f.client)
	resp, err := adm.CreateTopic(f.t.Context(), partitions, 1, map[string]*string{"cleanup.policy": new("compact")}, topic)
	if err = errors.Join(err, resp.Err); err != nil {
		f.t.Fatal(err)
	}
}

// table is what was written to the table topic.
type table struct {
	f      *fleet
	n      int
	latest map[string]string   // what the store must hold
	chain  map[string][]string // the values of each key, one after the other
}

func newTable(f *fleet) *table {
	return &table{f: f, latest: map[string]string{}, chain: map[string][]string{}}
}

// write produces n records over k keys: values, tombstones, what cannot be read, records with headers and without a key.
func (tb *table) write(rng *rand.Rand, n, k int) {
	tb.f.t.Helper()
	records := make([]*kgo.Record, n)
	for i := range records {
		tb.n++
		key, value := fmt.Sprintf("key-%02d", rng.IntN(k)), fmt.Sprintf("v%d", tb.n)
		r := &kgo.Record{Topic: tableTopic, Key: []byte(key), Value: []byte(value)}
		switch rng.IntN(8) {
		case 0:
			r.Value, value = []byte("bad"), "bad"
		case 1:
			r.Value, value = nil, ""
		case 2:
			r.Headers, value = []kgo.RecordHeader{{Key: "h", Value: []byte("+h")}}, value+"+h"
		case 3:
			value = "bad"
			if tb.f.cluster != nil {
				r.Key = nil // Kafka takes none in a compacted topic, and one that was compacted later may have some
			} else {
				r.Value = []byte("bad")
			}
		}
		records[i] = r
		if value == "bad" {
			continue
		}
		tb.chain[key] = append(tb.chain[key], value)
		if tb.latest[key] = value; value == "" {
			delete(tb.latest, key)
		}
	}
	if err := tb.f.client.ProduceSync(tb.f.t.Context(), records...).FirstErr(); err != nil {
		tb.f.t.Fatal(err)
	}
}

// check compares stores and output with what was written.
func (tb *table) check(instances ...*instance) {
	tb.f.t.Helper()
	have := map[string]string{}
	for _, in := range instances {
		for _, info := range in.rt.Tasks() {
			r, err := in.rt.Read(tb.f.t.Context(), tableStore, info.ID.Partition, store.ReadOptions{})
			if err != nil {
				tb.f.t.Fatal(err)
			}
			maps.Copy(have, rows(tb.f.t, r))
			r.Close()
		}
	}
	if fmt.Sprint(have) != fmt.Sprint(tb.latest) {
		tb.f.t.Fatalf("store has %v, want %v", have, tb.latest)
	}
	// A real broker shows a transaction in one partition a little later than in another.
	tb.f.eventually("all changes", time.Minute, func() error {
		for key, values := range tb.f.texts(testOut) {
			old := ""
			for i, v := range values {
				if i >= len(tb.chain[key]) || v != old+">"+tb.chain[key][i] {
					tb.f.t.Fatalf("changes of %s: %v, want the chain of %v", key, values, tb.chain[key])
				}
				old = tb.chain[key][i]
			}
			if len(values) != len(tb.chain[key]) {
				return fmt.Errorf("changes of %s: %d, want %d", key, len(values), len(tb.chain[key]))
			}
		}
		return nil
	})
}

// rows reads a store to its end.
func rows(tb testing.TB, r store.Reading) map[string]string {
	tb.Helper()
	it, err := keyValue(tb, r).Scan(tb.Context(), store.Scan{})
	if err != nil {
		tb.Fatal(err)
	}
	defer it.Close()
	m := map[string]string{}
	for it.Next() {
		m[string(it.Entry().Key)] = string(it.Entry().Data)
	}
	if err := it.Err(); err != nil {
		tb.Fatal(err)
	}
	return m
}

// texts reads the committed records of a topic, by key, in order.
func (f *fleet) texts(topic string) map[string][]string {
	f.t.Helper()
	ends, err := kadm.NewClient(f.client).ListCommittedOffsets(f.t.Context(), topic)
	if err != nil {
		f.t.Fatal(err)
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(f.brokers...), kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100 * time.Millisecond),
	}
	if f.dial != nil {
		opts = append(opts, kgo.Dialer(f.dial))
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		f.t.Fatal(err)
	}
	defer cl.Close()
	left, all := map[int32]int64{}, map[string][]string{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	for len(left) > 0 {
		ctx, cancel := context.WithTimeout(f.t.Context(), 20*time.Second)
		fetches := cl.PollFetches(ctx)
		cancel()
		if err := fetches.Err0(); err != nil {
			f.t.Fatalf("read %s: %v, left %v", topic, err, left)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
			if !r.Attrs.IsControl() {
				all[string(r.Key)] = append(all[string(r.Key)], string(r.Value))
			}
		})
	}
	return all
}

// TestSimSourceTopicAsChangelog: a store that is restored from its source topic stops at the committed offset, and what lies
// beyond is processed (semantics 3.1): over kills, with the same disk and with empty ones, every change goes out once, with
// the value before it. What could not be read is not in a restored store either.
func TestSimSourceTopicAsChangelog(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 2)
		f.compacted(tableTopic, 2)
		f.topo = tableTopology
		f.options = func(c *Config) { c.DeserializationHandler, c.SessionTimeout = Continue, 6*time.Second }
		tb := newTable(f)
		tb.write(rng, 100, 12)
		in := f.start("a")
		in.waitRunning()
		for i := range 4 {
			for range 3 {
				tb.write(rng, 20, 12)
				time.Sleep(time.Duration(rng.IntN(250)) * time.Millisecond)
			}
			in.kill(fmt.Sprintf("disk%d", i))
			tb.write(rng, 40, 12) // beyond what the dead one has committed
			name := fmt.Sprintf("disk%d", i)
			if rng.IntN(3) > 0 {
				name = fmt.Sprintf("empty%d", i)
			}
			in = f.start(name)
			if rng.IntN(2) == 0 {
				time.Sleep(time.Duration(rng.IntN(9000)) * time.Millisecond)
				continue // killed again on the way
			}
			f.reap(in)
			f.eventually("served", 2*time.Minute, func() error { return allServe(2, in) })
			f.waitCaughtUp(2 * time.Minute)
			tb.check(in)
		}
		f.reap(in)
		f.eventually("served", 2*time.Minute, func() error { return allServe(2, in) })
		tb.write(rng, 20, 12)
		f.waitCaughtUp(2 * time.Minute)
		tb.check(in)
		names, err := kadm.NewClient(f.client).ListTopics(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names.Names() {
			if strings.Contains(name, "changelog") {
				t.Errorf("topic %s was created", name)
			}
		}
		r, err := in.rt.Read(t.Context(), tableStore, 0, store.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		end, err := kadm.NewClient(f.client).ListEndOffsets(t.Context(), tableTopic)
		if err != nil {
			t.Fatal(err)
		}
		last, _ := end.Lookup(tableTopic, 0)
		if cut := r.Facts().Token.Cuts[0]; cut.TopicID == [16]byte{} || int64(cut.Next) != last.Offset {
			t.Errorf("token %+v, want the end of the source topic, %d", cut, last.Offset)
		}
	})
}

// TestSimCompactedSourceIsNoState: when the source topic has lost a value from before the committed offset because there is a
// newer one beyond it, the restored store lacks the key. It does not say so: it answers when processing has come to where the
// topic ended.
func TestSimCompactedSourceIsNoState(t *testing.T) {
	simulate(t, func(t *testing.T, _ *rand.Rand) {
		f := newFleet(t, true, 1)
		f.compacted(tableTopic, 1)
		f.topo = tableTopology
		one := func(key, value string) {
			t.Helper()
			if err := f.client.ProduceSync(t.Context(), &kgo.Record{Topic: tableTopic, Key: []byte(key), Value: []byte(value)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		in := f.start("a")
		in.waitRunning()
		one("other", "1")
		one("k", "old")
		one("third", "1")
		f.waitCaughtUp(time.Minute)
		if err := in.stop(); err != nil {
			t.Fatal(err)
		}
		one("k", "new")
		one("last", "1")
		f.cluster.Compact()
		f.paused = true
		for i, name := range []string{"empty", "empty"} { // the second time from a copy that is no state yet
			in = f.start(name, func(c *Config) { c.StateCleanupDelay = -1 })
			f.eventually("restored", time.Minute, func() error {
				_, err := in.rt.Read(t.Context(), tableStore, 0, store.ReadOptions{})
				if e, ok := errors.AsType[*store.NotReadyError](err); !ok || e.Total <= e.Restored || e.Restored == 0 {
					return fmt.Errorf("not restored, or it answers: %w", err)
				}
				return nil
			})
			time.Sleep(time.Duration(10+i) * time.Second)
			if _, err := in.rt.Read(t.Context(), tableStore, 0, store.ReadOptions{}); !errors.Is(err, store.ErrNotReady) {
				t.Fatalf("start %d: a read of what never was: %v", i, err)
			}
			if i == 0 {
				if err := in.stop(); err != nil {
					t.Fatal(err)
				}
			}
		}
		in.rt.Resume()
		f.eventually("served", time.Minute, func() error { return allServe(1, in) })
		r, err := in.rt.Read(t.Context(), tableStore, 0, store.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if have := fmt.Sprint(rows(t, r)); have != "map[k:new last:1 other:1 third:1]" {
			t.Errorf("have %s", have)
		}
	})
}

// TestSimSourceThatForgetsIsRefused: a topic that deletes by time cannot stand in for a changelog (CR-16).
func TestSimSourceThatForgetsIsRefused(t *testing.T) {
	simulate(t, func(t *testing.T, _ *rand.Rand) {
		f := newFleet(t, true, 1)
		adm := kadm.NewClient(f.client)
		if _, err := adm.CreateTopic(t.Context(), 1, 1, map[string]*string{"cleanup.policy": new("delete"), "retention.ms": new("1000")}, tableTopic); err != nil {
			t.Fatal(err)
		}
		f.topo = tableTopology
		in := f.start("a")
		<-in.done
		if e, ok := errors.AsType[*topics.MismatchError](in.err); !ok || e.Topic != tableTopic || e.Setting != "cleanup.policy" {
			t.Errorf("have %v", in.err)
		}
	})
}

// TestSimReadOnlyStore (KIP-813): a store that is fed from a topic is read by another processor, which may not write it.
func TestSimReadOnlyStore(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 2)
		f.compacted(tableTopic, 2)
		f.options = func(c *Config) { c.ProcessingHandler = Continue }
		f.topo = func() *Topology {
			return NewTopology().
				AddReadOnlyStateStore(store.Spec{Name: tableStore, Kind: store.KindTimestampedKeyValue}, "table-source", SourceOptions{}, tableTopic,
					"latest", func() Processor { return &tableKeeper{} }).
				AddSource("source", SourceOptions{}, testInput).
				AddProcessor("join", func() Processor { return &joiner{} }, "source").
				ConnectProcessorAndStateStores("join", tableStore).
				AddSink("sink", SinkOptions{}, testOut, "join")
		}
		write := func(topic, key, value string) {
			t.Helper()
			if err := f.client.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Key: []byte(key), Value: []byte(value)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 20 {
			write(tableTopic, fmt.Sprint(i), fmt.Sprintf("name-%d", i))
		}
		a := f.start("a")
		a.waitRunning()
		f.waitCaughtUp(time.Minute)
		a.kill("gone")
		b := f.start("empty")
		f.eventually("served", 2*time.Minute, func() error { return allServe(2, b) })
		want := map[string][]string{}
		for range 30 {
			k := fmt.Sprint(rng.IntN(20))
			write(testInput, k, "x")
			want[k] = append(want[k], "name-"+k)
		}
		f.waitCaughtUp(time.Minute)
		if have := f.texts(testOut); fmt.Sprint(have) != fmt.Sprint(want) {
			t.Errorf("joined %v, want %v", have, want)
		}
	})
}

// tableKeeper puts what it reads into the table's store.
type tableKeeper struct{ kv store.KeyValue }

func (k *tableKeeper) Init(ctx *Context) (err error) {
	k.kv, err = ctx.Store(tableStore)
	return err
}

func (k *tableKeeper) Process(r *Record) error {
	return k.kv.Put(r.Key, store.Value{Data: r.Value, Timestamp: r.Timestamp})
}

func (k *tableKeeper) Close() error { return nil }

// joiner looks its records up in the table's store.
type joiner struct {
	ctx *Context
	kv  store.KeyValue
}

func (j *joiner) Init(ctx *Context) (err error) {
	j.ctx = ctx
	j.kv, err = ctx.Store(tableStore)
	return err
}

func (j *joiner) Process(r *Record) error {
	if err := j.kv.Put(r.Key, store.Value{Data: r.Value}); err == nil {
		return errors.New("a reader of a read-only store has written it")
	}
	v, err := j.kv.Get(r.Key)
	if err != nil {
		return err
	}
	return j.ctx.Forward(Record{Key: r.Key, Value: v.Data, Timestamp: r.Timestamp})
}

func (j *joiner) Close() error { return nil }
