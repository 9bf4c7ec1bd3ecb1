package accumulate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/statemesh/statemesh/processor/internal/decode"
)

// function is what a column does.
type function uint8

// The functions. Their numbers are part of a plan's mark: they stay.
const (
	fnCount function = iota + 1
	fnSum
	fnMin
	fnMax
	fnAvg
	fnFirst
	fnLatest
	fnTopK
	fnDistinct
	fnQuantile
)

// functionNames are in the order of the constants.
var functionNames = []string{"count", "sum", "min", "max", "avg", "first", "latest", "top_k", "distinct", "quantile"}

// functionOf returns 0 for a name that is no function.
func functionOf(name string) function { return function(slices.Index(functionNames, name) + 1) }

// maxK of top_k.
const maxK = 1000

// column is a function, checked.
type column struct {
	name   string
	member []byte // `"name":`
	fn     function
	// kind of the value; 0 of a count of records.
	kind kind
	k    int
	q    float64
}

// Column describes a column of a result.
type Column struct {
	Name string
	// Type is one of those of [Function.Type].
	Type string
}

// Plan is a list of functions. It never changes and is safe for concurrent use.
type Plan struct {
	columns []column
	// mark tells states of other functions apart: it is part of each state.
	mark uint16
	// countsRecords says that there is a count of records.
	countsRecords bool
	// countsRows says that a state holds how many records it is of. It does where something depends on it: a count of records, or
	// that records can be taken out again.
	countsRows bool
	reversible bool
	ownResult  bool
}

// NewPlan returns a plan of these functions. All that is wrong with them is joined, each a [*FunctionError].
func NewPlan(functions []Function) (*Plan, error) {
	if len(functions) == 0 {
		return nil, &FunctionError{Reason: "there are none", Hint: "an aggregate needs a column"}
	}
	p := &Plan{reversible: true, ownResult: true}
	var wrong []error
	for i, f := range functions {
		reason, hint := f.wrong()
		if slices.ContainsFunc(functions[:i], func(g Function) bool { return g.Name == f.Name }) {
			reason, hint = "the name is given twice", ""
		}
		if reason != "" {
			wrong = append(wrong, &FunctionError{Index: i, Name: f.Name, Reason: reason, Hint: hint})
			continue
		}
		p.add(f)
	}
	if len(wrong) > 0 {
		return nil, errors.Join(wrong...)
	}
	p.countsRows = p.countsRecords || p.reversible
	p.mark = p.makeMark()
	return p, nil
}

// wrong tells what is wrong with a function; reason is empty if nothing is.
func (f Function) wrong() (reason, hint string) {
	fn, k := functionOf(f.Kind), kindOf(f.Type)
	switch {
	case f.Name == "":
		return "it has no name", ""
	case fn == 0:
		return fmt.Sprintf("%q is no function", f.Kind), "want one of " + strings.Join(functionNames, ", ")
	case fn == fnCount:
		return "", ""
	case k == 0:
		return fmt.Sprintf("%q is no type", f.Type), "want one of " + strings.Join(kindNames, ", ")
	}
	switch fn {
	case fnSum, fnAvg, fnQuantile:
		if !k.numeric() {
			return fmt.Sprintf("%s takes no %s", f.Kind, f.Type), "want int or double"
		}
	case fnMin, fnMax:
		if !k.ordered() {
			return fmt.Sprintf("%s takes no %s", f.Kind, f.Type), "want int, double, string, timestamp or duration"
		}
	default: // they take values of any type
	}
	switch {
	case fn == fnTopK && (f.K < 1 || f.K > maxK):
		return fmt.Sprintf("k is %d", f.K), fmt.Sprintf("want 1 to %d", maxK)
	case fn == fnQuantile && !(f.Q >= 0 && f.Q <= 1):
		return fmt.Sprintf("q is %g", f.Q), "want 0 to 1"
	}
	return "", ""
}

// Columns describes the results, in their order.
func (p *Plan) Columns() []Column {
	columns := make([]Column, len(p.columns))
	for i, c := range p.columns {
		columns[i] = Column{Name: c.name, Type: c.result().String()}
	}
	return columns
}

// Reversible tells whether records can be taken out again: of count, sum and avg.
func (p *Plan) Reversible() bool { return p.reversible }

// ResultIsState tells whether what [Plan.AppendResult] writes can be read back by [Plan.DecodeResult], so that nothing else must be
// stored: of count, sum, min and max, as long as records are added only. first and latest need their times, which results do not have.
func (p *Plan) ResultIsState() bool { return p.ownResult }

// New returns the state of no records.
func (p *Plan) New() *State {
	if len(p.columns) > 1 {
		return &State{plan: p, cells: make([]cell, len(p.columns))}
	}
	one := &struct {
		State

		cell [1]cell
	}{}
	one.State = State{plan: p, cells: one.cell[:]}
	return &one.State
}

// add takes over a function that nothing is wrong with.
func (p *Plan) add(f Function) {
	c := column{name: f.Name, fn: functionOf(f.Kind), kind: kindOf(f.Type)}
	c.member = append(decode.AppendString(nil, []byte(f.Name)), ':')
	switch c.fn {
	case fnCount:
		if c.kind = 0; f.Of {
			c.kind = kindJSON // of any type: it is not looked at
		}
		p.countsRecords = p.countsRecords || !f.Of
	case fnSum:
	case fnAvg:
		p.ownResult = false
	case fnMin, fnMax:
		p.reversible = false
	case fnTopK:
		c.k = f.K
		p.reversible, p.ownResult = false, false
	case fnQuantile:
		c.q = f.Q
		p.reversible, p.ownResult = false, false
	default:
		p.reversible, p.ownResult = false, false
	}
	p.columns = append(p.columns, c)
}

// makeMark is a hash of what the form of a state depends on. Names and Q are not in it: a renamed column, or another quantile, finds
// its state again.
func (p *Plan) makeMark() uint16 {
	var b []byte
	for _, c := range p.columns {
		b = append(b, byte(c.fn), byte(c.kind))
		b = binary.AppendUvarint(b, uint64(c.k))
	}
	return uint16(xxhash.Sum64(b))
}

// result is the type of a column.
func (c *column) result() kind {
	switch c.fn {
	case fnCount, fnDistinct:
		return kindInt
	case fnAvg, fnQuantile:
		return kindDouble
	case fnTopK:
		return kindJSON
	default:
		return c.kind
	}
}
