package history

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"testing"
)

var seeds = flag.Int("seeds", 300, "how many histories of a sound fleet are judged")

const modelSteps = 1500

// judged is the report of one history of a model fleet.
func judged(t *testing.T, seed uint64, b bug) *Report {
	t.Helper()
	c := NewChecker(CheckOptions{})
	newFleet(seed, b, func(e Event) {
		if err := c.Add(e); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}).run(modelSteps)
	return c.Report()
}

// TestNeverAFalseAlarm judges histories that are right: with stale copies, caches, zombies, aborts and unknown outcomes.
func TestNeverAFalseAlarm(t *testing.T) {
	t.Parallel()
	checked := make(map[Rule]int64)
	var unknown int64
	for seed := range uint64(*seeds) {
		r := judged(t, seed, sound)
		if !r.Right {
			t.Fatalf("seed %d: %d violations, the first: %v", seed, r.Broken(), r.Violations[0])
		}
		for rule, c := range r.Checks {
			checked[rule] += c.Checked
		}
		unknown += r.Linear.Unknown
	}
	for _, rule := range Rules() {
		if checked[rule] == 0 {
			t.Errorf("rule %q was never checked", rule)
		}
	}
	t.Logf("%d histories, checks by rule: %v; %d latest reads not judged", *seeds, checked, unknown)
}

// TestEveryBugIsFound gives the fleet one bug after the other. Each shows in one of the first histories.
func TestEveryBugIsFound(t *testing.T) {
	t.Parallel()
	const within = 20
	for b := sound + 1; b < bugs; b++ {
		t.Run(b.String(), func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(within) {
				if r := judged(t, seed, b); !r.Right {
					broken := ""
					for _, rule := range Rules() {
						if n := r.Checks[rule].Broken; n > 0 {
							broken += fmt.Sprintf(" %s %d;", rule, n)
						}
					}
					t.Logf("found in history %d:%s first: %v", seed+1, broken, r.Violations[0])
					return
				}
			}
			t.Errorf("not found in %d histories", within)
		})
	}
}

func BenchmarkCheckFile(b *testing.B) {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	newFleet(1, sound, func(ev Event) {
		if err := e.Encode(ev); err != nil {
			b.Fatal(err)
		}
	}).run(20000)
	b.SetBytes(int64(buf.Len()))
	n := int64(0)
	for b.Loop() {
		r, err := Check(NewReader(bytes.NewReader(buf.Bytes())).Events(), CheckOptions{LinearTime: -1})
		if err != nil || !r.Right {
			b.Fatal(err)
		}
		n += r.Events
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/event")
}

func BenchmarkRecord(b *testing.B) {
	rec := New(io.Discard, Options{})
	w := Write{Topic: "in", Effects: []Effect{{Store: "counts", Key: "key-0001", Add: 1}, {Store: "totals", Key: "group-01", Add: 3}}}
	b.ReportAllocs()
	for b.Loop() {
		rec.Write(w).Acked(1, 2)
	}
}

func BenchmarkCheck(b *testing.B) {
	var events []Event
	newFleet(1, sound, func(e Event) { events = append(events, e) }).run(20000)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		c := NewChecker(CheckOptions{LinearTime: -1})
		for _, e := range events {
			if err := c.Add(e); err != nil {
				b.Fatal(err)
			}
		}
		if r := c.Report(); !r.Right {
			b.Fatal(r.Violations)
		}
		n += len(events)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/event")
}
