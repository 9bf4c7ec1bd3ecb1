package flights

import "iter"

// Answers are the right contents of the views in mesh.yaml, computed without any of the machinery they test.
type Answers struct {
	// Rows is how many flights went in.
	Rows int
	// ByDest and ByCarrier count flights.
	ByDest, ByCarrier map[string]int64
	// DelayByCarrier is about the flights that departed.
	DelayByCarrier map[string]Delays
	// LatestByTailnum has, for each aircraft, the flight with the greatest event time, of equal ones the later row.
	// Flights without an aircraft are not in it.
	LatestByTailnum map[string]Row
}

// Delays are the delays of departure of an airline, in minutes.
type Delays struct{ Count, Sum, Min, Max int64 }

// Mean is the average delay in minutes.
func (d Delays) Mean() float64 { return float64(d.Sum) / float64(d.Count) }

// Compute reads rows once and returns the answers for them; the first error ends it.
func Compute(rows iter.Seq2[Row, error]) (*Answers, error) {
	a := &Answers{
		ByDest:          make(map[string]int64),
		ByCarrier:       make(map[string]int64),
		DelayByCarrier:  make(map[string]Delays),
		LatestByTailnum: make(map[string]Row),
	}
	for r, err := range rows {
		if err != nil {
			return nil, err
		}
		a.Rows++
		a.ByDest[r.Dest]++
		a.ByCarrier[r.Carrier]++
		minutes, departed, err := r.Delay()
		if err != nil {
			return nil, err
		}
		if departed {
			d, ok := a.DelayByCarrier[r.Carrier]
			if !ok {
				d.Min, d.Max = minutes, minutes
			}
			d.Count++
			d.Sum += minutes
			d.Min, d.Max = min(d.Min, minutes), max(d.Max, minutes)
			a.DelayByCarrier[r.Carrier] = d
		}
		if last, ok := a.LatestByTailnum[r.Tailnum]; r.Tailnum != "" && (!ok || r.EventTime >= last.EventTime) {
			a.LatestByTailnum[r.Tailnum] = r
		}
	}
	return a, nil
}
