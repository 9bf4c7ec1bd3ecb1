package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/statemesh/statemesh/client"
	"github.com/statemesh/statemesh/store"
)

// printer writes rows: aligned columns for people, or one JSON object per line for programs.
type printer struct {
	out    io.Writer
	notes  io.Writer // what a person is told beside the output
	told   map[store.Partition]bool
	tw     *tabwriter.Writer
	enc    *json.Encoder // nil: table
	header []string
	// aligned: there was a header.
	aligned bool
}

// outputFlag adds -o.
func outputFlag(cmd *cobra.Command) {
	cmd.Flags().StringP("output", "o", "table", "form of the output: table, or json (one object per line)")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json"}, cobra.ShellCompDirectiveNoFileComp))
}

// newPrinter writes to the command's output in the form that -o asks for. Columns are the header of a table; none: no
// header.
func newPrinter(cmd *cobra.Command, columns ...string) (*printer, error) {
	form, err := cmd.Flags().GetString("output")
	if err != nil {
		return nil, err
	}
	p := &printer{out: cmd.OutOrStdout(), notes: cmd.ErrOrStderr(), header: columns}
	switch form {
	case "json":
		p.enc = json.NewEncoder(p.out)
		p.enc.SetEscapeHTML(false)
	case "table":
		p.tw = tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	default:
		return nil, usageError{fmt.Errorf("--output %q: want table or json", form)}
	}
	return p, nil
}

// columns replaces the header, before the first row.
func (p *printer) columns(names ...string) { p.header = names }

func (p *printer) json() bool { return p.enc != nil }

// row writes one row: obj as JSON, or cells as columns.
func (p *printer) row(obj any, cells ...string) error {
	if p.enc != nil {
		return p.enc.Encode(obj)
	}
	if len(p.header) > 0 {
		if _, err := fmt.Fprintln(p.tw, strings.Join(p.header, "\t")); err != nil {
			return err
		}
		p.header, p.aligned = nil, true
	}
	if len(cells) == 1 && !p.aligned {
		_, err := fmt.Fprintln(p.out, cells[0]) // a value alone, as it is
		return err
	}
	for i, c := range cells {
		cells[i] = oneCell(c)
	}
	_, err := fmt.Fprintln(p.tw, strings.Join(cells, "\t"))
	return err
}

// notePartial says, once per partition, that an answer is of a copy that is being restored.
func (p *printer) notePartial(answers ...client.Answer) {
	for _, a := range answers {
		if a.Facts.Partial == nil || p.told[a.Partition] {
			continue
		}
		if p.told == nil {
			p.told = make(map[store.Partition]bool)
		}
		p.told[a.Partition] = true
		_, _ = fmt.Fprintf(p.notes, "partition %d is partial: %s\n", a.Partition, a.Facts.Partial) // nobody there to be told
	}
}

// oneCell quotes what would be no cell of a table, or more than one: what stores hold may have tabs, line ends and orders to
// the terminal in it.
func oneCell(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return r != ' ' && !unicode.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

// flush ends the table.
func (p *printer) flush() error {
	if p.tw == nil {
		return nil
	}
	return p.tw.Flush()
}
