package group

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/statemesh/statemesh/store"
)

// Errors of the codec.
var (
	// ErrMalformed reports bytes that no version of this package wrote.
	ErrMalformed = errors.New("group: malformed user data")
	// ErrNewer reports user data that this version must not read.
	ErrNewer = errors.New("group: user data of a newer version")
)

// Limits on what is believed of a peer. They bound the memory that a hostile payload can ask for.
const (
	maxText  = 1 << 10 // bytes of one string
	maxTexts = 1 << 12 // strings in one list
	maxTasks = 1 << 17 // tasks in one set
)

// writer appends the primitives of the format. Numbers are unsigned varints, strings have their length before them, a
// set of tasks is runs of partitions by sub-topology.
type writer struct{ b []byte }

func (w *writer) number(v uint64) { w.b = binary.AppendUvarint(w.b, v) }

func (w *writer) text(s string) {
	s = s[:min(len(s), maxText)]
	w.number(uint64(len(s)))
	w.b = append(w.b, s...)
}

func (w *writer) texts(list []string) {
	list = list[:min(len(list), maxTexts)]
	w.number(uint64(len(list)))
	for _, s := range list {
		w.text(s)
	}
}

// groups writes the sub-topologies of sorted ids, each followed by what members writes for it.
func (w *writer) groups(ids []store.TaskID, members func(from, to int)) {
	n := 0
	for i := range ids {
		if i == 0 || ids[i].Subtopology != ids[i-1].Subtopology {
			n++
		}
	}
	w.number(uint64(n))
	last := int32(0)
	for from := 0; from < len(ids); {
		to := from + 1
		for to < len(ids) && ids[to].Subtopology == ids[from].Subtopology {
			to++
		}
		w.number(uint64(ids[from].Subtopology - last))
		last = ids[from].Subtopology
		members(from, to)
		from = to
	}
}

// tasks writes a set. Negative numbers are no tasks and are left out.
func (w *writer) tasks(set []store.TaskID) {
	ids := tidy(set)
	w.groups(ids, func(from, to int) {
		var runs [][2]int64 // start, length
		for _, id := range ids[from:to] {
			p := int64(id.Partition)
			if k := len(runs) - 1; k >= 0 && runs[k][0]+runs[k][1] == p {
				runs[k][1]++
			} else {
				runs = append(runs, [2]int64{p, 1})
			}
		}
		w.number(uint64(len(runs)))
		end := int64(0)
		for _, r := range runs {
			w.number(uint64(r[0] - end))
			w.number(uint64(r[1] - 1))
			end = r[0] + r[1]
		}
	})
}

// tidy returns the valid tasks of a set, sorted, each once.
func tidy(set []store.TaskID) []store.TaskID {
	ids := make([]store.TaskID, 0, len(set))
	for _, id := range set {
		if id.Subtopology >= 0 && id.Partition >= 0 {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, store.TaskID.Compare)
	ids = slices.Compact(ids)
	return ids[:min(len(ids), maxTasks)]
}

// reader takes the primitives off. After the first error every method returns zero values.
type reader struct {
	b       []byte
	version int  // that wrote it
	newer   bool // a later one
	err     error
}

func (r *reader) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s, %d bytes before the end", ErrMalformed, what, len(r.b))
	}
	r.b = nil
}

func (r *reader) number() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail("number")
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) int64() int64 {
	v := r.number()
	if v > math.MaxInt64 {
		r.fail("number above 63 bits")
		return 0
	}
	return int64(v)
}

// small reads a number up to limit.
func (r *reader) small(limit int, what string) int {
	v := r.number()
	if v > uint64(limit) {
		r.fail(what)
		return 0
	}
	return int(v)
}

// count reads the length of a list whose elements take at least one byte each.
func (r *reader) count(limit int, what string) int {
	n := r.small(limit, what)
	if n > len(r.b) {
		r.fail(what)
		return 0
	}
	return n
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.fail("byte")
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *reader) fixed64() uint64 {
	if len(r.b) < 8 {
		r.fail("64 bits")
		return 0
	}
	v := binary.BigEndian.Uint64(r.b)
	r.b = r.b[8:]
	return v
}

func (r *reader) text() string {
	n := r.count(maxText, "text")
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

func (r *reader) texts() []string {
	n := r.count(maxTexts, "texts")
	if n == 0 {
		return nil
	}
	list := make([]string, 0, n)
	for range n {
		list = append(list, r.text())
	}
	return list
}

// groups reads sub-topologies; members reads what follows each.
func (r *reader) groups(members func(subtopology int32)) {
	n := r.count(maxTasks, "sub-topologies")
	last := int64(0)
	for i := range n {
		gap := r.int64()
		if gap > math.MaxInt32-last || i > 0 && gap == 0 {
			r.fail("sub-topology")
		}
		if r.err != nil {
			return
		}
		last += gap
		members(int32(last))
	}
}

func (r *reader) tasks() []store.TaskID {
	var set []store.TaskID
	r.groups(func(sub int32) {
		runs := r.count(maxTasks, "runs")
		end := int64(0)
		for range runs {
			gap, length := r.int64(), r.int64()
			if gap > math.MaxInt32 || length > math.MaxInt32 || end+gap+length > math.MaxInt32 || int64(len(set))+length >= maxTasks {
				r.fail("partitions")
			}
			if r.err != nil {
				return
			}
			start := end + gap
			end = start + length + 1
			for p := start; p < end; p++ {
				set = append(set, store.TaskID{Subtopology: sub, Partition: store.Partition(p)})
			}
		}
	})
	if r.err != nil {
		return nil
	}
	return set
}
