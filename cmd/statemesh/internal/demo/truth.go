package demo

import (
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/statemesh/statemesh/examples/flights"
	"github.com/statemesh/statemesh/serde"
)

// view is one view with what it must hold.
type view struct {
	name string
	keys []string // sorted
	// check compares the value of a key with the truth; "" when it is right.
	check func(key string, value []byte) string
}

// absent is a key that no view has: it must be told absent, and nothing else.
const absent = "no such key"

// truths turns the answers of a plain pass into what each view must hold.
func truths(a *flights.Answers) []view {
	return []view{
		counts(flights.ViewByDest, a.ByDest),
		counts(flights.ViewByCarrier, a.ByCarrier),
		delays(flights.ViewDelayByCarrier, a.DelayByCarrier),
		latest(flights.ViewLatestByTailnum, a.LatestByTailnum),
	}
}

func counts(name string, want map[string]int64) view {
	return view{name, slices.Sorted(maps.Keys(want)), func(key string, value []byte) string {
		got, err := serde.Int64().Decode(value)
		if err != nil {
			return err.Error()
		}
		if got == want[key] {
			return ""
		}
		return differ(got, want[key])
	}}
}

// delayStats is the value of a view of type stats.
type delayStats struct {
	Count int64   `json:"count"`
	Sum   float64 `json:"sum"`
	Min   float64 `json:"min"`
	Max   float64 `json:"max"`
	Avg   float64 `json:"avg"`
}

func delays(name string, want map[string]flights.Delays) view {
	return view{name, slices.Sorted(maps.Keys(want)), func(key string, value []byte) string {
		var got delayStats
		if err := json.Unmarshal(value, &got); err != nil {
			return err.Error()
		}
		d := want[key]
		w := delayStats{d.Count, float64(d.Sum), float64(d.Min), float64(d.Max), d.Mean()}
		if got == w {
			return ""
		}
		return differ(got, w)
	}}
}

func latest(name string, want map[string]flights.Row) view {
	return view{name, slices.Sorted(maps.Keys(want)), func(key string, value []byte) string {
		var got map[string]string
		if err := json.Unmarshal(value, &got); err != nil {
			return err.Error()
		}
		row := want[key]
		w := row.Object()
		if maps.Equal(got, w) {
			return ""
		}
		return differ(got, w)
	}}
}

func differ(got, want any) string { return fmt.Sprintf("got %+v, want %+v", got, want) }

// first yields the first n rows.
func first(rows iter.Seq2[flights.Row, error], n int) iter.Seq2[flights.Row, error] {
	return func(yield func(flights.Row, error) bool) {
		for r, err := range rows {
			if err == nil && r.Number > n || !yield(r, err) {
				return
			}
		}
	}
}

// after yields the rows behind the first n, up to the last.
func after(rows iter.Seq2[flights.Row, error], n, last int) iter.Seq2[flights.Row, error] {
	return func(yield func(flights.Row, error) bool) {
		for r, err := range first(rows, last) {
			if err == nil && r.Number <= n {
				continue
			}
			if !yield(r, err) {
				return
			}
		}
	}
}
