//go:build chaos

package chaos

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// checkLogs reads the changelogs of the counters as committed readers do. They only count up, so the values of a key must grow
// from record to record: one that stays or falls was written by somebody who had not seen the one before.
func checkLogs(ctx context.Context, t *testing.T, w *traffics, brokers []string) {
	t.Helper()
	rows := make(map[string]*row)
	last := make(map[string]int64)
	var topics []string
	for _, view := range []string{"counts", "totals", "groups"} {
		topics = append(topics, "chaos-"+view+"-changelog")
	}
	for _, r := range w.rows {
		if r.view != "last" {
			rows["chaos-"+r.view+"-changelog\x00"+r.key] = r
		}
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topics...), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.KeepControlRecords())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListCommittedOffsets(ctx, topics...)
	if err != nil {
		t.Fatal(err)
	}
	type partition struct {
		topic string
		p     int32
	}
	left := make(map[partition]int64)
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[partition{o.Topic, o.Partition}] = o.Offset
		}
	})
	records := 0
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for len(left) > 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			t.Fatalf("read changelogs: %v; left %v", err, left)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			at := partition{r.Topic, r.Partition}
			if end, ok := left[at]; ok && r.Offset+1 >= end {
				delete(left, at)
			}
			if r.Attrs.IsControl() {
				return
			}
			records++
			k := r.Topic + "\x00" + string(r.Key)
			row := rows[k]
			if row == nil {
				t.Errorf("%s-%d@%d: key %q is of no row", r.Topic, r.Partition, r.Offset, r.Key)
				return
			}
			value := r.Value
			if len(value) > 8 { // a timestamped store may keep the time before the value
				value = value[len(value)-8:]
			}
			n, err := number(row.view, value)
			if err != nil {
				t.Errorf("%s-%d@%d: %v", r.Topic, r.Partition, r.Offset, err)
				return
			}
			if n <= last[k] {
				t.Errorf("%s-%d@%d: %s is %d after %d", r.Topic, r.Partition, r.Offset, r.Key, n, last[k])
			}
			last[k] = n
		})
	}
	for k, row := range rows {
		if last[k] != row.number {
			t.Errorf("changelog: %s %s ends at %d, want %d", row.view, row.key, last[k], row.number)
		}
	}
	t.Logf("%d changelog records checked", records)
}
