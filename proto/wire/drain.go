package wire

import (
	"errors"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/router"
)

// FromDrainGoal makes the request of a drain.
func FromDrainGoal(g router.DrainGoal) *statemeshv1.DrainRequest {
	return &statemeshv1.DrainRequest{Goal: statemeshv1.DrainGoal(g)}
}

// ToDrainGoal reads a request: everything is to go unless it says less.
func ToDrainGoal(req *statemeshv1.DrainRequest) router.DrainGoal {
	if req.GetGoal() == statemeshv1.DrainGoal_DRAIN_GOAL_TASKS_SERVED {
		return router.TasksServed
	}
	return router.CopiesReplaced
}

// FromDrainStatus makes one message of a drain of instance by.
func FromDrainStatus(s router.DrainStatus, by string) *statemeshv1.DrainResponse {
	m := &statemeshv1.DrainResponse{Heeded: s.Heeded, Copies: fromTasks(s.Copies), Kept: int32(s.Kept), AnsweredBy: by}
	for _, t := range s.Tasks {
		task := &statemeshv1.DrainTask{Task: fromTask(t.Task), Stage: statemeshv1.DrainStage(t.Stage), ToInstance: t.To}
		if t.Lag >= 0 {
			task.Lag = new(t.Lag)
		}
		m.Tasks = append(m.Tasks, task)
	}
	return m
}

// ToDrainStatus reads it.
func ToDrainStatus(m *statemeshv1.DrainResponse) router.DrainStatus {
	s := router.DrainStatus{Heeded: m.GetHeeded(), Copies: toTasks(m.GetCopies()), Kept: int(m.GetKept())}
	for _, t := range m.GetTasks() {
		task := router.DrainTask{Task: toTask(t.GetTask()), Stage: router.DrainStage(t.GetStage()), To: t.GetToInstance(), Lag: -1}
		if t.GetStage() < 0 || t.GetStage() > statemeshv1.DrainStage(router.DrainStarting) {
			task.Stage = router.DrainUnknown
		}
		if t.Lag != nil {
			task.Lag = max(t.GetLag(), 0)
		}
		s.Tasks = append(s.Tasks, task)
	}
	return s
}

// drainOutcomes are the ends of a drain; what is not among them is an error of the call.
var drainOutcomes = map[statemeshv1.DrainOutcome]error{
	statemeshv1.DrainOutcome_DRAIN_OUTCOME_NOBODY_TAKES:      router.ErrNobodyTakes,
	statemeshv1.DrainOutcome_DRAIN_OUTCOME_UNKNOWN_TO_LEADER: router.ErrDrainUnsupported,
	statemeshv1.DrainOutcome_DRAIN_OUTCOME_UNDONE:            router.ErrDrainUndone,
}

// FromDrainOutcome translates how a drain ended; false when that is no outcome but an error of the call.
func FromDrainOutcome(err error) (statemeshv1.DrainOutcome, bool) {
	if err == nil {
		return statemeshv1.DrainOutcome_DRAIN_OUTCOME_DONE, true
	}
	for outcome, is := range drainOutcomes {
		if errors.Is(err, is) {
			return outcome, true
		}
	}
	return statemeshv1.DrainOutcome_DRAIN_OUTCOME_UNSPECIFIED, false
}

// ToDrainOutcome reads how a drain ended; false while it goes on.
func ToDrainOutcome(m *statemeshv1.DrainResponse) (ended bool, err error) {
	switch o := m.GetOutcome(); o {
	case statemeshv1.DrainOutcome_DRAIN_OUTCOME_UNSPECIFIED:
		return false, nil
	case statemeshv1.DrainOutcome_DRAIN_OUTCOME_DONE:
		return true, nil
	default:
		if err, ok := drainOutcomes[o]; ok {
			return true, err
		}
		return true, errors.New("the drain ended for a reason that this version does not know")
	}
}
