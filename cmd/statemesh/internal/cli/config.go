package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/statemesh/statemesh/cmd/statemesh/internal/configfile"
)

type settingInfo struct {
	Key     string `json:"key"`
	Env     string `json:"env"`
	Type    string `json:"type"`
	Default string `json:"default"`
	Meaning string `json:"meaning"`
	Section string `json:"section"`
}

func newConfigCommand(p Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "config [PATTERN]",
		GroupID: groupRun,
		Short:   "List the settings, or check a configuration file",
		Long: `List every setting of the configuration file: key, default, meaning. With a pattern, those whose key contains
it. The entries of "views" are explained in docs/config.md.`,
		Example: `  statemesh config cache
  statemesh config validate mesh.yaml`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return listSettings(cmd, strings.Join(args, ""))
		},
	}
	outputFlag(cmd)
	cmd.AddCommand(newValidateCommand(p), newConfigDocsCommand())
	return cmd
}

func listSettings(cmd *cobra.Command, pattern string) error {
	out, err := newPrinter(cmd, "KEY", "TYPE", "DEFAULT", "MEANING")
	if err != nil {
		return err
	}
	found := false
	for _, sec := range configfile.Sections() {
		for _, s := range sec.Settings {
			if !strings.Contains(s.Name, pattern) {
				continue
			}
			found = true
			info := settingInfo{Key: s.Name, Env: s.Env(), Type: s.Type, Default: s.Default, Meaning: s.Meaning, Section: sec.Title}
			if err := out.row(info, s.Name, s.Type, s.Default, s.Meaning); err != nil {
				return err
			}
		}
	}
	if !found {
		return usageError{fmt.Errorf("no setting contains %q", pattern)}
	}
	return out.flush()
}

func newValidateCommand(p Process) *cobra.Command {
	var sets []string
	cmd := &cobra.Command{
		Use:   "validate FILE",
		Short: "Check a configuration file and report everything that is wrong",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := loadConfig(args[0], p.Env, sets)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is valid: application %s, %s\n", args[0],
				l.Config.Processor.ApplicationID, count(len(l.Config.Views), "view"))
			return err
		},
	}
	cmd.Flags().StringArrayVar(&sets, "set", nil, "setting as key=value, above file and environment; may be repeated")
	return cmd
}

func newConfigDocsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "docs",
		Short: "Print the reference of the configuration file as Markdown",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return configfile.WriteDocs(cmd.OutOrStdout())
		},
	}
}

func loadConfig(path string, env, sets []string) (*configfile.Loaded, error) {
	src, err := configfile.ReadFile(path)
	if err != nil {
		return nil, usageError{err}
	}
	src.Env, src.Set = env, sets
	return configfile.Load(src)
}

// count is "1 view", "2 views".
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
