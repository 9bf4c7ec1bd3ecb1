package processor

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/store"
)

const globalName = store.Name("names")

// globalTopology joins each record of the input, whatever its key's partition, with the global store: "key=name".
func globalTopology() *Topology {
	return NewTopology().
		AddGlobalStore(store.Spec{Name: globalName, Kind: store.KindTimestampedKeyValue}, "names-source", SourceOptions{}, tableTopic,
			"names-keeper", func() Processor { return &globalKeeper{} }).
		AddSource("source", SourceOptions{}, testInput).
		AddProcessor("join", func() Processor { return &globalJoiner{} }, "source").
		AddSink("sink", SinkOptions{}, testOut, "join")
}

type globalKeeper struct{ kv store.KeyValue }

func (k *globalKeeper) Init(ctx *Context) (err error) {
	k.kv, err = ctx.Store(globalName)
	return err
}

func (k *globalKeeper) Process(r *Record) error {
	if string(r.Value) == "bad" {
		return &DeserializationError{Reason: "bad value", Err: errors.New("it is bad")}
	}
	return k.kv.Put(r.Key, store.Value{Data: r.Value, Timestamp: r.Timestamp})
}

func (k *globalKeeper) Close() error { return nil }

type globalJoiner struct {
	ctx *Context
	kv  store.KeyValue
}

func (j *globalJoiner) Init(ctx *Context) (err error) {
	j.ctx = ctx
	j.kv, err = ctx.Store(globalName)
	return err
}

func (j *globalJoiner) Process(r *Record) error {
	if _, _, err := j.kv.Delete(r.Value); err == nil {
		return errors.New("a processor has written a global store")
	}
	v, err := j.kv.Get(r.Value)
	if err != nil {
		return fmt.Errorf("%s: %w", r.Value, err)
	}
	return j.ctx.Forward(Record{Key: r.Key, Value: v.Data, Timestamp: r.Timestamp})
}

func (j *globalJoiner) Close() error { return nil }

// names is what the global topic holds.
type names struct {
	f    *fleet
	want map[string]string
	n    int
	// prefix of the keys; "" is "name".
	prefix string
}

func (n *names) write(rng *rand.Rand, count int) store.Token {
	n.f.t.Helper()
	records := make([]*kgo.Record, count)
	for i := range records {
		n.n++
		key, value := fmt.Sprintf("%s-%02d", cmp.Or(n.prefix, "name"), rng.IntN(20)), fmt.Sprintf("v%d", n.n)
		records[i] = &kgo.Record{Topic: tableTopic, Key: []byte(key), Value: []byte(value)}
		n.want[key] = value
		if rng.IntN(6) == 0 {
			records[i].Value = nil
			delete(n.want, key)
		}
	}
	res := n.f.client.ProduceSync(n.f.t.Context(), records...)
	if err := res.FirstErr(); err != nil {
		n.f.t.Fatal(err)
	}
	token := store.Token{Inputs: store.Position{}}
	for _, r := range res {
		token.Inputs.Set(tableTopic, store.Partition(r.Record.Partition), store.Offset(r.Record.Offset))
	}
	return token
}

// check reads the whole store on each instance, at least as new as token.
func (n *names) check(token store.Token, instances ...*instance) {
	n.f.t.Helper()
	for _, in := range instances {
		r, err := in.rt.Read(n.f.t.Context(), globalName, EveryPartition, store.ReadOptions{AtLeast: token, Wait: time.Minute})
		if err != nil {
			n.f.t.Fatalf("%s: %v", in.dir, err)
		}
		if have := rows(n.f.t, r); fmt.Sprint(have) != fmt.Sprint(n.want) {
			n.f.t.Fatalf("%s has %v, want %v", in.dir, have, n.want)
		}
		facts := r.Facts()
		if facts.Token.Empty() || facts.Role != store.RoleActive || facts.Age > time.Hour {
			n.f.t.Errorf("facts %+v", facts)
		}
		r.Close()
	}
}

// TestSimGlobalStore: every instance holds the whole topic before it runs, follows it, goes on from its disk after a restart,
// and answers whatever partition a key is in; processors of any task read it.
func TestSimGlobalStore(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 3)
		f.compacted(tableTopic, 4)
		f.topo = globalTopology
		n := &names{f: f, want: map[string]string{}}
		n.write(rng, 200)
		a, b := f.start("a"), f.start("b")
		a.waitRunning()
		b.waitRunning()
		n.check(store.Token{}, a, b) // restored before it says RUNNING
		for range 10 {
			n.check(n.write(rng, 1+rng.IntN(30)), a, b)
			time.Sleep(time.Duration(rng.IntN(400)) * time.Millisecond)
		}
		for range 10 { // what was acknowledged longer ago than the age is in the answer
			n.write(rng, 1+rng.IntN(60))
			time.Sleep(time.Second)
			for _, in := range []*instance{a, b} {
				r, err := in.rt.Read(t.Context(), globalName, 0, store.ReadOptions{MaxAge: time.Second})
				if err != nil {
					t.Fatal(err)
				}
				if have := rows(t, r); fmt.Sprint(have) != fmt.Sprint(n.want) {
					t.Fatalf("%s has %v at age %s, want %v", in.dir, have, r.Facts().Age, n.want)
				}
				r.Close()
			}
		}
		// A session that goes from one instance to the other never goes back.
		r, err := a.rt.Read(t.Context(), globalName, 0, store.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		token := r.Facts().Token
		r.Close()
		if len(token.Cuts) != 4 {
			t.Errorf("token %s, want 4 cuts", token)
		}
		n.check(token, b)

		join := func(want int) { // any task joins with any key
			t.Helper()
			for k := range n.want {
				for i := range 6 {
					rec := &kgo.Record{Topic: testInput, Key: fmt.Append(nil, i), Value: []byte(k)}
					if err := f.client.ProduceSync(t.Context(), rec).FirstErr(); err != nil {
						t.Fatal(err)
					}
				}
				break
			}
			f.waitCaughtUp(time.Minute)
			out := f.texts(testOut)
			if len(out) != 6 || len(out["5"]) != want {
				t.Errorf("joined %v", out)
			}
		}
		join(1)
		// Bounded ages are met while the topic is quiet, and not by one that is cut off. What processors read is not left open by
		// a query, however long it lasts, and is read where it has moved to.
		time.Sleep(10 * time.Minute)
		join(2)
		if a.rt.globals[globalName].view.Load().snap.Outlived() {
			t.Error("processors read what was moved to the engine long ago")
		}
		if r, err := a.rt.Read(t.Context(), globalName, 0, store.ReadOptions{MaxAge: 2 * time.Second}); err != nil {
			t.Errorf("bounded read: %v", err)
		} else {
			r.Close()
		}
		a.cut.cut()
		time.Sleep(20 * time.Second)
		if _, err := a.rt.Read(t.Context(), globalName, 0, store.ReadOptions{MaxAge: 2 * time.Second}); !errors.Is(err, store.ErrNotReady) {
			t.Errorf("bounded read of a copy that is cut off: %v", err)
		}
		behind := n.write(rng, 10)
		began := time.Now()
		if _, err := a.rt.Read(t.Context(), globalName, 0, store.ReadOptions{AtLeast: behind, Wait: 3 * time.Second}); !errors.Is(err, store.ErrBehind) {
			t.Errorf("read at least what it cannot have: %v", err)
		} else if took := time.Since(began); took != 3*time.Second {
			t.Errorf("waited %s", took)
		}
		a.cut.mend()
		n.check(behind, a, b)
		f.reap(a, b)
		f.settled(a, b)

		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		if _, err := b.rt.Read(t.Context(), globalName, 0, store.ReadOptions{}); !errors.Is(err, store.ErrShuttingDown) {
			t.Errorf("read after the end: %v", err)
		}
		last := n.write(rng, 20)
		b = f.start("b")
		b.waitRunning()
		n.check(last, a, b)
		if id := b.rt.globals[globalName].id; id.Subtopology != 0 && id.Subtopology != 1 {
			t.Errorf("id %s", id)
		}
		f.eventually("metadata", time.Minute, func() error {
			snap := b.table.Load()
			if snap == nil {
				return errors.New("none yet")
			}
			if infos := snap.Stores(); len(infos) != 1 || !infos[0].Global || infos[0].Partitions != 1 {
				t.Fatalf("stores %+v", infos)
			}
			return nil
		})
	})
}

// TestSimGlobalTopicIsMadeAnew: a topic that is deleted and created again, or truncated, is another topic: the copy is rebuilt,
// the instance goes on, and tokens of the old one are refused by name (CR-07). A disk that takes no writes when the copy is to be dropped
// only delays that.
func TestSimGlobalTopicIsMadeAnew(t *testing.T) {
	for name, refuses := range map[string]error{"and read": nil, "while the disk takes no writes": errDiskBroken} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, rng *rand.Rand) { globalMadeAnew(t, rng, refuses) })
		})
	}
}

func globalMadeAnew(t *testing.T, rng *rand.Rand, refuses error) {
	f := newFleet(t, true, 1)
	f.compacted(tableTopic, 2)
	f.topo = globalTopology
	n := &names{f: f, want: map[string]string{}}
	first := n.write(rng, 100)
	a := f.start("a")
	a.waitRunning()
	n.check(first, a)
	r, err := a.rt.Read(t.Context(), globalName, 0, store.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	token := r.Facts().Token
	r.Close()
	a.disk.becomes(0, refuses)
	adm := kadm.NewClient(f.client)
	if _, err := adm.DeleteTopics(t.Context(), tableTopic); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
	f.compacted(tableTopic, 2)
	again, err := kgo.NewClient(kgo.SeedBrokers(f.brokers...), kgo.Dialer(f.dial)) // which has not known the old topic
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	f.client = again
	n.want = map[string]string{}
	second := n.write(rng, 5+rng.IntN(200)) // fewer records than before, or more
	if refuses != nil {
		time.Sleep(time.Minute)
		a.disk.becomes(0, nil)
	}
	f.eventually("rebuilt", 2*time.Minute, func() error {
		r, err := a.rt.Read(t.Context(), globalName, 0, store.ReadOptions{AtLeast: second, Wait: 5 * time.Second})
		if err != nil {
			return err
		}
		defer r.Close()
		if have := rows(t, r); fmt.Sprint(have) != fmt.Sprint(n.want) {
			return fmt.Errorf("have %v, want %v", have, n.want)
		}
		return nil
	})
	_, err = a.rt.Read(t.Context(), globalName, 0, store.ReadOptions{AtLeast: token, Wait: time.Hour})
	if e, ok := errors.AsType[*store.InvalidRequestError](err); !ok || e.Field != "at_least" || !strings.Contains(e.Reason, tableTopic) {
		t.Errorf("a token of the old topic: %v", err)
	}
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	// Truncated below the position while nobody looked.
	third := n.write(rng, 50)
	var cut kadm.Offsets
	ends, err := adm.ListEndOffsets(t.Context(), tableTopic)
	if err != nil {
		t.Fatal(err)
	}
	ends.Each(func(o kadm.ListedOffset) { cut.Add(kadm.Offset{Topic: o.Topic, Partition: o.Partition, At: o.Offset}) })
	if _, err := adm.DeleteRecords(t.Context(), cut); err != nil {
		t.Fatal(err)
	}
	n.want = map[string]string{}
	third.Raise(n.write(rng, 10))
	a = f.start("a")
	a.waitRunning()
	n.check(third, a)
}

// TestSimGlobalStart: the start of a global store ends (CR-04): with success over a tail that was aborted, and with an error
// that names the topic when there is none.
func TestSimGlobalStart(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 1)
		f.topo = globalTopology
		none := f.start("none")
		<-none.done
		if none.err == nil || !strings.Contains(none.err.Error(), tableTopic) {
			t.Errorf("no topic: %v", none.err)
		}
		f.compacted(tableTopic, 2)
		n := &names{f: f, want: map[string]string{}}
		n.write(rng, 30)
		producer, err := kgo.NewClient(kgo.SeedBrokers(f.brokers...), kgo.Dialer(f.dial), kgo.TransactionalID("another"))
		if err != nil {
			t.Fatal(err)
		}
		defer producer.Close()
		if err := producer.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			rec := &kgo.Record{Topic: tableTopic, Key: fmt.Appendf(nil, "name-%02d", i), Value: []byte("aborted")}
			if err := producer.ProduceSync(t.Context(), rec).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		a := f.start("a")
		time.Sleep(10 * time.Second)
		if a.rt.State() == Running {
			t.Error("it runs although what its topic held is not decided")
		}
		if _, err := a.rt.Read(t.Context(), globalName, 0, store.ReadOptions{}); !errors.Is(err, store.ErrNotReady) {
			t.Errorf("read of a store that is not restored: %v", err)
		}
		if err := producer.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
			t.Fatal(err)
		}
		a.waitRunning()
		n.check(store.Token{}, a)
	})
}

// TestSimGlobalBadRecord: a record that cannot be read is skipped or ends the instance, as the handler says.
func TestSimGlobalBadRecord(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 1)
		f.compacted(tableTopic, 1)
		f.topo = globalTopology
		n := &names{f: f, want: map[string]string{}}
		n.write(rng, 10)
		a := f.start("a", func(c *Config) { c.DeserializationHandler = Continue })
		b := f.start("b")
		b.waitRunning()
		bad := &kgo.Record{Topic: tableTopic, Key: []byte("x"), Value: []byte("bad")}
		if err := f.client.ProduceSync(t.Context(), bad).FirstErr(); err != nil {
			t.Fatal(err)
		}
		n.check(store.Token{Inputs: store.Position{tableTopic: {0: store.Offset(bad.Offset)}}}, a)
		<-b.done
		if e, ok := errors.AsType[*TaskError](b.err); !ok || e.Record == nil || e.Record.Offset != bad.Offset {
			t.Errorf("default handler: %v", b.err)
		}
	})
}

// TestSimGlobalWaitsForAProof: a reader with a token and a bounded age waits for the proof of the age, which comes without a
// commit when the topic is quiet.
func TestSimGlobalWaitsForAProof(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 1)
		f.compacted(tableTopic, 2)
		f.topo = globalTopology
		n := &names{f: f, want: map[string]string{}}
		token := n.write(rng, 20)
		a := f.start("a")
		a.waitRunning()
		n.check(token, a)
		a.cut.cut()
		time.Sleep(20 * time.Second)
		time.AfterFunc(time.Second, a.cut.mend)
		began := time.Now()
		r, err := a.rt.Read(t.Context(), globalName, 0, store.ReadOptions{AtLeast: token, MaxAge: 2 * time.Second, Wait: time.Minute})
		if err != nil {
			t.Fatalf("after %s: %v", time.Since(began), err)
		}
		r.Close()
		if took := time.Since(began); took < time.Second || took > 30*time.Second {
			t.Errorf("answered after %s", took)
		}
	})
}

// TestSimGlobalPartitionsAdded: partitions that the topic gets while instances follow it are followed too, from their first
// record on; what the copy had stays, answers all the while and goes on. The metrics say how far it is.
func TestSimGlobalPartitionsAdded(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 1)
		f.compacted(tableTopic, 2)
		f.topo = globalTopology
		n := &names{f: f, want: map[string]string{}}
		first := n.write(rng, 100)
		reg := prometheus.NewRegistry()
		a := f.start("a", func(c *Config) { c.Registerer = reg })
		a.waitRunning()
		n.check(first, a)
		if restoring, lag, records := metric(t, reg, "global_restoring"), metric(t, reg, "global_lag_offsets"), metric(t, reg, "global_records_total"); restoring != 0 || lag != 0 || records != 100 {
			t.Errorf("restored: restoring %v, lag %v, %v records", restoring, lag, records)
		}
		time.Sleep(time.Duration(rng.IntN(40_000)) * time.Millisecond)
		if resp, err := kadm.NewClient(f.client).UpdatePartitions(t.Context(), 5, tableTopic); err != nil || resp.Error() != nil {
			t.Fatal(err, resp.Error())
		}
		again, err := kgo.NewClient(kgo.SeedBrokers(f.brokers...), kgo.Dialer(f.dial)) // which knows all partitions
		if err != nil {
			t.Fatal(err)
		}
		defer again.Close()
		f.client = again
		n.want = map[string]string{} // keys of their own, for a key's partition is another one now
		n.prefix = "later"
		second := store.Token{Inputs: store.Position{}}
		for range 20 {
			second.Raise(n.write(rng, 10))
			time.Sleep(time.Duration(rng.IntN(4000)) * time.Millisecond)
			r, err := a.rt.Read(t.Context(), globalName, EveryPartition, store.ReadOptions{AtLeast: first})
			if err != nil {
				t.Fatalf("while partitions were added: %v", err)
			}
			r.Close()
		}
		if len(second.Inputs[tableTopic]) != 5 {
			t.Fatalf("written to %v only", second.Inputs)
		}
		r, err := a.rt.Read(t.Context(), globalName, EveryPartition, store.ReadOptions{AtLeast: second, Wait: 2 * time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		have := rows(t, r)
		for key, want := range n.want {
			if fmt.Sprint(have[key]) != fmt.Sprint(want) {
				t.Errorf("%s is %v, want %s", key, have[key], want)
			}
		}
		if cuts := r.Facts().Token.Cuts; len(cuts) != 5 {
			t.Errorf("%d cuts in the token", len(cuts))
		}
		r.Close()
		if lag, records := metric(t, reg, "global_lag_offsets"), metric(t, reg, "global_records_total"); lag != 0 || records < 300 {
			t.Errorf("lag %v, %v records", lag, records)
		}
		if err := a.stop(); err != nil {
			t.Fatal(err)
		}
		if v := metric(t, reg, "global_restoring"); v != 1 {
			t.Errorf("restoring %v without a copy to read", v)
		}
	})
}
