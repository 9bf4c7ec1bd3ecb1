//go:build realkafka

package topics

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/internal/kafkatest"
	"github.com/statemesh/statemesh/processor/internal/kafka"
	"github.com/statemesh/statemesh/store"
)

// TestRealKafkaTopics: a real broker takes our settings, reports them back as we compare them, agrees on one set of
// topics with several instances that start at a time, and purges.
func TestRealKafkaTopics(t *testing.T) {
	b := kafkatest.Run(t, nil)
	cfg := kafka.Config{Brokers: b.Brokers()}
	cl, err := kgo.NewClient(append(cfg.Admin(), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	results := make([]map[string]Info, 4)
	var wg sync.WaitGroup
	for i := range results {
		wg.Go(func() {
			var err error
			if results[i], err = Ensure(t.Context(), adm, internals); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, r := range results {
		if len(r) != len(internals) || !maps.Equal(r, results[0]) {
			t.Fatalf("instances disagree: %v and %v", r, results[0])
		}
	}
	if i := results[0][internals[0].Topic]; i.ID == [16]byte{} || i.Partitions != 4 || i.MaxMessageBytes != 1048588 || i.DeleteRetention != 24*time.Hour {
		t.Errorf("info %+v", i)
	}
	other := internals[0]
	other.Partitions = 5
	if _, err := Ensure(t.Context(), adm, []Internal{other}); err == nil {
		t.Error("5 partitions of a topic with 4")
	} else if m, ok := errors.AsType[*MismatchError](err); !ok || m.Have != "4" || m.Want != "5" {
		t.Errorf("error %v", err)
	}
	// A topic that is deleted and made again within a moment is another topic.
	if _, err := adm.DeleteTopic(t.Context(), internals[0].Topic); err != nil {
		t.Fatal(err)
	}
	again, err := Ensure(t.Context(), adm, internals)
	if err != nil || again[internals[0].Topic].ID == results[0][internals[0].Topic].ID {
		t.Errorf("after deleting: %v, %v", again, err)
	}

	repartition := internals[2].Topic
	for range 10 {
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: repartition, Partition: 1, Key: []byte("k")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	p, err := NewPurger(PurgerConfig{Admin: adm, Interval: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	p.Committed(store.TopicPartition{Topic: repartition, Partition: 1}, 7)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	wg.Go(func() { _ = p.Run(ctx) })
	defer wg.Wait()
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		starts, err := adm.ListStartOffsets(ctx, repartition)
		if err != nil {
			t.Fatal(err)
		}
		if o, _ := starts.Lookup(repartition, 1); o.Offset == 7 {
			return
		}
		<-tick.C
	}
	t.Error("the log still begins before the committed offset")
}
