package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/statemesh/statemesh/router"
)

// drainEvent is a line of `statemesh drain -o json`.
type drainEvent struct {
	Event  string         `json:"event"` // "progress", "drained", "undone"
	Heeded bool           `json:"heeded"`
	Tasks  []drainTaskRow `json:"tasks"`
	// Copies are those of other instances' tasks that are left; Kept is how many stay because nobody else could have them.
	Copies []string `json:"copies"`
	Kept   int      `json:"kept"`
	// Instance is who was asked to undo a drain.
	Instance string `json:"instance,omitempty"`
}

type drainTaskRow struct {
	Task  string `json:"task"`
	Stage string `json:"stage"`
	To    string `json:"to,omitempty"`
	// Lag counts changelog offsets; -1 when unknown.
	Lag int64 `json:"lag"`
}

func newDrainCommand(p Process) *cobra.Command {
	ask := askFlags{}
	var undo, tasksOnly bool
	cmd := &cobra.Command{
		Use:     "drain",
		GroupID: groupRun,
		Short:   "Have other instances take over everything that one has",
		Long: `Tell a running instance to give everything away: it gets nothing new, and each of its tasks goes to another instance as soon
as that has a copy that has caught up. Until then it is processed and answered as before: no read fails. The command shows
what is left and ends with 0 when nothing is: tasks are served by others, and copies of others' tasks have been replaced
as far as there is an instance to have them. It fails when there is no other instance, and when all others drain too.

The instance goes on running, and draining, also when the command is interrupted: stop it, or take it back with --undo. A
restarted instance does not drain. Calling again goes on watching. SIGTERM does the same with the tasks before it ends the
instance, so nothing needs to be drained for a restart alone.`,
		Example: `  statemesh drain --addr 10.0.0.7:7070
  statemesh drain --addr 10.0.0.7:7070 --undo`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out, err := newPrinter(cmd)
			if err != nil {
				return err
			}
			return ask.run(cmd, p, func(ctx context.Context, s *session) error {
				if len(ask.addrs) != 1 {
					return usageError{fmt.Errorf("--addr: want the one instance to drain, not %d", len(ask.addrs))}
				}
				if undo {
					return undrain(ctx, s, ask.addrs[0], out)
				}
				goal := router.CopiesReplaced
				if tasksOnly {
					goal = router.TasksServed
				}
				return drain(ctx, s, ask.addrs[0], goal, out)
			})
		},
	}
	ask.add(cmd)
	const patience = 10 * time.Minute
	ask.timeout = patience
	cmd.Flags().Lookup("timeout").DefValue = patience.String()
	cmd.Flags().BoolVar(&undo, "undo", false, "let the instance have tasks again")
	cmd.Flags().BoolVar(&tasksOnly, "tasks-only", false, "end when its tasks are served by others; do not wait for copies to be replaced")
	cmd.MarkFlagsMutuallyExclusive("undo", "tasks-only")
	return cmd
}

func undrain(ctx context.Context, s *session, addr string, out *printer) error {
	id, err := s.Undrain(ctx, addr)
	if err != nil {
		return err
	}
	e := drainEvent{Event: "undone", Tasks: []drainTaskRow{}, Copies: []string{}, Instance: id}
	return errors.Join(out.row(e, id+" does not drain any more"), out.flush())
}

// drainShow is how often lags alone are worth a line.
const drainShow = time.Second

func drain(ctx context.Context, s *session, addr string, goal router.DrainGoal, out *printer) error {
	var last router.DrainStatus
	var shown time.Time
	show := func(event string, st router.DrainStatus, text string) error {
		shown = time.Now()
		return errors.Join(out.row(drainEventOf(event, st), text), out.flush())
	}
	var showErr error
	err := s.Drain(ctx, addr, goal, func(st router.DrainStatus) {
		fewer := len(st.Tasks) != len(last.Tasks) || len(st.Copies) != len(last.Copies)
		last = st
		if fewer || time.Since(shown) >= drainShow {
			showErr = errors.Join(showErr, show("progress", st, drainText(&st)))
		}
	})
	if err != nil {
		return errors.Join(fmt.Errorf("drain %s: %s left: %w", addr, drainCounts(&last), err), showErr)
	}
	text := "nothing is left"
	if last.Kept > 0 {
		text += fmt.Sprintf("; %s: no other instance could have them", countOf(last.Kept, "copy stays", "copies stay"))
	}
	return errors.Join(showErr, show("drained", last, text))
}

func drainEventOf(event string, st router.DrainStatus) drainEvent {
	e := drainEvent{Event: event, Heeded: st.Heeded, Tasks: []drainTaskRow{}, Copies: taskNames(st.Copies), Kept: st.Kept}
	for _, t := range st.Tasks {
		e.Tasks = append(e.Tasks, drainTaskRow{Task: t.Task.String(), Stage: t.Stage.String(), To: t.To, Lag: t.Lag})
	}
	return e
}

func drainCounts(st *router.DrainStatus) string {
	return countOf(len(st.Tasks), "task", "tasks") + " and " + countOf(len(st.Copies), "copy", "copies")
}

func countOf(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// drainText is a line of progress: what is left, and where each task is on its way.
func drainText(st *router.DrainStatus) string {
	var b strings.Builder
	b.WriteString(drainCounts(st) + " left")
	for i, t := range st.Tasks {
		const most = 8
		if i == most {
			fmt.Fprintf(&b, ", and %d more", len(st.Tasks)-most)
			break
		}
		sep := ", "
		if i == 0 {
			sep = ": "
		}
		fmt.Fprintf(&b, "%s%s %s", sep, t.Task, t.Stage)
		if t.To != "" {
			b.WriteString(" to " + t.To)
		}
		if t.Lag > 0 {
			fmt.Fprintf(&b, " (%d behind)", t.Lag)
		}
	}
	return b.String()
}
