package declared

import "testing"

// TestGroupsOfWhatIsJoined: a relation may join and aggregate, whatever the kind of the join and of the windows.
func TestGroupsOfWhatIsJoined(t *testing.T) {
	t.Parallel()
	global := table("everywhere", "everywhere")
	global.Kind = GlobalTable
	ofStreams := Join{With: "others", As: "o", Before: second}
	for name, tt := range map[string]struct {
		from string
		join Join
	}{
		"table":         {"flights", Join{With: "people", As: "o", On: ref("carrier")}},
		"global table":  {"flights", Join{With: "everywhere", As: "o", On: ref("carrier")}},
		"stream":        {"flights", ofStreams},
		"tables":        {"people", Join{With: "bosses", As: "o"}},
		"foreign key":   {"people", Join{With: "bosses", As: "o", On: ref("boss")}},
		"tables, outer": {"people", Join{With: "bosses", As: "o", Kind: Outer}},
	} {
		windowings := []Window{{}, {Tumbling: second}, {Session: second}}
		if tt.from == "people" {
			windowings = windowings[:1]
		}
		for _, w := range windowings {
			for _, columns := range [][]AggregateColumn{{{Name: "n", Function: Count}}, {{Name: "n", Function: Count}, {Name: "mean", Function: Avg, Value: ref("1.0")}}} {
				out := agg(Aggregate{By: ref("o.key"), Window: w}, columns...)
				out.From, out.Joins = tt.from, []Join{tt.join}
				err := Validate(Topology{Relations: []Relation{
					stream("flights", "flights"), stream("others", "others"), table("people", "people"), table("bosses", "bosses"), global, out,
				}})
				if err != nil {
					t.Errorf("%s, %+v: %v", name, w, err)
				}
			}
		}
	}
}
