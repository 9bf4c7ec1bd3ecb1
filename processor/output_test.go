package processor

import (
	"context"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A commit waits until the client knows the partitions of each topic that it was given records of for the first time, and no longer
// than its context.
func TestAwaitLoaded(t *testing.T) {
	t.Parallel()
	o := newOutput(nil, true, nil)
	for _, r := range []*kgo.Record{{Topic: "a", Partition: 3}, {Topic: "b", Partition: 1}} {
		o.fresh[r.Topic] = r
	}
	asked := map[string]int{}
	err := o.awaitLoaded(t.Context(), func(topic string, p int32) bool {
		if want := map[string]int32{"a": 3, "b": 1}[topic]; p != want {
			t.Errorf("topic %s: partition %d, want %d", topic, p, want)
		}
		asked[topic]++
		return asked[topic] == 3
	})
	if err != nil || asked["a"] != 3 || asked["b"] != 3 || !o.loaded["a"] || !o.loaded["b"] || len(o.fresh) != 0 {
		t.Fatalf("asked %v, loaded %v, left %v, %v", asked, o.loaded, o.fresh, err)
	}

	o.fresh["c"] = &kgo.Record{Topic: "c"}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := o.awaitLoaded(ctx, func(string, int32) bool { return false }); !errors.Is(err, context.Canceled) || o.loaded["c"] {
		t.Fatalf("%v, loaded %v", err, o.loaded)
	}
}
