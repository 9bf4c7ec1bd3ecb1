package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/statemesh/statemesh/internal/configfile"
)

// Process is what a process gives its program.
type Process struct {
	Args           []string
	Env            []string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Again is closed by a second signal to end, nil: there is none. The first ends the context.
	Again <-chan struct{}
	// Version stamped at build time; empty: that of the build information.
	Version string
}

// Run is the program. It returns the exit code.
func Run(ctx context.Context, p Process) int {
	root, started := newRoot(p) //nolint:contextcheck // the commands take it from cobra
	root.SetArgs(p.Args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	if !*started {
		err = usageError{err} // cobra's own findings have no type
	}
	if problems, ok := errors.AsType[configfile.LoadError](err); ok {
		_, _ = fmt.Fprintf(p.Stderr, "statemesh: the configuration has %s:\n%v\n", count(len(problems), "problem"), problems)
		return codeOf(err)
	}
	_, _ = fmt.Fprintln(p.Stderr, "statemesh: "+err.Error())
	if as[usageError](err) {
		_, _ = fmt.Fprintln(p.Stderr, "`statemesh help` lists the commands, `statemesh help COMMAND` explains one.")
	}
	return codeOf(err)
}

// newRoot returns the tree of commands. started becomes true when a command begins its work.
func newRoot(p Process) (root *cobra.Command, started *bool) {
	started = new(bool)
	root = &cobra.Command{
		Use:   "statemesh",
		Short: "Kafka topics as state that anyone can query, from any instance",
		Long: `Statemesh reads Kafka topics, keeps views of them in local stores, one set per partition, and answers
queries for any key from any instance.`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		PersistentPreRun:  func(*cobra.Command, []string) { *started = true },
		DisableAutoGenTag: true,
	}
	root.SetIn(p.Stdin)
	root.SetOut(p.Stdout)
	root.SetErr(p.Stderr)
	root.AddGroup(
		&cobra.Group{ID: groupRun, Title: "Run:"},
		&cobra.Group{ID: groupAsk, Title: "Ask a running instance:"},
		&cobra.Group{ID: groupTry, Title: "Try:"},
	)
	root.AddCommand(
		newServeCommand(p),
		newConfigCommand(p),
		newTopologyCommand(p),
		newGetCommand(p),
		newMultiGetCommand(p),
		newScanCommand(p),
		newFetchCommand(p),
		newSessionsCommand(p),
		newAsOfCommand(p),
		newHistoryCommand(p),
		newCountCommand(p),
		newStoresCommand(p),
		newDescribeCommand(p),
		newInstancesCommand(p),
		newCopiesCommand(p),
		newOwnerCommand(p),
		newDrainCommand(p),
		newThreadsCommand(p),
		newDemoCommand(p),
		newBrokerCommand(),
		newProduceCommand(p),
		newCheckCommand(),
		newVersionCommand(p),
		newDocsCommand(),
	)
	return root, started
}

const (
	groupRun = "run"
	groupAsk = "ask"
	groupTry = "try"
)
