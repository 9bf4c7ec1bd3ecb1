package processor

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/statemesh/statemesh/store"
)

// bad produces n records that cannot be decoded to partition 0.
func (f *fleet) bad(n int) {
	f.t.Helper()
	for range n {
		r := &kgo.Record{Topic: testInput, Key: []byte("key-bad"), Value: []byte("bad"), Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("1")}}}
		if err := f.client.ProduceSync(f.t.Context(), r).FirstErr(); err != nil {
			f.t.Fatal(err)
		}
	}
}

func (f *fleet) committed(topic string, p int32) int64 {
	f.t.Helper()
	offsets, err := kadm.NewClient(f.client).FetchOffsets(f.t.Context(), testApp)
	if err != nil {
		f.t.Fatal(err)
	}
	o, ok := offsets.Lookup(topic, p)
	if !ok {
		return -1
	}
	return o.At
}

// TestBadInputSkipped: PL-13. The last records cannot be decoded: the offset ends after them, they are counted once, and a
// restart does not see them again.
func TestBadInputSkipped(t *testing.T) {
	t.Parallel()
	f := newFleet(t, false, 1)
	var mu sync.Mutex
	drops := 0
	f.options = func(c *Config) {
		c.DeserializationHandler = Continue
		c.Listener.Dropped = func(d DroppedInfo) {
			mu.Lock()
			defer mu.Unlock()
			drops++
			if d.Reason != "bad value" || d.Record.Topic != testInput {
				t.Errorf("dropped %+v", d)
			}
		}
	}
	tr := truth{}
	f.produce(tr, rand.New(rand.NewPCG(1, 1)), 100, 10)
	f.bad(50)
	for range 2 {
		a := f.start("a")
		a.waitRunning()
		f.waitCaughtUp(20 * time.Second)
		f.check(tr, a)
		if err := a.stop(); err != nil {
			t.Fatal(err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if drops != 50 {
		t.Fatalf("%d drops, want 50", drops)
	}
}

// TestBadInputFails: PL-13. By default the first bad record stops the application; the offset is that record's, and what
// came before it is committed.
func TestBadInputFails(t *testing.T) {
	t.Parallel()
	f := newFleet(t, false, 1)
	tr := truth{}
	f.produce(tr, rand.New(rand.NewPCG(1, 1)), 100, 10)
	f.bad(1)
	f.produce(truth{}, rand.New(rand.NewPCG(1, 2)), 100, 10)
	a := f.start("a")
	<-a.done
	failed, ok := errors.AsType[*TaskError](a.err)
	if !ok || failed.Record == nil || failed.Record.Offset != 100 || failed.Record.Topic != testInput {
		t.Fatalf("run: %v; want a task error at offset 100", a.err)
	}
	if !strings.Contains(a.err.Error(), "bad value") || !strings.Contains(a.err.Error(), "deserialization.exception.handler is fail") ||
		a.rt.State() != Failed {
		t.Fatalf("run: %v, state %s", a.err, a.rt.State())
	}
	if at := f.committed(testInput, 0); at != 100 {
		t.Fatalf("committed offset %d, want 100", at)
	}
	logged, _ := f.replay(testApp + "-counts-changelog")
	if fmt.Sprint(logged) != fmt.Sprint(map[string]uint64(tr)) {
		t.Fatalf("changelog is not what came before: %s", diff(logged, tr))
	}
}

// TestBadInputFailsAtLeastOnce: what the sinks have produced is on its way when the record fails, under no transaction.
// Going back must not take the records away under the producer: each output record is a right one, none is missing.
func TestBadInputFailsAtLeastOnce(t *testing.T) {
	t.Parallel()
	f := newFleet(t, false, 1)
	f.options = func(c *Config) { c.Guarantee = AtLeastOnce }
	tr := truth{}
	f.produce(tr, rand.New(rand.NewPCG(1, 1)), 400, 10)
	f.bad(1)
	a := f.start("a")
	<-a.done
	if failed, ok := errors.AsType[*TaskError](a.err); !ok || failed.Record == nil || failed.Record.Offset != 400 {
		t.Fatalf("run: %v; want a task error at offset 400", a.err)
	}
	if at := f.committed(testInput, 0); at != 400 {
		t.Fatalf("committed offset %d, want 400", at)
	}
	out, times := f.replay(testOut)
	if fmt.Sprint(out) != fmt.Sprint(map[string]uint64(tr)) {
		t.Fatalf("output is not what came before: %s", diff(out, tr))
	}
	for key, n := range times {
		if uint64(n) < tr[key] {
			t.Errorf("%s: %d records, want at least %d", key, n, tr[key])
		}
	}
}

// TestBadInputDeadLetter: the original record goes to the dead letter topic, once, with its origin.
func TestBadInputDeadLetter(t *testing.T) {
	t.Parallel()
	f := newFleet(t, false, 1)
	f.options = func(c *Config) { c.DeserializationHandler, c.DeadLetterTopic = DeadLetter, "dead" }
	tr := truth{}
	rng := rand.New(rand.NewPCG(1, 1))
	f.produce(tr, rng, 10, 10)
	f.bad(3)
	f.produce(tr, rng, 10, 10)
	a := f.start("a")
	a.waitRunning()
	f.waitCaughtUp(20 * time.Second)
	f.check(tr, a)
	cl, err := kgo.NewClient(kgo.SeedBrokers(f.brokers...), kgo.ConsumeTopics("dead"), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	var letters []*kgo.Record
	for len(letters) < 3 {
		letters = append(letters, cl.PollFetches(t.Context()).Records()...)
	}
	if len(letters) != 3 {
		t.Fatalf("%d letters, want 3", len(letters))
	}
	for i, l := range letters {
		h := make(map[string]string)
		for _, x := range l.Headers {
			h[x.Key] = string(x.Value)
		}
		if string(l.Value) != "bad" || h["h"] != "1" || h["__streams.errors.offset"] != fmt.Sprint(10+i) || h["__streams.errors.topic"] != testInput {
			t.Errorf("letter %d: %q %v", i, l.Value, h)
		}
	}
}

// TestOffsetsNotRetained: CR-14. The committed offset is below the log's start: by policy the application stops with both
// numbers, or goes on where the log starts and says what was lost.
func TestOffsetsNotRetained(t *testing.T) {
	t.Parallel()
	for _, policy := range []OffsetReset{ResetEarliest, ResetLatest, ResetNone} {
		t.Run(policy.String(), func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, false, 1)
			losses := make(chan DataLossInfo, 10)
			f.options = func(c *Config) {
				c.OffsetReset = policy
				c.Listener.DataLoss = func(d DataLossInfo) { losses <- d }
			}
			tr := truth{}
			rng := rand.New(rand.NewPCG(1, 1))
			if policy == ResetEarliest {
				f.produce(tr, rng, 100, 10)
			}
			first := f.start("a", func(c *Config) { c.OffsetReset = ResetEarliest })
			first.waitRunning()
			if policy != ResetEarliest {
				f.produce(tr, rng, 100, 10)
			}
			f.waitCaughtUp(20 * time.Second)
			if err := first.stop(); err != nil {
				t.Fatal(err)
			}
			f.produce(truth{}, rng, 50, 10) // deleted before it is processed
			if err := f.cluster.DeleteRecords(testInput, 0, 150); err != nil {
				t.Fatal(err)
			}
			if policy == ResetEarliest {
				f.produce(tr, rng, 25, 10)
			}
			a := f.start("a")
			if policy == ResetNone {
				<-a.done
				gap, ok := errors.AsType[*OffsetGapError](a.err)
				if !ok || gap.Committed != 100 || gap.LogStart != 150 {
					t.Fatalf("run: %v; want a gap from 100 to 150", a.err)
				}
				return
			}
			a.waitRunning()
			if d := <-losses; d.Committed != 100 || d.LogStart != 150 || d.Resumed != 150 {
				t.Fatalf("loss %+v", d)
			}
			if policy == ResetLatest {
				f.produce(tr, rng, 25, 10)
			}
			f.waitCaughtUp(20 * time.Second)
			f.check(tr, a)
		})
	}
}

// TestResetLatest starts at the end where nothing was committed, and keeps to that over a restart before any record.
func TestResetLatest(t *testing.T) {
	t.Parallel()
	f := newFleet(t, false, 2)
	f.options = func(c *Config) { c.OffsetReset = ResetLatest }
	rng := rand.New(rand.NewPCG(1, 1))
	f.produce(truth{}, rng, 100, 10)
	a := f.start("a")
	a.waitRunning()
	tr := truth{}
	f.produce(tr, rng, 100, 10)
	f.eventually("counted", 20*time.Second, func() error {
		logged, _ := f.replay(testApp + "-counts-changelog")
		if fmt.Sprint(logged) != fmt.Sprint(map[string]uint64(tr)) {
			return errors.New(diff(logged, tr))
		}
		return nil
	})
}

// TestAuthorization: CF-10. What Kafka refuses ends the run with an error that names resource and operation.
func TestAuthorization(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, resource, operation string
		key                       kmsg.Key
		refuse                    func(kmsg.Request) kmsg.Response
	}{
		{"transactional id", "transactional id", "WRITE", kmsg.InitProducerID, func(r kmsg.Request) kmsg.Response {
			resp := r.ResponseKind().(*kmsg.InitProducerIDResponse)
			resp.ErrorCode = kerr.TransactionalIDAuthorizationFailed.Code
			return resp
		}},
		{"group", "group", "READ", kmsg.JoinGroup, func(r kmsg.Request) kmsg.Response {
			resp := r.ResponseKind().(*kmsg.JoinGroupResponse)
			resp.ErrorCode = kerr.GroupAuthorizationFailed.Code
			return resp
		}},
		{"changelog write", "topic", "WRITE", kmsg.Produce, func(r kmsg.Request) kmsg.Response {
			req := r.(*kmsg.ProduceRequest)
			if req.TransactionID == nil {
				return nil // the test's own
			}
			resp := r.ResponseKind().(*kmsg.ProduceResponse)
			for _, t := range req.Topics {
				at := kmsg.NewProduceResponseTopic()
				at.Topic, at.TopicID = t.Topic, t.TopicID
				for _, p := range t.Partitions {
					ap := kmsg.NewProduceResponseTopicPartition()
					ap.Partition, ap.ErrorCode = p.Partition, kerr.TopicAuthorizationFailed.Code
					at.Partitions = append(at.Partitions, ap)
				}
				resp.Topics = append(resp.Topics, at)
			}
			return resp
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, false, 1)
			f.produce(truth{}, rand.New(rand.NewPCG(1, 1)), 10, 10)
			f.cluster.ControlKey(int16(tc.key), func(req kmsg.Request) (kmsg.Response, error, bool) {
				f.cluster.KeepControl()
				resp := tc.refuse(req)
				return resp, nil, resp != nil
			})
			a := f.start("a")
			select {
			case <-a.done:
			case <-time.After(60 * time.Second):
				t.Fatal("runs on in silence")
			}
			refused, ok := errors.AsType[*AuthorizationError](a.err)
			if !ok || refused.Resource != tc.resource || refused.Operation != tc.operation || refused.Name == "" {
				t.Fatalf("run: %v; want %s refused on %s", a.err, tc.operation, tc.resource)
			}
		})
	}
}

// TestMissingTopic names every topic that is missing.
func TestMissingTopic(t *testing.T) {
	t.Parallel()
	f := newFleet(t, false, 1)
	f.topo = func() *Topology {
		return NewTopology().AddSource("s", SourceOptions{}, "nowhere", "nothing").AddSink("out", SinkOptions{}, "nobody", "s")
	}
	a := f.start("a")
	<-a.done
	for _, topic := range []string{"nowhere", "nothing", "nobody"} {
		if a.err == nil || !strings.Contains(a.err.Error(), topic) {
			t.Errorf("run: %v; want %s named", a.err, topic)
		}
	}
}

// TestTopicDeletedWhileDown: CR-15. A changelog that must exist is not made anew.
func TestTopicDeletedWhileDown(t *testing.T) {
	t.Parallel()
	f := newFleet(t, false, 1)
	f.produce(truth{}, rand.New(rand.NewPCG(1, 1)), 10, 10)
	a := f.start("a")
	a.waitRunning()
	f.waitCaughtUp(20 * time.Second)
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	if err := f.cluster.DeleteTopic(testApp + "-counts-changelog"); err != nil {
		t.Fatal(err)
	}
	for _, disk := range []string{"a", "empty"} {
		b := f.start(disk)
		<-b.done
		if b.err == nil || !strings.Contains(b.err.Error(), "counts-changelog") {
			t.Fatalf("run with disk %s: %v; want a refusal", disk, b.err)
		}
	}
}

// TestOversized: PL-14. A value that the changelog would refuse is refused at put; nothing of it is anywhere.
func TestOversized(t *testing.T) {
	t.Parallel()
	f := newFleet(t, false, 1)
	if err := f.cluster.CreateTopic(testApp+"-counts-changelog", 1, map[string]string{
		"cleanup.policy":    "compact",
		"max.message.bytes": "2000", "message.timestamp.type": "CreateTime",
	}); err != nil {
		t.Fatal(err)
	}
	f.topo = func() *Topology {
		return NewTopology().AddSource("source", SourceOptions{}, testInput).
			AddProcessor("keep", func() Processor { return &keeper{} }, "source").
			AddStateStore(store.Spec{Name: testStore, Kind: store.KindKeyValue}, "keep")
	}
	records := []*kgo.Record{
		{Topic: testInput, Key: []byte("small"), Value: make([]byte, 1000)},
		{Topic: testInput, Key: []byte("large"), Value: make([]byte, 1990)},
	}
	if err := f.client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	a := f.start("a")
	<-a.done
	large, ok := errors.AsType[*store.TooLargeError](a.err)
	if !ok || !strings.Contains(large.Setting, "max.message.bytes") {
		t.Fatalf("run: %v; want too large by max.message.bytes", a.err)
	}
	if at := f.committed(testInput, 0); at != 1 {
		t.Fatalf("committed %d, want 1: the record before", at)
	}
}

// keeper keeps the last value of each key.
type keeper struct{ kv store.KeyValue }

func (k *keeper) Init(ctx *Context) (err error) {
	k.kv, err = ctx.Store(testStore)
	return err
}

func (k *keeper) Process(r *Record) error {
	return k.kv.Put(r.Key, store.Value{Data: r.Value, Timestamp: r.Timestamp})
}

func (k *keeper) Close() error { return nil }

// TestInputMissedThenRewound: what was waited for in vain is behind the place where it was; the records before it, which are processed again
// after an abort, are waited for.
func TestInputMissedThenRewound(t *testing.T) {
	t.Parallel()
	in := newInput(store.TopicPartition{Topic: "t"})
	in.next, in.committed = 2, 2
	in.reaches(4)
	in.next = 3
	in.miss()
	if in.behind() {
		t.Error("waited for again where it was missed")
	}
	in.rewind()
	if !in.behind() {
		t.Error("a record that is processed again is not waited for")
	}
	in.next = 3
	if in.behind() {
		t.Error("waited for again where it was missed, after a rewind")
	}
}
