package wire

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// TestDrainGoals: each goal comes as it was sent; one that is not set or not known means everything.
func TestDrainGoals(t *testing.T) {
	t.Parallel()
	names := map[router.DrainGoal]string{router.TasksServed: "TASKS_SERVED", router.CopiesReplaced: "COPIES_REPLACED"}
	for n, name := range statemeshv1.DrainGoal_name {
		m := &statemeshv1.DrainRequest{Goal: statemeshv1.DrainGoal(n)}
		goal := ToDrainGoal(reread(t, m, &statemeshv1.DrainRequest{}))
		if n == 0 {
			if goal != router.CopiesReplaced {
				t.Errorf("%s is read as %d", name, goal)
			}
			continue
		}
		if name != "DRAIN_GOAL_"+names[goal] || FromDrainGoal(goal).GetGoal() != m.GetGoal() {
			t.Errorf("%s is read as %d, and that is sent as %s", name, goal, FromDrainGoal(goal).GetGoal())
		}
		delete(names, goal)
	}
	if len(names) != 0 {
		t.Errorf("not sent as what they are: %v", names)
	}
	if goal := ToDrainGoal(&statemeshv1.DrainRequest{Goal: 99}); goal != router.CopiesReplaced {
		t.Errorf("a goal of a later version is read as %d", goal)
	}
}

// TestDrainStages: each stage comes as it was sent, under the same name; one of a later version is unknown.
func TestDrainStages(t *testing.T) {
	t.Parallel()
	names := map[router.DrainStage]string{
		router.DrainUnknown: "UNSPECIFIED", router.DrainWaiting: "WAITING", router.DrainWarming: "WARMING", router.DrainMoving: "MOVING",
		router.DrainStarting: "STARTING",
	}
	over := func(stage statemeshv1.DrainStage) router.DrainStage {
		m := &statemeshv1.DrainResponse{Tasks: []*statemeshv1.DrainTask{{Stage: stage}}}
		return ToDrainStatus(reread(t, m, &statemeshv1.DrainResponse{})).Tasks[0].Stage
	}
	for n, name := range statemeshv1.DrainStage_name {
		stage := over(statemeshv1.DrainStage(n))
		back := FromDrainStatus(router.DrainStatus{Tasks: []router.DrainTask{{Stage: stage}}}, "a").GetTasks()[0].GetStage()
		if name != "DRAIN_STAGE_"+names[stage] || back != statemeshv1.DrainStage(n) {
			t.Errorf("%s is read as %s, and that is sent as %s", name, stage, back)
		}
		if stage != router.DrainUnknown && stage.String() == router.DrainUnknown.String() {
			t.Errorf("%s has no name", name)
		}
		delete(names, stage)
	}
	if len(names) != 0 {
		t.Errorf("not sent as what they are: %v", names)
	}
	for _, n := range []statemeshv1.DrainStage{-1, 99} {
		if stage := over(n); stage != router.DrainUnknown {
			t.Errorf("stage %d is read as %s", n, stage)
		}
	}
}

// TestDrainOutcomes: each outcome comes as it was sent. One of a later version is an end all the same, and what is no outcome is none.
func TestDrainOutcomes(t *testing.T) {
	t.Parallel()
	ends := []error{nil, router.ErrNobodyTakes, router.ErrDrainUnsupported, router.ErrDrainUndone}
	seen := make(map[error]bool)
	for n, name := range statemeshv1.DrainOutcome_name {
		m := &statemeshv1.DrainResponse{Outcome: statemeshv1.DrainOutcome(n)}
		ended, err := ToDrainOutcome(reread(t, m, &statemeshv1.DrainResponse{}))
		if n == 0 {
			if ended || err != nil {
				t.Errorf("%s: ended %t, %v", name, ended, err)
			}
			continue
		}
		back, is := FromDrainOutcome(err)
		if !ended || !is || back != m.GetOutcome() {
			t.Errorf("%s: ended %t, %v, which is sent as %s (%t)", name, ended, err, back, is)
		}
		seen[err] = true
	}
	for _, end := range ends {
		if !seen[end] {
			t.Errorf("%v is not sent as what it is", end)
		}
		if end == nil {
			continue
		}
		if outcome, is := FromDrainOutcome(fmt.Errorf("drain: 3 tasks stay: %w", end)); !is || !errors.Is(drainOutcomes[outcome], end) {
			t.Errorf("%v with more around it is sent as %s", end, outcome)
		}
	}
	if ended, err := ToDrainOutcome(&statemeshv1.DrainResponse{Outcome: 99}); !ended || err == nil || seen[err] {
		t.Errorf("an outcome of a later version: ended %t, %v", ended, err)
	}
	if outcome, is := FromDrainOutcome(store.ErrShuttingDown); is || outcome != statemeshv1.DrainOutcome_DRAIN_OUTCOME_UNSPECIFIED {
		t.Errorf("what is no outcome is sent as %s", outcome)
	}
	if !errors.Is(router.ErrDrainUnsupported, errors.ErrUnsupported) {
		t.Error("drains that a leader does not support are not unsupported")
	}
}

// TestDrainStatus: all else of a message.
func TestDrainStatus(t *testing.T) {
	t.Parallel()
	want := router.DrainStatus{
		Heeded: true, Kept: 4, Copies: []store.TaskID{{Partition: 8}, {Subtopology: 2}},
		Tasks: []router.DrainTask{
			{Task: store.TaskID{Partition: 1}, Stage: router.DrainWarming, To: "b", Lag: 7},
			{Task: store.TaskID{Partition: 2}, Stage: router.DrainMoving, To: "c", Lag: 0},
			{Task: store.TaskID{Partition: 3}, Stage: router.DrainWaiting, Lag: -1},
		},
	}
	m := FromDrainStatus(want, "a")
	if got := ToDrainStatus(reread(t, m, &statemeshv1.DrainResponse{})); !reflect.DeepEqual(got, want) || m.GetAnsweredBy() != "a" {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
	m.Tasks[0].Lag = new(int64(-5))
	if got := ToDrainStatus(m).Tasks[0].Lag; got != 0 {
		t.Errorf("a lag below nothing is read as %d", got)
	}
}

// TestDrainEnumNames: the enums say all that the router's types say, and no more: whoever adds to one adds to the other.
func TestDrainEnumNames(t *testing.T) {
	t.Parallel()
	for n, name := range statemeshv1.DrainStage_name {
		if have := router.DrainStage(n).String(); n != 0 && !strings.HasPrefix(strings.ToUpper(have), strings.TrimPrefix(name, "DRAIN_STAGE_")) {
			t.Errorf("%s is shown as %q", name, have)
		}
	}
	if next := router.DrainStage(len(statemeshv1.DrainStage_name)).String(); next != router.DrainUnknown.String() {
		t.Errorf("the stage %q cannot be sent", next)
	}
}
