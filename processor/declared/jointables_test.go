package declared_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/statemesh/statemesh/internal/configfile"
	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/declared"
	"github.com/statemesh/statemesh/processor/internal/jointables"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/serde"
)

// side is a value of either side of a join; joined is the result.
type (
	side struct {
		V string  `json:"v"`
		F *string `json:"f"`
	}
	joined struct {
		V   string  `json:"v"`
		Key *string `json:"key"`
	}
)

// declaredJoins are the topologies of testdata/joins.yaml, by the tables of results that they are for.
func declaredJoins(t *testing.T) map[string]*processor.Topology {
	t.Helper()
	data, err := os.ReadFile("testdata/joins.yaml")
	if err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(string(data), "---\n")
	all := make(map[string]*processor.Topology)
	for doc := range strings.SplitSeq(rest, "---\n") {
		names, _, _ := strings.Cut(doc, "\n")
		l, err := configfile.Load(configfile.Source{Path: names, Data: []byte(head + doc)})
		if err != nil {
			t.Fatal(err)
		}
		for name := range strings.SplitSeq(strings.TrimPrefix(names, "# "), "; ") {
			if all[name], err = declared.Build(*l.Config.Declared); err != nil {
				t.Fatal(err)
			}
		}
	}
	return all
}

// TestTablesOfResults: a join that is declared in a file gives what the same join in the DSL gives, to the record.
func TestTablesOfResults(t *testing.T) {
	t.Parallel()
	tables, err := jointables.All()
	if err != nil || len(tables) < 20 {
		t.Fatal(len(tables), err)
	}
	topologies := declaredJoins(t)
	for _, table := range tables {
		for _, restarts := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, restarts %t", table.Name, restarts), func(t *testing.T) {
				t.Parallel()
				if topologies[table.Name] == nil {
					t.Fatal("is not in testdata/joins.yaml")
				}
				d := streamstest.NewT(t, topologies[table.Name], streamstest.Config{})
				out := streamstest.NewOutput(d, "out", serde.String(), serde.JSON[joined]())
				for i, step := range table.Steps {
					if pipe(t, d, step.In); restarts {
						d.Restart()
					}
					var have []string
					for _, r := range out.ReadAll() {
						have = append(have, result(t, table.Name, r))
					}
					if diff := cmp.Diff(step.Want, have); diff != "" {
						t.Errorf("step %d, %s (-want +have)\n%s", i, step.In, diff)
					}
				}
				if restarts && strings.HasPrefix(table.Name, "global") {
					return // what a global table drops, it drops again at each start
				}
				want := table.Drops
				if want == nil {
					want = map[string]int{}
				}
				if diff := cmp.Diff(want, d.Dropped()); diff != "" {
					t.Errorf("dropped (-want +have)\n%s", diff)
				}
			})
		}
	}
}

// pipe does what a step says.
func pipe(t *testing.T, d *streamstest.Driver, in string) {
	t.Helper()
	if in == "restart" {
		d.Restart()
		return
	}
	var from string
	var r streamstest.Record[string, side]
	if _, err := fmt.Sscan(in, &from, &r.Key, &r.Value.V, &r.Timestamp); err != nil {
		t.Fatalf("%s: %v", in, err)
	}
	if r.NullKey = r.Key == "-"; r.NullKey {
		r.Key = ""
	}
	if foreign, _, ok := strings.Cut(r.Value.V, ":"); ok {
		r.Value.F = &foreign
	}
	if r.NullValue = r.Value.V == "-"; r.NullValue {
		r.Value = side{}
	}
	streamstest.NewInput(d, map[string]string{"L": "left", "R": "right"}[from], serde.String(), serde.JSON[side]()).PipeRecord(r)
}

// result is a record as the tables have it. The key of the other side is there when the other side is, and is the one that it was met by.
func result(t *testing.T, table string, r streamstest.Record[string, joined]) string {
	t.Helper()
	if r.NullValue {
		return fmt.Sprintf("%s=-@%d", r.Key, r.Timestamp)
	}
	left, right, _ := strings.Cut(r.Value.V, "+")
	key := r.Key
	if strings.HasPrefix(table, "foreign") || strings.HasPrefix(table, "global") {
		key, _, _ = strings.Cut(left, ":")
	}
	switch has := r.Value.Key != nil; {
	case right == "null" || key == "":
		if has {
			t.Errorf("%s: the other side is not there, and has the key %q", r.Value.V, *r.Value.Key)
		}
	case !has || *r.Value.Key != key:
		t.Errorf("%s: the key of the other side is %v, want %q", r.Value.V, r.Value.Key, key)
	}
	return fmt.Sprintf("%s=%s@%d", r.Key, r.Value.V, r.Timestamp)
}
