package changes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/statemesh/statemesh/internal/fakekafka"
	"github.com/statemesh/statemesh/processor"
)

const topic = "in"

// broker is a fake one, and a client of the test's.
type broker struct {
	tb      testing.TB
	cluster *kfake.Cluster
	client  *kgo.Client
	admin   *kadm.Client
}

func newBroker(tb testing.TB, partitions int32) *broker {
	tb.Helper()
	cluster, err := fakekafka.New(kfake.NumBrokers(1), kfake.SeedTopics(partitions, topic),
		kfake.BrokerConfigs(map[string]string{"group.initial.rebalance.delay.ms": "0"}))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(cluster.Close)
	b := &broker{tb: tb, cluster: cluster}
	b.client, err = kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.TransactionalID("writer"),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0), kgo.DisableClientMetrics())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(b.client.Close)
	b.admin = kadm.NewClient(b.client)
	return b
}

// write makes one transaction.
func (b *broker) write(end kgo.TransactionEndTry, partition int32, values ...string) {
	b.tb.Helper()
	if err := b.client.BeginTransaction(); err != nil {
		b.tb.Fatal(err)
	}
	var recs []*kgo.Record
	for _, v := range values {
		recs = append(recs, &kgo.Record{Topic: topic, Partition: partition, Key: []byte("k"), Value: []byte(v)})
	}
	if err := b.client.ProduceSync(b.tb.Context(), recs...).FirstErr(); err != nil {
		b.tb.Fatal(err)
	}
	if err := b.client.EndTransaction(b.tb.Context(), end); err != nil {
		b.tb.Fatal(err)
	}
}

func (b *broker) config() Config {
	log := slog.New(slog.DiscardHandler)
	if os.Getenv("STATEMESH_TEST_LOG") != "" {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	return Config{
		Kafka: processor.KafkaConfig{Brokers: b.cluster.ListenAddrs()}, Group: "g", Topic: topic, BatchRecords: 3, Linger: time.Millisecond,
		Idle: 10 * time.Millisecond, Logger: log,
	}
}

// ledger is a handler that keeps offsets beside what it was given, as a database does.
type ledger struct {
	mu     sync.Mutex
	next   map[int32]int64
	epochs map[int32]int32
	values map[int32][]string
	logs   []Log
	begins int
	// meddle is called before a batch is taken, and may say where the offset is instead.
	meddle func(b Batch) (next int64, moved bool, err error)
	begin  func(log Log) error
	caught map[int32]bool
	batch  int // of the largest
	change chan struct{}
}

func newLedger() *ledger {
	return &ledger{next: map[int32]int64{}, epochs: map[int32]int32{}, values: map[int32][]string{}, caught: map[int32]bool{}, change: make(chan struct{}, 1)}
}

func (l *ledger) Begin(_ context.Context, log Log) (Position, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begins++
	l.logs = append(l.logs, log)
	if l.begin != nil {
		if err := l.begin(log); err != nil {
			return Position{}, err
		}
	}
	next, ok := l.next[log.Partition]
	if !ok {
		return Position{Next: log.Start, Epoch: -1}, nil
	}
	return Position{Next: next, Epoch: l.epochs[log.Partition]}, nil
}

func (l *ledger) Apply(_ context.Context, b Batch) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer signal(l.change)
	if l.meddle != nil {
		if next, moved, err := l.meddle(b); moved || err != nil {
			return next, err
		}
	}
	if next, ok := l.next[b.Partition]; ok && next != b.From {
		return next, nil
	}
	for _, r := range b.Records {
		l.values[b.Partition] = append(l.values[b.Partition], fmt.Sprintf("%d:%s", r.Offset, r.Value))
	}
	l.next[b.Partition], l.epochs[b.Partition] = b.Next, b.Epoch
	l.caught[b.Partition] = b.Caught
	l.batch = max(l.batch, len(b.Records))
	return b.Next, nil
}

func (l *ledger) Lag(int32, int64) {}

// until waits for what the ledger says.
func (l *ledger) until(tb testing.TB, done func() bool) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 30*time.Second)
	defer cancel()
	for {
		l.mu.Lock()
		ok := done()
		l.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-l.change:
		case <-ctx.Done():
			l.mu.Lock()
			defer l.mu.Unlock()
			tb.Fatalf("it does not come; next %v, values %v", l.next, l.values)
		}
	}
}

type reading struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

func start(tb testing.TB, cfg Config, h Handler) *reading {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	r := &reading{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = Run(ctx, cfg, h)
	}()
	tb.Cleanup(func() { cancel(); <-r.done })
	return r
}

func (r *reading) stop(tb testing.TB) {
	tb.Helper()
	r.cancel()
	<-r.done
	if r.err != nil {
		tb.Error(r.err)
	}
}

// TestCommittedOnly: what was aborted is not handed over, and the offset moves behind it and its marker all the same.
func TestCommittedOnly(t *testing.T) {
	b, l := newBroker(t, 1), newLedger()
	b.write(kgo.TryCommit, 0, "a", "b") // 0, 1, marker 2
	b.write(kgo.TryAbort, 0, "x")       // 3, marker 4
	b.write(kgo.TryCommit, 0, "c", "d", "e", "f")
	b.write(kgo.TryAbort, 0, "y") // 10, marker 11
	r := start(t, b.config(), l)
	l.until(t, func() bool { return l.next[0] == 12 && l.caught[0] })
	r.stop(t)
	if want := []string{"0:a", "1:b", "5:c", "6:d", "7:e", "8:f"}; !slices.Equal(l.values[0], want) {
		t.Errorf("%v, want %v", l.values[0], want)
	}
	if l.batch > 3 {
		t.Errorf("a batch of %d records, want at most 3", l.batch)
	}
	log := l.logs[0]
	if log.ID == [16]byte{} || log.Start != 0 || log.End != 12 || log.Compacts || !log.Deletes || log.DeleteRetention != 24*time.Hour {
		t.Errorf("%+v", log)
	}
}

// TestReadsOn: a reader that is begun again goes on from the handler's offset, whatever the group has committed.
func TestReadsOn(t *testing.T) {
	b, l := newBroker(t, 1), newLedger()
	b.write(kgo.TryCommit, 0, "a", "b", "c")
	var offsets kadm.Offsets
	offsets.AddOffset(topic, 0, 3, -1)
	if err := b.admin.CommitAllOffsets(t.Context(), "g", offsets); err != nil {
		t.Fatal(err)
	}
	l.next[0], l.epochs[0] = 1, -1
	r := start(t, b.config(), l)
	l.until(t, func() bool { return l.next[0] == 4 })
	r.stop(t)
	b.write(kgo.TryCommit, 0, "d")
	r = start(t, b.config(), l)
	l.until(t, func() bool { return l.next[0] == 6 })
	r.stop(t)
	if want := []string{"1:b", "2:c", "4:d"}; !slices.Equal(l.values[0], want) {
		t.Errorf("%v, want %v", l.values[0], want)
	}
	committed, err := b.admin.FetchOffsets(t.Context(), "g")
	if err != nil {
		t.Fatal(err)
	}
	if o, _ := committed.Lookup(topic, 0); o.At != 3 {
		t.Errorf("the group's offset is %d, want 3 as it was", o.At)
	}
}

// TestMoved: an offset that somebody else has moved is read on from, forwards and backwards, and nothing is handed over between.
func TestMoved(t *testing.T) {
	b, l := newBroker(t, 1), newLedger()
	b.write(kgo.TryCommit, 0, "a", "b", "c", "d", "e", "f", "g") // 0 to 6, marker 7
	jumps := []int64{5, 2}
	l.meddle = func(Batch) (int64, bool, error) {
		if len(jumps) == 0 {
			return 0, false, nil
		}
		l.next[0], l.epochs[0] = jumps[0], -1
		jumps = jumps[1:]
		return l.next[0], true, nil
	}
	r := start(t, b.config(), l)
	l.until(t, func() bool { return l.next[0] == 8 })
	r.stop(t)
	if want := []string{"2:c", "3:d", "4:e", "5:f", "6:g"}; !slices.Equal(l.values[0], want) {
		t.Errorf("%v, want %v", l.values[0], want)
	}
	if l.begins != 3 {
		t.Errorf("begun %d times, want 3", l.begins)
	}
}

// TestOutOfRange: a partition whose offset the log does not have any more is begun again with what the log has now.
func TestOutOfRange(t *testing.T) {
	b, l := newBroker(t, 1), newLedger()
	b.write(kgo.TryCommit, 0, "a", "b", "c", "d") // marker 4
	gone := make(kadm.Offsets)
	gone.AddOffset(topic, 0, 2, -1)
	if _, err := b.admin.DeleteRecords(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	l.next[0], l.epochs[0] = 1, -1
	r := start(t, b.config(), l)
	l.until(t, func() bool { return l.next[0] == 5 })
	r.stop(t)
	if want := []string{"2:c", "3:d"}; !slices.Equal(l.values[0], want) {
		t.Errorf("%v, want %v", l.values[0], want)
	}
	if l.logs[0].Start != 2 {
		t.Errorf("%+v, want start 2", l.logs[0])
	}
}

// TestMovedBeyondTheEnd: an offset that another member moves while the log is looked at is no log that was cut; one beyond an end that is
// asked for after it is.
func TestMovedBeyondTheEnd(t *testing.T) {
	b, l := newBroker(t, 1), newLedger()
	b.write(kgo.TryCommit, 0, "a")
	l.begin = func(log Log) error {
		if l.begins == 1 {
			b.write(kgo.TryCommit, 0, "b", "c") // 2, 3, marker 4
			l.next[0], l.epochs[0] = log.End+1, -1
		}
		return nil
	}
	r := start(t, b.config(), l)
	l.until(t, func() bool { return l.next[0] == 5 })
	r.stop(t)
	if want := []string{"3:c"}; !slices.Equal(l.values[0], want) {
		t.Errorf("%v, want %v", l.values[0], want)
	}
	l.next[0] = 7
	r = start(t, b.config(), l)
	<-r.done
	if cut, ok := errors.AsType[*CutError](r.err); !ok || cut.Read != 7 || cut.Valid != 5 {
		t.Errorf("%v, want a log that was cut", r.err)
	}
}

// TestErrorsEnd: what the handler does not take ends Run with its error.
func TestErrorsEnd(t *testing.T) {
	boom := errors.New("boom")
	for _, where := range []string{"begin", "apply"} {
		b, l := newBroker(t, 2), newLedger()
		b.write(kgo.TryCommit, 0, "a")
		if where == "begin" {
			l.begin = func(Log) error { return boom }
		} else {
			l.meddle = func(Batch) (int64, bool, error) { return 0, false, boom }
		}
		r := start(t, b.config(), l)
		<-r.done
		if !errors.Is(r.err, boom) {
			t.Errorf("%s: %v, want boom", where, r.err)
		}
	}
}

// TestRecreated: a topic that is made anew while it is read is begun again, under its new id.
func TestRecreated(t *testing.T) {
	b, l := newBroker(t, 1), newLedger()
	b.write(kgo.TryCommit, 0, "a")
	other := errors.New("another topic")
	l.begin = func(log Log) error {
		if log.ID != l.logs[0].ID {
			return other
		}
		return nil
	}
	cfg := b.config()
	cfg.Kafka.MetadataMaxAge = time.Second
	r := start(t, cfg, l)
	l.until(t, func() bool { return l.next[0] == 2 })
	if _, err := b.admin.DeleteTopics(t.Context(), topic); err != nil {
		t.Fatal(err)
	}
	if _, err := b.admin.CreateTopics(t.Context(), 1, 1, nil, topic); err != nil {
		t.Fatal(err)
	}
	<-r.done
	if !errors.Is(r.err, other) {
		t.Errorf("%v, want that the topic is another", r.err)
	}
}

// TestShared: two members share the partitions; when one goes, the other takes over, and nothing is handed over twice or not at all.
func TestShared(t *testing.T) {
	b, l := newBroker(t, 4), newLedger()
	want := map[int32][]string{}
	n := 0
	write := func() {
		for p := range int32(4) {
			b.write(kgo.TryCommit, p, fmt.Sprint(n))
			want[p] = append(want[p], fmt.Sprint(n))
			n++
		}
	}
	write()
	first := start(t, b.config(), l)
	write()
	second := start(t, b.config(), l)
	for range 10 {
		write()
	}
	l.until(t, func() bool { return len(l.values[0]) >= 5 })
	first.stop(t)
	for range 10 {
		write()
	}
	l.until(t, func() bool {
		for p := range want {
			if l.next[p] != int64(2*len(want[p])) {
				return false
			}
		}
		return true
	})
	second.stop(t)
	for p := range want {
		for i, v := range want[p] {
			want[p][i] = fmt.Sprintf("%d:%s", 2*i, v)
		}
	}
	if !maps.EqualFunc(l.values, want, slices.Equal) {
		t.Errorf("%v, want %v", l.values, want)
	}
}

// TestSlowHandler: no more is taken than may wait, and all of it comes in the end.
func TestSlowHandler(t *testing.T) {
	b, l := newBroker(t, 3), newLedger()
	for p := range int32(3) {
		for range 40 {
			b.write(kgo.TryCommit, p, "v", "w")
		}
	}
	gate := make(chan struct{})
	cfg := b.config()
	cfg.BufferBytes = 2000
	slow := &gated{ledger: l, gate: gate}
	r := start(t, cfg, slow)
	for range 30 { // one batch at a time
		gate <- struct{}{}
	}
	close(gate)
	l.until(t, func() bool { return l.next[0] == 120 && l.next[1] == 120 && l.next[2] == 120 })
	r.stop(t)
	for p := range int32(3) {
		if len(l.values[p]) != 80 {
			t.Errorf("partition %d: %d records, want 80", p, len(l.values[p]))
		}
	}
}

type gated struct {
	*ledger
	gate chan struct{}
}

func (g *gated) Apply(ctx context.Context, b Batch) (int64, error) {
	select {
	case <-g.gate:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	return g.ledger.Apply(ctx, b)
}

// TestTopicComesLater: a topic that does not exist is waited for.
func TestTopicComesLater(t *testing.T) {
	b, l := newBroker(t, 1), newLedger()
	cfg := b.config()
	cfg.Topic, cfg.Kafka.MetadataMaxAge = "later", time.Second
	r := start(t, cfg, l)
	if _, err := b.admin.CreateTopics(t.Context(), 2, 1, nil, "later"); err != nil {
		t.Fatal(err)
	}
	l.until(t, func() bool { return l.caught[0] && l.caught[1] })
	r.stop(t)
}

// TestStopWhileJoining: a reader whose group waits for a member that is gone ends all the same.
func TestStopWhileJoining(t *testing.T) {
	b := newBroker(t, 1)
	held, joining := make(chan struct{}), make(chan struct{}, 1)
	b.cluster.ControlKey(int16(kmsg.JoinGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
		b.cluster.KeepControl()
		select {
		case joining <- struct{}{}:
		default:
		}
		b.cluster.SleepControl(func() { <-held })
		return nil, nil, false
	})
	defer close(held)
	r := start(t, b.config(), newLedger())
	<-joining
	r.cancel()
	select {
	case <-r.done:
	case <-time.After(30 * time.Second):
		t.Fatal("it waits for the group")
	}
}

func TestConfig(t *testing.T) {
	err := Config{BatchRecords: -1, BatchBytes: -1, BufferBytes: -1, Linger: time.Hour, Idle: -1}.Validate()
	for _, want := range []string{"Group", "Topic", "BatchRecords", "BatchBytes", "BufferBytes", "Linger", "Idle", "Brokers"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want a word on %s", err, want)
		}
	}
	if err := Run(t.Context(), Config{}, newLedger()); err == nil {
		t.Error("a reader without brokers runs")
	}
}
