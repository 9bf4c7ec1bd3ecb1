package demo

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/statemesh/statemesh/store"
)

// Report is what a demo did, for programs.
type Report struct {
	Broker     string `json:"broker"`
	Instances  int    `json:"instances"`
	Partitions int    `json:"partitions"`
	Records    int    `json:"records"`
	Keys       int    `json:"keys"`
	// LoadPerSecond is how fast records went into the topic, RecordsPerSecond how fast they were in all views, counted
	// from the first that was sent, without a kill.
	LoadPerSecond    float64        `json:"load_per_second"`
	RecordsPerSecond float64        `json:"records_per_second"`
	Kill             *Kill          `json:"kill,omitempty"`
	Verifications    []Verification `json:"verifications"`
	Outages          []Outage       `json:"outages,omitempty"`
	// MemoryBytes is the resident memory of each instance at the end.
	MemoryBytes []int64 `json:"memory_bytes,omitempty"`
	Seconds     float64 `json:"seconds"`
}

// Wrong counts the answers that were wrong or missing.
func (r *Report) Wrong() int {
	n := 0
	for _, v := range r.Verifications {
		n += v.Wrong
	}
	for _, o := range r.Outages {
		n += o.Bounded.Wrong + o.Owner.Wrong
	}
	return n
}

// Asked counts the questions.
func (r *Report) Asked() int {
	n := 0
	for _, v := range r.Verifications {
		n += v.Asked
	}
	for _, o := range r.Outages {
		n += o.Bounded.Asked + o.Owner.Asked
	}
	return n
}

// story tells people what happens, one calm line per step.
type story struct{ out io.Writer }

func (s *story) print(format string, args ...any) {
	_, _ = fmt.Fprintf(s.out, format, args...) // who does not read it misses nothing that the report has not
}

func (s *story) title(format string, args ...any) { s.print(format+"\n\n", args...) }

func (s *story) line(label, format string, args ...any) {
	s.print("  %-8s %s\n", label, fmt.Sprintf(format, args...))
}

func (s *story) gap() { s.print("\n") }

func (s *story) verification(v Verification) {
	how := "cache off"
	if v.Cache {
		how = "cache on"
	}
	result := "all right"
	if v.Wrong > 0 {
		result = thousands(v.Wrong) + " WRONG OR MISSING"
	}
	s.line("verify", "%s: %s answers in %.1fs, %s", how, thousands(v.Asked), v.Seconds, result)
	for _, from := range []string{"local", "hop", "cache"} {
		if l, ok := v.Latencies[from]; ok {
			s.line("", "  %-5s %7s answers, p50 %5.2f ms, p99 %5.2f ms", from, thousands(l.Answers), l.P50Millis, l.P99Millis)
		}
	}
	for _, m := range v.Mistakes {
		s.line("", "  %s %q at %s: %s", m.View, m.Key, m.Endpoint, m.Problem)
	}
}

func (s *story) verdict(r *Report, took time.Duration) {
	s.gap()
	verdict := "all right"
	if n := r.Wrong(); n > 0 {
		verdict = thousands(n) + " WRONG OR MISSING"
	}
	s.line("result", "%s answers checked, %s, in %s", thousands(r.Asked()), verdict, seconds(took))
	if len(r.MemoryBytes) > 0 && !slices.Contains(r.MemoryBytes, 0) {
		mib := make([]string, len(r.MemoryBytes))
		for i, b := range r.MemoryBytes {
			mib[i] = strconv.FormatInt(b>>20, 10)
		}
		s.line("memory", "%s MiB resident per instance", strings.Join(mib, ", "))
	}
}

func (s *story) commands(program string, nodes []*node) {
	s.gap()
	a := nodes[0].endpoint
	s.print("The fleet stays up. Try, in another terminal:\n\n")
	for _, c := range []string{
		"get flights_by_dest ATL --addr " + a,
		"get latest_by_tailnum N14228 -o json --addr " + nodes[len(nodes)-1].endpoint,
		"scan dep_delay_by_carrier --addr " + a,
		"owner flights_by_dest ATL --addr " + a,
		"instances --addr " + a,
	} {
		s.print("  %s %s\n", program, c)
	}
	s.print("\nCtrl-C ends it.\n")
}

// showMap prints who owns which partition of each view.
func (d *demo) showMap(ctx context.Context) error {
	m, err := d.client.Metadata(ctx)
	if err != nil {
		return err
	}
	number := make(map[string]string)
	for _, n := range d.fleet.nodes {
		number[n.instance] = strconv.Itoa(n.number)
	}
	d.say.line("map", "which instance owns which partition (epoch %d)", m.Epoch())
	for _, st := range m.Stores() {
		owners := make([]string, st.Partitions)
		for p := range owners {
			owners[p] = "-"
			for _, r := range m.Replicas(st.Name, store.Partition(p)) {
				if n, ok := number[r.Instance]; ok && r.Role == store.RoleActive {
					owners[p] = n
				}
			}
		}
		d.say.line("", "  %-22s %s", st.Name, strings.Join(owners, " "))
	}
	return nil
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1fs", d.Seconds()) }

// thousands writes 336776 as 336,776.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
