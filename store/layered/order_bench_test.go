package layered

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"

	"github.com/tidwall/btree"

	"github.com/statemesh/statemesh/store"
)

// The trial behind the choice of structure for stores with segments, in store/DESIGN.md.

// ordered is a candidate for the recent rows of stores whose writer scans at every record.
type ordered interface {
	put(row, value []byte)
	commit()
	// scan reads up to three rows from a row on, as the writer sees them.
	scan(from []byte) int
}

// resorted sorts what is new when a scan asks, and merges it into what was sorted before.
type resorted struct {
	rows   map[string][]byte
	sorted []string
	fresh  []string
}

func (r *resorted) put(row, value []byte) {
	if _, ok := r.rows[string(row)]; !ok {
		r.fresh = append(r.fresh, string(row))
	}
	r.rows[string(row)] = bytes.Clone(value)
}

func (r *resorted) commit() {}

func (r *resorted) scan(from []byte) (n int) {
	if len(r.fresh) > 0 {
		slices.Sort(r.fresh)
		out := make([]string, 0, len(r.sorted)+len(r.fresh))
		old, fresh := r.sorted, r.fresh
		for len(old) > 0 && len(fresh) > 0 {
			if old[0] < fresh[0] {
				out, old = append(out, old[0]), old[1:]
			} else {
				out, fresh = append(out, fresh[0]), fresh[1:]
			}
		}
		r.sorted, r.fresh = append(append(out, old...), fresh...), r.fresh[:0]
	}
	i, _ := slices.BinarySearch(r.sorted, string(from))
	for _, k := range r.sorted[i:min(i+3, len(r.sorted))] {
		n += len(r.rows[k])
	}
	return n
}

// copied is a B-tree whose copy is published at each commit.
type copied struct{ running, published *btree.Map[string, []byte] }

func (c *copied) put(row, value []byte) { c.running.Set(string(row), bytes.Clone(value)) }
func (c *copied) commit()               { c.published = c.running.Copy() }
func (c *copied) scan(from []byte) (n int) {
	left := 3
	c.running.Ascend(string(from), func(_ string, v []byte) bool {
		n += len(v)
		left--
		return left > 0
	})
	return n
}

// skipped is a skip list beside a map, as the table has it.
type skipped struct {
	order *order
	rows  map[string]*entry
}

func (s *skipped) put(row, value []byte) {
	e := s.rows[string(row)]
	if e == nil {
		e = &entry{key: bytes.Clone(row)}
		s.rows[string(row)] = e
		s.order.insert(e)
	}
	e.head.Store(&version{data: bytes.Clone(value), live: true})
}

func (s *skipped) commit() {}

func (s *skipped) scan(from []byte) (n int) {
	at := s.order.from(from)
	for i := 0; i < 3 && at != nil; i++ {
		n += len(at.entry.head.Load().data)
		at = at.next[0].Load()
	}
	return n
}

// BenchmarkOrdered is the loop of a session aggregation without what is around it: at each record a scan of three rows
// and a new row; a commit every 5,000 records; a new structure every 200,000, as after a move.
func BenchmarkOrdered(b *testing.B) {
	const keys, rows = 10_000, 200_000
	for name, begin := range map[string]func() ordered{
		"sorted when asked": func() ordered { return &resorted{rows: map[string][]byte{}} },
		"btree":             func() ordered { return &copied{new(btree.Map[string, []byte]), nil} },
		"skip list":         func() ordered { return &skipped{newOrder(), map[string]*entry{}} },
	} {
		b.Run(name, func(b *testing.B) {
			o, rng, n := begin(), rand.New(rand.NewPCG(1, 2)), 0
			key, row := []byte{}, []byte{}
			b.ReportAllocs()
			var used, end syscall.Rusage
			if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				key = fmt.Appendf(key[:0], "user-%011d", rng.IntN(keys))
				row = store.AppendSessionKey(row[:0], key, int64(n), int64(n))
				o.scan(row)
				o.put(row, key)
				if n++; n%5000 == 0 {
					o.commit()
				}
				if n%rows == 0 {
					o = begin()
				}
			}
			if err := syscall.Getrusage(syscall.RUSAGE_SELF, &end); err != nil {
				b.Fatal(err)
			}
			cpu := float64(end.Utime.Nano()+end.Stime.Nano()-used.Utime.Nano()-used.Stime.Nano()) / 1e9
			b.ReportMetric(float64(n)/cpu, "records/cpu-s")
		})
	}
}
