package history

import (
	"fmt"
	"strconv"
	"time"
)

// Rule is what must hold. DESIGN.md has the reason for each.
type Rule string

// The rules.
const (
	// RuleProduced: no answer shows more than had been written when it came, or what nobody wrote.
	RuleProduced Rule = "produced"
	// RuleAbsence: not found is never said of a key that the answer should have.
	RuleAbsence Rule = "absence"
	// RuleBound: no answer claims an age above the bound of its question.
	RuleBound Rule = "bound"
	// RuleRole: who insists on the owner gets the owner's answer.
	RuleRole Rule = "role"
	// RuleAge: an answer has what was known to be committed before its question by more than its age.
	RuleAge Rule = "age"
	// RulePosition: an answer has what its position says: no less, and of an owner's committed state no more.
	RulePosition Rule = "position"
	// RuleAtLeast: an answer has the writes that its question insisted on.
	RuleAtLeast Rule = "at least"
	// RuleToken: an answer has what any answer had whose token is not above the one that its question insisted on.
	RuleToken Rule = "token"
	// RuleSession: no session goes backwards.
	RuleSession Rule = "session"
	// RuleEpoch: an owner has what owners of earlier epochs had shown.
	RuleEpoch Rule = "epoch"
	// RuleLinear: reads that ask for the latest, and the writes, have one order that explains them all.
	RuleLinear Rule = "linear"
	// RuleLost: at rest, every row has all that was acknowledged, or shown as committed.
	RuleLost Rule = "lost"
	// RuleDoubled: at rest, no row has more than what was written.
	RuleDoubled Rule = "doubled"
)

// Rules lists them all.
func Rules() []Rule {
	return []Rule{
		RuleProduced, RuleAbsence, RuleBound, RuleRole, RuleAge, RulePosition, RuleAtLeast, RuleToken, RuleSession,
		RuleEpoch, RuleLinear, RuleLost, RuleDoubled,
	}
}

// active is the role of an owner, as store.Role prints it.
const active = "ACTIVE"

// verdict is an answer to be judged.
type verdict struct {
	op    *readOp
	a     *Answer
	at    time.Duration // when it came
	alone bool          // the only one of its session at its time
}

func verdictOf(op *readOp, a *Answer, at time.Duration, alone bool) *verdict {
	return &verdict{op: op, a: a, at: at, alone: alone}
}

// said is the answer in words.
func (v *verdict) said(what string) string {
	by := v.a.Instance
	if by == "" {
		by = "somebody"
	}
	s := fmt.Sprintf("%s by %s", what, by)
	if v.a.Role != "" {
		s += " (" + v.a.Role + ")"
	}
	if v.a.Epoch != 0 {
		s += fmt.Sprintf(" at epoch %d", v.a.Epoch)
	}
	if v.a.Age >= 0 {
		s += fmt.Sprintf(", age %s", v.a.Age.Round(time.Microsecond))
	}
	return fmt.Sprintf("%s, asked at %s", s, seconds(v.op.at))
}

// floor is a rank that an answer must not be below.
type floor struct {
	rule Rule
	rank int64
	why  func() string
}

// judgeClaims judges what an answer says of itself.
func (c *Checker) judgeClaims(v *verdict) {
	q, a := v.op.q, v.a
	if q.Bound > 0 && a.Age >= 0 {
		c.report.checked(RuleBound)
		if a.Age > q.Bound {
			c.violate(RuleBound, v.at, v.op.id, "%s: %s; the bound is %s", v.subject(), v.said("an answer"), q.Bound)
		}
	}
	if q.Active && a.Role != "" {
		c.report.checked(RuleRole)
		if a.Role != active {
			c.violate(RuleRole, v.at, v.op.id, "%s: %s; the question insists on the owner", v.subject(), v.said("an answer"))
		}
	}
}

// subject is what was asked about.
func (v *verdict) subject() string {
	if v.op.q.Scan {
		return "scan of " + v.op.q.Store
	}
	return v.op.q.Store + " " + quote(v.op.q.Key)
}

// judge judges one row of an answer; nil: not found.
func (c *Checker) judge(r *row, v *verdict, is *Text) {
	if r.split {
		c.report.Unordered++
		return
	}
	if is == nil {
		c.absent(r, v)
		return
	}
	value := *is
	c.report.checked(RuleProduced)
	var rank int64
	if r.model == Counter {
		var err error
		if rank, err = strconv.ParseInt(string(value), 10, 64); err != nil || rank < 1 {
			c.violate(RuleProduced, v.at, v.op.id, "%s: %s; a counter is a number above 0", r, v.said(quote(value)))
			return
		}
		if most := r.sure + r.unknown + r.open; rank > most {
			c.violate(RuleProduced, v.at, v.op.id, "%s: %s; %d had been written", r, v.said(string(value)), most)
			return // it is of another row or state: what it lacks says nothing
		}
	} else {
		switch rank = c.values.find(r, value); rank {
		case valueForeign:
			c.violate(RuleProduced, v.at, v.op.id, "%s: %s; nobody wrote that there", r, v.said(quote(value)))
			return
		case valueRefused:
			c.refusedValue(r, v, value)
			return
		case valueUnknown:
			return
		case valueOpen:
			c.values.wait(r, value, waiting{floors: c.floors(r, v), said: v})
			return
		}
	}
	c.hold(r, rank, c.floors(r, v), v)
	c.learn(r, rank, v)
}

func (c *Checker) refusedValue(r *row, v *verdict, value Text) {
	c.violate(RuleProduced, v.at, v.op.id, "%s: %s; that write was refused", r, v.said(quote(value)))
}

// absent judges "not found".
func (c *Checker) absent(r *row, v *verdict) {
	c.report.checked(RuleAbsence)
	for _, f := range c.floors(r, v) {
		c.report.checked(f.rule)
		if f.rank > 0 {
			c.violate(RuleAbsence, v.at, v.op.id, "%s: %s; %s (%s)", r, v.said("not found"), f.why(), f.rule)
			return
		}
	}
}

// hold checks an answer against what it must have, and an owner's against what it can have.
func (c *Checker) hold(r *row, rank int64, floors []floor, v *verdict) {
	for _, f := range floors {
		c.report.checked(f.rule)
		if rank < f.rank {
			c.violate(f.rule, v.at, v.op.id, "%s: %s; %s", r, v.said(r.show(rank)), f.why())
		}
	}
	if v.op.q.Uncommitted || v.a.Role != active {
		return
	}
	if most, ok := r.most(v.a.Position); ok {
		c.report.checked(RulePosition)
		if rank > most {
			c.violate(RulePosition, v.at, v.op.id, "%s: %s; at position %s it can be %s at most", r, v.said(r.show(rank)),
				showPosition(v.a.Position), r.show(most))
		}
	}
}

// floors are what an answer must have.
func (c *Checker) floors(r *row, v *verdict) []floor {
	q, a := v.op.q, v.a
	var all []floor
	add := func(rule Rule, rank int64, why func() string) {
		if rank > 0 {
			all = append(all, floor{rule, rank, why})
		}
	}
	age := a.Age
	if age < 0 {
		age = q.Bound // without a word about its age it must be within the bound
	}
	if age > 0 || a.Age == 0 {
		if s, ok := r.seen.by(int64(v.op.at-age) - 1); ok { // clocks may be coarse: before, not at
			add(RuleAge, s.rank, func() string {
				return fmt.Sprintf("%s was seen at %s", r.show(s.rank), seconds(time.Duration(s.at)))
			})
		}
	}
	if v.op.known.epoch > 0 && a.Role == active && a.Epoch > v.op.known.epoch {
		k := v.op.known
		add(RuleEpoch, k.rank, func() string { return fmt.Sprintf("an owner at epoch %d had %s", k.epoch, r.show(k.rank)) })
	}
	least := r.least(a.Position)
	add(RulePosition, least, func() string { return fmt.Sprintf("position %s has %s", showPosition(a.Position), r.show(least)) })
	var want *Mark
	if want = q.AtLeast; want != nil {
		rank := r.least(want.Inputs)
		add(RuleAtLeast, rank, func() string {
			return fmt.Sprintf("it was asked for position %s, which has %s", showPosition(want.Inputs), r.show(rank))
		})
		for p, cut := range want.Cuts {
			c.addToken(r, cutID{p, cut.Topic}, int64(cut.Next), add)
		}
	}
	if s := c.sessions.all[q.Session]; v.alone && s != nil {
		rank := s.rows[r]
		add(RuleSession, rank, func() string { return fmt.Sprintf("session %s had seen %s", q.Session, r.show(rank)) })
		for id := range r.cuts {
			if next, ok := s.cuts[id]; ok {
				c.addToken(r, id, next, add)
			}
		}
	}
	return all
}

func (c *Checker) addToken(r *row, id cutID, next int64, add func(Rule, int64, func() string)) {
	known := r.cuts[id]
	if known == nil {
		return
	}
	if s, ok := known.by(next); ok {
		add(RuleToken, s.rank, func() string {
			return fmt.Sprintf("it was asked for changelog %d@%d, and at %d there was %s", id.partition, next, s.at, r.show(s.rank))
		})
	}
}

// learn takes an answer into what is known.
func (c *Checker) learn(r *row, rank int64, v *verdict) {
	q, a := v.op.q, v.a
	if q.Uncommitted {
		return
	}
	r.seen.put(int64(v.at), rank, r.keep)
	if a.Role == active && a.Epoch >= r.owner.epoch {
		if a.Epoch > r.owner.epoch {
			r.owner = sighting{epoch: a.Epoch}
		}
		r.owner.rank = max(r.owner.rank, rank)
	}
	if !q.Scan {
		for p, cut := range a.Cuts {
			id := cutID{p, cut.Topic}
			if r.cuts[id] == nil {
				r.cuts[id] = &stairs{}
			}
			r.cuts[id].put(int64(cut.Next), rank, r.keep)
		}
	}
	if q.Session != "" {
		c.sessions.saw(q.Session, r, rank, v.at)
	}
}

// judgeScan judges every row of a scan, and the absence of every other row of the store.
func (c *Checker) judgeScan(v *verdict) error {
	c.judgeClaims(v)
	c.report.Reads.Rows += int64(len(v.a.Rows))
	there := make(map[*row]struct{}, len(v.a.Rows))
	for _, p := range v.a.Rows {
		r, err := c.rowOf(v.op.q.Store, p.Key)
		if err != nil {
			return err
		}
		if _, twice := there[r]; twice {
			c.violate(RuleProduced, v.at, v.op.id, "%s: %s; it is in the scan twice", r, v.said(quote(p.Value)))
		}
		there[r] = struct{}{}
		c.judge(r, v, &p.Value)
	}
	for _, r := range c.byStore[v.op.q.Store] {
		if _, ok := there[r]; !ok {
			c.judge(r, v, nil)
		}
	}
	c.raise(v)
	return nil
}

// raise notes the token of an answer for the later reads of its session.
func (c *Checker) raise(v *verdict) {
	s := c.sessions.all[v.op.q.Session]
	if v.op.q.Session == "" || s == nil {
		return
	}
	for p, cut := range v.a.Cuts {
		id := cutID{p, cut.Topic}
		s.cuts[id] = max(s.cuts[id], int64(cut.Next))
	}
}
