package streams_test

import (
	"strings"
	"testing"
	"time"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/streams"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// longest keeps, for the first letter of a key, the longest value that came: what it puts is not what it was given.
func longest(kv *streams.Store[*streams.KeyValue[string, string]]) func() streams.Processor[string, string, string, string] {
	return func() streams.Processor[string, string, string, string] {
		var rows *streams.KeyValue[string, string]
		return &fn{
			init: func(ctx *textContext) (err error) { rows, err = kv.Open(ctx); return err },
			process: func(ctx *textContext, r *textRecord) error {
				if r.NoKey {
					ctx.Drop("no key")
					return nil
				}
				had, _, err := rows.Get(r.Key[:1])
				if err != nil || len(had) >= len(r.Value) {
					return err
				}
				return rows.Put(r.Key[:1], r.Value)
			},
		}
	}
}

// TestAddGlobalStore: a processor fills the store, others read it in whatever partition they are, and a restore runs the records through the
// processor again, in place of copying them (KAFKA-7663).
func TestAddGlobalStore(t *testing.T) {
	t.Parallel()
	d := drive(t, streamstest.Config{Partitions: map[string]int32{"names": 2, "in": 3}}, func(b *streams.Builder) {
		names := streams.KeyValueStore("names", serde.String(), serde.String())
		streams.AddGlobalStore(b, names, "names", serde.String(), serde.String(), longest(names))
		streams.Process(texts(b, "in"), func() streams.Processor[string, string, string, string] {
			var rows *streams.KeyValue[string, string]
			return &fn{
				init: func(ctx *textContext) (err error) { rows, err = names.Open(ctx); return err },
				process: func(ctx *textContext, r *textRecord) error {
					name, _, err := rows.Get(r.Key)
					if err != nil {
						return err
					}
					return ctx.Forward(textRecord{Key: r.Key, Value: name, Timestamp: r.Timestamp})
				},
			}
		}).To("out")
	})
	in, names := streamstest.NewInput(d, "in", serde.String(), serde.String()), streamstest.NewInput(d, "names", serde.String(), serde.String())
	out := read(d, serde.String())
	pipe(names, "a1=ann@1", "a2=annabel@2", "a1=al@3", "b=bob@4")
	names.PipeValue("nobody")
	pipe(in, "a=?@5", "b=?@6", "c=?@7")
	want(t, "read", out(), "a=annabel@5", "b=bob@6", "c=@7")
	d.Restart()
	pipe(in, "a=?@8")
	want(t, "read after a restore", out(), "a=annabel@8")
	if v, ok := streamstest.NewKeyValue(d, "names", serde.String(), serde.String()).Get("a1"); ok {
		t.Errorf("a1 is %q: the store holds what its processor did not put", v)
	}
	if n := d.Dropped()["no key"]; n != 2 { // once more by the restore
		t.Errorf("dropped %v", d.Dropped())
	}
}

// TestAddGlobalStoreNames: source and processor are called as upstream's, with a name and without.
func TestAddGlobalStoreNames(t *testing.T) {
	t.Parallel()
	b := streams.NewBuilder()
	a, named := streams.KeyValueStore("a", serde.String(), serde.String()), streams.KeyValueStore("b", serde.String(), serde.String())
	streams.AddGlobalStore(b, a, "a-topic", serde.String(), serde.String(), longest(a))
	streams.AddGlobalStore(b, named, "b-topic", serde.String(), serde.String(), longest(named), streams.Named("fill"))
	texts(b, "in").To("out")
	got := describe(t, b)
	for _, want := range []string{
		"KSTREAM-SOURCE-0000000000 (topics: [a-topic])", "Processor: KTABLE-SOURCE-0000000001 (stores: [a])",
		"fill-source (topics: [b-topic])", "Processor: fill (stores: [b])", "Source: KSTREAM-SOURCE-0000000004 (topics: [in])",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

// TestAddGlobalStoreRefused: what a global store cannot be is an error of Build.
func TestAddGlobalStoreRefused(t *testing.T) {
	t.Parallel()
	text := serde.String()
	kv := streams.KeyValueStore("kv", text, text)
	parts := streams.Custom(processor.NewCustomStore(func(*processor.Parts) (*streams.KeyValue[string, string], error) { return nil, nil },
		store.Spec{Name: "x", Kind: store.KindKeyValue}, store.Spec{Name: "y", Kind: store.KindKeyValue}))
	one := &fn{}
	add := func(st *streams.Store[*streams.KeyValue[string, string]], opts ...streams.Option) func(b *streams.Builder) {
		return func(b *streams.Builder) { streams.AddGlobalStore(b, st, "t", text, text, longest(st), opts...) }
	}
	for want, build := range map[string]func(b *streams.Builder){
		`takes no option "Uses"`:  add(kv, streams.Uses(kv)),
		"settings of a changelog": add(streams.KeyValueStore("kv", text, text, streams.LoggingDisabled())),
		"without caching":         add(streams.KeyValueStore("kv", text, text, streams.CachingEnabled())),
		"a store of 2 parts":      add(parts),
		"a new processor at each call": func(b *streams.Builder) {
			streams.AddGlobalStore(b, kv, "t", text, text, func() streams.Processor[string, string, string, string] { return one })
		},
		"no windows or sessions": func(b *streams.Builder) {
			w := streams.WindowStore("w", time.Second, time.Second, text, text)
			streams.AddGlobalStore(b, w, "t", text, text, longest(kv))
		},
		`store "kv": is declared twice`: func(b *streams.Builder) {
			add(kv)(b)
			streams.Process(texts(b, "in"), func() streams.Processor[string, string, string, string] { return &fn{} }, streams.Uses(kv))
		},
		"serde of keys": func(b *streams.Builder) {
			streams.AddGlobalStore(b, kv, "t", serde.Serde[string]{}, text, longest(kv))
		},
	} {
		b := streams.NewBuilder()
		build(b)
		topology, err := b.Build()
		if err == nil {
			_, err = topology.Build("app")
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestGlobalStoreSchedulesNothing: nobody would fire it, and a restore could not repeat what it put.
func TestGlobalStoreSchedulesNothing(t *testing.T) {
	t.Parallel()
	kv := streams.KeyValueStore("kv", serde.String(), serde.String())
	b := streams.NewBuilder()
	streams.AddGlobalStore(b, kv, "t", serde.String(), serde.String(), func() streams.Processor[string, string, string, string] {
		return &fn{init: func(ctx *textContext) error {
			_, err := ctx.Schedule(time.Second, processor.WallClockTime, func(int64) error { return nil })
			return err
		}}
	})
	texts(b, "in").To("out")
	topology, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := streamstest.New(t.Context(), topology, streamstest.Config{}); err == nil || !strings.Contains(err.Error(), "schedules no punctuations") {
		t.Errorf("%v, want a refusal", err)
	}
}
