package processor

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/processor/internal/restore"
	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

// TestFedVersions: a versioned store that is fed from a topic is written by its own processor only, and what the topic has
// taken is not too large for it: a restore would put it.
func TestFedVersions(t *testing.T) {
	t.Parallel()
	ran := 0
	top := NewTopology().
		AddReadOnlyStateStore(store.Spec{Name: "v", Kind: store.KindVersioned, Retention: time.Second}, "ts", SourceOptions{}, "table", "writer",
			func() Processor {
				return &seer{b: &taskBench{}, do: func(ctx *Context, r *Record) error {
					v, err := ctx.VersionedStore("v")
					if err != nil {
						return err
					}
					ran++
					_, err = v.Put(r.Key, store.Value{Data: make([]byte, 2000), Timestamp: r.Timestamp})
					return err
				}}
			}).
		AddSource("s", SourceOptions{}, "x").
		AddProcessor("reader", func() Processor {
			return &seer{b: &taskBench{}, do: func(ctx *Context, r *Record) error {
				ran++
				v, err := ctx.VersionedStore("v")
				if err != nil {
					return err
				}
				if _, err := v.Put(r.Key, store.Value{Data: []byte("mine"), Timestamp: r.Timestamp + 1}); err == nil {
					t.Error("a reader's put was taken")
				}
				if _, err := v.Delete(r.Key, r.Timestamp+2); err == nil {
					t.Error("a reader's delete was taken")
				}
				if got, err := v.Get(r.Key); err != nil || len(got.Data) != 2000 {
					t.Error(len(got.Data), err)
				}
				return nil
			}}
		}, "s").
		ConnectProcessorAndStateStores("reader", "v")
	built, err := top.Build("app")
	if err != nil {
		t.Fatal(err)
	}
	stores, err := layered.Open(t.Context(), layered.Config{Dir: t.TempDir(), MinFreeBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stores.Close() })
	state, err := stores.OpenTask(t.Context(), store.TaskID{}, built.StoreSpecs(0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = state.Close(context.WithoutCancel(t.Context())) })
	e := &taskEnv{application: "app", now: time.Now, maxRecord: 1000, limitedBy: "the test"}
	inputs := []store.TopicPartition{{Topic: "table"}, {Topic: "x"}}
	b := &taskBench{t: t, task: newTask(store.TaskID{}, built.subs[0], e, inputs)}
	e.onError = func(tk *task, _ *kgo.Record, err error) error { return tk.fail(err) }
	start := map[store.TopicPartition]store.Offset{inputs[0]: 0, inputs[1]: 0}
	if err := b.task.begin(state, restore.Result{StreamTime: -1, Position: store.Position{}}, start); err != nil {
		t.Fatal(err)
	}
	b.push(0, "0@1")
	b.process()
	b.push(1, "0@2")
	b.process()
	if ran != 2 {
		t.Errorf("ran %d", ran)
	}
}
