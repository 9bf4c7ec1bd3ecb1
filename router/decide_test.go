package router

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/statemesh/statemesh/store"
)

// TestDecideScenarios runs testdata/decide. Commands:
//
//	map epoch=3 partitions=4           lines: <instance> active=(..) standby=(..) [silent]; moving <partition> <instance>
//	decide partition=0 [self=a] [held=active|standby] [origin=peer] [only-active|prefer-local] [bound=5s] [store=x]
//	                                   lines: the instances tried, with the reason
func TestDecideScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/decide", func(t *testing.T, path string) {
		var s *Snapshot
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "map":
				data := scenarioMap(t, d)
				var err error
				if s, err = NewSnapshot(data); err != nil {
					return err.Error() + "\n"
				}
				return fmt.Sprintf("missing: %v\n", s.Missing())
			case "decide":
				return printRoute(Decide(s, scenarioQuery(t, d)))
			default:
				t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
				return ""
			}
		})
	})
}

func scenarioMap(t *testing.T, d *datadriven.TestData) Data {
	var epoch, partitions int
	d.ScanArgs(t, "epoch", &epoch)
	d.ScanArgs(t, "partitions", &partitions)
	data := Data{
		Application: "app", Epoch: Epoch(epoch), Moving: map[store.TaskID]string{},
		Stores: []StoreInfo{{Name: "counts", Kind: store.KindKeyValue, Partitions: int32(partitions)}},
	}
	for line := range strings.Lines(d.Input) {
		words := strings.Fields(line)
		if words[0] == "moving" {
			data.Moving[task0(number(t, words[1]))] = words[2]
			continue
		}
		in := Instance{ID: words[0], Incarnation: "1", Endpoint: words[0] + ":1"}
		for _, w := range words[1:] {
			if w == "silent" {
				in.Endpoint = ""
				continue
			}
			role, list, _ := strings.Cut(w, "=")
			for p := range strings.SplitSeq(strings.Trim(list, "()"), ",") {
				switch role {
				case "active":
					in.Active = append(in.Active, task0(number(t, p)))
				case "standby":
					in.Standby = append(in.Standby, task0(number(t, p)))
				default:
					t.Fatalf("%s: %q", d.Pos, w)
				}
			}
		}
		data.Instances = append(data.Instances, in)
	}
	return data
}

func scenarioQuery(t *testing.T, d *datadriven.TestData) Query {
	q := Query{Store: "counts"}
	for _, arg := range d.CmdArgs {
		val := ""
		if len(arg.Vals) > 0 {
			val = arg.Vals[0]
		}
		switch arg.Key {
		case "store":
			q.Store = store.Name(val)
		case "partition":
			q.Partition = number(t, val)
		case "self":
			q.Self = val
		case "held":
			q.Held = map[string]store.Role{"active": store.RoleActive, "standby": store.RoleStandby}[val]
		case "origin":
			q.Origin = OriginPeer
		case "only-active":
			q.Prefer = OnlyActive
		case "prefer-local":
			q.Prefer = PreferLocal
		case "bound":
			b, err := time.ParseDuration(val)
			if err != nil {
				t.Fatal(err)
			}
			q.MaxStaleness = b
		default:
			t.Fatalf("%s: unknown argument %s", d.Pos, arg.Key)
		}
	}
	for line := range strings.Lines(d.Input) {
		instance, reason, _ := strings.Cut(strings.TrimSpace(line), " ")
		q.Tried = append(q.Tried, store.Candidate{Instance: instance, Endpoint: instance + ":1", Role: store.RoleActive, Reason: reason})
	}
	return q
}

func number(t *testing.T, s string) store.Partition {
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return store.Partition(n)
}

func printRoute(r Route) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s", r.Verdict)
	if r.LocalFirst {
		b.WriteString(" first")
	}
	for _, c := range r.Candidates {
		fmt.Fprintf(&b, " %s(%s)", c.Instance, strings.ToLower(c.Role.String()))
	}
	if r.Err != nil {
		fmt.Fprintf(&b, " %s: %v", strings.TrimPrefix(fmt.Sprintf("%T", r.Err), "*store."), r.Err)
	}
	return b.String() + "\n"
}

// What must hold for every map and every query.
func TestDecideProperties(t *testing.T) {
	snaps := []*Snapshot{nil, mustSnapshot(t, fleet(1, 4, "a")), mustSnapshot(t, fleet(2, 4, "a", "b", "c"))}
	holes := fleet(3, 4, "a", "b", "c")
	holes.Instances[0].Active = nil
	holes.Moving = map[store.TaskID]string{task0(0): "c"}
	silent := fleet(4, 4, "a", "b", "c")
	silent.Instances[1].Endpoint = ""
	snaps = append(snaps, mustSnapshot(t, holes), mustSnapshot(t, silent))

	n := 0
	for _, s := range snaps {
		for _, name := range []store.Name{"counts", "nope"} {
			for p := store.Partition(-1); p <= 4; p++ {
				for _, self := range []string{"", "a", "b", "z"} {
					for _, held := range []store.Role{store.RoleUnknown, store.RoleActive, store.RoleStandby} {
						for _, origin := range []Origin{OriginEntry, OriginPeer} {
							for _, prefer := range []Preference{PreferActive, OnlyActive, PreferLocal} {
								for _, bound := range []time.Duration{0, time.Second} {
									for _, tried := range [][]store.Candidate{nil, {{Instance: "a", Reason: "refused"}}, {{Instance: "a"}, {Instance: "b"}, {Instance: "c"}}} {
										if self == "" && (held != store.RoleUnknown || origin == OriginPeer) {
											continue // a client holds nothing and is nobody's peer
										}
										q := Query{
											Store: name, Partition: p, Self: self, Held: held, Origin: origin, Prefer: prefer,
											MaxStaleness: bound, Tried: tried,
										}
										checkRoute(t, s, q, Decide(s, q))
										n++
									}
								}
							}
						}
					}
				}
			}
		}
	}
	if n < 10_000 {
		t.Fatalf("only %d cases", n)
	}
}

func checkRoute(t *testing.T, s *Snapshot, q Query, r Route) {
	t.Helper()
	fail := func(what string) { t.Helper(); t.Fatalf("%s\nquery %+v\nroute %+v", what, q, r) }
	if (r.Err != nil) != (r.Verdict == Refuse) {
		fail("a refusal has a reason, and only a refusal")
	}
	if (len(r.Candidates) > 0) != (r.Verdict == Remote) {
		fail("candidates are for remote routes")
	}
	if q.Origin == OriginPeer && r.Verdict == Remote {
		fail("a forwarded request is forwarded again")
	}
	if r.Verdict == Local && (q.Self == "" || slices.ContainsFunc(q.Tried, func(c store.Candidate) bool { return c.Instance == q.Self }) && s != nil) {
		fail("local, but there is nobody here who may")
	}
	if r.LocalFirst && (r.Verdict != Local || q.Prefer != PreferLocal || q.MaxStaleness == 0 || q.Origin == OriginPeer) {
		fail("a copy is preferred that nobody asked for")
	}
	seen := map[string]bool{}
	for i, c := range r.Candidates {
		if c.Role != store.RoleActive && (q.Prefer == OnlyActive || q.MaxStaleness == 0) {
			fail("a standby for a caller that wants the owner")
		}
		if c.Role == store.RoleActive && i > 0 {
			fail("the owner is first")
		}
		if c.Endpoint == "" && c.Instance != q.Self {
			fail("a candidate that answers no peer")
		}
		if seen[c.Instance] || slices.ContainsFunc(q.Tried, func(x store.Candidate) bool { return x.Instance == c.Instance }) {
			fail("asked twice")
		}
		seen[c.Instance] = true
	}
	if again := Decide(s, q); !slices.Equal(again.Candidates, r.Candidates) || again.Verdict != r.Verdict {
		fail("not a function of its arguments")
	}
	if e, ok := r.Err.(*store.NoReplicaError); ok && s != nil { //nolint:errorlint // Decide returns it unwrapped
		listed := map[string]bool{}
		for _, c := range e.Candidates {
			listed[c.Instance] = true
			if c.Reason == "" && len(q.Tried) < 2 {
				fail("passed over without a reason")
			}
		}
		for _, c := range s.Replicas(q.Store, q.Partition) {
			if !listed[c.Instance] {
				fail("not every candidate is in the error")
			}
		}
	}
}

func BenchmarkDecideLocal(b *testing.B) {
	s := mustSnapshot(b, fleet(1, 500, "a", "b", "c"))
	q := Query{Store: "counts", Partition: 300, Self: "a", MaxStaleness: time.Second}
	b.ReportAllocs()
	for b.Loop() {
		if Decide(s, q).Verdict != Local {
			b.Fatal("not local")
		}
	}
}

func BenchmarkDecideRemote(b *testing.B) {
	s := mustSnapshot(b, fleet(1, 500, "a", "b", "c"))
	q := Query{Store: "counts", Partition: 301, Self: "a", MaxStaleness: time.Second}
	b.ReportAllocs()
	for b.Loop() {
		if Decide(s, q).Verdict != Remote {
			b.Fatal("not remote")
		}
	}
}

// No request pays the collector for the decision.
func TestDecideAllocatesNothing(t *testing.T) {
	s := mustSnapshot(t, fleet(1, 500, "a", "b", "c"))
	for name, q := range map[string]Query{
		"local":  {Store: "counts", Partition: 300, Self: "a", MaxStaleness: time.Second},
		"remote": {Store: "counts", Partition: 301, Self: "a", MaxStaleness: time.Second},
		"client": {Store: "counts", Partition: 301},
	} {
		if n := testing.AllocsPerRun(100, func() { Decide(s, q) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
