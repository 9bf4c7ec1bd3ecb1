package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// threadRow is a stream thread in the output of `statemesh threads`.
type threadRow struct {
	Thread string   `json:"thread"`
	State  string   `json:"state"`
	Tasks  []string `json:"tasks"`
}

// threadEvent is what `statemesh threads add` and `remove` say.
type threadEvent struct {
	Event  string `json:"event"` // "added", "removed"
	Thread string `json:"thread"`
}

func newThreadsCommand(p Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "threads",
		GroupID: groupRun,
		Short:   "List, add and remove the stream threads of a running instance",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newThreadsListCommand(p), newThreadsAddCommand(p), newThreadsRemoveCommand(p))
	return cmd
}

func newThreadsListCommand(p Process) *cobra.Command {
	var ask askFlags
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the stream threads of an instance with their tasks",
		Example: `  statemesh threads list --addr 10.0.0.7:7070`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out, err := newPrinter(cmd, "THREAD", "STATE", "TASKS")
			if err != nil {
				return err
			}
			return ask.run(cmd, p, func(ctx context.Context, s *session) error {
				addr, err := ask.one()
				if err != nil {
					return err
				}
				threads, _, err := s.Threads(ctx, addr)
				if err != nil {
					return err
				}
				for _, t := range threads {
					r := threadRow{Thread: t.Name, State: t.State.String(), Tasks: taskNames(t.Tasks)}
					if err := out.row(r, r.Thread, r.State, strings.Join(r.Tasks, " ")); err != nil {
						return err
					}
				}
				return out.flush()
			})
		},
	}
	ask.add(cmd)
	return cmd
}

func newThreadsAddCommand(p Process) *cobra.Command {
	return newThreadsChangeCommand(p, &cobra.Command{
		Use:   "add",
		Short: "Add a stream thread to an instance",
		Long: `Begin one more stream thread at a running instance. The command ends when the group knows it; tasks come to it as the group
places them, and their stores stay open. Input buffers, uncommitted writes and record caches are divided anew among the threads. What
each fetches ahead and holds to be produced comes on top: beyond what memory.limit carries a thread is refused, with what would be
needed. A restarted instance has num.stream.threads again.`,
		Example: `  statemesh threads add --addr 10.0.0.7:7070`,
	}, "added", func(ctx context.Context, s *session, addr string) (string, error) { return s.AddThread(ctx, addr) })
}

func newThreadsRemoveCommand(p Process) *cobra.Command {
	return newThreadsChangeCommand(p, &cobra.Command{
		Use:   "remove",
		Short: "Remove a stream thread from an instance",
		Long: `End the stream thread of a running instance that was begun last. It commits and leaves the group, and its tasks go to where the
group places them, without their stores being opened anew in this instance. The last thread is not removed: drain the instance, or stop
it.`,
		Example: `  statemesh threads remove --addr 10.0.0.7:7070`,
	}, "removed", func(ctx context.Context, s *session, addr string) (string, error) { return s.RemoveThread(ctx, addr) })
}

// newThreadsChangeCommand completes a command that changes the number of threads.
func newThreadsChangeCommand(p Process, cmd *cobra.Command, event string,
	change func(ctx context.Context, s *session, addr string) (string, error),
) *cobra.Command {
	var ask askFlags
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		out, err := newPrinter(cmd)
		if err != nil {
			return err
		}
		return ask.run(cmd, p, func(ctx context.Context, s *session) error {
			addr, err := ask.one()
			if err != nil {
				return err
			}
			name, err := change(ctx, s, addr)
			if err != nil {
				return err
			}
			return errors.Join(out.row(threadEvent{Event: event, Thread: name}, name+" "+event), out.flush())
		})
	}
	ask.add(cmd)
	const patience = time.Minute
	ask.timeout = patience
	cmd.Flags().Lookup("timeout").DefValue = patience.String()
	return cmd
}

// one is the instance that a command is about.
func (a *askFlags) one() (string, error) {
	if len(a.addrs) != 1 {
		return "", usageError{fmt.Errorf("--addr: want the one instance that is meant, not %d", len(a.addrs))}
	}
	return a.addrs[0], nil
}
