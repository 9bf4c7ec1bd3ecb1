package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/statemesh/statemesh/client"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// copyRow is what one instance has of one task, or, with a problem, an instance of which nothing is known.
type copyRow struct {
	Task  string `json:"task,omitempty"`
	Role  string `json:"role,omitempty"`
	State string `json:"state,omitempty"`
	// Changelog offsets of a restore, or rows of the copy of another instance that is taken.
	Restored int64 `json:"restored,omitempty"`
	Total    int64 `json:"total,omitempty"`
	// The instance that is, and how many bytes have come.
	From  string `json:"from,omitempty"`
	Bytes int64  `json:"bytes,omitempty"`
	// 0 when unknown.
	LeftMillis int64 `json:"left_ms,omitempty"`
	// -1 when unknown: changelog offsets, milliseconds.
	Lag       int64 `json:"lag"`
	AgeMillis int64 `json:"age_ms"`
	// LookedMillis is how long ago the instance looked; the age has it.
	LookedMillis float64 `json:"looked_ms"`
	Instance     string  `json:"instance"`
	Endpoint     string  `json:"endpoint"`
	Problem      string  `json:"problem,omitempty"`

	id store.TaskID
	by router.HoldingRole
}

func newCopiesCommand(p Process) *cobra.Command {
	var ask askFlags
	cmd := &cobra.Command{
		Use:     "copies [STORE]",
		GroupID: groupAsk,
		Short:   "List who has what of each task: owners, standbys, warm-ups, and how far they are",
		Long: `List what every instance has of each task, of a store or of all: the owner, standbys, warm-ups on their way to
become the owner, and what is retained of tasks that ran there. RESTORED and LEFT are the progress of a restore: changelog
offsets, or, in the state copying, rows and bytes of another instance's copy. LAG counts changelog offsets that are known and not
applied; AGE is the proven upper limit of how old the copy is. Each instance tells of itself, when it is asked; one that does not
answer is listed with the reason, and the exit code is then 1.`,
		Example: `  statemesh copies
  statemesh copies flights_by_dest -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			out, err := newPrinter(cmd, "TASK", "ROLE", "STATE", "RESTORED", "LEFT", "LAG", "AGE", "ENDPOINT", "INSTANCE")
			if err != nil {
				return err
			}
			return ask.run(cmd, p, func(ctx context.Context, s *session) error {
				list, err := s.Holdings(ctx, store.Name(strings.Join(args, "")), s.opts...)
				if err != nil {
					return err
				}
				return writeCopies(out, list)
			})
		},
	}
	ask.add(cmd)
	return cmd
}

// writeCopies writes a row per copy, by task with the owner first, then those of which nothing is known.
func writeCopies(out *printer, list []client.InstanceHoldings) error {
	var rows []copyRow
	var silent []string
	for _, in := range list {
		row := copyRow{Instance: in.ID, Endpoint: in.Endpoint, Problem: in.Problem, LookedMillis: millis(in.Looked)}
		for _, h := range in.Holdings {
			rows = append(rows, row.with(h))
		}
		if in.Problem != "" {
			row.Lag, row.AgeMillis = -1, -1
			silent = append(silent, cmp.Or(in.Endpoint, in.ID))
			rows = append(rows, row)
		}
	}
	slices.SortStableFunc(rows, func(a, b copyRow) int {
		return cmp.Or(cmp.Compare(a.Problem, b.Problem), a.id.Compare(b.id), cmp.Compare(a.by, b.by), cmp.Compare(a.Instance, b.Instance))
	})
	for _, r := range rows {
		if err := out.row(r, r.cells()...); err != nil {
			return err
		}
	}
	if err := out.flush(); err != nil || len(silent) == 0 {
		return err
	}
	return fmt.Errorf("nothing is known of the copies of %s", strings.Join(silent, ", "))
}

// with adds a copy to the row of its instance.
func (r copyRow) with(h router.Holding) copyRow {
	r.id, r.by, r.Problem = h.Task, h.Role, ""
	r.Task, r.Role, r.State, r.Restored, r.Total = h.Task.String(), h.Role.String(), h.State.String(), h.Restored, h.Total
	r.From, r.Bytes = h.From, h.Bytes
	r.LeftMillis, r.Lag, r.AgeMillis = h.Left.Milliseconds(), h.Lag, -1
	if h.Age >= 0 {
		r.AgeMillis = h.Age.Milliseconds()
	}
	return r
}

func (r copyRow) cells() []string {
	if r.Problem != "" {
		return []string{"-", "-", r.Problem, "-", "-", "-", "-", r.Endpoint, r.Instance}
	}
	restored, left, lag, age := "-", "-", "-", "-"
	if r.Total > 0 {
		restored = fmt.Sprintf("%s of %s", thousands(r.Restored), thousands(r.Total))
	}
	if r.Bytes > 0 {
		restored += fmt.Sprintf(" (%.1f MB)", float64(r.Bytes)/1e6)
	}
	if r.LeftMillis > 0 {
		left = max(time.Second, (time.Duration(r.LeftMillis) * time.Millisecond).Round(time.Second)).String()
	}
	if r.Lag >= 0 {
		lag = thousands(r.Lag)
	}
	if r.AgeMillis >= 0 {
		age = (time.Duration(r.AgeMillis) * time.Millisecond).String()
	}
	return []string{r.Task, r.Role, r.State, restored, left, lag, age, r.Endpoint, r.Instance}
}
