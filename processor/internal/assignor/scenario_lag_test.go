package assignor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/statemesh/statemesh/store"
)

// The part of the scenarios that knows lags and copies.

func (s *scenario) setOptions(t *testing.T, d *datadriven.TestData) {
	t.Helper()
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "standbys":
			s.opts.Standbys = number(t, a.Vals[0])
		case "warmups":
			s.opts.MaxWarmups = number(t, a.Vals[0])
		case "acceptable":
			s.opts.AcceptableLag = int64(number(t, a.Vals[0]))
		case "tags":
			s.opts.RackAwareTags = a.Vals
		default:
			t.Fatalf("unknown option %s", a.Key)
		}
	}
}

func (s *scenario) setEnds(t *testing.T, fields []string) {
	t.Helper()
	if s.opts.Ends == nil {
		s.opts.Ends = make(map[store.TaskID]int64)
	}
	for _, x := range fields {
		task, v, _ := strings.Cut(x, "=")
		switch {
		case x == "unknown":
			clear(s.opts.Ends)
		case task == "all":
			for i := range s.shape.Tasks {
				s.opts.Ends[s.shape.Tasks[i].ID] = int64(number(t, v))
			}
		default:
			id, err := store.ParseTaskID(task)
			if err != nil {
				t.Fatal(err)
			}
			s.opts.Ends[id] = int64(number(t, v))
		}
	}
}

// keep notes what a process has on disk.
func (s *scenario) keep(process string, h Held) {
	list := slices.DeleteFunc(slices.Clone(s.held[process]), func(x Held) bool { return x.Task == h.Task })
	s.held[process] = append(list, h)
	slices.SortFunc(s.held[process], func(a, b Held) int { return a.Task.Compare(b.Task) })
}

func (s *scenario) catchUp(only []datadriven.CmdArg) {
	read := func(process string, ids []store.TaskID, serves bool) {
		if len(only) > 0 && !slices.ContainsFunc(only, func(a datadriven.CmdArg) bool { return a.Key == process }) {
			return
		}
		for _, id := range ids {
			s.keep(process, Held{Task: id, State: HeldOffset, Offset: s.opts.Ends[id]})
			if serves {
				s.serving[id] = process
			}
		}
	}
	for _, m := range s.members {
		read(m.Process, m.Owned, true)
	}
	for process, c := range s.copies {
		read(process, slices.Concat(c.Standby, c.Warmup, c.Retained), false)
	}
}

// report puts into the members what they say when they join a placement that knows lags.
func (s *scenario) report() {
	if s.opts.Ends == nil {
		return
	}
	first := map[string]bool{}
	for i := range s.members {
		m := &s.members[i]
		m.Held, m.Standby, m.Warmup, m.Retained = nil, nil, nil, nil
		if first[m.Process] {
			continue
		}
		first[m.Process] = true
		c := s.copies[m.Process]
		m.Standby, m.Warmup, m.Retained = c.Standby, c.Warmup, c.Retained
		for _, h := range s.held[m.Process] {
			if s.serving[h.Task] == m.Process {
				h = Held{Task: h.Task, State: HeldActive}
			}
			m.Held = append(m.Held, h)
		}
	}
}

// adopt makes a plan the present.
func (s *scenario) adopt(p Plan) {
	now := map[store.TaskID]string{}
	for i := range s.members {
		s.members[i].Owned, s.members[i].Expected = p.Members[i].Active, nil
		for _, id := range p.Members[i].Active {
			now[id] = s.members[i].Process
		}
	}
	for id, process := range s.serving {
		if now[id] != process { // it has all up to here
			s.keep(process, Held{Task: id, State: HeldOffset, Offset: s.opts.Ends[id]})
			delete(s.serving, id)
		}
	}
	clear(s.copies)
	for _, c := range p.Processes {
		s.copies[c.Process] = c
	}
}

func (s *scenario) printCopies(b *strings.Builder, p Plan) {
	if s.opts.Ends == nil && s.opts.Standbys == 0 {
		return
	}
	for _, c := range p.Processes {
		fmt.Fprintf(b, "%s follows", c.Process)
		sep := ""
		for _, as := range []struct {
			what string
			ids  []store.TaskID
		}{{"standby", c.Standby}, {"warm-up", c.Warmup}, {"retained", c.Retained}} {
			if len(as.ids) == 0 {
				continue
			}
			fmt.Fprintf(b, "%s %s", sep, as.what)
			for _, id := range as.ids {
				mark := ""
				if slices.Contains(c.Awaited, id) {
					mark = "*"
				}
				fmt.Fprintf(b, " %s%s", id, mark)
			}
			sep = ","
		}
		b.WriteString("\n")
	}
	if cmp.Or(p.Missing, p.Waiting, p.Retained) > 0 {
		fmt.Fprintf(b, "%d missing, %d waiting, %d retained\n", p.Missing, p.Waiting, p.Retained)
	}
}
