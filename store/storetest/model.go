package storetest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/statemesh/statemesh/store"
)

// Machine is a task's state under the model test. Its stores hold plain strings; it is the adapter's matter how.
type Machine interface {
	// Stores are the writers of the task, by name. They are asked for anew after Crash and Reopen.
	Stores() map[store.Name]store.KeyValue
	// Commit publishes the overlay as commit n.
	Commit(n int)
	Rollback()
	// Move makes what is committed durable.
	Move()
	// Snapshot opens readers of the last commit; the machine closes them when done is called.
	Snapshot() (readers map[store.Name]store.KeyValueReader, n int, done func())
	// Restart ends the task in the way given and opens it again. It returns the number of the commit that is there, 0 for
	// none, and the stores that are empty because they do not outlive what happened.
	Restart(end End) (n int, lost []store.Name)
}

// End is how a task ends.
type End int

// The ways to end.
const (
	EndClose End = iota // the task is closed and opened
	EndStop             // all stores are closed and opened
	EndKill             // the process is killed: what a copy of its files holds is there
	EndWipe             // the task is wiped
)

// contents are the stores of one commit.
type contents map[store.Name]map[string]string

func (c contents) clone() contents {
	out := make(contents, len(c))
	for name, m := range c {
		out[name] = maps.Clone(m)
	}
	return out
}

// Model runs a random history on a machine and on maps, and compares: the overlay after each step, old snapshots to
// their end, and after each restart the commit that the machine says is there.
func Model(t *testing.T, rng *rand.Rand, m Machine, steps int) {
	t.Helper()
	names := slices.Sorted(maps.Keys(m.Stores()))
	empty := make(contents)
	for _, n := range names {
		empty[n] = map[string]string{}
	}
	history := map[int]contents{0: empty.clone()}
	running, last, moved := empty.clone(), 0, 0
	type held struct {
		readers map[store.Name]store.KeyValueReader
		n       int
		done    func()
	}
	var open []held
	release := func(i int) {
		open[i].done()
		open = slices.Delete(open, i, i+1)
	}
	defer func() {
		for len(open) > 0 {
			release(0)
		}
	}()
	for step := range steps {
		name := names[rng.IntN(len(names))]
		kv := m.Stores()[name]
		switch n := rng.IntN(1000); {
		case n < 600: // write
			key := modelKey(rng)
			if rng.IntN(4) == 0 {
				delete(running[name], key)
				if err := kv.Put([]byte(key), store.Value{Timestamp: 5}); err != nil {
					t.Fatalf("step %d: %v", step, err)
				}
				break
			}
			running[name][key] = fmt.Sprint(step, strings.Repeat("x", rng.IntN(40)))
			put(t, kv, key, running[name][key])
		case n < 750: // read as the writer
			key := modelKey(rng)
			v, err := kv.Get([]byte(key))
			if want, ok := running[name][key]; ok != (err == nil) || ok && want != string(v.Data) {
				t.Fatalf("step %d: writer reads %s %q as %q, %v; want %q, %t", step, name, key, v.Data, err, want, ok)
			}
		case n < 770:
			compareScan(t, fmt.Sprint("step ", step, ": writer of ", name), rng, running[name], kv.Scan)
		case n < 860:
			last++
			history[last] = running.clone()
			m.Commit(last)
		case n < 890:
			m.Rollback()
			running = history[last].clone()
		case n < 920:
			m.Move()
			moved = last
		case n < 960 && last > 0:
			if len(open) > 4 {
				release(rng.IntN(len(open)))
			}
			readers, n, done := m.Snapshot()
			if n != last {
				t.Fatalf("step %d: snapshot of commit %d, want %d", step, n, last)
			}
			open = append(open, held{readers, n, done})
		case n < 990 && len(open) > 0:
			h := open[rng.IntN(len(open))]
			r, want := h.readers[name], history[h.n][name]
			key := modelKey(rng)
			v, err := r.Get(t.Context(), []byte(key))
			if w, ok := want[key]; ok != (err == nil) || ok && w != string(v.Data) {
				t.Fatalf("step %d: reader of commit %d reads %s %q as %q, %v; want %q, %t", step, h.n, name, key, v.Data, err, w, ok)
			}
			compareScan(t, fmt.Sprintf("step %d: reader of %s at commit %d", step, name, h.n), rng, want,
				func(sc store.Scan) (store.Iterator, error) { return r.Scan(t.Context(), sc) })
		case n >= 990:
			end := End(rng.IntN(4))
			if end != EndClose && end != EndWipe {
				for len(open) > 0 {
					release(0)
				}
			}
			n, lost := m.Restart(end)
			least := moved
			switch end {
			case EndClose, EndStop:
				least = last
			case EndWipe:
				least = 0
			case EndKill: // what had moved
			}
			if len(lost) == len(names) {
				least = 0
			}
			if n < least || n > last || end == EndWipe && n != 0 {
				t.Fatalf("step %d: after end %d commit %d is there; %d were made, %d durable", step, end, n, last, least)
			}
			if had, ok := history[n]; ok {
				running = had.clone()
			} else if n != 0 {
				t.Fatalf("step %d: after end %d commit %d is there, from before an earlier end", step, end, n)
			} else {
				running = empty.clone()
			}
			for _, name := range lost {
				running[name] = map[string]string{}
			}
			// The next commit's history begins at what is there now.
			history = map[int]contents{n: running.clone()}
			if end == EndClose || end == EndWipe { // readers keep what they pinned
				for len(open) > 0 {
					release(0)
				}
			}
			last, moved = n, n
			for _, name := range names {
				compareScan(t, fmt.Sprintf("step %d: %s after end %d", step, name, end), rng, running[name], m.Stores()[name].Scan)
			}
		}
	}
}

// modelKey draws from few keys, so that they are written often, with bytes that test the order.
func modelKey(rng *rand.Rand) string {
	key := make([]byte, 1+rng.IntN(3))
	for i := range key {
		key[i] = []byte{0, 'a', 'b', 0xff}[rng.IntN(4)]
	}
	return string(key)
}

// compareScan compares a random scan with the map.
func compareScan(t *testing.T, what string, rng *rand.Rand, want map[string]string, scan scanner) {
	t.Helper()
	var sc store.Scan
	switch rng.IntN(4) {
	case 0:
		sc.Prefix = []byte(modelKey(rng))
	case 1:
		sc.From, sc.To = []byte(modelKey(rng)), []byte(modelKey(rng))
	case 2:
		sc.After = []byte(modelKey(rng))
	}
	sc.Reverse = rng.IntN(2) == 0
	keys := []string{}
	for k := range want {
		switch {
		case sc.Prefix != nil && !strings.HasPrefix(k, string(sc.Prefix)):
		case sc.From != nil && (k < string(sc.From) || k > string(sc.To)):
		case sc.After != nil && !sc.Reverse && k <= string(sc.After):
		case sc.After != nil && sc.Reverse && k >= string(sc.After):
		default:
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	if sc.Reverse {
		slices.Reverse(keys)
	}
	expect := []string{}
	for _, k := range keys {
		expect = append(expect, k+"="+want[k])
	}
	if d := cmp.Diff(expect, rows(t, scan, sc)); d != "" {
		t.Fatalf("%s: scan %+v (-want +got)\n%s", what, sc, d)
	}
}
