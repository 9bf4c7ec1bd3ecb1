package processor

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

const (
	simWindows   = store.Name("windows")
	simSessions  = store.Name("sessions")
	simSize      = int64(100) // of a window, in milliseconds
	simGap       = int64(40)
	simRetention = int64(3000)
)

// aggregator counts records by key in tumbling windows and in sessions, whatever their stores let live.
type aggregator struct {
	windows  store.Window
	sessions store.Session
}

func (a *aggregator) Init(ctx *Context) error {
	var err1, err2 error
	a.windows, err1 = ctx.WindowStore(simWindows)
	a.sessions, err2 = ctx.SessionStore(simSessions)
	return errors.Join(err1, err2)
}

func (a *aggregator) Process(r *Record) error {
	start := r.Timestamp - r.Timestamp%simSize
	n, err := countOf(a.windows.Fetch(r.Key, start))
	if err != nil {
		return err
	}
	if err := a.windows.Put(r.Key, start, store.Value{Data: strconv.AppendInt(nil, n+1, 10), Timestamp: r.Timestamp}); err != nil {
		return err
	}
	it, err := a.sessions.Scan(store.SessionScan{
		Key: r.Key, EarliestEnd: r.Timestamp - simGap, LatestEnd: math.MaxInt64, LatestStart: r.Timestamp + simGap,
	})
	if err != nil {
		return err
	}
	defer it.Close()
	first, last, n := r.Timestamp, r.Timestamp, int64(1)
	for it.Next() {
		e := it.Entry()
		count, err := countOf(e.Value, nil)
		if err := errors.Join(err, a.sessions.Remove(r.Key, e.Start, e.End)); err != nil {
			return err
		}
		first, last, n = min(first, e.Start), max(last, e.End), n+count
	}
	if err := it.Err(); err != nil {
		return err
	}
	return a.sessions.Put(r.Key, first, last, store.Value{Data: strconv.AppendInt(nil, n, 10), Timestamp: r.Timestamp})
}

func (a *aggregator) Close() error { return nil }

func countOf(v store.Value, err error) (int64, error) {
	if errors.Is(err, store.ErrNotFound) {
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(v.Data), 10, 64)
}

func segmentsTopology(inMemory bool) func() *Topology {
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	return func() *Topology {
		return NewTopology().
			AddSource("source", SourceOptions{}, testInput).
			AddProcessor("aggregate", func() Processor { return &aggregator{} }, "source").
			AddStateStore(store.Spec{
				Name: simWindows, Kind: store.KindTimestampedWindow, WindowSize: ms(simSize), Retention: ms(simRetention),
				SegmentInterval: ms(500), InMemory: inMemory,
			}, "aggregate").
			AddStateStore(store.Spec{
				Name: simSessions, Kind: store.KindSession, Retention: ms(simRetention), SegmentInterval: ms(500), InMemory: inMemory,
			}, "aggregate")
	}
}

// simRow is a window or a session.
type simRow struct {
	Key        string
	Start, End int64
	Count      int64
}

// simTruth is what one partition's stores hold, computed from its records in their order.
type simTruth struct {
	windows, sessions       []simRow
	windowTime, sessionTime int64
}

func (tr *simTruth) add(key string, at int64) {
	start := at - at%simSize
	if start > tr.windowTime-simRetention {
		tr.windowTime = max(tr.windowTime, start)
		i := slices.IndexFunc(tr.windows, func(r simRow) bool { return r.Key == key && r.Start == start })
		if i < 0 {
			tr.windows = append(tr.windows, simRow{Key: key, Start: start, End: start + simSize, Count: 1})
		} else {
			tr.windows[i].Count++
		}
	}
	row := simRow{Key: key, Start: at, End: at, Count: 1}
	tr.sessions = slices.DeleteFunc(tr.sessions, func(r simRow) bool {
		if r.Key != key || r.End < at-simGap || r.Start > at+simGap || r.End <= tr.sessionTime-simRetention {
			return false
		}
		row.Start, row.End, row.Count = min(row.Start, r.Start), max(row.End, r.End), row.Count+r.Count
		return true
	})
	if row.End > tr.sessionTime-simRetention {
		tr.sessionTime = max(tr.sessionTime, row.End)
		tr.sessions = append(tr.sessions, row)
	}
}

// live lists the rows that have not expired, by key, end and start.
func live(rows []simRow, time int64, at func(simRow) int64) []simRow {
	out := slices.DeleteFunc(slices.Clone(rows), func(r simRow) bool { return at(r) <= time-simRetention })
	slices.SortFunc(out, func(a, b simRow) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.End, b.End), cmp.Compare(a.Start, b.Start))
	})
	return out
}

// TestSimSegments: windows and sessions are the truth after kills, from what the disk of the killed held and from the
// changelog alone, with records that come late or too late (QS-11: the stores' own time survives).
func TestSimSegments(t *testing.T) {
	for name, inMemory := range map[string]bool{"disk": false, "memory": true} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, rng *rand.Rand) {
				const partitions = 3
				f := newFleet(t, true, partitions)
				f.topo = segmentsTopology(inMemory)
				f.options = func(c *Config) { c.CommitInterval = 200 * time.Millisecond }
				truths := make([]simTruth, partitions)
				now := time.Now().UnixMilli()
				produce := func(n int) {
					records := make([]*kgo.Record, n)
					for i := range records {
						now += rng.Int64N(15)
						at := now - rng.Int64N(200)
						if rng.IntN(8) == 0 {
							at = now - rng.Int64N(simRetention+simRetention/2)
						}
						key := fmt.Sprint("key-", rng.IntN(12))
						records[i] = &kgo.Record{Topic: testInput, Key: []byte(key), Value: []byte("v"), Timestamp: time.UnixMilli(at)}
						truths[router.PartitionFor([]byte(key), partitions)].add(key, at)
					}
					if err := f.client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
						t.Fatal(err)
					}
				}
				in := f.start("disk-0")
				in.waitRunning()
				for _, disk := range []string{"disk-1", "disk-2"} {
					for range 10 {
						produce(1 + rng.IntN(80))
						time.Sleep(time.Duration(rng.IntN(900)) * time.Millisecond)
					}
					in.kill(disk)
					in = f.start(disk)
					f.reap(in)
					in.waitRunning()
					f.waitCaughtUp(3 * time.Minute)
					checkSegments(t, truths, in)
				}
				produce(200)
				f.waitCaughtUp(3 * time.Minute)
				if err := in.stop(); err != nil {
					t.Fatal(err)
				}
				in = f.start("empty")
				in.waitRunning()
				checkSegments(t, truths, in)
			})
		})
	}
}

// checkSegments compares everything that the stores show with the truth.
func checkSegments(t *testing.T, truths []simTruth, in *instance) {
	t.Helper()
	for p := range truths {
		tr := &truths[p]
		reading, err := in.rt.Read(t.Context(), simWindows, store.Partition(p), store.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer reading.Close()
		w, err := reading.Windows()
		if err != nil {
			t.Fatal(err)
		}
		it, err := w.Scan(t.Context(), store.WindowScan{To: math.MaxInt64})
		if d := gocmp.Diff(live(tr.windows, tr.windowTime, func(r simRow) int64 { return r.Start }), simRows(t, it, err)); d != "" {
			t.Fatalf("windows of partition %d (-want +got)\n%s", p, d)
		}
		reading, err = in.rt.Read(t.Context(), simSessions, store.Partition(p), store.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer reading.Close()
		s, err := reading.Sessions()
		if err != nil {
			t.Fatal(err)
		}
		it, err = s.Scan(t.Context(), store.SessionScan{LatestEnd: math.MaxInt64, LatestStart: math.MaxInt64})
		if d := gocmp.Diff(live(tr.sessions, tr.sessionTime, func(r simRow) int64 { return r.End }), simRows(t, it, err)); d != "" {
			t.Fatalf("sessions of partition %d (-want +got)\n%s", p, d)
		}
	}
}

func simRows(t *testing.T, it store.Iterator, err error) []simRow {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	out := []simRow{}
	for it.Next() {
		e := it.Entry()
		n, err := countOf(e.Value, nil)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, simRow{string(e.Key), e.Start, e.End, n})
	}
	if err := it.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}
