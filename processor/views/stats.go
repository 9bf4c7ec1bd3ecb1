package views

import (
	"fmt"
	"math"
	"strconv"

	"github.com/statemesh/statemesh/processor/internal/decode"
)

// Statistics is the value of a view of type stats; one of type avg lacks Min and Max. It reads with encoding/json.
type Statistics struct {
	Count int64   `json:"count"`
	Sum   float64 `json:"sum"`
	Min   float64 `json:"min"`
	Max   float64 `json:"max"`
	Avg   float64 `json:"avg"`
}

// add returns s with one more number; ok is false when the sum would leave the range of float64.
func (s Statistics) add(x float64) (sum Statistics, ok bool) {
	if s.Count == 0 {
		s.Min, s.Max = x, x
	}
	s.Count++
	s.Sum += x
	s.Min, s.Max = min(s.Min, x), max(s.Max, x)
	s.Avg = s.Sum / float64(s.Count)
	return s, !math.IsInf(s.Sum, 0)
}

// plus returns the statistics of both; ok is false when the sum would leave the range of float64.
func (s Statistics) plus(o Statistics) (sum Statistics, ok bool) {
	s.Min, s.Max = min(s.Min, o.Min), max(s.Max, o.Max)
	s.Count += o.Count
	s.Sum += o.Sum
	s.Avg = s.Sum / float64(s.Count)
	return s, !math.IsInf(s.Sum, 0)
}

// appendStats appends the JSON form, and only it: always these members, in this order, in the shortest form.
func (s Statistics) appendStats(b []byte) []byte {
	b = s.appendHead(b)
	b = decode.AppendNumber(append(b, `,"min":`...), s.Min)
	b = decode.AppendNumber(append(b, `,"max":`...), s.Max)
	b = decode.AppendNumber(append(b, `,"avg":`...), s.Avg)
	return append(b, '}')
}

// appendAvg appends the JSON form without smallest and greatest.
func (s Statistics) appendAvg(b []byte) []byte {
	b = s.appendHead(b)
	b = decode.AppendNumber(append(b, `,"avg":`...), s.Avg)
	return append(b, '}')
}

func (s Statistics) appendHead(b []byte) []byte {
	b = strconv.AppendInt(append(b, `{"count":`...), s.Count, 10)
	return decode.AppendNumber(append(b, `,"sum":`...), s.Sum)
}

// parseStats reads what appendStats wrote, parseAvg what appendAvg wrote. They are the state of the view, read and
// written for each record, so they take exactly that form.
func parseStats(b []byte) (Statistics, error) {
	p := statsParser{rest: b}
	s := p.head()
	s.Min = p.number(`,"min":`)
	s.Max = p.number(`,"max":`)
	s.Avg = p.number(`,"avg":`)
	return s, p.end()
}

func parseAvg(b []byte) (Statistics, error) {
	p := statsParser{rest: b}
	s := p.head()
	s.Avg = p.number(`,"avg":`)
	return s, p.end()
}

// statsParser reads the members one after the other and keeps the first error.
type statsParser struct {
	rest []byte
	err  error
}

func (p *statsParser) head() (s Statistics) {
	count := p.number(`{"count":`)
	if s.Count = int64(count); p.err == nil && (float64(s.Count) != count || s.Count < 1) {
		p.err = fmt.Errorf("stored statistics: count %g is no number of records", count)
	}
	s.Sum = p.number(`,"sum":`)
	return s
}

// number reads the member that begins with name.
func (p *statsParser) number(name string) float64 {
	if p.err != nil {
		return 0
	}
	if len(p.rest) < len(name) || string(p.rest[:len(name)]) != name {
		p.err = fmt.Errorf("stored statistics: no member %s", name)
		return 0
	}
	text := p.rest[len(name):]
	end := 0
	for end < len(text) && text[end] != ',' && text[end] != '}' {
		end++
	}
	x, err := decode.ParseNumber(text[:end])
	if err != nil {
		// Not wrapped: it is the state that cannot be read, not the record.
		p.err = fmt.Errorf("stored statistics: %s is followed by no number", name)
	}
	p.rest = text[end:]
	return x
}

func (p *statsParser) end() error {
	if p.err == nil && string(p.rest) != "}" {
		p.err = fmt.Errorf("stored statistics: %d bytes after the last member", len(p.rest))
	}
	return p.err
}
