package layered_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/btree"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

// The trials behind the two choices of store/DESIGN.md. They stay so that the choices can be looked at again.

// structure is a candidate for overlay and recent commits, without an engine.
type structure interface {
	get(key string) ([]byte, bool)
	put(key string, value []byte)
	commit()
	// scan reads n rows of the last commit from a key on.
	scan(from string, n int) int
}

// pieces are one immutable map per commit, merged when there are many; a scan sorts what it has not seen sorted.
type pieces struct {
	overlay map[string][]byte
	recent  []map[string][]byte // oldest first
	sorted  []string
}

func (p *pieces) get(key string) ([]byte, bool) {
	if v, ok := p.overlay[key]; ok {
		return v, true
	}
	for _, m := range slices.Backward(p.recent) {
		if v, ok := m[key]; ok {
			return v, true
		}
	}
	return nil, false
}

func (p *pieces) put(key string, value []byte) { p.overlay[key] = slices.Clone(value) }

func (p *pieces) commit() {
	p.recent = append(p.recent, p.overlay)
	p.overlay = make(map[string][]byte)
	p.sorted = nil
	// A piece is merged into its neighbour unless that is more than twice as big.
	for n := len(p.recent); n > 1 && len(p.recent[n-2]) <= 2*len(p.recent[n-1]); n = len(p.recent) {
		merged := maps.Clone(p.recent[n-2])
		maps.Copy(merged, p.recent[n-1])
		p.recent = append(p.recent[:n-2], merged)
	}
}

func (p *pieces) scan(from string, n int) int {
	if p.sorted == nil {
		all := make(map[string]struct{})
		for _, m := range p.recent {
			for k := range m {
				all[k] = struct{}{}
			}
		}
		p.sorted = slices.Sorted(maps.Keys(all))
	}
	i, _ := slices.BinarySearch(p.sorted, from)
	bytes := 0
	for _, k := range p.sorted[i:min(i+n, len(p.sorted))] {
		v, _ := p.get(k)
		bytes += len(v)
	}
	return bytes
}

// cow is a B-tree whose copy is published at each commit.
type cow struct{ running, published *btree.Map[string, []byte] }

func (c *cow) get(key string) ([]byte, bool) { return c.running.Get(key) }
func (c *cow) put(key string, value []byte)  { c.running.Set(key, slices.Clone(value)) }
func (c *cow) commit()                       { c.published = c.running.Copy() }
func (c *cow) scan(from string, n int) (bytes int) {
	c.published.Ascend(from, func(_ string, v []byte) bool {
		bytes += len(v)
		n--
		return n > 0
	})
	return bytes
}

// BenchmarkStructure is the counting loop, a commit every 50,000 updates, on each candidate; in the second case with a
// scan of 1,000 rows after each commit. chosen is the versioned table, with all that belongs to it but the engine.
func BenchmarkStructure(b *testing.B) {
	for name, make := range map[string]func(b *testing.B) structure{
		"pieces": func(*testing.B) structure { return &pieces{overlay: map[string][]byte{}} },
		"btree": func(*testing.B) structure {
			return &cow{new(btree.Map[string, []byte]), new(btree.Map[string, []byte])}
		},
		"chosen": func(b *testing.B) structure {
			b.Helper()
			s := openStores(b, layered.Config{Dir: b.TempDir(), MoveBytes: 1 << 40, RecentBytes: 1 << 40})
			task := openTask(b, s, task0, mem)
			task.Commit(checkpoint(1, "m"))
			return &chosen{b: b, task: task, kv: kv(b, task, "m")}
		},
	} {
		loop := func(b *testing.B, scans bool) {
			b.Helper()
			s := make(b)
			rng := rand.New(rand.NewPCG(1, 2))
			key, val := []byte{}, []byte("12345678")
			n := 0
			b.ReportAllocs()
			start := cpuSeconds(b)
			for b.Loop() {
				key = benchKey(key[:0], rng.IntN(benchKeys))
				k := string(key)
				s.get(k)
				s.put(k, val)
				if n++; n%50_000 == 0 {
					s.commit()
					if scans {
						s.scan(k, 1000)
					}
				}
			}
			b.ReportMetric(float64(n)/(cpuSeconds(b)-start), "updates/cpu-s")
		}
		b.Run(name+"/update", func(b *testing.B) { loop(b, false) })
		b.Run(name+"/update and scan", func(b *testing.B) { loop(b, true) })
	}
}

type chosen struct {
	b    *testing.B
	task *layered.Task
	kv   store.KeyValue
	n    int
}

func (c *chosen) get(key string) ([]byte, bool) {
	v, err := c.kv.Get([]byte(key))
	return v.Data, err == nil
}

func (c *chosen) put(key string, value []byte) {
	if err := c.kv.Put([]byte(key), store.Value{Data: value}); err != nil {
		c.b.Fatal(err)
	}
}

func (c *chosen) commit() {
	c.n++
	c.task.Commit(checkpoint(c.n+1, "m"))
}

func (c *chosen) scan(from string, n int) (bytes int) {
	snap, err := c.task.Snapshot()
	if err != nil {
		c.b.Fatal(err)
	}
	defer snap.Close()
	r, _ := snap.KeyValue("m")
	it, err := r.Scan(c.b.Context(), store.Scan{From: []byte(from)})
	if err != nil {
		c.b.Fatal(err)
	}
	defer it.Close()
	for ; n > 0 && it.Next(); n-- {
		bytes += len(it.Entry().Data)
	}
	return bytes
}

// BenchmarkTasks opens many tasks over one database, or over one database each, restores 2,000 records into each, idles,
// and drops one. Run one case per process (-bench 'Tasks/shared/100$' -benchtime 1x): it reports the process's memory.
func BenchmarkTasks(b *testing.B) {
	for _, how := range []string{"shared", "own"} {
		for _, tasks := range []int{10, 100, 500} {
			b.Run(fmt.Sprint(how, "/", tasks), func(b *testing.B) {
				for b.Loop() {
					tasksTrial(b, how, tasks)
				}
			})
		}
	}
}

func tasksTrial(b *testing.B, how string, tasks int) {
	b.Helper()
	start := time.Now()
	var all []*layered.Stores
	if how == "shared" {
		all = append(all, running(b, layered.Config{Dir: b.TempDir()}))
	}
	open := make([]*layered.Task, tasks)
	for i := range tasks {
		if how == "own" {
			all = append(all, running(b, layered.Config{Dir: b.TempDir(), MemTableBytes: 1 << 20}))
		}
		open[i] = openTask(b, all[len(all)-1], store.TaskID{Partition: store.Partition(i)}, disk)
	}
	b.ReportMetric(time.Since(start).Seconds(), "open-s")

	start, cpu := time.Now(), cpuSeconds(b)
	for _, task := range open {
		batch := make([]store.Change, 2000)
		for i := range batch {
			batch[i] = store.Change{Key: benchKey(nil, i), Value: make([]byte, 100), Timestamp: 1}
		}
		if err := task.Restore("d", batch); err != nil {
			b.Fatal(err)
		}
		task.Commit(checkpoint(1, "d"))
	}
	for i, task := range open {
		moveNow(b, all[min(i, len(all)-1)], task)
	}
	b.ReportMetric(time.Since(start).Seconds(), "restore-s")
	b.ReportMetric(cpuSeconds(b)-cpu, "restore-cpu-s")

	cpu = cpuSeconds(b)
	idle := time.NewTimer(3 * time.Second)
	<-idle.C
	b.ReportMetric((cpuSeconds(b)-cpu)/3*100, "idle-%core")
	b.ReportMetric(residentMB(b), "RSS-MB")

	s := all[0]
	if err := open[0].Close(b.Context()); err != nil {
		b.Fatal(err)
	}
	start = time.Now()
	if err := s.DropTask(b.Context(), open[0].ID()); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(time.Since(start).Milliseconds()), "drop-ms")
	start = time.Now()
	layered.ReclaimNow(b, s)
	b.ReportMetric(float64(time.Since(start).Milliseconds()), "reclaim-ms")
}

// BenchmarkEmptyTasks opens 500 tasks that hold nothing, as a first start does, then again, as the next one, and idles.
// The state layer shall need less than 5 s and 250 MB for that, and less than 5 % of a core to keep them.
func BenchmarkEmptyTasks(b *testing.B) {
	for b.Loop() {
		const tasks = 500
		dir := b.TempDir()
		for _, when := range []string{"first", "again"} {
			start, cpu := time.Now(), cpuSeconds(b)
			s, err := layered.Open(b.Context(), layered.Config{Dir: dir})
			if err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(b.Context())
			ended := make(chan error, 1)
			go func() { ended <- s.Run(ctx) }()
			open := make([]*layered.Task, tasks)
			for i := range open {
				open[i] = openTask(b, s, store.TaskID{Partition: store.Partition(i)}, disk)
			}
			b.ReportMetric(time.Since(start).Seconds(), when+"-open-s")
			b.ReportMetric(cpuSeconds(b)-cpu, when+"-open-cpu-s")
			cpu = cpuSeconds(b)
			idle := time.NewTimer(5 * time.Second)
			<-idle.C
			b.ReportMetric((cpuSeconds(b)-cpu)/5*100, when+"-idle-%core")
			b.ReportMetric(residentMB(b), when+"-RSS-MB")
			for _, task := range open {
				if err := task.Close(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			cancel()
			if err := errors.Join(<-ended, s.Close()); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// residentMB is the resident memory of the process.
func residentMB(b *testing.B) float64 {
	b.Helper()
	raw, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		b.Skipf("no /proc: %v", err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(raw))[1], 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return float64(pages) * float64(os.Getpagesize()) / (1 << 20)
}
