//go:build realkafka

package kafkatest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestRealKafkaSurvivesKill: what was acknowledged is there after SIGKILL and restart, at the same address.
func TestRealKafkaSurvivesKill(t *testing.T) {
	b := Run(t, map[string]string{"num.partitions": "3"})
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Brokers()...), kgo.DefaultProduceTopic("t"))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	if _, err := adm.CreateTopic(t.Context(), -1, -1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	if err := cl.ProduceSync(t.Context(), kgo.StringRecord("v")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if b.Pid() == 0 {
		t.Error("no pid while it runs")
	}
	b.Kill()
	if b.Pid() != 0 {
		t.Error("a pid after Kill")
	}
	b.MustRestart(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ends, err := adm.ListEndOffsets(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	var sum int64
	ends.Each(func(o kadm.ListedOffset) { sum += o.Offset })
	if n := len(ends["t"]); n != 3 || sum != 1 {
		t.Errorf("%d partitions with %d records, want 3 with 1", n, sum)
	}
	if err := b.Pause(); err != nil {
		t.Error(err)
	}
	if err := b.Resume(); err != nil {
		t.Error(err)
	}
	b.Stop()
	b.Stop()
	if !strings.Contains(b.LogTail(1<<20), "Kafka Server started") {
		t.Error("the log does not tell of a start")
	}
}
