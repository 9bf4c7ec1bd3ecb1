package processor

import (
	"strings"
	"testing"
)

// TestFollowingRepartitions: topics by which two sub-topologies answer each other have the partitions of what they meet, and the names
// that were given.
func TestFollowingRepartitions(t *testing.T) {
	t.Parallel()
	ask := RepartitionOptions{Follows: true, Topic: "questions", Source: "asked", Sink: "ask"}
	tell := RepartitionOptions{Follows: true, Topic: "answers", Source: "told", Sink: "tell"}
	top := NewTopology().
		AddSource("near", SourceOptions{}, "near").AddProcessor("rekey-near", newInert, "near").
		AddRepartition("n", RepartitionOptions{}, "rekey-near").AddProcessor("left", newInert, "n").
		AddSource("far", SourceOptions{}, "far").AddProcessor("rekey-far", newInert, "far").
		AddRepartition("f", RepartitionOptions{}, "rekey-far").AddProcessor("right", newInert, "f").
		AddRepartition("q", ask, "left").AddProcessor("answer", newInert, "asked").
		AddRepartition("a", tell, "answer").AddProcessor("result", newInert, "told").
		AddStateStore(kv("lefts"), "left", "result").AddStateStore(kv("rights"), "right", "answer")
	plan := mustPlan(t, mustBuild(t, top), map[string]int32{"near": 3, "far": 5})
	for _, p := range plan.Repartitions {
		want := map[string]int32{"app-n-repartition": 3, "app-answers": 3, "app-f-repartition": 5, "app-questions": 5}[p.Topic]
		if p.Partitions != want {
			t.Errorf("%s has %d partitions, want %d", p.Topic, p.Partitions, want)
		}
	}
	if len(plan.Repartitions) != 4 {
		t.Errorf("%d repartition topics", len(plan.Repartitions))
	}
	bad := NewTopology().AddSource("s", SourceOptions{}, "in").AddRepartition("r", RepartitionOptions{Topic: "a/b"}, "s")
	if _, err := bad.Build("app"); err == nil || !strings.Contains(err.Error(), `topic: name "a/b"`) {
		t.Errorf("error %v", err)
	}
}

// TestAsTold: a record goes where it says, and else where its key belongs.
func TestAsTold(t *testing.T) {
	t.Parallel()
	r := Record{Key: []byte("21")}
	if p := AsTold("t", &r, 1000); p != AsTold("t", &Record{Key: []byte("21")}, 1000) || p == 0 {
		t.Errorf("partition %d by the key", p)
	}
	for _, want := range []int32{0, 7} {
		if r.ToPartition(want); AsTold("t", &r, 1000) != want {
			t.Errorf("not partition %d", want)
		}
	}
}
