package processor

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/statemesh/statemesh/store"
)

// TestCompare: what a change of a topology does to what is there, and nothing else is reported.
func TestCompare(t *testing.T) {
	t.Parallel()
	window := func(size, retention time.Duration) store.Spec {
		return store.Spec{Name: "w", Kind: store.KindTimestampedWindow, WindowSize: size, Retention: retention}
	}
	base := func(top *Topology, spec store.Spec) *Topology {
		return top.AddSource("in", SourceOptions{}, "in").
			AddRepartition("r", RepartitionOptions{}, "in").
			AddProcessor("p", newInert, "r").
			AddStateStore(spec, "p")
	}
	with := func(spec store.Spec) *Topology { return base(NewTopology(), spec) }
	changed := func(change func(*store.Spec)) *Topology {
		s := kv("s")
		change(&s)
		return with(s)
	}
	for name, c := range map[string]struct {
		old, new *Topology
		want     []string // parts, in order
	}{
		"nothing":  {with(kv("s")), with(kv("s")), nil},
		"renamed":  {with(kv("s")), with(kv("other")), []string{"store s: orphaned: what it holds is not found any more; its changelog app-s-changelog stays behind", "store other: added"}},
		"position": {with(kv("KSTREAM-AGGREGATE-STATE-STORE-0000000003")), with(kv("KSTREAM-AGGREGATE-STATE-STORE-0000000004")), []string{"name it: KSTREAM-AGGREGATE-STATE-STORE-0000000004 looks like", "added"}},
		"unlogged": {changed(func(s *store.Spec) { s.NoChangelog = true; s.Name = "x" }), with(kv("s")), []string{"store x: orphaned: what it holds is lost", "store s: added"}},
		"kind":     {with(kv("s")), changed(func(s *store.Spec) { s.Kind, s.Retention = store.KindVersioned, time.Hour }), []string{"store s: altered: a versioned store was a timestamped-key-value store"}},
		"layout":   {with(kv("s")), changed(func(s *store.Spec) { s.Kind = store.KindKeyValue }), []string{"store s: adjusted: it is kept differently on disk"}},
		"formats":  {with(kv("s")), changed(func(s *store.Spec) { s.ValueFormat = "json" }), []string{"store s: altered: keys and values are string and json, they were string and int64"}},
		"logging":  {with(kv("s")), changed(func(s *store.Spec) { s.NoChangelog = true }), []string{"store s: altered: it is restored from nothing, and was from app-s-changelog"}},
		"windows":  {with(window(time.Minute, time.Hour)), with(window(time.Second, time.Hour)), []string{"windows of 1s were windows of 1m0s"}},
		"shorter":  {with(window(time.Minute, time.Hour)), with(window(time.Minute, time.Minute)), []string{"store w: adjusted: retention is 1m0s"}},
		"longer":   {with(window(time.Minute, time.Minute)), with(window(time.Minute, time.Hour)), []string{"raise retention.ms of app-w-changelog"}},
		"way": {with(kv("s")), NewTopology().AddSource("in", SourceOptions{}, "in").AddProcessor("p", newInert, "in").AddStateStore(kv("s"), "p"), []string{
			"store s: altered: its records come by in, and came by app-r-repartition", "repartition app-r-repartition: orphaned",
		}},
		"partitions": {with(kv("s")), NewTopology().AddSource("in", SourceOptions{}, "in").AddRepartition("r", RepartitionOptions{Partitions: 3}, "in").
			AddProcessor("p", newInert, "r").AddStateStore(kv("s"), "p"), []string{"repartition app-r-repartition: altered: 3 partitions, it had as many as its inputs have"}},
		"another before": {with(kv("s")), base(NewTopology().AddSource("a", SourceOptions{OffsetReset: ResetLatest}, "first").AddSink("b", SinkOptions{}, "out", "a"), kv("s")), []string{
			"source first: added: it is read from where its offset reset says: latest", "sub-topology 0: renumbered: it is 1 now (it reads in)", "sub-topology 1: renumbered: it is 2 now (it reads app-r-repartition)",
		}},
		"source gone": {base(NewTopology().AddSource("z", SourceOptions{}, "last").AddSink("b", SinkOptions{}, "out", "z"), kv("s")), with(kv("s")), []string{"source last: adjusted: it is not read any more"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := Compare(mustBuild(t, c.old), mustBuild(t, c.new))
			if len(got) != len(c.want) {
				t.Fatalf("%d differences, want %d: %v", len(got), len(c.want), got)
			}
			for i, d := range got {
				if !strings.Contains(d.String(), c.want[i]) {
					t.Errorf("%s\nwant %q", d, c.want[i])
				}
				if want := strings.Contains(c.want[i], "orphaned") || strings.Contains(c.want[i], "altered") || strings.Contains(c.want[i], "name it") || strings.Contains(c.want[i], "were windows"); d.Breaks() != want {
					t.Errorf("%s: breaks %v", d, d.Breaks())
				}
			}
		})
	}
	other, err := with(kv("s")).Build("other")
	if err != nil {
		t.Fatal(err)
	}
	if got := Compare(mustBuild(t, with(kv("s"))), other); len(got) != 1 || !got[0].Breaks() || got[0].Kind != "application" {
		t.Errorf("another application: %v", got)
	}
}

// TestPictures: every node, store and topic is drawn once, with an edge for each way, and quotes in names break nothing.
func TestPictures(t *testing.T) {
	t.Parallel()
	b := mustBuild(t, wordCount())
	golden(t, "wordcount.mmd", b.Mermaid())
	golden(t, "wordcount.dot", b.DOT())
	quoted := mustBuild(t, NewTopology().AddSource(`a "b"`, SourceOptions{}, "in"))
	if got := quoted.Mermaid(); !strings.Contains(got, `(["a #quot;b#quot;"])`) {
		t.Error(got)
	}
	if got := quoted.DOT(); !strings.Contains(got, `label="a \"b\""`) {
		t.Error(got)
	}
	ways := 0
	for _, sub := range b.subs {
		for i := range sub.nodes {
			n := &sub.nodes[i]
			ways += len(n.children) + len(n.stores) + len(n.topics)
		}
	}
	if got := len(b.drawing().edges); got != ways {
		t.Errorf("%d edges, want %d", got, ways)
	}
	var ids []string
	for _, box := range b.drawing().boxes {
		for _, n := range box.nodes {
			ids = append(ids, n.id)
		}
	}
	slices.Sort(ids)
	if len(slices.Compact(slices.Clone(ids))) != len(ids) {
		t.Errorf("ids are not unique: %v", ids)
	}
}
