package views

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
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

// appendStats appends the JSON form, and only it: always these members, in this order, in the shortest form.
func (s Statistics) appendStats(b []byte) []byte {
	b = s.appendHead(b)
	b = appendNumber(append(b, `,"min":`...), s.Min)
	b = appendNumber(append(b, `,"max":`...), s.Max)
	b = appendNumber(append(b, `,"avg":`...), s.Avg)
	return append(b, '}')
}

// appendAvg appends the JSON form without smallest and greatest.
func (s Statistics) appendAvg(b []byte) []byte {
	b = s.appendHead(b)
	b = appendNumber(append(b, `,"avg":`...), s.Avg)
	return append(b, '}')
}

func (s Statistics) appendHead(b []byte) []byte {
	b = strconv.AppendInt(append(b, `{"count":`...), s.Count, 10)
	return appendNumber(append(b, `,"sum":`...), s.Sum)
}

// parseStats reads what appendStats wrote, parseAvg what appendAvg wrote. They are the state of the view, read and
// written for each record, so they take exactly that form.
func parseStats(b []byte) (s Statistics, err error) {
	if s, b, err = parseHead(b); err != nil {
		return Statistics{}, err
	}
	for _, m := range []struct {
		name string
		to   *float64
	}{{`,"min":`, &s.Min}, {`,"max":`, &s.Max}, {`,"avg":`, &s.Avg}} {
		if *m.to, b, err = parseMember(b, m.name); err != nil {
			return Statistics{}, err
		}
	}
	return s, parseEnd(b)
}

func parseAvg(b []byte) (s Statistics, err error) {
	if s, b, err = parseHead(b); err != nil {
		return Statistics{}, err
	}
	if s.Avg, b, err = parseMember(b, `,"avg":`); err != nil {
		return Statistics{}, err
	}
	return s, parseEnd(b)
}

func parseHead(b []byte) (s Statistics, rest []byte, err error) {
	count, rest, err := parseMember(b, `{"count":`)
	if err != nil {
		return s, nil, err
	}
	s.Count = int64(count)
	if float64(s.Count) != count || s.Count < 1 {
		return s, nil, fmt.Errorf("stored statistics: count %g is no number of records", count)
	}
	s.Sum, rest, err = parseMember(rest, `,"sum":`)
	return s, rest, err
}

func parseMember(b []byte, name string) (x float64, rest []byte, err error) {
	rest, ok := bytes.CutPrefix(b, []byte(name))
	if !ok {
		return 0, nil, fmt.Errorf("stored statistics: no member %s", name)
	}
	end := bytes.IndexAny(rest, ",}")
	if end < 0 {
		return 0, nil, fmt.Errorf("stored statistics: no end after %s", name)
	}
	if x, err = parseNumber(rest[:end]); err != nil {
		// Not wrapped: it is the state that cannot be read, not the record.
		return 0, nil, fmt.Errorf("stored statistics: %s is followed by no number", name)
	}
	return x, rest[end:], nil
}

func parseEnd(b []byte) error {
	if string(b) != "}" {
		return fmt.Errorf("stored statistics: %d bytes after the last member", len(b))
	}
	return nil
}
