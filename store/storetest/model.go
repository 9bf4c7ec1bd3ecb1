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
	r := &run{t: t, rng: rng, m: m, names: slices.Sorted(maps.Keys(m.Stores()))}
	r.running = r.empty()
	r.history = map[int]contents{0: r.empty()}
	defer r.releaseAll()
	for r.step = range steps {
		r.random()
	}
}

// run is a history in the making.
type run struct {
	t     *testing.T
	rng   *rand.Rand
	m     Machine
	names []store.Name
	step  int

	running     contents         // what the writer sees
	history     map[int]contents // by commit, since the last restart
	last, moved int              // newest commit, newest durable one
	open        []heldSnapshot
}

// heldSnapshot is a snapshot that is kept open, of commit n.
type heldSnapshot struct {
	readers map[store.Name]store.KeyValueReader
	n       int
	done    func()
}

// random does one thing.
func (r *run) random() {
	name := r.names[r.rng.IntN(len(r.names))]
	switch n := r.rng.IntN(1000); {
	case n < 600:
		r.write(name)
	case n < 750:
		key := modelKey(r.rng)
		v, err := r.m.Stores()[name].Get([]byte(key))
		r.compare("writer", name, key, r.running[name], v, err)
	case n < 770:
		compareScan(r.t, fmt.Sprintf("step %d: writer of %s", r.step, name), r.rng, r.running[name], r.m.Stores()[name].Scan)
	case n < 860:
		r.last++
		r.history[r.last] = r.running.clone()
		r.m.Commit(r.last)
	case n < 890:
		r.m.Rollback()
		r.running = r.history[r.last].clone()
	case n < 920:
		r.m.Move()
		r.moved = r.last
	case n < 960:
		r.pin()
	case n < 990:
		r.look(name)
	default:
		r.restart()
	}
}

func (r *run) write(name store.Name) {
	kv, key := r.m.Stores()[name], modelKey(r.rng)
	if r.rng.IntN(4) == 0 {
		delete(r.running[name], key)
		if err := kv.Put([]byte(key), store.Value{Timestamp: 5}); err != nil {
			r.t.Fatalf("step %d: %v", r.step, err)
		}
		return
	}
	r.running[name][key] = fmt.Sprint(r.step, strings.Repeat("x", r.rng.IntN(40)))
	put(r.t, kv, key, r.running[name][key])
}

// compare compares a point read.
func (r *run) compare(who string, name store.Name, key string, want map[string]string, v store.Value, err error) {
	r.t.Helper()
	if w, ok := want[key]; ok != (err == nil) || ok && w != string(v.Data) {
		r.t.Fatalf("step %d: %s reads %s %q as %q, %v; want %q, %t", r.step, who, name, key, v.Data, err, w, ok)
	}
}

// pin opens a snapshot and keeps it.
func (r *run) pin() {
	if r.last == 0 {
		return
	}
	if len(r.open) > 4 {
		i := r.rng.IntN(len(r.open))
		r.open[i].done()
		r.open = slices.Delete(r.open, i, i+1)
	}
	readers, n, done := r.m.Snapshot()
	r.open = append(r.open, heldSnapshot{readers, n, done})
	if n != r.last {
		r.t.Fatalf("step %d: snapshot of commit %d, want %d", r.step, n, r.last)
	}
}

// look reads in one of the snapshots that are kept.
func (r *run) look(name store.Name) {
	if len(r.open) == 0 {
		return
	}
	h := r.open[r.rng.IntN(len(r.open))]
	reader, want := h.readers[name], r.history[h.n][name]
	key := modelKey(r.rng)
	v, err := reader.Get(r.t.Context(), []byte(key))
	r.compare(fmt.Sprint("reader of commit ", h.n), name, key, want, v, err)
	compareScan(r.t, fmt.Sprintf("step %d: reader of %s at commit %d", r.step, name, h.n), r.rng, want,
		func(sc store.Scan) (store.Iterator, error) { return reader.Scan(r.t.Context(), sc) })
}

func (r *run) releaseAll() {
	for _, h := range r.open {
		h.done()
	}
	r.open = nil
}

// restart ends the task in some way and goes on with what is there then. Snapshots survive the task but not the process.
func (r *run) restart() {
	end := End(r.rng.IntN(4))
	if end == EndStop || end == EndKill {
		r.releaseAll()
	}
	n, lost := r.m.Restart(end)
	least := r.moved
	if end == EndClose || end == EndStop {
		least = r.last
	}
	if end == EndWipe || len(lost) == len(r.names) {
		least = 0
	}
	if n < least || n > r.last || end == EndWipe && n != 0 {
		r.t.Fatalf("step %d: after end %d commit %d is there; %d were made, %d durable", r.step, end, n, r.last, least)
	}
	for range r.open { // readers keep what they pinned
		r.look(r.names[0])
	}
	r.releaseAll()
	had, ok := r.history[n]
	switch {
	case end == EndWipe || !ok && n == 0:
		r.running = r.empty()
	case !ok:
		r.t.Fatalf("step %d: after end %d commit %d is there, from before an earlier end", r.step, end, n)
	default:
		r.running = had.clone()
	}
	for _, name := range lost {
		r.running[name] = map[string]string{}
	}
	r.history = map[int]contents{n: r.running.clone()}
	r.last, r.moved = n, n
	for _, name := range r.names {
		compareScan(r.t, fmt.Sprintf("step %d: %s after end %d", r.step, name, end), r.rng, r.running[name], r.m.Stores()[name].Scan)
	}
}

// empty is the content before the first commit.
func (r *run) empty() contents {
	c := make(contents)
	for _, n := range r.names {
		c[n] = map[string]string{}
	}
	return c
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
