package restore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/internal/fakekafka"
	"github.com/statemesh/statemesh/processor/internal/commitmeta"
	"github.com/statemesh/statemesh/processor/internal/kafka"
	"github.com/statemesh/statemesh/store"
)

const (
	changelogTopic = "app-counts-changelog"
	otherTopic     = "app-seenStore-changelog"
	inputTopic     = "in"
	group          = "app"
	countsStore    = store.Name("counts")
	seenStore      = store.Name("seenStore")
)

// world is a fake cluster on a virtual network, for use in a synctest bubble.
type world struct {
	t       *testing.T
	cluster *kfake.Cluster
	kafka   kafka.Config
	direct  *kgo.Client
	adm     *kadm.Client
	wg      sync.WaitGroup
}

func newWorld(t *testing.T, opts ...kfake.Opt) *world {
	t.Helper()
	var network kfake.VirtualNetwork
	opts = append([]kfake.Opt{
		kfake.ListenFn(network.Listen), kfake.NumBrokers(2), kfake.Ports(9092, 9093),
	}, opts...)
	cluster, err := fakekafka.New(opts...)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, cluster: cluster, kafka: kafka.Config{Brokers: cluster.ListenAddrs(), Dial: network.DialContext}}
	w.direct = w.client(w.kafka.Direct()...)
	w.adm = kadm.NewClient(w.direct)
	t.Cleanup(cluster.Close)
	t.Cleanup(w.direct.Close)
	t.Cleanup(w.wg.Wait)
	compact := map[string]string{"cleanup.policy": "compact"}
	for topic, config := range map[string]map[string]string{changelogTopic: compact, otherTopic: compact, inputTopic: nil} {
		if err := cluster.CreateTopic(topic, 2, config); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func (w *world) client(opts ...kgo.Opt) *kgo.Client {
	w.t.Helper()
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		w.t.Fatal(err)
	}
	return cl
}

// restorer runs until the test ends.
func (w *world) restorer(set func(*Config)) *Restorer {
	w.t.Helper()
	cfg := Config{Client: w.direct, Group: group}
	if set != nil {
		set(&cfg)
	}
	r, err := New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.run(r)
	return r
}

func (w *world) run(r *Restorer) {
	ctx, cancel := context.WithCancel(context.Background())
	w.wg.Go(func() { _ = r.Run(ctx) })
	w.t.Cleanup(cancel) // runs before wg.Wait
}

func (w *world) request(task Task) Request {
	w.t.Helper()
	return Request{
		Task:       task,
		Inputs:     []store.TopicPartition{{Topic: inputTopic, Partition: task.ID().Partition}},
		Changelogs: map[store.Name]Changelog{countsStore: w.changelog(changelogTopic), seenStore: w.changelog(otherTopic)},
	}
}

func (w *world) changelog(topic string) Changelog {
	w.t.Helper()
	info := w.cluster.TopicInfo(topic)
	if info == nil {
		w.t.Fatalf("no topic %s", topic)
	}
	return Changelog{Topic: topic, ID: info.TopicID}
}

// kv is a record: "" deletes.
type kv struct {
	key, value string
	at         int64
}

func records(topic string, partition int32, kvs ...kv) []*kgo.Record {
	var rs []*kgo.Record
	for _, x := range kvs {
		r := &kgo.Record{Topic: topic, Partition: partition, Key: []byte(x.key), Timestamp: time.UnixMilli(x.at)}
		if x.value != "" {
			r.Value = []byte(x.value)
		}
		rs = append(rs, r)
	}
	return rs
}

// produce writes outside of any transaction, one batch per call.
func (w *world) produce(topic string, partition int32, kvs ...kv) {
	w.t.Helper()
	cl := w.client(append(w.kafka.Opts(), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	defer cl.Close()
	if err := cl.ProduceSync(w.t.Context(), records(topic, partition, kvs...)...).FirstErr(); err != nil {
		w.t.Fatal(err)
	}
}

// transactional opens a producer with a transactional id. Who opened it closes it.
func (w *world) transactional(id string) *kgo.Client {
	return w.client(append(w.kafka.Opts(), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionalID(id),
		kgo.TransactionTimeout(10*time.Minute))...)
}

// begin opens a transaction and writes to it.
func (w *world) begin(cl *kgo.Client, topic string, partition int32, kvs ...kv) {
	w.t.Helper()
	if err := cl.BeginTransaction(); err != nil {
		w.t.Fatal(err)
	}
	w.more(cl, topic, partition, kvs...)
}

// more writes to a transaction that is open.
func (w *world) more(cl *kgo.Client, topic string, partition int32, kvs ...kv) {
	w.t.Helper()
	if err := cl.ProduceSync(w.t.Context(), records(topic, partition, kvs...)...).FirstErr(); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) end(cl *kgo.Client, how kgo.TransactionEndTry) {
	w.t.Helper()
	if err := cl.EndTransaction(w.t.Context(), how); err != nil {
		w.t.Fatal(err)
	}
}

// transaction writes and ends one transaction.
func (w *world) transaction(id string, how kgo.TransactionEndTry, topic string, partition int32, kvs ...kv) {
	w.t.Helper()
	cl := w.transactional(id)
	defer cl.Close()
	w.begin(cl, topic, partition, kvs...)
	w.end(cl, how)
}

// commitOffset writes an input offset of the group as a commit of a task does.
func (w *world) commitOffset(partition int32, next int64, meta commitmeta.Meta) {
	w.t.Helper()
	w.commitRaw(partition, next, meta.Encode())
}

func (w *world) commitRaw(partition int32, next int64, metadata string) {
	w.t.Helper()
	os := kadm.Offsets{}
	os.Add(kadm.Offset{Topic: inputTopic, Partition: partition, At: next, LeaderEpoch: -1, Metadata: metadata})
	if err := w.adm.CommitAllOffsets(w.t.Context(), group, os); err != nil {
		w.t.Fatal(err)
	}
}

func wantContent(t *testing.T, task *memoryTask, name store.Name, want ...string) {
	t.Helper()
	if have := task.content(name); !slices.Equal(have, want) {
		t.Errorf("store %s: %v, want %v", name, have, want)
	}
}

func series(n int, value string) []kv {
	kvs := make([]kv, n)
	for i := range kvs {
		kvs[i] = kv{"k" + strconv.Itoa(i), fmt.Sprint(value, i), int64(i)}
	}
	return kvs
}
