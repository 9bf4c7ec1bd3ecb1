package drive_test

import (
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/processor/internal/drive"
)

func keys(records []*kgo.Record) (ks []string) {
	for _, r := range records {
		ks = append(ks, string(r.Key))
	}
	return ks
}

// TestTransaction: what is produced in one can be read from its commit on, and has the offsets that its promises told.
func TestTransaction(t *testing.T) {
	t.Parallel()
	topics, err := drive.NewTopics(map[string]int32{"in": 2})
	if err != nil {
		t.Fatal(err)
	}
	topics.Choose("in")
	var told []int64
	produce := func(key string, partition int32) *kgo.Record {
		r := &kgo.Record{Topic: "in", Key: []byte(key), Partition: partition}
		topics.Produce(t.Context(), r, func(r *kgo.Record, err error) {
			if err != nil {
				t.Error(err)
			}
			told = append(told, r.Offset)
		})
		return r
	}
	_ = topics.BeginTransaction()
	produce("lost", 0)
	topics.Abort()
	_ = topics.BeginTransaction()
	r := produce("a", 0)
	produce("b", 1)
	produce("c", 0)
	r.Key[0] = 'x' // the producer's own again
	if _, err := topics.Append(&kgo.Record{Topic: "in", Key: []byte("first"), Partition: 0, Timestamp: time.UnixMilli(1)}); err != nil {
		t.Fatal(err)
	}
	if err := topics.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if have := keys(topics.Arrived("in", 0)); !slices.Equal(have, []string{"first"}) {
		t.Errorf("before the commit: %v", have)
	}
	topics.EndTransaction()
	if have := keys(topics.Arrived("in", 1)); !slices.Equal(have, []string{"a", "b", "c"}) {
		t.Errorf("after it: %v", have)
	}
	if have := keys(topics.Read("in", 0, 1)); !slices.Equal(have, []string{"a", "c"}) || topics.End("in", 1) != 1 {
		t.Errorf("partition 0: %v, end of 1: %d", have, topics.End("in", 1))
	}
	if !slices.Equal(told, []int64{1, 0, 2}) {
		t.Errorf("offsets told: %v", told)
	}
}

// TestRefused: partitions that cannot be.
func TestRefused(t *testing.T) {
	t.Parallel()
	if _, err := drive.NewTopics(map[string]int32{"in": 0}); err == nil {
		t.Error("a topic without partitions")
	}
	topics, err := drive.NewTopics(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := topics.Append(&kgo.Record{Topic: "in", Partition: 1}); err == nil {
		t.Error("a partition that there is not")
	}
	if r, err := topics.Append(&kgo.Record{Topic: "in", Partition: -1}); err != nil || r.Partition != 0 || r.Offset != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if err := topics.Make("in", 2); err == nil {
		t.Error("a topic in use has another size")
	}
	if err := topics.Make("new", 0); err == nil {
		t.Error("no partitions")
	}
	if got := topics.Read("new", 0, 5); got != nil {
		t.Errorf("read %v", got)
	}
}
