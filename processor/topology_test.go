package processor

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files of the topology tests")

// inert does nothing; it has a size, so that two of them are told apart.
type inert struct{ _ int }

func (*inert) Init(*Context) error   { return nil }
func (*inert) Process(*Record) error { return nil }
func (*inert) Close() error          { return nil }

func newInert() Processor { return &inert{} }

func kv(name store.Name) store.Spec {
	return store.Spec{Name: name, Kind: store.KindTimestampedKeyValue, KeyFormat: "string", ValueFormat: "int64"}
}

func mustBuild(t *testing.T, top *Topology) *Built {
	t.Helper()
	b, err := top.Build("app")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func mustPlan(t *testing.T, b *Built, counts map[string]int32) *Plan {
	t.Helper()
	p, err := b.Plan(counts)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// wordCount has every kind of node: a repartition, a store that unites two branches, a source that only passes on.
func wordCount() *Topology {
	return NewTopology().
		AddSource("lines", SourceOptions{OffsetReset: ResetLatest}, "text", "more-text").
		AddProcessor("split", newInert, "lines").
		AddRepartition("words", RepartitionOptions{}, "split").
		AddProcessor("count", newInert, "words").
		AddStateStore(kv("counts"), "count").
		AddSink("out", SinkOptions{}, "counted", "count").
		AddSource("commands", SourceOptions{}, "commands").
		AddProcessor("rename", newInert, "commands").
		ConnectProcessorAndStateStores("rename", "counts").
		AddSource("a-tap", SourceOptions{}, "audit").
		AddSink("copy", SinkOptions{}, "audit-copy", "a-tap")
}

func TestBuildCompiles(t *testing.T) {
	b := mustBuild(t, wordCount())
	golden(t, "wordcount.txt", b.Describe())
	wantSameDescription(t, b)
	if len(b.subs) != 3 {
		t.Fatalf("%d sub-topologies, want 3", len(b.subs))
	}
	// Upstream numbers by the names of sources: a-tap, then commands (with words, by the store), then lines.
	for id, want := range []string{"a-tap", "words", "lines"} {
		if got := b.subs[id].nodes[0].name; got != want {
			t.Errorf("sub-topology %d begins with %s, want %s", id, got, want)
		}
	}
	for _, sub := range b.subs {
		for i, n := range sub.nodes {
			for _, p := range n.parents {
				if p >= int32(i) {
					t.Errorf("%s comes before its parent", n.name)
				}
				if !slices.Contains(sub.nodes[p].children, int32(i)) {
					t.Errorf("%s is not a child of its parent", n.name)
				}
			}
			if (n.kind == nodeProcessor) != (n.supplier != nil) {
				t.Errorf("%s, a %s: supplier %v", n.name, n.kind, n.supplier != nil)
			}
		}
		for _, s := range sub.sources {
			if e := b.bySource[s.topic]; e.sub != sub || e.node != s.node || !slices.Contains(sub.nodes[e.node].topics, s.topic) {
				t.Errorf("topic %s enters at node %d of %d", s.topic, e.node, e.sub.id)
			}
		}
	}
	check := func(what string, got, want any) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	check("sources", b.SourceTopics(), []string{"audit", "commands", "more-text", "text"})
	check("sinks", b.SinkTopics(), []string{"audit-copy", "counted"})
	check("repartitions", b.RepartitionTopics(), []string{"app-words-repartition"})
	check("reset of text", b.OffsetReset("text"), ResetLatest)
	check("reset of the repartition", b.OffsetReset("app-words-repartition"), ResetEarliest)
	check("reset of a stranger", b.OffsetReset("stranger"), ResetDefault)
	check("stores of 1", b.StoreSpecs(1), []store.Spec{kv("counts")})
	check("stores of 2", b.StoreSpecs(2), []store.Spec(nil))
	check("stores of 9", b.StoreSpecs(9), []store.Spec(nil))
	check("application", b.Application(), "app")
	count := b.subs[1].nodes[slices.IndexFunc(b.subs[1].nodes, func(n node) bool { return n.name == "count" })]
	check("stores of count", count.stores, []store.Name{"counts"})
}

func TestPlanOfEveryKind(t *testing.T) {
	b := mustBuild(t, wordCount())
	p := mustPlan(t, b, map[string]int32{
		"text": 2, "more-text": 4, "commands": 3, "audit": 1, "unrelated": 9,
		// What the broker has must not decide what the count should be.
		"app-words-repartition": 7,
	})
	counts := kv("counts")
	want := &Plan{
		Tasks: []TaskPlan{
			{ID: id(0, 0), Inputs: tps("audit-0")},
			{ID: id(1, 0), Inputs: tps("app-words-repartition-0", "commands-0"), Stateful: true},
			{ID: id(1, 1), Inputs: tps("app-words-repartition-1", "commands-1"), Stateful: true},
			{ID: id(1, 2), Inputs: tps("app-words-repartition-2", "commands-2"), Stateful: true},
			{ID: id(2, 0), Inputs: tps("more-text-0", "text-0")},
			{ID: id(2, 1), Inputs: tps("more-text-1", "text-1")},
			{ID: id(2, 2), Inputs: tps("more-text-2")},
			{ID: id(2, 3), Inputs: tps("more-text-3")},
		},
		// Its writers have 4, but it meets commands in a store: 3.
		Repartitions: []InternalTopic{{Topic: "app-words-repartition", Partitions: 3}},
		Changelogs:   []InternalTopic{{Topic: "app-counts-changelog", Partitions: 3, Store: &counts}},
		Stores: []router.StoreInfo{{
			Name: "counts", Kind: store.KindTimestampedKeyValue, Subtopology: 1, Partitions: 3,
			KeyFormat: "string", ValueFormat: "int64", SourceTopic: "app-words-repartition",
		}},
	}
	if diff := cmp.Diff(want, p); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
}

func id(sub int32, p store.Partition) store.TaskID {
	return store.TaskID{Subtopology: sub, Partition: p}
}

func tps(names ...string) []store.TopicPartition {
	var all []store.TopicPartition
	for _, n := range names {
		i := strings.LastIndexByte(n, '-')
		all = append(all, store.TopicPartition{Topic: n[:i], Partition: store.Partition(n[i+1] - '0')})
	}
	return all
}

// Vectors T107 to T109 of upstream's PartitionGrouperTest.
func TestPlanGroupsPartitions(t *testing.T) {
	twoTasks := func(b *Built, counts map[string]int32) string {
		p, err := b.Plan(counts)
		if err != nil {
			return "error: " + err.Error()
		}
		var w strings.Builder
		for _, task := range p.Tasks {
			fmt.Fprintf(&w, "%s %v\n", task.ID, task.Inputs)
		}
		return w.String()
	}
	apart := mustBuild(t, NewTopology().AddSource("s1", SourceOptions{}, "topic1").AddSource("s2", SourceOptions{}, "topic2"))
	together := mustBuild(t, NewTopology().AddSource("s1", SourceOptions{}, "topic1", "topic2"))
	for _, tt := range []struct {
		name   string
		b      *Built
		counts map[string]int32
		want   string
	}{
		{
			"107 apart", apart,
			map[string]int32{"topic1": 3, "topic2": 2},
			"0_0 [topic1-0]\n0_1 [topic1-1]\n0_2 [topic1-2]\n1_0 [topic2-0]\n1_1 [topic2-1]\n",
		},
		{
			"108 together", together,
			map[string]int32{"topic1": 3, "topic2": 2},
			"0_0 [topic1-0 topic2-0]\n0_1 [topic1-1 topic2-1]\n0_2 [topic1-2]\n",
		},
		{
			"109 unknown", together,
			map[string]int32{"topic1": 3},
			`error: topology: source topic "topic2": partition count is unknown; does the topic exist?`,
		},
		{
			"109 none", together,
			map[string]int32{"topic1": 0, "topic2": -1},
			"error: topology: source topic \"topic1\": partition count is unknown; does the topic exist?\n" +
				"topology: source topic \"topic2\": partition count is unknown; does the topic exist?",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := twoTasks(tt.b, tt.counts); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

func TestPlanPartitionCounts(t *testing.T) {
	chain := func(a, b int32) *Topology {
		return NewTopology().
			AddSource("in", SourceOptions{}, "in").
			AddRepartition("first", RepartitionOptions{Partitions: a}, "in").
			AddProcessor("p", newInert, "first").
			AddRepartition("second", RepartitionOptions{Partitions: b}, "p").
			AddProcessor("q", newInert, "second").
			AddStateStore(kv("s"), "q")
	}
	shared := func(more func(*Topology)) *Topology {
		top := NewTopology().
			AddSource("x", SourceOptions{}, "x").AddSource("y", SourceOptions{}, "y").
			AddRepartition("rx", RepartitionOptions{}, "x").AddRepartition("ry", RepartitionOptions{}, "y").
			AddProcessor("join", newInert, "rx", "ry").AddStateStore(kv("joined"), "join")
		more(top)
		return top
	}
	for _, tt := range []struct {
		name   string
		top    *Topology
		counts map[string]int32
		want   string // "topic=n ..." of the internal topics, or a part of the error
	}{
		{
			"chain follows its input", chain(0, 0),
			map[string]int32{"in": 5},
			"app-first-repartition=5 app-second-repartition=5 app-s-changelog=5",
		},
		{
			"stated first", chain(7, 0),
			map[string]int32{"in": 5},
			"app-first-repartition=7 app-second-repartition=7 app-s-changelog=7",
		},
		{
			"stated second", chain(0, 2),
			map[string]int32{"in": 5},
			"app-first-repartition=5 app-second-repartition=2 app-s-changelog=2",
		},
		{
			"repartitions that meet take the largest", shared(func(*Topology) {}),
			map[string]int32{"x": 3, "y": 5},
			"app-rx-repartition=5 app-ry-repartition=5 app-joined-changelog=5",
		},
		{
			"a topic from outside decides, over another store too", shared(func(top *Topology) {
				top.AddSource("z", SourceOptions{}, "z").AddProcessor("late", newInert, "z", "ry").AddStateStore(kv("two"), "late")
			}),
			map[string]int32{"x": 3, "y": 5, "z": 4},
			"app-rx-repartition=4 app-ry-repartition=4 app-joined-changelog=4 app-two-changelog=4",
		},
		{
			"topics that meet must agree", NewTopology().
				AddSource("x", SourceOptions{}, "x").AddSource("y", SourceOptions{}, "y").
				AddProcessor("px", newInert, "x").AddProcessor("py", newInert, "y").AddStateStore(kv("s"), "px", "py"),
			map[string]int32{"x": 3, "y": 2},
			`error: topology: store "s": topics x (3 partitions) and y (2 partitions) meet in it and must have equally many`,
		},
		{
			"stated counts that meet must agree", NewTopology().
				AddSource("x", SourceOptions{}, "x").AddRepartition("r", RepartitionOptions{Partitions: 8}, "x").
				AddSource("y", SourceOptions{}, "y").
				AddProcessor("p", newInert, "r", "y").AddStateStore(kv("s"), "p"),
			map[string]int32{"x": 3, "y": 2},
			"topics app-r-repartition (8 partitions) and y (2 partitions) meet in it",
		},
		{
			"a store without changelog has no topic", NewTopology().
				AddSource("x", SourceOptions{}, "x").AddProcessor("p", newInert, "x").
				AddStateStore(store.Spec{Name: "s", Kind: store.KindKeyValue, NoChangelog: true}, "p"),
			map[string]int32{"x": 3},
			"",
		},
		{
			"repartition by two writers", NewTopology().
				AddSource("x", SourceOptions{}, "x").AddSource("y", SourceOptions{}, "y").
				AddRepartition("r", RepartitionOptions{}, "x", "y").AddProcessor("p", newInert, "r"),
			map[string]int32{"x": 3, "y": 6},
			"app-r-repartition=6",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := mustBuild(t, tt.top).Plan(tt.counts)
			if want, isErr := strings.CutPrefix(tt.want, "error: "); err != nil {
				if isErr && err.Error() != want || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v, want %s", err, tt.want)
				}
				return
			}
			var got []string
			for _, topic := range append(p.Repartitions, p.Changelogs...) {
				got = append(got, fmt.Sprintf("%s=%d", topic.Topic, topic.Partitions))
			}
			if s := strings.Join(got, " "); s != tt.want {
				t.Errorf("got  %s\nwant %s", s, tt.want)
			}
		})
	}
}

// A store's keys are hashed by the topics that lead to it, even when its sub-topology has a larger topic.
func TestPlanStorePartitionsFollowItsInputs(t *testing.T) {
	b := mustBuild(t, NewTopology().
		AddSource("large", SourceOptions{}, "large").AddSource("small", SourceOptions{}, "small").
		AddProcessor("both", newInert, "large", "small").
		AddProcessor("keep", newInert, "small").AddStateStore(kv("s"), "keep"))
	p := mustPlan(t, b, map[string]int32{"large": 5, "small": 2})
	if len(p.Tasks) != 5 || p.Changelogs[0].Partitions != 5 {
		t.Errorf("%d tasks and %d changelog partitions, want 5 and 5", len(p.Tasks), p.Changelogs[0].Partitions)
	}
	if s := p.Stores[0]; s.Partitions != 2 || s.SourceTopic != "small" {
		t.Errorf("store of %d partitions by topic %s, want 2 by small", s.Partitions, s.SourceTopic)
	}
}

func TestShapeHash(t *testing.T) {
	base := func() *Topology {
		return NewTopology().AddSource("s", SourceOptions{}, "in").AddProcessor("p", newInert, "s").
			AddStateStore(kv("a"), "p").AddRepartition("r", RepartitionOptions{}, "p").AddProcessor("q", newInert, "r").
			AddStateStore(kv("b"), "q")
	}
	hash := func(t *testing.T, top *Topology, app string) uint64 {
		b, err := top.Build(app)
		if err != nil {
			t.Fatal(err)
		}
		return b.ShapeHash()
	}
	want := hash(t, base(), "app")
	// Instances of different versions of the program compare it: the number itself must never change.
	if golden := uint64(0x197585a19a964800); want != golden {
		t.Errorf("hash %#x, want %#x", want, golden)
	}
	renamed := NewTopology().AddSource("s", SourceOptions{OffsetReset: ResetLatest}, "in").AddProcessor("other", newInert, "s").
		AddStateStore(kv("a"), "other").AddRepartition("r", RepartitionOptions{}, "other").
		AddSink("log", SinkOptions{}, "log", "other").
		AddProcessor("q", newInert, "r").AddStateStore(kv("b"), "q")
	if got := hash(t, renamed, "app"); got != want {
		t.Error("names of processors and sinks change the hash")
	}
	for name, got := range map[string]uint64{
		"application": hash(t, base(), "app2"),
		"source":      hash(t, base().AddSource("s2", SourceOptions{}, "in2"), "app"),
		"store":       hash(t, base().AddStateStore(kv("c"), "q"), "app"),
		"kind":        hash(t, base().AddStateStore(store.Spec{Name: "c", Kind: store.KindKeyValue}, "q"), "app"),
		"changelog": hash(t, base().AddStateStore(
			store.Spec{Name: "c", Kind: store.KindKeyValue, NoChangelog: true}, "q"), "app"),
		"repartition": hash(t, base().AddRepartition("r2", RepartitionOptions{}, "p"), "app"),
		"partitions":  hash(t, base().AddRepartition("r2", RepartitionOptions{Partitions: 3}, "p"), "app"),
	} {
		if got == want {
			t.Errorf("another %s does not change the hash", name)
		}
	}
}

func TestBuildAgain(t *testing.T) {
	top := NewTopology().AddSource("s", SourceOptions{}, "in").AddProcessor("p", newInert, "s")
	first := mustBuild(t, top)
	before := first.Describe()
	top.AddSink("out", SinkOptions{}, "out", "p").AddStateStore(kv("a"), "p")
	second := mustBuild(t, top)
	if first.Describe() != before {
		t.Error("a built topology changed")
	}
	if second.Describe() == before || second.ShapeHash() == first.ShapeHash() {
		t.Error("the extended topology equals the first one")
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "topology", name)
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got); -rewrite accepts it:\n%s", path, diff)
	}
}

func topologyErrors(err error) []*TopologyError {
	var all []*TopologyError
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		if e, ok := errors.AsType[*TopologyError](err); ok {
			all = append(all, e)
		}
		return all
	}
	for _, e := range joined.Unwrap() {
		all = append(all, topologyErrors(e)...)
	}
	return all
}
