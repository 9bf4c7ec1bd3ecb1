package history

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/statemesh/statemesh/store"
)

// tape is a history written by hand: each step takes a second.
type tape struct {
	buf bytes.Buffer
	rec *Recorder
	now time.Duration
	off store.Offset
}

func newTape() *tape {
	p := &tape{}
	p.rec = New(&p.buf, Options{Now: func() time.Duration { return p.now }})
	p.rec.Store("counts", Counter)
	p.rec.Store("names", Register)
	return p
}

func (p *tape) step() { p.now += time.Second }

// add writes a record that counts one of key, acknowledged at the next offset of its partition.
func (p *tape) add(key string) store.Offset {
	p.step()
	w := p.rec.Write(Write{Topic: "in", Effects: []Effect{{Store: "counts", Key: Text(key), Add: 1}}})
	p.step()
	w.Acked(0, p.off)
	p.off++
	return p.off - 1
}

// set writes a record that sets a name.
func (p *tape) set(key, value string) {
	p.step()
	w := p.rec.Write(Write{Topic: "in", Effects: []Effect{{Store: "names", Key: Text(key), Set: Text(value)}}})
	p.step()
	w.Acked(0, p.off)
	p.off++
}

// get reads a counter; a negative number is not found.
func (p *tape) get(q Read, n int, a Answer) {
	if q.Store == "" {
		q.Store = "counts"
	}
	if q.Key == "" {
		q.Key = "a"
	}
	p.step()
	r := p.rec.Read(q)
	p.step()
	if n >= 0 {
		a = a.With(strconv.Itoa(n))
	}
	r.Answered(a)
}

// name reads a register.
func (p *tape) name(q Read, value string, a Answer) {
	q.Store, q.Key = "names", "a"
	p.step()
	r := p.rec.Read(q)
	p.step()
	if value != "" {
		a = a.With(value)
	}
	r.Answered(a)
}

func (p *tape) judge(t *testing.T) *Report {
	t.Helper()
	if err := p.rec.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := Check(NewReader(&p.buf).Events(), CheckOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func owner() Answer { return Answer{Role: "ACTIVE", Age: 0, Instance: "one", Epoch: 1} }

func at(offset store.Offset) store.Position { return store.Position{"in": {0: offset}} }

func cut(next store.Offset) map[store.Partition]Cut {
	return map[store.Partition]Cut{0: {Topic: "t1", Next: next}}
}

func with(a Answer, change func(*Answer)) Answer {
	change(&a)
	return a
}

// TestRules plays, for each rule, the smallest history that breaks it and nothing else, and its neighbour that does not.
func TestRules(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rule       Rule
		wrong, not func(p *tape)
	}{
		"more than was written": {
			RuleProduced,
			func(p *tape) { p.add("a"); p.get(Read{}, 2, owner()) },
			func(p *tape) { p.add("a"); p.add("a"); p.get(Read{}, 2, owner()) },
		},
		"more than was written, before it was": {
			RuleProduced,
			func(p *tape) { p.add("a"); p.get(Read{}, 2, owner()); p.add("a") },
			func(p *tape) { // under way when it was answered
				p.add("a")
				w := p.rec.Write(Write{Topic: "in", Effects: []Effect{{Store: "counts", Key: "a", Add: 1}}})
				p.get(Read{}, 2, owner())
				w.Acked(0, p.off)
			},
		},
		"no number": {
			RuleProduced,
			func(p *tape) { p.add("a"); p.name(Read{}, "", owner()); p.get(Read{Key: "a"}, 0, owner()) },
			func(p *tape) { p.add("a"); p.name(Read{}, "", owner()); p.get(Read{Key: "a"}, 1, owner()) },
		},
		"the value of another key": {
			RuleProduced,
			func(p *tape) { p.set("a", "x"); p.set("b", "y"); p.name(Read{}, "y", owner()) },
			func(p *tape) { p.set("a", "x"); p.set("b", "y"); p.name(Read{}, "x", owner()) },
		},
		"an aborted write": {
			RuleProduced,
			func(p *tape) {
				p.add("z")
				p.rec.Write(Write{Topic: "in", Effects: []Effect{{Store: "names", Key: "a", Set: "x"}}}).Refused("aborted")
				p.name(Read{}, "x", owner())
			},
			func(p *tape) {
				p.add("z")
				p.rec.Write(Write{Topic: "in", Effects: []Effect{{Store: "names", Key: "a", Set: "x"}}}).Unknown("timeout")
				p.name(Read{}, "x", owner())
			},
		},
		"an aborted write, seen before it was": {
			RuleProduced,
			func(p *tape) {
				p.add("z")
				w := p.rec.Write(Write{Topic: "in", Effects: []Effect{{Store: "names", Key: "a", Set: "x"}}})
				p.name(Read{}, "x", owner())
				w.Refused("aborted")
			},
			func(p *tape) {
				p.add("z")
				w := p.rec.Write(Write{Topic: "in", Effects: []Effect{{Store: "names", Key: "a", Set: "x"}}})
				p.name(Read{}, "x", owner())
				w.Acked(0, p.off)
			},
		},
		"false absence": {
			RuleAbsence,
			func(p *tape) { p.add("a"); p.get(Read{}, 1, owner()); p.get(Read{}, -1, owner()) },
			func(p *tape) { // as old as it says it was absent
				p.add("a")
				p.get(Read{}, 1, owner())
				p.get(Read{}, -1, with(owner(), func(a *Answer) { a.Age = 2 * time.Second }))
			},
		},
		"false absence without an age": {
			RuleAbsence,
			func(p *tape) {
				p.add("a")
				p.get(Read{}, 1, owner())
				p.get(Read{Bound: time.Millisecond}, -1, Answer{Age: -1})
			},
			func(p *tape) {
				p.add("a")
				p.get(Read{}, 1, owner())
				p.get(Read{Bound: time.Minute}, -1, Answer{Age: -1})
			},
		},
		"false absence at a position": {
			RuleAbsence,
			func(p *tape) {
				o := p.add("a")
				p.get(Read{}, -1, with(owner(), func(a *Answer) { a.Position = at(o) }))
			},
			func(p *tape) {
				o := p.add("a")
				p.get(Read{}, -1, with(owner(), func(a *Answer) { a.Position = at(o - 1) }))
			},
		},
		"older than the bound": {
			RuleBound,
			func(p *tape) {
				p.add("a")
				p.get(Read{Bound: time.Second}, 1, with(owner(), func(a *Answer) { a.Age = time.Second + 1 }))
			},
			func(p *tape) {
				p.add("a")
				p.get(Read{Bound: time.Second}, 1, with(owner(), func(a *Answer) { a.Age = time.Second }))
			},
		},
		"not the owner": {
			RuleRole,
			func(p *tape) {
				p.add("a")
				p.get(Read{Active: true}, 1, with(owner(), func(a *Answer) { a.Role = "CACHE" }))
			},
			func(p *tape) { p.add("a"); p.get(Read{Active: true}, 1, owner()) },
		},
		"an age that lies": {
			RuleAge,
			func(p *tape) { p.add("a"); p.add("a"); p.get(Read{}, 2, owner()); p.get(Read{}, 1, owner()) },
			func(p *tape) {
				p.add("a")
				p.add("a")
				p.get(Read{}, 2, owner())
				p.get(Read{}, 1, with(owner(), func(a *Answer) { a.Age = 2 * time.Second }))
			},
		},
		"an age that lies, of a value acknowledged later": {
			RuleAge,
			func(p *tape) {
				p.set("a", "x")
				w := p.rec.Write(Write{Topic: "in", Effects: []Effect{{Store: "names", Key: "a", Set: "y"}}})
				p.name(Read{}, "y", owner())
				w.Acked(0, p.off)
				p.name(Read{}, "x", owner())
			},
			func(p *tape) {
				p.set("a", "x")
				w := p.rec.Write(Write{Topic: "in", Effects: []Effect{{Store: "names", Key: "a", Set: "y"}}})
				p.name(Read{}, "x", owner())
				w.Acked(0, p.off)
				p.name(Read{}, "y", owner())
			},
		},
		"what was not committed proves nothing": {
			RuleAge,
			func(p *tape) { p.add("a"); p.add("a"); p.get(Read{}, 2, owner()); p.get(Read{}, 1, owner()) },
			func(p *tape) {
				p.add("a")
				p.add("a")
				p.get(Read{Uncommitted: true}, 2, owner())
				p.get(Read{}, 1, owner())
			},
		},
		"less than the position": {
			RulePosition,
			func(p *tape) {
				p.add("a")
				o := p.add("a")
				p.get(Read{}, 1, with(owner(), func(a *Answer) { a.Position = at(o) }))
			},
			func(p *tape) {
				o := p.add("a")
				p.add("a")
				p.get(Read{}, 1, with(owner(), func(a *Answer) { a.Position = at(o) }))
			},
		},
		"more than the position": {
			RulePosition,
			func(p *tape) {
				o := p.add("a")
				p.add("a")
				p.get(Read{}, 2, with(owner(), func(a *Answer) { a.Position = at(o) }))
			},
			func(p *tape) { // a standby's position is what it has at least
				o := p.add("a")
				p.add("a")
				p.get(Read{}, 2, with(owner(), func(a *Answer) { a.Position, a.Role = at(o), "STANDBY" }))
			},
		},
		"not what it was asked for": {
			RuleAtLeast,
			func(p *tape) { p.add("a"); o := p.add("a"); p.get(Read{AtLeast: &Mark{Inputs: at(o)}}, 1, owner()) },
			func(p *tape) { o := p.add("a"); p.add("a"); p.get(Read{AtLeast: &Mark{Inputs: at(o)}}, 1, owner()) },
		},
		"behind the token it was asked for": {
			RuleToken,
			func(p *tape) {
				p.add("a")
				p.add("a")
				p.get(Read{}, 2, with(owner(), func(a *Answer) { a.Cuts = cut(20) }))
				p.get(Read{AtLeast: &Mark{Cuts: cut(20)}}, 1, with(owner(), func(a *Answer) { a.Age = time.Hour }))
			},
			func(p *tape) {
				p.add("a")
				p.add("a")
				p.get(Read{}, 2, with(owner(), func(a *Answer) { a.Cuts = cut(20) }))
				p.get(Read{AtLeast: &Mark{Cuts: cut(19)}}, 1, with(owner(), func(a *Answer) { a.Age = time.Hour }))
			},
		},
		"a session that goes back on another key": {
			RuleToken,
			func(p *tape) {
				p.add("a")
				p.add("a")
				p.add("b")
				p.get(Read{}, 2, with(owner(), func(a *Answer) { a.Cuts = cut(20) }))
				p.get(Read{Key: "b", Session: "s"}, 1, with(owner(), func(a *Answer) { a.Cuts = cut(30) }))
				p.get(Read{Session: "s"}, 1, with(owner(), func(a *Answer) { a.Age = time.Hour }))
			},
			func(p *tape) {
				p.add("a")
				p.add("a")
				p.add("b")
				p.get(Read{}, 2, with(owner(), func(a *Answer) { a.Cuts = cut(40) }))
				p.get(Read{Key: "b", Session: "s"}, 1, with(owner(), func(a *Answer) { a.Cuts = cut(30) }))
				p.get(Read{Session: "s"}, 1, with(owner(), func(a *Answer) { a.Age = time.Hour }))
			},
		},
		"a session that goes back": {
			RuleSession,
			func(p *tape) {
				p.add("a")
				p.add("a")
				p.get(Read{Session: "s"}, 2, owner())
				p.get(Read{Session: "s"}, 1, with(owner(), func(a *Answer) { a.Age = time.Hour }))
			},
			func(p *tape) { // two readers
				p.add("a")
				p.add("a")
				p.get(Read{Session: "s"}, 2, owner())
				p.get(Read{Session: "r"}, 1, with(owner(), func(a *Answer) { a.Age = time.Hour }))
			},
		},
		"reads side by side": {
			RuleSession,
			func(p *tape) {
				p.add("a")
				p.add("a")
				p.get(Read{Session: "s"}, 2, owner())
				p.get(Read{Session: "s"}, 1, with(owner(), func(a *Answer) { a.Age = time.Hour }))
			},
			func(p *tape) {
				p.add("a")
				p.add("a")
				r := p.rec.Read(Read{Store: "counts", Key: "a", Session: "s"})
				p.get(Read{Session: "s"}, 2, owner())
				r.Answered(with(owner(), func(a *Answer) { a.Age = time.Hour }).With("1"))
			},
		},
		"a new owner without what the old one had": {
			RuleEpoch,
			func(p *tape) {
				p.add("a")
				p.add("a")
				p.get(Read{}, 2, owner())
				p.get(Read{}, 1, with(owner(), func(a *Answer) { a.Age, a.Epoch = time.Hour, 2 }))
			},
			func(p *tape) {
				p.add("a")
				p.add("a")
				p.get(Read{}, 2, owner())
				p.get(Read{}, 1, with(owner(), func(a *Answer) { a.Age = time.Hour }))
			},
		},
		"a latest read that is not": {
			RuleLinear,
			func(p *tape) { p.add("a"); p.add("a"); p.get(Read{Latest: true}, 1, owner()) },
			func(p *tape) { p.add("a"); p.add("a"); p.get(Read{Latest: true}, 2, owner()) },
		},
		"latest reads in no order": {
			RuleLinear,
			func(p *tape) {
				p.set("a", "x")
				w := p.rec.Write(Write{Topic: "in", Effects: []Effect{{Store: "names", Key: "a", Set: "y"}}})
				p.name(Read{Latest: true}, "y", with(owner(), func(a *Answer) { a.Age = time.Hour }))
				p.name(Read{Latest: true}, "x", with(owner(), func(a *Answer) { a.Age = time.Hour }))
				w.Unknown("timeout")
			},
			func(p *tape) {
				p.set("a", "x")
				w := p.rec.Write(Write{Topic: "in", Effects: []Effect{{Store: "names", Key: "a", Set: "y"}}})
				p.name(Read{Latest: true}, "x", with(owner(), func(a *Answer) { a.Age = time.Hour }))
				p.name(Read{Latest: true}, "y", with(owner(), func(a *Answer) { a.Age = time.Hour }))
				w.Unknown("timeout")
			},
		},
		"lost": {
			RuleLost,
			func(p *tape) { p.add("a"); p.add("a"); p.get(Read{}, 1, owner()); p.rest("counts", "1") },
			func(p *tape) { p.add("a"); p.add("a"); p.get(Read{}, 1, owner()); p.rest("counts", "2") },
		},
		"lost though it was shown": {
			RuleLost,
			func(p *tape) {
				p.add("a")
				p.rec.Write(Write{Topic: "in", Effects: []Effect{{Store: "counts", Key: "a", Add: 1}}}).Unknown("timeout")
				p.get(Read{}, 2, owner())
				p.rest("counts", "1")
			},
			func(p *tape) {
				p.add("a")
				p.rec.Write(Write{Topic: "in", Effects: []Effect{{Store: "counts", Key: "a", Add: 1}}}).Unknown("timeout")
				p.get(Read{}, 1, owner())
				p.rest("counts", "1")
			},
		},
		"lost by the log": {
			RuleLost,
			func(p *tape) {
				p.add("a")
				p.get(Read{}, 1, owner())
				p.rec.Log(Row{Store: "counts", Key: "a", Found: true, Value: "0"})
			},
			func(p *tape) {
				p.add("a")
				p.get(Read{}, 1, owner())
				p.rec.Log(Row{Store: "counts", Key: "a", Found: true, Value: "1"})
			},
		},
		"an old name at rest": {
			RuleLost,
			func(p *tape) { p.set("a", "x"); p.set("a", "y"); p.name(Read{}, "x", owner()); p.rest("names", "x") },
			func(p *tape) { p.set("a", "x"); p.set("a", "y"); p.name(Read{}, "x", owner()); p.rest("names", "y") },
		},
		"doubled": {
			RuleDoubled,
			func(p *tape) { p.add("a"); p.get(Read{}, 1, owner()); p.rest("counts", "2") },
			func(p *tape) { p.add("a"); p.get(Read{}, 1, owner()); p.rest("counts", "1") },
		},
		"doubled, by what the log really has": {
			RuleDoubled,
			func(p *tape) { p.unknownAndLog("1"); p.rest("counts", "2") },
			func(p *tape) { p.unknownAndLog("2"); p.rest("counts", "2") },
		},
		"a row that a scan leaves out": {
			RuleAbsence,
			func(p *tape) { p.add("a"); p.add("b"); p.get(Read{}, 1, owner()); p.scan("b") },
			func(p *tape) { p.add("a"); p.add("b"); p.get(Read{}, 1, owner()); p.scan("a", "b") },
		},
		"a row that a scan has twice": {
			RuleProduced,
			func(p *tape) { p.add("a"); p.scan("a", "a") },
			func(p *tape) { p.add("a"); p.scan("a") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newTape()
			c.wrong(p)
			r := p.judge(t)
			if broken := brokenRules(r); !slices.Equal(broken, []Rule{c.rule}) || r.Right {
				t.Errorf("broken: %v, want %s alone; right %v\n%v", broken, c.rule, r.Right, r.Violations)
			}
			p = newTape()
			c.not(p)
			if r := p.judge(t); !r.Right {
				t.Errorf("the sound neighbour: %v", r.Violations)
			}
		})
	}
}

func (p *tape) rest(name, value string) {
	p.step()
	p.rec.Final(Row{Store: name, Key: "a", Found: true, Value: Text(value), Instance: "one"})
}

// unknownAndLog writes one record, and one of unknown outcome, of which the log has so many.
func (p *tape) unknownAndLog(n string) {
	p.add("a")
	p.rec.Write(Write{Topic: "in", Effects: []Effect{{Store: "counts", Key: "a", Add: 1}}}).Unknown("timeout")
	p.get(Read{}, 1, owner())
	p.rec.Log(Row{Store: "counts", Key: "a", Found: true, Value: Text(n)})
}

func (p *tape) scan(keys ...string) {
	p.step()
	r := p.rec.Read(Read{Store: "counts", Scan: true})
	p.step()
	var a Answer
	for _, k := range keys {
		a.Rows = append(a.Rows, Pair{Key: Text(k), Value: "1"})
	}
	r.Answered(a)
}

func brokenRules(r *Report) []Rule {
	var broken []Rule
	for _, rule := range slices.Sorted(maps.Keys(r.Checks)) {
		if r.Checks[rule].Broken > 0 {
			broken = append(broken, rule)
		}
	}
	return broken
}

// TestEveryRuleIsChecked keeps the counts of a report complete: a rule that checks nothing would be silent.
func TestEveryRuleIsChecked(t *testing.T) {
	t.Parallel()
	p := newTape()
	o := p.add("a")
	p.set("a", "x")
	all := with(owner(), func(a *Answer) { a.Position, a.Cuts = at(o), cut(7) })
	p.get(Read{Session: "s", Bound: time.Hour, Active: true, Latest: true, AtLeast: &Mark{Inputs: at(o)}}, 1, all)
	all.Epoch = 2
	p.get(Read{Session: "s"}, 1, all)
	p.get(Read{Key: "other"}, -1, all)
	p.rest("counts", "1")
	p.rest("names", "x")
	r := p.judge(t)
	if !r.Right {
		t.Fatal(r.Violations)
	}
	for _, rule := range Rules() {
		if r.Checks[rule].Checked == 0 {
			t.Errorf("rule %q was not checked", rule)
		}
	}
}

func ExampleViolation() {
	v := Violation{Rule: RuleSession, At: 1500 * time.Millisecond, ID: 7, What: `counts "a": 1; session s had seen 2`}
	fmt.Println(v)
	// Output: session at 1.500000s: counts "a": 1; session s had seen 2 [id 7]
}
