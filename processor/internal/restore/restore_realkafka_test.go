//go:build realkafka

package restore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/statemesh/statemesh/internal/kafkatest"
	"github.com/statemesh/statemesh/processor/internal/commitmeta"
	"github.com/statemesh/statemesh/processor/internal/kafka"
	"github.com/statemesh/statemesh/processor/internal/topics"
	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

// realWorld is a real broker with the clients of an instance.
type realWorld struct {
	t      testing.TB
	broker *kafkatest.Broker
	kafka  kafka.Config
	direct *kgo.Client
	adm    *kadm.Client
	wg     sync.WaitGroup
}

func newReal(tb testing.TB, cfg kafkatest.Config) *realWorld {
	tb.Helper()
	w := &realWorld{t: tb, broker: kafkatest.RunConfig(tb, cfg)}
	w.kafka = kafka.Config{Brokers: w.broker.Brokers(), MetadataMaxAge: time.Second}
	w.direct = w.client(w.kafka.Direct()...)
	w.adm = kadm.NewClient(w.direct)
	tb.Cleanup(w.wg.Wait)
	return w
}

func (w *realWorld) client(opts ...kgo.Opt) *kgo.Client {
	w.t.Helper()
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(cl.Close)
	return cl
}

func (w *realWorld) producer(opts ...kgo.Opt) *kgo.Client {
	opts = append(opts, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.Lz4Compression()))
	return w.client(append(w.kafka.Opts(), opts...)...)
}

func (w *realWorld) ensure(want ...topics.Internal) map[string]topics.Info {
	w.t.Helper()
	infos, err := topics.Ensure(w.t.Context(), w.adm, want)
	if err != nil {
		w.t.Fatal(err)
	}
	return infos
}

func (w *realWorld) restorer(set func(*Config)) *Restorer {
	w.t.Helper()
	cfg := Config{Client: w.direct, Group: group}
	if set != nil {
		set(&cfg)
	}
	r, err := New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.wg.Go(func() { _ = r.Run(ctx) })
	w.t.Cleanup(cancel)
	return r
}

func (w *realWorld) write(cl *kgo.Client, topic string, partition int32, kvs ...kv) {
	w.t.Helper()
	if err := cl.ProduceSync(w.t.Context(), records(topic, partition, kvs...)...).FirstErr(); err != nil {
		w.t.Fatal(err)
	}
}

// TestRealKafkaRestoreOrder: CR-03 on a real broker, whose markers come late and whose coordinator says
// CONCURRENT_TRANSACTIONS: an owner dies with a transaction open that also commits its offsets.
func TestRealKafkaRestoreOrder(t *testing.T) {
	w := newReal(t, kafkatest.Config{})
	log := "app-counts-changelog"
	infos := w.ensure(topics.Internal{Topic: log, Kind: topics.Changelog, Partitions: 1})
	in, err := w.adm.CreateTopic(t.Context(), 1, -1, nil, inputTopic)
	if err != nil {
		t.Fatal(err)
	}
	dead := w.producer(kgo.TransactionalID("dead"), kgo.TransactionTimeout(10*time.Minute))
	alive := w.producer(kgo.TransactionalID("alive"))
	commit := func(cl *kgo.Client, how kgo.TransactionEndTry, kvs ...kv) {
		t.Helper()
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		w.write(cl, log, 0, kvs...)
		if err := cl.EndTransaction(t.Context(), how); err != nil {
			t.Fatal(err)
		}
	}
	commit(dead, kgo.TryCommit, kv{"a", "1", 1}, kv{"b", "1", 2})
	commit(alive, kgo.TryAbort, kv{"a", "aborted", 3})
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: inputTopic, At: 5, LeaderEpoch: -1, Metadata: commitmeta.Meta{Sequence: 1, StreamTime: 2, TransactionalID: "dead"}.Encode()})
	if err := w.adm.CommitAllOffsets(t.Context(), group, offsets); err != nil {
		t.Fatal(err)
	}
	// The owner dies in the middle of its second commit: records and offsets written, EndTxn never sent.
	if err := dead.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	w.write(dead, log, 0, kv{"a", "uncommitted", 4})
	pid, epoch, err := dead.ProducerID(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w.txnOffset(in.ID, "dead", pid, epoch, 9)
	commit(alive, kgo.TryCommit, kv{"c", "1", 5}) // a record behind the open transaction

	r := w.restorer(func(c *Config) { c.StableTimeout, c.HangingTimeout = 3*time.Second, 3*time.Second })
	task := newMemoryTask(t, 0)
	req := Request{
		Task: task, Inputs: []store.TopicPartition{{Topic: inputTopic}},
		Changelogs: map[store.Name]Changelog{countsStore: {Topic: log, ID: infos[log].ID, Retention: infos[log].DeleteRetention}},
	}
	// Without the fence the offsets stay undecided, and that is what is said.
	_, err = r.Restore(t.Context(), req)
	if unstable, ok := errors.AsType[*UnstableError](err); !ok || len(unstable.Inputs) != 1 {
		t.Errorf("without a fence: %v", err)
	}
	// Without inputs the transaction on the changelog itself is in the way.
	noInputs := req
	noInputs.Inputs = nil
	_, err = r.Restore(t.Context(), noInputs)
	if hang, ok := errors.AsType[*HangingTransactionError](err); !ok || hang.LastStable >= hang.Bound {
		t.Errorf("without a fence and inputs: %v", err)
	}
	req.Fence = []string{"dead", "never seen before"}
	start := time.Now()
	res, err := r.Restore(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("fenced and restored in %s", time.Since(start))
	if have, want := task.content(countsStore), []string{"a=1@1", "b=1@2", "c=1@5"}; !slices.Equal(have, want) {
		t.Errorf("store %v, want %v", have, want)
	}
	if in := res.Inputs[store.TopicPartition{Topic: inputTopic}]; in.Next != 5 || res.Sequence != 1 {
		t.Errorf("result %+v: want the offset of the last commit", res)
	}
	ends, err := w.adm.ListEndOffsets(t.Context(), log)
	if err != nil {
		t.Fatal(err)
	}
	if end, _ := ends.Lookup(log, 0); int64(task.Checkpoint().Changelogs[countsStore].Next) != end.Offset {
		t.Errorf("position %d, log ends at %d", task.Checkpoint().Changelogs[countsStore].Next, end.Offset)
	}
	// The dead owner wakes up: nothing of it gets in.
	if err := dead.EndTransaction(t.Context(), kgo.TryCommit); err == nil {
		t.Error("the fenced owner committed")
	}
	res, err = r.Restore(t.Context(), req)
	if err != nil || res.Records != 0 {
		t.Errorf("afterwards: %+v, %v", res, err)
	}
}

// txnOffset adds an offset of the input to an open transaction, as a task's commit does.
func (w *realWorld) txnOffset(input [16]byte, id string, pid int64, epoch int16, next int64) {
	w.t.Helper()
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.Group, req.ProducerID, req.ProducerEpoch, req.Generation = id, group, pid, epoch, -1
	topic := kmsg.NewTxnOffsetCommitRequestTopic()
	topic.Topic, topic.TopicID = inputTopic, input
	p := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	p.Offset = next
	p.Metadata = new(commitmeta.Meta{Sequence: 2, StreamTime: 4, TransactionalID: id}.Encode())
	topic.Partitions = append(topic.Partitions, p)
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(w.t.Context(), w.direct)
	if err != nil {
		w.t.Fatal(err)
	}
	if code := resp.Topics[0].Partitions[0].ErrorCode; code != 0 {
		w.t.Fatalf("TxnOffsetCommit: error %d", code)
	}
}

// TestRealKafkaRestoreOverBrokerKill: the broker is killed and comes back while tasks are restored; each ends whole,
// having applied every record once. Then the log is compacted and a copy from before goes on in it; then the topic is
// recreated and both are rebuilt (CR-07).
func TestRealKafkaRestoreOverBrokerKill(t *testing.T) {
	w := newReal(t, kafkatest.Config{})
	log := "app-counts-changelog"
	spec := topics.Internal{
		Topic: log, Kind: topics.Changelog, Partitions: 4,
		Config: map[string]string{
			"segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01", "min.compaction.lag.ms": "0", "delete.retention.ms": "0",
			"cleanup.policy": "delete", "retention.ms": "-1", // until the test wants the cleaner
		},
	}
	infos := w.ensure(spec)
	const n, keys = 100_000, 500
	fill := func() (want [][]string) {
		cl := w.producer()
		for p := range spec.Partitions {
			oracle := map[string]string{}
			for i := range n {
				x := kv{fmt.Sprintf("k%03d", i*31%keys), "v" + strconv.Itoa(i) + "-" + strconv.Itoa(int(p)), int64(i)}
				if i%7 == 0 {
					x.value = ""
					delete(oracle, x.key)
				} else {
					oracle[x.key] = fmt.Sprintf("%s=%s@%d", x.key, x.value, x.at)
				}
				cl.Produce(t.Context(), records(log, p, x)[0], func(_ *kgo.Record, err error) {
					if err != nil {
						t.Error(err)
					}
				})
			}
			var lines []string
			for _, k := range slices.Sorted(maps.Keys(oracle)) {
				lines = append(lines, oracle[k])
			}
			want = append(want, lines)
		}
		if err := cl.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		return want
	}
	want := fill()
	r := w.restorer(func(c *Config) { c.FetchBytes, c.PartitionBytes = 64<<10, 16<<10 })
	var all []*memoryTask
	for p := range spec.Partitions {
		all = append(all, newMemoryTask(t, store.Partition(p)))
	}
	restore := func(all []*memoryTask, id [16]byte, during func()) {
		t.Helper()
		var wg sync.WaitGroup
		for p, task := range all {
			wg.Go(func() {
				req := Request{Task: task, Changelogs: map[store.Name]Changelog{countsStore: {Topic: log, ID: id}}}
				if during != nil && p == 0 {
					req.Task = &moving{memoryTask: task, every: n / 4, move: during}
				}
				if _, err := r.Restore(t.Context(), req); err != nil {
					t.Errorf("task %d: %v", p, err)
				}
				if have := task.content(countsStore); !slices.Equal(have, want[p]) {
					t.Errorf("task %d: %d entries, want %d", p, len(have), len(want[p]))
				}
			})
		}
		wg.Wait()
	}
	killed := false
	restore(all, infos[log].ID, func() {
		if !killed {
			killed = true
			w.broker.Kill()
			w.broker.MustRestart(t)
		}
	})
	for p, task := range all {
		if task.restored[countsStore] != n || task.wipes != 0 {
			t.Errorf("task %d: %d records applied, %d wipes; want %d, none", p, task.restored[countsStore], task.wipes, n)
		}
	}
	compact := kadm.AlterConfig{Op: kadm.SetConfig, Name: "cleanup.policy", Value: new("compact")}
	if _, err := w.adm.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{compact}, log); err != nil {
		t.Fatal(err)
	}
	w.awaitCompaction(log)
	more := w.producer()
	for p := range spec.Partitions {
		w.write(more, log, p, kv{"k000", "last", 1})
		want[p] = append([]string{"k000=last@1"}, slices.DeleteFunc(want[p], func(s string) bool { return s[:4] == "k000" })...)
	}
	restore(all, infos[log].ID, nil)
	var fresh []*memoryTask
	for p := range spec.Partitions {
		fresh = append(fresh, newMemoryTask(t, store.Partition(p)))
	}
	restore(fresh, infos[log].ID, nil)
	if read := fresh[0].restored[countsStore]; read >= n {
		t.Errorf("%d records read from the compacted log, want fewer than %d", read, n)
	}
	if _, err := w.adm.DeleteTopic(t.Context(), log); err != nil {
		t.Fatal(err)
	}
	infos = w.ensure(spec)
	want = make([][]string, spec.Partitions)
	restore(all, infos[log].ID, nil)
	if all[0].wipes != 1 {
		t.Errorf("%d wipes after the topic was recreated", all[0].wipes)
	}
}

// awaitCompaction returns when the cleaner has taken records away: a read from the start finds a hole.
func (w *realWorld) awaitCompaction(topic string) {
	w.t.Helper()
	deadline := time.Now().Add(time.Minute)
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for time.Now().Before(deadline) {
		cl := w.client(append(w.kafka.Direct(), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))...)
		fetches := cl.PollFetches(w.t.Context())
		var last int64 = -1
		holes := false
		fetches.EachRecord(func(r *kgo.Record) {
			holes = holes || r.Offset != last+1
			last = r.Offset
		})
		cl.Close()
		if holes {
			return
		}
		<-tick.C
	}
	w.t.Fatal("the cleaner did nothing within a minute")
}

// BenchmarkRealKafkaRestore restores 2,000,000 changelog records of 100,000 keys (16-byte keys, 8-byte values) in 4
// partitions into stores on disk, the workload that Kafka Streams restores at 164,000 records per CPU second.
func BenchmarkRealKafkaRestore(b *testing.B) {
	const partitions, n, keys = 4, 2_000_000, 100_000
	w := newReal(b, kafkatest.Config{Warm: true, Heap: "1g"})
	log := "app-counts-changelog"
	infos := w.ensure(topics.Internal{Topic: log, Kind: topics.Changelog, Partitions: partitions})
	cl := w.producer(kgo.MaxBufferedRecords(100_000))
	var value [8]byte
	for i := range n {
		key := i * 7919 % keys
		binary.BigEndian.PutUint64(value[:], uint64(i))
		cl.Produce(b.Context(), &kgo.Record{
			Topic: log, Partition: int32(key % partitions), Key: fmt.Appendf(nil, "user-%011d", key), Value: slices.Clone(value[:]), Timestamp: time.UnixMilli(int64(i)),
		}, func(_ *kgo.Record, err error) {
			if err != nil {
				b.Error(err)
			}
		})
	}
	if err := cl.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	for _, threads := range []int{1, 2} {
		b.Run(fmt.Sprint("threads=", threads), func(b *testing.B) {
			var cpu, durable, wall time.Duration
			for b.Loop() {
				c, d, e := w.restoreAll(b, log, infos[log].ID, partitions, threads)
				cpu, durable, wall = cpu+c, durable+d, wall+e
			}
			total := float64(n) * float64(b.N)
			b.ReportMetric(total/wall.Seconds(), "records/s")
			b.ReportMetric(total/cpu.Seconds(), "records/cpu-s")
			b.ReportMetric(total/durable.Seconds(), "durable-records/cpu-s")
		})
	}
}

// restoreAll restores every partition, threads at a time, into a new directory and returns the CPU time and the wall time
// from the first restore's start to the last one's end, and the CPU time until all is durable on disk.
func (w *realWorld) restoreAll(b *testing.B, log string, id [16]byte, partitions, threads int) (cpu, durable, wall time.Duration) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	stores, err := layered.Open(ctx, layered.Config{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	r, err := New(Config{Client: w.direct, Group: group})
	if err != nil {
		b.Fatal(err)
	}
	var background sync.WaitGroup
	background.Go(func() { _ = stores.Run(ctx) })
	background.Go(func() { _ = r.Run(ctx) })
	var tasks []*layered.Task
	for p := range partitions {
		task, err := stores.OpenTask(ctx, store.TaskID{Partition: store.Partition(p)}, []store.Spec{{Name: countsStore, Kind: store.KindTimestampedKeyValue}})
		if err != nil {
			b.Fatal(err)
		}
		tasks = append(tasks, task)
	}
	queue := make(chan *layered.Task, len(tasks))
	for _, task := range tasks {
		queue <- task
	}
	close(queue)
	var records int64
	var mu sync.Mutex
	before, start := processCPU(), time.Now()
	var workers sync.WaitGroup
	for range threads {
		workers.Go(func() {
			for task := range queue {
				res, err := r.Restore(ctx, Request{Task: task, Changelogs: map[store.Name]Changelog{countsStore: {Topic: log, ID: id}}})
				if err != nil {
					b.Error(err)
				}
				mu.Lock()
				records += res.Records
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	cpu, wall = processCPU()-before, time.Since(start)
	if records != 2_000_000 {
		b.Errorf("%d records", records)
	}
	for _, task := range tasks {
		if err := task.Close(b.Context()); err != nil {
			b.Error(err)
		}
	}
	durable = processCPU() - before
	cancel()
	background.Wait()
	if err := stores.Close(); err != nil {
		b.Error(err)
	}
	return cpu, durable, wall
}

func processCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
