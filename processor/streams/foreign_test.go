package streams_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/statemesh/statemesh/processor/streams"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/serde"
)

// foreignKey of "a:rest" is a; of others there is none.
func foreignKey(_, v string) (string, bool) {
	f, _, ok := strings.Cut(v, ":")
	return f, ok
}

func (s scope) innerForeign() {
	l, r := s.tables()
	streams.ToStream(streams.JoinForeign(l, r, foreignKey, plus)).To(s.of("out"))
}

func innerForeign(b *streams.Builder) { scope{Builder: b}.innerForeign() }

// foreignJoins are the results of a join on a foreign key (KIP-213), for what upstream's tests of it do.
func foreignJoins() []vector {
	return tabled([]vector{
		{name: "foreign inner", build: scope.innerForeign},
		{name: "foreign left", build: func(s scope) {
			l, r := s.tables()
			streams.ToStream(streams.LeftJoinForeign(l, r, foreignKey, leftPlus)).To(s.of("out"))
		}},
	})
}

func TestForeignJoin(t *testing.T) {
	t.Parallel()
	for _, v := range foreignJoins() {
		for _, partitions := range []map[string]int32{nil, {"left": 3, "right": 5}} {
			t.Run(v.name, func(t *testing.T) {
				t.Parallel()
				v.drive(t, streamstest.Config{Partitions: partitions})
			})
		}
	}
}

// TestForeignJoinEmptyValue: a right value of no bytes is a value. Upstream's answers cannot tell it from none.
func TestForeignJoinEmptyValue(t *testing.T) {
	t.Parallel()
	b := newJoinBench(t, streamstest.Config{}, innerForeign)
	b.left.Pipe("1", "a:x", 1)
	b.right.Pipe("a", "", 2)
	if d := cmp.Diff([]string{"1=a:x+@2"}, b.out.ReadStrings()); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// TestForeignJoinForeignBytes: values that encode to other bytes than those they were read from are joined all the same.
func TestForeignJoinForeignBytes(t *testing.T) {
	t.Parallel()
	type order struct {
		Customer string `json:"customer"`
	}
	b := streams.NewBuilder()
	l := streams.TableFrom(b, "left", serde.String(), serde.JSON[order](), "")
	r := streams.TableFrom(b, "right", serde.String(), serde.String(), "")
	customer := func(_ string, o order) (string, bool) { return o.Customer, true }
	joined := streams.JoinForeign(l, r, customer, func(_ string, o order, r string) string { return o.Customer + "+" + r })
	streams.ToStream(joined).To("out")
	topology, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	d := streamstest.NewT(t, topology, streamstest.Config{})
	streamstest.NewInput(d, "left", serde.String(), serde.String()).Pipe("1", `{ "customer" : "a", "more": 1 }`, 1)
	streamstest.NewInput(d, "right", serde.String(), serde.String()).Pipe("a", "A", 2)
	if d := cmp.Diff([]string{"1=a+A@2"}, streamstest.NewOutput(d, "out", serde.String(), serde.String()).ReadStrings()); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// TestForeignJoinNames: nodes, stores and topics are called as upstream's are.
func TestForeignJoinNames(t *testing.T) {
	t.Parallel()
	b := streams.NewBuilder()
	l := streams.TableFrom(b, "left", serde.String(), serde.String(), "lefts")
	r := streams.TableFrom(b, "right", serde.String(), serde.String(), "rights")
	streams.ToStream(streams.JoinForeign(l, r, foreignKey, plus)).To("out")
	topology, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	built, err := topology.Build("app")
	if err != nil {
		t.Fatal(err)
	}
	want := `Topologies:
   Sub-topology: 0
    Source: KSTREAM-SOURCE-0000000000 (topics: [left])
      --> KTABLE-SOURCE-0000000001
    Processor: KTABLE-SOURCE-0000000001 (stores: [lefts])
      --> KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000005, KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-RESOLVER-PROCESSOR-0000000015-here
      <-- KSTREAM-SOURCE-0000000000
    Processor: KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000005 (stores: [])
      --> KTABLE-SINK-0000000006
      <-- KTABLE-SOURCE-0000000001
`
	if text := built.Describe(); !strings.HasPrefix(text, want) {
		t.Errorf("described as\n%s", text)
	}
	plan, err := built.Plan(map[string]int32{"left": 3, "right": 5})
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]int32{}
	for _, p := range plan.Repartitions {
		have[p.Topic] = p.Partitions
	}
	for _, p := range plan.Changelogs {
		have[p.Topic] = p.Partitions
	}
	if d := cmp.Diff(map[string]int32{
		"app-KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000004-topic": 5, "app-KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-0000000012-topic": 3,
		"app-KTABLE-FK-JOIN-SUBSCRIPTION-STATE-STORE-0000000008-changelog": 5, "app-lefts-changelog": 3, "app-rights-changelog": 5,
	}, have); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// TestForeignJoinPartitionedOtherwise: answers find left keys wherever they are, also where Kafka's default would not have put them.
func TestForeignJoinPartitionedOtherwise(t *testing.T) {
	t.Parallel()
	b := newJoinBench(t, streamstest.Config{Partitions: map[string]int32{"left": 4, "right": 3}}, innerForeign)
	b.right.Pipe("a", "A", 1)
	for p := range int32(4) {
		b.left.To(p).Pipe(string('w'+p), "a:x", 2)
	}
	b.right.Pipe("a", "B", 3)
	want := map[string]string{"w": "a:x+B", "x": "a:x+B", "y": "a:x+B", "z": "a:x+B"}
	if d := cmp.Diff(want, streamstest.ReadMap(b.out)); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if d := cmp.Diff(map[string]int{}, b.d.Dropped()); d != "" {
		t.Errorf("dropped (-want +got)\n%s", d)
	}
}
