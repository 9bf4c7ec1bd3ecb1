package main

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// table collects lines: what was measured, our figure, the floor's, and how they relate.
type table struct {
	w    *tabwriter.Writer
	rows int
}

func newTable(out io.Writer) *table {
	return &table{w: tabwriter.NewWriter(out, 2, 0, 2, ' ', 0)}
}

// cost adds a line in which less is better: ratio = ours / floor.
func (t *table) cost(what, unit string, ours float64, floor string, floorValue float64, goal string) {
	t.add(what, unit, ours, floor, floorValue, ours/floorValue, goal)
}

// rate adds a line in which more is better: ratio = ours / floor.
func (t *table) rate(what, unit string, ours float64, floor string, floorValue float64, goal string) {
	t.add(what, unit, ours, floor, floorValue, ours/floorValue, goal)
}

// figure adds a line without a floor.
func (t *table) figure(what, unit string, ours float64, goal string) {
	t.head()
	_, _ = fmt.Fprintf(t.w, "%s\t%s\t%s\t\t\t\t%s\n", what, unit, number(ours), goal)
}

func (t *table) add(what, unit string, ours float64, floor string, floorValue, ratio float64, goal string) {
	t.head()
	_, _ = fmt.Fprintf(t.w, "%s\t%s\t%s\t%s\t%s\t%.2f\t%s\n", what, unit, number(ours), floor, number(floorValue), ratio, goal)
}

func (t *table) head() {
	if t.rows == 0 {
		_, _ = fmt.Fprintln(t.w, "measured\tunit\tstatemesh\tfloor\tits figure\tratio\tgoal")
	}
	t.rows++
}

func (t *table) print() error { return t.w.Flush() }

func number(v float64) string {
	switch {
	case v >= 1000:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}
