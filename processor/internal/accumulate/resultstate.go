package accumulate

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"

	"github.com/statemesh/statemesh/processor/internal/decode"
)

// DecodeResult makes a state of what [Plan.AppendResult] wrote, for a plan of which that is the whole state ([Plan.ResultIsState]). Records
// can be added to it, and not be taken out. It reads that form only, not JSON in general. An error is a [*StateError], or [ErrResult].
func (p *Plan) DecodeResult(b []byte) (*State, error) {
	s := p.New()
	if err := s.DecodeResult(b); err != nil {
		return nil, err
	}
	return s, nil
}

// DecodeResult is [Plan.DecodeResult] into a state that is used again: what was in it is gone, also when there is an error.
func (s *State) DecodeResult(b []byte) error {
	s.reset()
	if !s.plan.ownResult {
		return ErrResult
	}
	r := &reader{left: b}
	column := r.result(s)
	if r.bad == "" && len(r.left) > 0 {
		r.fail("bytes after the end")
	}
	if r.bad == "" {
		s.fromResult = true
		return nil
	}
	s.reset()
	return &StateError{Column: column, Reason: r.bad}
}

// result reads into s and returns the name of the column it came to.
func (r *reader) result(s *State) (column string) {
	if r.byte() != '{' {
		r.fail("no object")
	}
	s.rows = 1
	first := true
	for i := range s.cells {
		c, x := &s.plan.columns[i], &s.cells[i]
		if !r.member(c.member, &first) {
			if c.fn == fnCount {
				r.fail("no count")
				return c.name
			}
			continue
		}
		v := r.jsonValue(c.result())
		switch {
		case c.kind == 0:
			s.rows = v.n
		case c.fn == fnCount:
			x.n = v.n
		default:
			x.n, x.value = 1, v
		}
		if c.fn == fnCount && v.n < 0 {
			r.fail("a count below 0")
		}
		if r.bad != "" {
			return c.name
		}
	}
	if r.byte() != '}' {
		r.fail("no end of the object")
	}
	for i := range s.cells {
		switch {
		case s.cells[i].n <= s.rows:
		case s.plan.countsRecords:
			r.fail("more values than records")
		default:
			s.rows = s.cells[i].n
		}
	}
	return ""
}

// member goes over the name of a column, with the comma before all but the first; false leaves what is there.
func (r *reader) member(name []byte, first *bool) bool {
	b := r.left
	if !*first {
		if len(b) == 0 || b[0] != ',' {
			return false
		}
		b = b[1:]
	}
	if !bytes.HasPrefix(b, name) {
		return false
	}
	r.left = b[len(name):]
	*first = false
	return true
}

// jsonValue reads a value of the form that appendJSON writes.
func (r *reader) jsonValue(k kind) value {
	switch k {
	case kindInt:
		n, err := strconv.ParseInt(string(r.number()), 10, 64)
		if err != nil {
			r.fail("no whole number")
		}
		return value{n: n}
	case kindDouble:
		f, err := decode.ParseNumber(r.number())
		if err != nil {
			r.fail("no number")
		}
		return value{f: f}
	case kindTimestamp:
		t, err := time.Parse(time.RFC3339Nano, r.text())
		if err != nil {
			r.fail("no instant")
		}
		return valueOf(t)
	case kindDuration:
		d, err := time.ParseDuration(r.text())
		if err != nil {
			r.fail("no duration")
		}
		return value{n: int64(d)}
	default: // min and max take nothing else
		return value{text: r.text()}
	}
}

// peek returns the byte that is next, 0 for none.
func (r *reader) peek() byte {
	if len(r.left) == 0 {
		return 0
	}
	return r.left[0]
}

// number goes over a number and returns it.
func (r *reader) number() []byte {
	n := bytes.IndexAny(r.left, ",}")
	if n < 0 {
		n = len(r.left)
	}
	return r.take(n)
}

// text goes over a string and returns what it stands for.
func (r *reader) text() string {
	if r.peek() != '"' {
		r.fail("no string")
		return ""
	}
	for i := 1; i < len(r.left); i++ {
		switch r.left[i] {
		case '\\':
			i++
		case '"':
			return r.unquote(r.take(i + 1))
		}
	}
	r.fail("no string")
	return ""
}

// unquote returns what a string in quotes stands for.
func (r *reader) unquote(quoted []byte) string {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1])
	}
	var s string
	if err := json.Unmarshal(quoted, &s); err != nil {
		r.fail("no string")
	}
	return s
}
