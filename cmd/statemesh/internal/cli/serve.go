package cli

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/statemesh/statemesh"
)

// serveEvent is a line of `statemesh serve -o json`: what a program that starts instances needs to know.
type serveEvent struct {
	Event       string `json:"event"` // "listening", "serving", "stopped"
	Application string `json:"application"`
	Instance    string `json:"instance"`
	Endpoint    string `json:"endpoint"`
	PID         int    `json:"pid"`
}

// gcPercent is the garbage that may pile up on top of what an instance holds, in percent of it; GOGC overrides it. Most of
// what it holds is long-lived tables and buffers of a fixed size, which Go's 100 would double; and little of what it
// fetches becomes garbage, so that collecting more often costs few percent of CPU.
const gcPercent = 35

func newServeCommand(p Process) *cobra.Command {
	var file string
	var sets []string
	cmd := &cobra.Command{
		Use:     "serve",
		GroupID: groupRun,
		Short:   "Run an instance: process, keep state, answer queries",
		Long: `Run one instance of an application until SIGTERM or SIGINT. Other instances then take over what it has, while it goes on
processing and answering, for up to shutdown.drain.timeout.ms; it ends the queries in flight, commits, leaves the group, closes its
stores and exits with 0. A second signal ends the wait for the others, a third one the process at once.`,
		Example: `  statemesh serve -c mesh.yaml
  statemesh serve -c mesh.yaml --set listen=127.0.0.1:7071 --set state.dir=./state-2`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out, err := newPrinter(cmd)
			if err != nil {
				return err
			}
			l, err := loadConfig(file, p.Env, sets)
			if err != nil && file == "" {
				return fmt.Errorf("%w\nno configuration file was given: -c mesh.yaml, or STATEMESH_CONFIG", err)
			}
			if err != nil {
				return err
			}
			l.Config.Logger, l.Config.Processor.Kafka.Logger = l.Log.Loggers(cmd.ErrOrStderr())
			inst, err := statemesh.New(l.Config)
			if err != nil {
				return err
			}
			if lookupEnv(p.Env, "GOGC") == "" {
				debug.SetGCPercent(gcPercent)
			}
			return serve(cmd.Context(), p.Again, inst, l.Config.Processor.ApplicationID, out)
		},
	}
	cmd.Flags().StringVarP(&file, "config", "c", "", "configuration file (STATEMESH_CONFIG)")
	cmd.Flags().StringArrayVar(&sets, "set", nil, "setting as key=value, above file and environment; may be repeated")
	outputFlag(cmd)
	cmd.PreRun = func(*cobra.Command, []string) {
		if file == "" {
			file = lookupEnv(p.Env, "STATEMESH_CONFIG")
		}
	}
	return cmd
}

// serve runs the instance and reports its life on standard output.
func serve(ctx context.Context, again <-chan struct{}, inst *statemesh.Instance, app string, out *printer) error {
	report := func(event, text string) error {
		e := serveEvent{Event: event, Application: app, Instance: inst.ID(), Endpoint: inst.Endpoint(), PID: os.Getpid()}
		if err := out.row(e, fmt.Sprintf("%s: %s %s", app, text, e.Endpoint)); err != nil {
			return err
		}
		return out.flush()
	}
	var wg sync.WaitGroup
	watch, cancel := context.WithCancel(ctx)
	wg.Go(func() {
		// What cannot be reported is not worth ending an instance for: the reader has gone.
		if inst.WaitOpen(watch) == nil && report("listening", "listening at") == nil && inst.WaitState(watch, statemesh.Serving) == nil {
			_ = report("serving", "serving at")
		}
	})
	runs, ended := context.WithCancel(context.WithoutCancel(ctx))
	wg.Go(func() {
		select {
		case <-again:
			inst.Hurry()
		case <-runs.Done():
		}
	})
	err := inst.Run(ctx)
	cancel()
	ended()
	wg.Wait()
	if err != nil {
		return err
	}
	return report("stopped", "stopped, was at")
}

// lookupEnv returns the value of a variable, empty when there is none.
func lookupEnv(env []string, name string) string {
	for _, kv := range slices.Backward(env) { // the last one counts
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}
