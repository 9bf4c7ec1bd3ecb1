package cli

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/statemesh/statemesh/history"
)

func newCheckCommand() *cobra.Command {
	var reportFile, svgFile string
	var o history.CheckOptions
	cmd := &cobra.Command{
		Use:     "check HISTORY",
		GroupID: groupTry,
		Short:   "Judge a recorded history: was anything lost, doubled, stale or going backwards?",
		Long: `Judge a history that a program has recorded with package history: what writers wrote, what readers were
answered, and what was broken meanwhile. Every rule is listed with what was checked; a rule that checked nothing has proven
nothing. docs/operations/prove.md shows how to record one around your own topology.

Exits with 7 if a rule was broken, or if there was nothing to judge.`,
		Example: `  statemesh check chaos.jsonl
  statemesh check chaos.jsonl --report report.json --svg timeline.svg`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			out, err := newPrinter(cmd, "RULE", "CHECKED", "BROKEN")
			if err != nil {
				return err
			}
			r, err := history.CheckFile(args[0], o)
			if err != nil {
				if errors.Is(err, os.ErrNotExist) || errors.Is(err, history.ErrFormat) {
					return usageError{fmt.Errorf("%s: %w", args[0], err)}
				}
				return err
			}
			if err := errors.Join(writeFile(reportFile, r.WriteJSON), writeFile(svgFile, r.WriteSVG), printReport(out, r)); err != nil {
				return err
			}
			if !r.Right {
				if n := r.Broken(); n > 0 {
					return fmt.Errorf("%s: %w: %s", args[0], errWrong, count(int(n), "violation"))
				}
				return fmt.Errorf("%s: %w: no acknowledged write, or no answer to judge", args[0], errWrong)
			}
			return nil
		},
	}
	outputFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&reportFile, "report", "", "file for the report as JSON")
	f.StringVar(&svgFile, "svg", "", "file for the timeline as a picture: availability and staleness against the faults")
	f.DurationVar(&o.LinearTime, "linear-time", time.Minute, "time for the search for linear orders; negative: none")
	f.IntVar(&o.Violations, "violations", 20, "how many violations are described")
	return cmd
}

// writeFile writes to a file, if one was named.
func writeFile(path string, write func(io.Writer) error) error {
	if path == "" {
		return nil
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

func printReport(out *printer, r *history.Report) error {
	if out.json() {
		return out.row(r)
	}
	for _, rule := range history.Rules() {
		c := r.Checks[rule]
		if err := out.row(nil, string(rule), strconv.FormatInt(c.Checked, 10), strconv.FormatInt(c.Broken, 10)); err != nil {
			return err
		}
	}
	if err := out.flush(); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(out.out, "\n%s in %s: %s (%d acknowledged, %d unknown), %s (%d answered, %d failed), %s\n",
		count(int(r.Events), "event"), r.Length.Round(time.Millisecond), count(int(r.Writes.Begun), "write"), r.Writes.Acked, r.Writes.Unknown,
		count(int(r.Reads.Tried), "read"), r.Reads.Answered, r.Reads.Failed, count(len(r.Faults), "fault")); err != nil {
		return err
	}
	for _, note := range []struct {
		n    int64
		text string
	}{
		{int64(r.CutLines), "unfinished last line passed over"},
		{r.Linear.Unknown, "latest reads not judged for a linear order"},
		{r.Unordered, "answers not judged: records of their register are in several partitions"},
		{r.Unfinished, "rows were written and not asked for at rest"},
	} {
		if note.n > 0 {
			if _, err := fmt.Fprintf(out.out, "%d %s\n", note.n, note.text); err != nil {
				return err
			}
		}
	}
	if err := printImpacts(out, r); err != nil {
		return err
	}
	for _, v := range r.Violations {
		if _, err := fmt.Fprintf(out.out, "\n%v", v); err != nil {
			return err
		}
	}
	if len(r.Violations) > 0 {
		_, err := fmt.Fprintln(out.out)
		return err
	}
	return nil
}

// printImpacts tells what could be read while what was broken.
func printImpacts(out *printer, r *history.Report) error {
	if _, err := fmt.Fprintln(out.out); err != nil {
		return err
	}
	out.columns("FAULT", "TIMES", "READS", "TRIED", "FAILED", "OUTAGE", "SLOWEST", "WORST AGE", "WRITE PAUSE")
	for _, m := range r.Impacts {
		for _, class := range slices.Sorted(maps.Keys(m.Reads)) {
			s := m.Reads[class]
			if err := out.row(nil, m.Fault, strconv.Itoa(m.Times), class, strconv.FormatInt(s.Tried, 10), strconv.FormatInt(s.Failed, 10),
				inMillis(s.Outage), inMillis(s.Slowest), inMillis(m.WorstAge), inMillis(m.WritePause)); err != nil {
				return err
			}
		}
	}
	return out.flush()
}

func inMillis(ms float64) string { return fmt.Sprintf("%.0f ms", ms) }
