package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/statemesh/statemesh"
	"github.com/statemesh/statemesh/internal/configfile"
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
  statemesh config validate mesh.yaml
  statemesh config memory mesh.yaml`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return listSettings(cmd, strings.Join(args, ""))
		},
	}
	outputFlag(cmd)
	cmd.AddCommand(newValidateCommand(p), newMemoryCommand(p), newConfigDocsCommand())
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
			what := count(len(l.Config.Views), "view")
			if d := l.Config.Declared; d != nil {
				what = count(len(d.Relations), "relation")
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is valid: application %s, %s\n", args[0], l.Config.Processor.ApplicationID, what)
			return err
		},
	}
	cmd.Flags().StringArrayVar(&sets, "set", nil, "setting as key=value, above file and environment; may be repeated")
	return cmd
}

// memoryKeys are the settings of the parts of the memory limit; a part without one follows from the others.
var memoryKeys = map[string]string{
	"memtables": "store.memtable.bytes", "block_cache": "store.block.cache.bytes", "recent": "store.recent.max.bytes",
	"uncommitted": "statestore.uncommitted.max.bytes", "record_cache": "statestore.cache.max.bytes", "restore": "restore.max.bytes",
	"remote_cache": "query.cache.max.bytes", "queries": "query.max.bytes", "kafka_fetch": "fetch.max.bytes",
	"input_buffers": "input.buffer.max.bytes", "kafka_produce": "buffer.memory",
	"sinks": "postgres.max.bytes",
}

func newMemoryCommand(p Process) *cobra.Command {
	var sets []string
	cmd := &cobra.Command{
		Use:   "memory FILE",
		Short: "Show how the memory of an instance is divided on this machine",
		Long: `Show how memory.limit of a configuration file is divided among the parts of an instance on this machine, with the
setting of each part. An instance shows the same at its start in the log, and while it runs under /statusz and in the metrics
statemesh_memory_budget_bytes and statemesh_memory_used_bytes of its admin port.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			out, err := newPrinter(cmd, "PART", "BYTES", "SET", "SETTING")
			if err != nil {
				return err
			}
			l, err := loadConfig(args[0], p.Env, sets)
			if err != nil {
				return err
			}
			m, err := l.Config.Memory()
			if err != nil {
				return err
			}
			return printMemory(out, m)
		},
	}
	cmd.Flags().StringArrayVar(&sets, "set", nil, "setting as key=value, above file and environment; may be repeated")
	outputFlag(cmd)
	return cmd
}

type memoryRow struct {
	Part    string `json:"part"`
	Bytes   int64  `json:"bytes"`
	Set     bool   `json:"set"`
	Setting string `json:"setting,omitempty"`
}

func printMemory(out *printer, m statemesh.Memory) error {
	rows := []memoryRow{{Part: "limit", Bytes: m.Limit, Set: m.Source == "set", Setting: "memory.limit"}}
	for _, p := range m.Parts {
		rows = append(rows, memoryRow{Part: p.Name, Bytes: p.Bytes, Set: p.Set, Setting: memoryKeys[p.Name]})
	}
	rows = append(rows, memoryRow{Part: "spare", Bytes: m.Spare})
	for _, r := range rows {
		set := ""
		if r.Set {
			set = "yes"
		}
		if err := out.row(r, r.Part, strconv.FormatInt(r.Bytes, 10), set, r.Setting); err != nil {
			return err
		}
	}
	return out.flush()
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
