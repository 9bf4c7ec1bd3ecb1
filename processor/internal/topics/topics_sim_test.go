package topics

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/statemesh/statemesh/internal/fakekafka"
	"github.com/statemesh/statemesh/processor/internal/kafka"
	"github.com/statemesh/statemesh/store"
)

// world is a fake cluster in a synctest bubble.
type world struct {
	*kfake.Cluster
	client *kgo.Client
	adm    *kadm.Client
}

func newWorld(t *testing.T) *world {
	t.Helper()
	var network kfake.VirtualNetwork
	cluster, err := fakekafka.New(kfake.ListenFn(network.Listen), kfake.NumBrokers(2), kfake.Ports(9092, 9093))
	if err != nil {
		t.Fatal(err)
	}
	cl, err := kgo.NewClient(append(kafka.Config{Brokers: cluster.ListenAddrs(), Dial: network.DialContext}.Admin(), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	t.Cleanup(cl.Close)
	return &world{cluster, cl, kadm.NewClient(cl)}
}

func (w *world) create(t *testing.T, topic string, partitions int32, config map[string]string) {
	t.Helper()
	if err := w.CreateTopic(topic, partitions, config); err != nil {
		t.Fatal(err)
	}
}

var internals = []Internal{
	{Topic: "app-counts-changelog", Kind: Changelog, Partitions: 4},
	{Topic: "app-seen-changelog", Kind: Changelog, Partitions: 4},
	{Topic: "app-by-carrier-repartition", Kind: Repartition, Partitions: 6},
}

// TestCR16GeneratedConfigs: exactly upstream's settings, and a compaction lag for changelogs.
func TestCR16GeneratedConfigs(t *testing.T) {
	for kind, want := range map[Kind]map[string]string{
		Changelog: {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime", "min.compaction.lag.ms": "600000"},
		Repartition: {
			"cleanup.policy": "delete", "message.timestamp.type": "CreateTime", "segment.bytes": "52428800", "retention.ms": "-1",
		},
	} {
		if have := DefaultConfig(kind); !maps.Equal(have, want) {
			t.Errorf("%s: %v, want %v", kind, have, want)
		}
	}
}

// TestCR16WindowChangelogs: windows are compacted and, a day after their store has dropped them, deleted; a topic that deletes
// sooner than the store is refused.
func TestCR16WindowChangelogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		want := Internal{Topic: "app-hourly-changelog", Kind: Changelog, Partitions: 2, Retention: 48 * time.Hour}
		if _, err := Ensure(t.Context(), w.adm, []Internal{want}); err != nil {
			t.Fatal(err)
		}
		for key, value := range map[string]string{"cleanup.policy": "compact,delete", "retention.ms": "259200000"} {
			if have := w.TopicInfo(want.Topic).Configs[key]; have == nil || *have != value {
				t.Errorf("%s is not %s", key, value)
			}
		}
		want.Retention = 72 * time.Hour // no more than the topic keeps
		if _, err := Ensure(t.Context(), w.adm, []Internal{want}); err != nil {
			t.Error(err)
		}
		want.Retention = 73 * time.Hour
		_, err := Ensure(t.Context(), w.adm, []Internal{want})
		if e, ok := errors.AsType[*MismatchError](err); !ok || e.Setting != "retention.ms" || e.Want != "at least 262800000" || !strings.Contains(e.Fix, "retention.ms=349200000") {
			t.Error(err)
		}
		w.create(t, "plain", 2, DefaultConfig(Changelog))
		_, err = Ensure(t.Context(), w.adm, []Internal{{Topic: "plain", Kind: Changelog, Partitions: 2, Retention: time.Hour}})
		if e, ok := errors.AsType[*MismatchError](err); !ok || e.Setting != "cleanup.policy" {
			t.Error(err)
		}
		want = Internal{Kind: Changelog, Retention: math.MaxInt64}
		if have := want.config()["retention.ms"]; have != "9223458436854" { // no overflow
			t.Error(have)
		}
	})
}

// TestCR16VersionedChangelogs: the history of a versioned store is left alone by compaction until it is a day older than the
// store keeps it; a topic that compacts what the store has is refused.
func TestCR16VersionedChangelogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		want := Internal{Topic: "app-prices-changelog", Kind: Changelog, Partitions: 2, History: 48 * time.Hour}
		if _, err := Ensure(t.Context(), w.adm, []Internal{want}); err != nil {
			t.Fatal(err)
		}
		for key, value := range map[string]string{"cleanup.policy": "compact", "min.compaction.lag.ms": "259200000"} {
			if have := w.TopicInfo(want.Topic).Configs[key]; have == nil || *have != value {
				t.Errorf("%s is not %s", key, value)
			}
		}
		want.History = 72 * time.Hour
		if _, err := Ensure(t.Context(), w.adm, []Internal{want}); err != nil {
			t.Error(err)
		}
		want.History = 73 * time.Hour
		_, err := Ensure(t.Context(), w.adm, []Internal{want})
		if e, ok := errors.AsType[*MismatchError](err); !ok || e.Setting != "min.compaction.lag.ms" || e.Want != "at least 262800000" ||
			!strings.Contains(e.Fix, "min.compaction.lag.ms=349200000") {
			t.Error(err)
		}
	})
}

func TestEnsureCreates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		want := slices.Clone(internals)
		want[1].Config = map[string]string{"max.message.bytes": "2000000", "delete.retention.ms": "3600000"}
		infos, err := Ensure(t.Context(), w.adm, want)
		if err != nil {
			t.Fatal(err)
		}
		for _, in := range want {
			ti := w.TopicInfo(in.Topic)
			if info := infos[in.Topic]; ti == nil || info.ID != ti.TopicID || info.Partitions != in.Partitions {
				t.Errorf("%s: %+v", in.Topic, info)
			}
			for key, value := range in.config() {
				if have := ti.Configs[key]; have == nil || *have != value {
					t.Errorf("%s: %s is not %q", in.Topic, key, value)
				}
			}
		}
		if i := infos["app-seen-changelog"]; i.MaxMessageBytes != 2000000 || i.DeleteRetention != time.Hour {
			t.Errorf("info %+v", i)
		}
		if i := infos["app-counts-changelog"]; i.MaxMessageBytes != 1048588 || i.DeleteRetention != 24*time.Hour {
			t.Errorf("info %+v, want the broker's defaults", i)
		}
		again, err := Ensure(t.Context(), w.adm, want)
		if err != nil || !maps.Equal(again, infos) {
			t.Errorf("second time: %v, %v", again, err)
		}
	})
}

// TestEnsureConcurrently: instances that start at the same time agree on one set of topics.
func TestEnsureConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		results := make([]map[string]Info, 8)
		var wg sync.WaitGroup
		for i := range results {
			wg.Go(func() {
				var err error
				if results[i], err = Ensure(t.Context(), w.adm, internals); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for _, r := range results {
			if !maps.Equal(r, results[0]) || len(r) != len(internals) {
				t.Errorf("%v and %v", r, results[0])
			}
		}
	})
}

// TestCR16MismatchesAreRefused: every one is named at once, with what is there, what is needed and the way out.
func TestCR16MismatchesAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.create(t, "app-counts-changelog", 6, map[string]string{"cleanup.policy": "delete"})
		w.create(t, "app-seen-changelog", 4, map[string]string{"cleanup.policy": "compact,delete", "message.timestamp.type": "LogAppendTime"})
		w.create(t, "app-by-carrier-repartition", 6, map[string]string{"retention.ms": "86400000"})
		_, err := Ensure(t.Context(), w.adm, internals)
		if err == nil {
			t.Fatal("no error")
		}
		for _, want := range []string{
			"topic app-counts-changelog: partitions is 6, want 4; ",
			"topic app-counts-changelog: cleanup.policy is delete, want compact; ",
			"topic app-seen-changelog: cleanup.policy is compact,delete, want compact; ",
			"topic app-seen-changelog: message.timestamp.type is LogAppendTime, want CreateTime; ",
			"topic app-by-carrier-repartition: retention.ms is 86400000, want -1; ",
			"--entity-name app-counts-changelog --add-config cleanup.policy=compact",
		} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q is not in:\n%v", want, err)
			}
		}
		if m, ok := errors.AsType[*MismatchError](err); !ok || m.Topic != "app-counts-changelog" || m.Fix == "" {
			t.Errorf("error %#v", m)
		}
		// An override is what is verified.
		want := internals[2]
		want.Config = map[string]string{"retention.ms": "86400000"}
		if _, err := Ensure(t.Context(), w.adm, []Internal{want}); err != nil {
			t.Errorf("with the override: %v", err)
		}
	})
}

// TestCR15LostChangelogIsRefused: where the application has run before, a missing topic is lost state. Nothing is
// created, also not the other topics that are missing.
func TestCR15LostChangelogIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		want := slices.Clone(internals)
		want[0].MustExist = "group app has committed offsets of in"
		_, err := Ensure(t.Context(), w.adm, want)
		lost, ok := errors.AsType[*LostError](err)
		if !ok || lost.Topic != want[0].Topic || !strings.Contains(err.Error(), "group app has committed offsets of in") || !strings.Contains(err.Error(), "reset") {
			t.Fatalf("error %v", err)
		}
		for _, in := range want {
			if w.TopicInfo(in.Topic) != nil {
				t.Errorf("%s was created", in.Topic)
			}
		}
		w.create(t, want[0].Topic, 4, DefaultConfig(Changelog))
		if _, err := Ensure(t.Context(), w.adm, want); err != nil {
			t.Errorf("when it is there: %v", err)
		}
	})
}

// TestCR15BrokerThatLagsIsNoLoss: a broker that has just started denies a topic at first.
func TestCR15BrokerThatLagsIsNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		want := internals[0]
		want.MustExist = "local checkpoint"
		w.create(t, want.Topic, want.Partitions, DefaultConfig(Changelog))
		w.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: want.Topic, Err: kerr.UnknownTopicOrPartition, Count: 3})
		if _, err := Ensure(t.Context(), w.adm, []Internal{want}); err != nil {
			t.Error(err)
		}
	})
}

func TestDescribeNamesEveryMissingTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.create(t, "in", 3, nil)
		_, err := Describe(t.Context(), w.adm, []string{"x", "in", "a", "x"})
		if missing, ok := errors.AsType[*MissingError](err); !ok || !slices.Equal(missing.Topics, []string{"a", "x"}) {
			t.Errorf("error %v", err)
		}
		infos, err := Describe(t.Context(), w.adm, []string{"in", "in"})
		if err != nil || len(infos) != 1 || infos["in"].Partitions != 3 || infos["in"].ID != w.TopicInfo("in").TopicID {
			t.Errorf("%v, %v", infos, err)
		}
		if infos, err := Describe(t.Context(), w.adm, nil); err != nil || len(infos) != 0 {
			t.Errorf("no topics: %v, %v", infos, err)
		}
	})
}

// TestCF10TopicRefusalsAreNamed: operation and topic, and the broker's reason.
func TestCF10TopicRefusalsAreNamed(t *testing.T) {
	for name, c := range map[string]struct {
		key kmsg.Key
		err *kerr.Error
	}{
		"describe": {kmsg.Metadata, kerr.TopicAuthorizationFailed},
		"create":   {kmsg.CreateTopics, kerr.TopicAuthorizationFailed},

		"describe configuration": {kmsg.DescribeConfigs, kerr.TopicAuthorizationFailed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				fault := kfake.Fault{Keys: []kmsg.Key{c.key}, Topic: internals[0].Topic, Err: c.err, Count: -1}
				if c.key == kmsg.DescribeConfigs {
					fault.Topic, fault.Resource = "", internals[0].Topic
				}
				w.Fault(fault)
				_, err := Ensure(t.Context(), w.adm, internals[:1])
				refused, ok := errors.AsType[*RequestError](err)
				if !ok || refused.Operation != name || refused.Topic != internals[0].Topic || !errors.Is(err, c.err) {
					t.Errorf("error %v", err)
				}
			})
		})
	}
}

func (w *world) fill(t *testing.T, topic string, partition int32, n int) {
	t.Helper()
	for range n {
		r := &kgo.Record{Topic: topic, Partition: partition, Key: []byte("k"), Value: []byte("v")}
		if err := w.client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

func (w *world) starts(t *testing.T, topic string) (starts []int64) {
	t.Helper()
	for _, p := range w.PartitionInfos(topic) {
		starts = append(starts, p.LogStartOffset)
	}
	return starts
}

// TestPurgerDeletesWhatIsCommitted: never more, all partitions in one request per broker, nothing when nothing is new.
func TestPurgerDeletesWhatIsCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.create(t, "app-x-repartition", 3, DefaultConfig(Repartition))
		for p := range int32(3) {
			w.fill(t, "app-x-repartition", p, 20)
		}
		var requests atomic.Int64
		w.ControlKey(int16(kmsg.DeleteRecords), func(kmsg.Request) (kmsg.Response, error, bool) {
			w.KeepControl()
			requests.Add(1)
			return nil, nil, false
		})
		p, err := NewPurger(PurgerConfig{Admin: w.adm})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		at := func(partition store.Partition) store.TopicPartition {
			return store.TopicPartition{Topic: "app-x-repartition", Partition: partition}
		}
		p.Committed(at(0), 5)
		p.Committed(at(0), 12)
		p.Committed(at(0), 7) // late news of an older commit
		p.Committed(at(1), 20)
		p.Committed(at(2), 0)
		time.Sleep(29 * time.Second)
		synctest.Wait()
		if have := w.starts(t, "app-x-repartition"); !slices.Equal(have, []int64{0, 0, 0}) {
			t.Errorf("before the interval: %v", have)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if have := w.starts(t, "app-x-repartition"); !slices.Equal(have, []int64{12, 20, 0}) {
			t.Errorf("log starts %v, want 12 20 0", have)
		}
		if n := requests.Load(); n < 1 || n > 2 {
			t.Errorf("%d requests, want at most one per broker", n)
		}
		before := requests.Load()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if n := requests.Load(); n != before {
			t.Errorf("%d requests although nothing was committed", n-before)
		}
		// What fails is tried again; what another instance has deleted already is done.
		w.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DeleteRecords}, Topic: "app-x-repartition", Err: kerr.TopicAuthorizationFailed, Count: 1})
		p.Committed(at(0), 15)
		time.Sleep(61 * time.Second)
		synctest.Wait()
		if have := w.starts(t, "app-x-repartition"); !slices.Equal(have, []int64{15, 20, 0}) {
			t.Errorf("log starts %v, want 15 20 0", have)
		}
		p.Committed(at(1), 999)
		time.Sleep(31 * time.Second)
		synctest.Wait()
		if len(p.pending) != 0 {
			t.Errorf("left over: %v", p.pending)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("run: %v", err)
		}
	})
}

func TestPurgerSwitchedOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p, err := NewPurger(PurgerConfig{Admin: w.adm, Interval: -1})
		if err != nil {
			t.Fatal(err)
		}
		p.Committed(store.TopicPartition{Topic: "x"}, 5)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := p.Run(ctx); !errors.Is(err, context.DeadlineExceeded) || len(p.pending) != 0 {
			t.Errorf("run: %v, pending %v", err, p.pending)
		}
		if _, err := NewPurger(PurgerConfig{}); err == nil {
			t.Error("a purger without an admin client")
		}
	})
}
