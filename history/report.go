package history

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// ReportVersion is that of a report's fields.
const ReportVersion = 1

// Report is a judgement.
type Report struct {
	Version int `json:"version"`
	// Right: no rule was broken, and there was something to judge.
	Right bool `json:"right"`

	Started time.Time     `json:"started"`
	Length  time.Duration `json:"length_ns"`
	Seed    uint64        `json:"seed,omitempty"`
	Note    string        `json:"note,omitempty"`

	Events int64 `json:"events"`
	Rows   int   `json:"rows"`
	// CutLines is 1 if the last line of the file had no end; Ended says that the recorder was closed.
	CutLines int  `json:"cut_lines"`
	Ended    bool `json:"ended"`

	Writes struct {
		Begun   int64 `json:"begun"`
		Acked   int64 `json:"acked"`
		Unknown int64 `json:"unknown"`
		Refused int64 `json:"refused"`
	} `json:"writes"`
	Reads struct {
		Tried    int64 `json:"tried"`
		Answered int64 `json:"answered"`
		Absent   int64 `json:"absent"`
		Failed   int64 `json:"failed"`
		// Rows that scans brought; Open were under way when the history ended.
		Rows int64 `json:"rows"`
		Open int64 `json:"open"`
	} `json:"reads"`
	// Failures counts the reads that failed, by reason.
	Failures map[string]int64 `json:"failures,omitempty"`

	// Checks counts, by rule, what was checked and what was broken. A rule with nothing checked has proven nothing.
	Checks map[Rule]*Checked `json:"checks"`
	// Violations are the first ones.
	Violations []Violation `json:"violations,omitempty"`
	Linear     Linear      `json:"linear"`
	// Unordered answers were not judged: records of their register are in several partitions. Unfinished rows were
	// written, and not asked for at rest.
	Unordered  int64 `json:"unordered"`
	Unfinished int64 `json:"unfinished"`

	// Impacts by kind of fault, in the order in which the kinds came.
	Impacts  []*Impact `json:"impacts"`
	Faults   []Break   `json:"faults"`
	Timeline Timeline  `json:"timeline"`

	most int // violations to describe
}

// Checked counts for one rule.
type Checked struct {
	Checked int64 `json:"checked"`
	Broken  int64 `json:"broken"`
}

// Violation is one rule that was broken.
type Violation struct {
	Rule Rule          `json:"rule"`
	At   time.Duration `json:"t"`
	// ID of the read, as in the file; 0: none.
	ID   int64  `json:"id,omitempty"`
	What string `json:"what"`
}

func (v Violation) String() string {
	s := fmt.Sprintf("%s at %s: %s", v.Rule, seconds(v.At), v.What)
	if v.ID != 0 {
		s += fmt.Sprintf(" [id %d]", v.ID)
	}
	return s
}

func newReport(most int) Report {
	r := Report{Version: ReportVersion, Failures: make(map[string]int64), Checks: make(map[Rule]*Checked), most: most}
	for _, rule := range Rules() {
		r.Checks[rule] = &Checked{}
	}
	return r
}

// Broken is how many violations there are.
func (r *Report) Broken() int64 {
	var n int64
	for _, c := range r.Checks {
		n += c.Broken
	}
	return n
}

// WriteJSON writes the report.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

func (r *Report) checked(rule Rule) { r.Checks[rule].Checked++ }

func (r *Report) close() {
	r.Checks[RuleLinear].Checked = r.Linear.Reads - r.Linear.Unknown
	r.Right = r.Broken() == 0 && r.Writes.Acked > 0 && r.Reads.Answered > 0
}

func (c *Checker) violate(rule Rule, at time.Duration, id int64, format string, args ...any) {
	c.report.Checks[rule].Broken++
	if len(c.report.Violations) < c.report.most {
		c.report.Violations = append(c.report.Violations, Violation{Rule: rule, At: at, ID: id, What: fmt.Sprintf(format, args...)})
	}
}
