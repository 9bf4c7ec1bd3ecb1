package processor

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/statemesh/statemesh/store"
)

func TestFedStoreErrors(t *testing.T) {
	t.Parallel()
	spec := store.Spec{Name: "st", Kind: store.KindKeyValue}
	two := func() *Topology { return source().AddStateStore(spec, "p") }
	global := func() *Topology { return source().AddGlobalStore(spec, "gs", SourceOptions{}, "g", "gp", newInert) }
	for _, tt := range []struct {
		name string
		top  *Topology
		want string
	}{
		{"no such store", source().ReuseSourceTopic("st", "p"), `store "st": is unknown`},
		{"not connected", two().AddProcessor("q", newInert, "s").ReuseSourceTopic("st", "q"), `processor "q" is not connected to it`},
		{"no processor", two().ReuseSourceTopic("st", "q"), `processor "q" is not connected to it`},
		{"twice", two().ReuseSourceTopic("st", "p").ReuseSourceTopic("st", "p"), `has a source topic as changelog already`},
		{
			"behind another processor",
			source().AddProcessor("q", newInert, "p").AddStateStore(spec, "q").ReuseSourceTopic("st", "q"), `must have one parent, a source`,
		},
		{
			"two topics", NewTopology().AddSource("s", SourceOptions{}, "a", "b").AddProcessor("p", newInert, "s").AddStateStore(spec, "p").
				ReuseSourceTopic("st", "p"), `must read one topic, it reads 2`,
		},
		{
			"a repartition topic", source().AddRepartition("r", RepartitionOptions{}, "p").AddProcessor("q", newInert, "r").
				AddStateStore(spec, "q").ReuseSourceTopic("st", "q"), `of which consumed records are deleted`,
		},
		{
			"a writer of two stores", two().AddStateStore(store.Spec{Name: "other", Kind: store.KindKeyValue}, "p").ReuseSourceTopic("st", "p"),
			`writes other stores too`,
		},
		{
			"a second store of a writer", two().ReuseSourceTopic("st", "p").AddStateStore(store.Spec{Name: "other", Kind: store.KindKeyValue}, "p"),
			`"p" writes a store that is fed from a topic, and has no other`,
		},
		{
			"without a changelog", source().AddStateStore(store.Spec{Name: "st", Kind: store.KindKeyValue, NoChangelog: true}, "p").
				ReuseSourceTopic("st", "p"), `its source topic takes the place of one`,
		},
		{"a child of a global store", global().AddProcessor("q", newInert, "gp"), `belongs to a global store`},
		{"a child of its source", global().AddSink("k", SinkOptions{}, "out", "gs"), `belongs to a global store`},
		{"connected to a global store", global().ConnectProcessorAndStateStores("p", "st"), `every processor may read it`},
		{"a global processor with a second store", global().AddStateStore(store.Spec{Name: "more", Kind: store.KindKeyValue}, "gp"), `has no other`},
		{"a global store declared twice", global().AddGlobalStore(spec, "x", SourceOptions{}, "y", "z", newInert), `is declared twice`},
		{"a topic read twice", source().AddGlobalStore(spec, "gs", SourceOptions{}, "in", "gp", newInert), `is read by source "s" already`},
		{
			"a global store of windows",
			source().AddGlobalStore(store.Spec{Name: "st", Kind: store.KindWindow, Retention: 2e9, WindowSize: 1e9}, "gs", SourceOptions{}, "g", "gp", newInert),
			`a topic has no windows or sessions`,
		},
		{"nothing but a global store", NewTopology().AddGlobalStore(spec, "gs", SourceOptions{}, "g", "gp", newInert), `needs at least one source`},
	} {
		if _, err := tt.top.Build("app"); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", tt.name, err, tt.want)
		}
	}
}

// TestFedPlan: no changelog for what is fed from a topic, no tasks and no partitions for what is global, and numbers of
// sub-topologies that count global ones, as upstream's do.
func TestFedPlan(t *testing.T) {
	t.Parallel()
	top := NewTopology().
		AddSource("b", SourceOptions{}, "in").
		AddProcessor("p", newInert, "b").
		AddReadOnlyStateStore(store.Spec{Name: "table", Kind: store.KindTimestampedKeyValue}, "c", SourceOptions{}, "tables", "keep", newInert).
		ConnectProcessorAndStateStores("p", "table").
		AddGlobalStore(store.Spec{Name: "rates", Kind: store.KindKeyValue}, "a", SourceOptions{}, "rates", "keep-rates", newInert)
	built, err := top.Build("app")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := built.Plan(map[string]int32{"in": 3, "tables": 3}); err == nil || !strings.Contains(err.Error(), `"rates"`) {
		t.Errorf("a global topic that is not there: %v", err)
	}
	plan, err := built.Plan(map[string]int32{"in": 3, "tables": 3, "rates": 8})
	if err != nil {
		t.Fatal(err)
	}
	for what, have := range map[string]any{
		"[]":                         plan.Changelogs,
		"[in tables]":                built.SourceTopics(),
		"[rates]":                    built.GlobalTopics(),
		"[rates tables]":             built.FedTopics(),
		"[0_0]":                      built.GlobalTasks(),
		"3 tasks of sub-topology 1":  fmt.Sprintf("%d tasks of sub-topology %d", len(plan.Tasks), plan.Tasks[0].ID.Subtopology),
		"rates, global true, 1 of 0": fmt.Sprintf("%s, global %t, %d of %d", plan.Stores[0].Name, plan.Stores[0].Global, plan.Stores[0].Partitions, plan.Stores[0].Subtopology),
		"table, global false, 3":     fmt.Sprintf("%s, global %t, %d", plan.Stores[1].Name, plan.Stores[1].Global, plan.Stores[1].Partitions),
	} {
		if fmt.Sprint(have) != what {
			t.Errorf("have %v, want %s", have, what)
		}
	}
	if _, err := built.Plan(map[string]int32{"in": 3, "tables": 2, "rates": 8}); err == nil {
		t.Error("topics that meet in a read-only store must have equally many partitions")
	}
	if text := built.Describe(); !strings.Contains(text, "Sub-topology: 0 for global store (will not generate tasks)\n") ||
		!strings.Contains(text, "Sub-topology: 1\n") {
		t.Errorf("described as\n%s", text)
	}
	plain, err := source().AddStateStore(store.Spec{Name: "st", Kind: store.KindKeyValue}, "p").Build("app")
	if err != nil {
		t.Fatal(err)
	}
	fed, err := source().AddStateStore(store.Spec{Name: "st", Kind: store.KindKeyValue}, "p").ReuseSourceTopic("st", "p").Build("app")
	if err != nil {
		t.Fatal(err)
	}
	if hashes := []uint64{plain.ShapeHash(), fed.ShapeHash()}; slices.Compact(hashes)[0] == fed.ShapeHash() {
		t.Error("instances that restore from different topics would share tasks")
	}
}
