//go:build realkafka

package kafkatest

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestRealKafkaClusterSurvivesNode: without the node that leads the controllers every partition can be written, and what was
// acknowledged is there on all three when it has come back.
func TestRealKafkaClusterSurvivesNode(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	c := RunCluster(t, Config{Nodes: 3})
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Brokers()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	const partitions = 6
	if _, err := adm.CreateTopic(ctx, partitions, -1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	if err := c.InSync(ctx); err != nil {
		t.Fatal(err)
	}
	written := 0
	write := func() {
		t.Helper()
		for p := range int32(partitions) {
			r := &kgo.Record{Topic: "t", Partition: p, Value: []byte(strconv.Itoa(written))}
			if err := cl.ProduceSync(ctx, r).FirstErr(); err != nil {
				t.Fatal(err)
			}
			written++
		}
	}
	write()
	leader, err := c.Controller(ctx)
	if err != nil || leader < 1 || leader > len(c.Nodes()) {
		t.Fatalf("controller %d, %v", leader, err)
	}
	victim := c.Nodes()[leader-1]
	if victim.ID() != leader {
		t.Fatalf("node %d has id %d", leader, victim.ID())
	}
	victim.Kill()
	write()
	if next, err := c.Controller(ctx); err != nil || next == leader || next == 0 {
		t.Errorf("controller %d after the death of %d, %v", next, leader, err)
	}
	short, stop := context.WithTimeout(ctx, time.Second)
	defer stop()
	if err := c.InSync(short); err == nil {
		t.Error("in sync without one of three")
	}
	victim.MustRestart(t)
	if err := c.InSync(ctx); err != nil {
		t.Fatal(err)
	}
	write()
	topics, err := adm.ListTopics(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	if n := topics["t"].Partitions.NumReplicas(); n != 3 {
		t.Errorf("%d replicas, want 3", n)
	}
	ends, err := adm.ListEndOffsets(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	var sum int64
	ends.Each(func(o kadm.ListedOffset) { sum += o.Offset })
	if int(sum) != written {
		t.Errorf("%d records, want %d", sum, written)
	}
}
