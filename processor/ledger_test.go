package processor

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// sums is of all schedules of this process.
var sums ledger

// ledger counts what schedules were made of, and what was checked in them.
type ledger struct {
	mu                sync.Mutex
	schedules, failed int
	faults            map[string]int // by kind
	answers, rows     int
}

func (c *ledger) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	total := 0
	for _, kind := range slices.Sorted(maps.Keys(c.faults)) {
		total += c.faults[kind]
		fmt.Fprintf(&b, "\n%8d  %s", c.faults[kind], kind)
	}
	return fmt.Sprintf("%d schedules, %d failed; %d answers and %d rows at rest checked; %d faults:%s",
		c.schedules, c.failed, c.answers, c.rows, total, b.String())
}

func (c *ledger) ended(failed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.schedules++
	if failed {
		c.failed++
	}
}

func (c *ledger) fault(kind string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.faults == nil {
		c.faults = make(map[string]int)
	}
	c.faults[kind]++
}

// checked counts answers to readers while things happen, and rows that were compared with the truth when all was calm.
func (c *ledger) checked(answers, rows int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers += answers
	c.rows += rows
}

// trace is what happened to a fleet, for who looks at a failure.
type trace struct {
	begun time.Time
	mu    sync.Mutex
	lines []string
}

func (tr *trace) String() string {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return strings.Join(tr.lines, "\n")
}

func (tr *trace) note(format string, args ...any) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.lines = append(tr.lines, fmt.Sprintf("%8.3fs ", time.Since(tr.begun).Seconds())+fmt.Sprintf(format, args...))
}

// happened notes a fault, and counts it by its kind. who is a state directory, or what else it happens to.
func (f *fleet) happened(who, kind string) {
	f.trace.note("%s: %s", filepath.Base(who), kind)
	sums.fault(kind)
}
