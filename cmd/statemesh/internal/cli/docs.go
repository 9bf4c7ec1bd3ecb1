package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/statemesh/statemesh/internal/configfile"
)

// newDocsCommand writes the references of the repository; `make docs` calls it.
func newDocsCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:    "docs",
		Short:  "Write the generated references",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			for name, write := range references() {
				var buf bytes.Buffer
				if err := write(&buf); err != nil {
					return err
				}
				if err := os.WriteFile(filepath.Join(dir, name), buf.Bytes(), 0o644); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "docs", "directory to write to")
	return cmd
}

// references are the generated documents.
func references() map[string]func(io.Writer) error {
	return map[string]func(io.Writer) error{"cli.md": WriteDocs, "config.md": configfile.WriteDocs}
}

// WriteDocs writes docs/cli.md: every command with its flags, and the exit codes.
func WriteDocs(w io.Writer) error {
	root, _ := newRoot(Process{})
	var b strings.Builder
	b.WriteString(`# Command line

<!-- Generated from the commands by "make docs". Do not edit. -->

` + root.Long + `

Results go to standard output, everything else to standard error. ` + "`-o json`" + ` prints one JSON object per line, for
programs. Standard output that ends with an exit code other than 0 is not complete.

`)
	for _, g := range root.Groups() {
		fmt.Fprintf(&b, "**%s** %s\n\n", strings.TrimSuffix(g.Title, ":"), strings.Join(links(root, g.ID), ", "))
	}
	fmt.Fprintf(&b, "**More** %s\n\n", strings.Join(links(root, ""), ", "))
	writeCommands(&b, root)
	b.WriteString("## Exit codes\n\n| code | meaning |\n|---|---|\n")
	for _, c := range ExitCodes() {
		fmt.Fprintf(&b, "| %d | %s |\n", c.Code, c.Meaning)
	}
	b.WriteString("\n## Environment\n\n| variable | meaning |\n|---|---|\n" +
		"| `STATEMESH_ADDR` | instances to ask, when there is no `--addr` |\n" +
		"| `STATEMESH_CONFIG` | configuration file of `serve`, when there is no `--config` |\n" +
		"| `STATEMESH_...` | any setting of the configuration file, see [config.md](config.md) |\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// documented reports whether a command belongs into the reference.
func documented(c *cobra.Command) bool { return c.IsAvailableCommand() && c.Name() != "help" }

func links(root *cobra.Command, group string) []string {
	var out []string
	for _, c := range root.Commands() {
		if documented(c) && c.GroupID == group {
			out = append(out, fmt.Sprintf("[%s](#%s)", c.Name(), strings.ReplaceAll(c.CommandPath(), " ", "-")))
		}
	}
	return out
}

func writeCommands(b *strings.Builder, parent *cobra.Command) {
	for _, c := range parent.Commands() {
		if !documented(c) {
			continue
		}
		fmt.Fprintf(b, "## %s\n\n%s.\n\n", c.CommandPath(), c.Short)
		if c.Long != "" {
			b.WriteString(c.Long + "\n\n")
		}
		fmt.Fprintf(b, "```text\n%s\n```\n\n", c.UseLine())
		if c.Example != "" {
			fmt.Fprintf(b, "```sh\n%s\n```\n\n", unindent(c.Example))
		}
		c.InitDefaultHelpFlag()
		if f := c.NonInheritedFlags(); f.HasAvailableFlags() {
			fmt.Fprintf(b, "```text\n%s```\n\n", f.FlagUsages())
		}
		writeCommands(b, c)
	}
}

func unindent(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimPrefix(l, "  ")
	}
	return strings.Join(lines, "\n")
}
