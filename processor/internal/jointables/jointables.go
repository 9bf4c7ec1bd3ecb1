// Package jointables has the tables of results that every way to declare a join is tested against.
package jointables

import (
	_ "embed" // of the tables
	"fmt"
	"strings"
)

//go:embed joins.txt
var text string

// Table is records and what they bring.
type Table struct {
	Name  string
	Steps []Step
	// Drops are the records that are counted as lost, by reason.
	Drops map[string]int
}

// Step is a record of a side, "L key value time", or "restart"; and the results that come with it.
type Step struct {
	In   string
	Want []string
}

// All reads the tables, in their order.
func All() ([]Table, error) {
	var all []Table
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		name, begins := strings.CutPrefix(line, "== ")
		switch {
		case line == "", strings.HasPrefix(line, "#"):
			continue
		case begins:
			all = append(all, Table{Name: name})
			continue
		case len(all) == 0:
			return nil, fmt.Errorf("jointables: %q before the first table", line)
		}
		t := &all[len(all)-1]
		if count, ok := strings.CutPrefix(line, "dropped "); ok {
			number, reason, _ := strings.Cut(count, " ")
			var n int
			if _, err := fmt.Sscan(number, &n); err != nil {
				return nil, fmt.Errorf("jointables: %q: %w", line, err)
			}
			if t.Drops == nil {
				t.Drops = make(map[string]int)
			}
			t.Drops[reason] = n
			continue
		}
		in, results, some := strings.Cut(line, "->")
		step := Step{In: strings.TrimSpace(in)}
		if some {
			step.Want = strings.Fields(results)
		}
		t.Steps = append(t.Steps, step)
	}
	return all, nil
}

// Named is one table.
func Named(name string) (Table, error) {
	all, err := All()
	for _, t := range all {
		if t.Name == name {
			return t, nil
		}
	}
	if err == nil {
		err = fmt.Errorf("jointables: there is no table %q", name)
	}
	return Table{}, err
}
