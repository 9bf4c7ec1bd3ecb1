package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestTableKeepsRows: whatever a store holds, a row of a table is one line with its columns in place, and nothing in it
// speaks to the terminal; a value alone is printed as it is.
func TestTableKeepsRows(t *testing.T) {
	t.Parallel()
	table := func(header []string, rows ...[]string) string {
		t.Helper()
		var buf bytes.Buffer
		cmd := &cobra.Command{}
		outputFlag(cmd)
		cmd.SetOut(&buf)
		p, err := newPrinter(cmd, header...)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			if err := p.row(nil, r...); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.flush(); err != nil {
			t.Fatal(err)
		}
		return buf.String()
	}
	odd := "a\tb\nc\x1b[31m\u202e"
	got := table([]string{"KEY", "VALUE"}, []string{odd, "1"}, []string{"é ü {\"x\":1}", "2"})
	lines := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
	if len(lines) != 3 || !strings.Contains(lines[1], `"a\tb\nc\x1b[31m\u202e"`) || !strings.HasPrefix(lines[2], "é ü {\"x\":1} ") {
		t.Errorf("a table:\n%s", got)
	}
	for _, l := range lines {
		if r := []rune(l); r[len(r)-1] != 'E' && r[len(r)-2] != ' ' || len(r) != len([]rune(lines[0])) && strings.HasSuffix(l, " ") {
			t.Errorf("%q: the last column is not where it should be", l)
		}
	}
	if got := table(nil, []string{odd}); got != odd+"\n" {
		t.Errorf("a value alone: %q", got)
	}
}
