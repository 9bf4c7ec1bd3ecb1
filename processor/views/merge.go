package views

import (
	"encoding/binary"
	"math"

	"github.com/statemesh/statemesh/store"
)

// merge returns the value of two sessions that became one. It does not keep the slices, and what it returns is its own
// until the next call.
type merge func(a, b []byte) ([]byte, error)

func newMerge(t Type) merge {
	switch t {
	case Count:
		return mergeNumbers(func(a, b uint64) (uint64, error) { return a + b, nil })
	case Avg:
		return mergeStats(parseAvg, Statistics.appendAvg)
	case StatsOf:
		return mergeStats(parseStats, Statistics.appendStats)
	default:
		f := folding(t)
		return mergeNumbers(func(a, b uint64) (uint64, error) {
			x := f(math.Float64frombits(a), math.Float64frombits(b))
			if math.IsInf(x, 0) {
				return 0, errOverflow
			}
			return math.Float64bits(x), nil
		})
	}
}

func mergeNumbers(f func(a, b uint64) (uint64, error)) merge {
	var buf [8]byte
	return func(a, b []byte) ([]byte, error) {
		x, err := stored(store.Value{Data: a})
		if err != nil {
			return nil, err
		}
		y, err := stored(store.Value{Data: b})
		if err != nil {
			return nil, err
		}
		sum, err := f(x, y)
		if err != nil {
			return nil, err
		}
		binary.BigEndian.PutUint64(buf[:], sum)
		return buf[:], nil
	}
}

func mergeStats(parse func([]byte) (Statistics, error), form func(Statistics, []byte) []byte) merge {
	var buf []byte
	return func(a, b []byte) ([]byte, error) {
		x, err := parse(a)
		if err != nil {
			return nil, err
		}
		y, err := parse(b)
		if err != nil {
			return nil, err
		}
		sum, ok := x.plus(y)
		if !ok {
			return nil, errOverflow
		}
		buf = form(sum, buf[:0])
		return buf, nil
	}
}
