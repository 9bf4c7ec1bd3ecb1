package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/statemesh/statemesh/processor"
)

// errBreaks is the end of a comparison that found something which the new version would not take over; the report said what.
var errBreaks = errors.New("the new version does not take over all that is there")

func newTopologyCommand(p Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "topology",
		GroupID: groupRun,
		Short:   "Show what an instance or a configuration makes of its topics, or what a change does",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newTopologyDescribeCommand(p), newTopologyDiffCommand(p))
	return cmd
}

type differenceInfo struct {
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	Change string `json:"change"`
	Breaks bool   `json:"breaks"`
	Effect string `json:"effect"`
	Do     string `json:"do,omitempty"`
}

func newTopologyDiffCommand(p Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "diff OLD NEW",
		Short: "Say what a change of a configuration does to stores, internal topics and offsets",
		Long: `Compare the topologies of two configuration files: which stores and internal topics of the old one the new one would orphan,
read differently, renumber or add, and what to do about it. It ends with 0 when the new one takes over all that is there, and with 7 when
not. It asks no broker.`,
		Example: `  git show HEAD:mesh.yaml > old.yaml && statemesh topology diff old.yaml mesh.yaml`,
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			out, err := newPrinter(cmd, "KIND", "NAME", "CHANGE", "EFFECT", "DO")
			if err != nil {
				return err
			}
			before, err := builtOf(p, args[0], nil)
			if err != nil {
				return err
			}
			after, err := builtOf(p, args[1], nil)
			if err != nil {
				return err
			}
			breaks := false
			for _, d := range processor.Compare(before, after) {
				breaks = breaks || d.Breaks()
				info := differenceInfo{
					Kind: d.Kind, Name: d.Name, Change: d.Change.String(), Breaks: d.Breaks(), Effect: d.Effect, Do: d.Do,
				}
				if err := out.row(info, d.Kind, d.Name, info.Change, d.Effect, d.Do); err != nil {
					return err
				}
			}
			if err := out.flush(); err != nil {
				return err
			}
			if breaks {
				return errBreaks
			}
			return nil
		},
	}
	outputFlag(cmd)
	return cmd
}

// builtOf is the topology of a configuration file.
func builtOf(p Process, file string, sets []string) (*processor.Built, error) {
	l, err := loadConfig(file, p.Env, sets)
	if err != nil {
		return nil, err
	}
	return l.Config.BuildTopology()
}
