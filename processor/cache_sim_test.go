package processor

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/statemesh/statemesh/store"
)

// cachedCounter counts like counter, behind the record cache: its listener forwards what the cache lets go of, new count
// and old one.
type cachedCounter struct{ counter }

func (p *cachedCounter) Init(ctx *Context) error {
	if err := p.counter.Init(ctx); err != nil {
		return err
	}
	return ctx.OnFlush(testStore, func(f store.Flushed) error {
		if _, ok := ctx.RecordMetadata(); ok {
			return errors.New("a flushed change has the coordinates of another record")
		}
		return ctx.Forward(Record{Key: f.Key, Value: pair(f), Timestamp: f.New.Timestamp})
	})
}

func (p *cachedCounter) Process(r *Record) error {
	n, err := readCount(p.kv.Get(r.Key))
	if err != nil {
		return err
	}
	return p.kv.Put(r.Key, store.Value{Data: binary.BigEndian.AppendUint64(nil, n+1), Timestamp: r.Timestamp})
}

// pair is the new count and the old one, four bytes each.
func pair(f store.Flushed) []byte {
	was := uint32(0)
	if f.Old.Data != nil {
		was = uint32(binary.BigEndian.Uint64(f.Old.Data))
	}
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, uint32(binary.BigEndian.Uint64(f.New.Data))), was)
}

// relay keeps the count that it is told, behind the cache too, and forwards it in the same way: what the first store's
// flush writes to the second must go out in the same commit.
type relay struct {
	ctx *Context
	kv  store.KeyValue
}

func (p *relay) Init(ctx *Context) (err error) {
	p.ctx = ctx
	if p.kv, err = ctx.Store("relayed"); err != nil {
		return err
	}
	return ctx.OnFlush("relayed", func(f store.Flushed) error {
		return ctx.Forward(Record{Key: f.Key, Value: pair(f), Timestamp: f.New.Timestamp})
	})
}

func (p *relay) Process(r *Record) error {
	now, was := binary.BigEndian.Uint32(r.Value), binary.BigEndian.Uint32(r.Value[4:])
	n, err := readCount(p.kv.Get(r.Key))
	if err != nil {
		return err
	}
	if n != uint64(was) {
		return fmt.Errorf("%s: told %d after %d, was told %d before", r.Key, now, was, n)
	}
	return p.kv.Put(r.Key, store.Value{Data: binary.BigEndian.AppendUint64(nil, uint64(now)), Timestamp: r.Timestamp})
}

func (p *relay) Close() error { return nil }

func cachedTopology() *Topology {
	return NewTopology().
		AddSource("source", SourceOptions{}, testInput).
		AddProcessor("count", func() Processor { return &cachedCounter{} }, "source").
		AddProcessor("relay", func() Processor { return &relay{} }, "count").
		// The second is declared first: the order of flushing is that of the nodes.
		AddStateStore(store.Spec{Name: "relayed", Kind: store.KindKeyValue, Caching: true}, "relay").
		AddStateStore(store.Spec{Name: testStore, Kind: store.KindTimestampedKeyValue, Caching: true}, "count").
		AddSink("sink", SinkOptions{}, testOut, "relay")
}

// TestSimCache: two cached stores in a row and a sink. Whatever is killed whenever, each output says the count before it
// and the one it became, so one that is lost or comes twice shows; the last is the truth, and so are the changelogs.
func TestSimCache(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 3)
		fenceLikeKafka(f)
		f.topo = cachedTopology
		f.options = func(c *Config) {
			c.SessionTimeout, c.HeartbeatInterval, c.TransactionTimeout = 6*time.Second, 500*time.Millisecond, 5*time.Second
			c.RebalanceTimeout = 5 * time.Second
			c.CacheMaxBytes = []int64{-1, 1, 200, 2000, 1 << 20}[rng.IntN(5)]
			c.CommitInterval = 200 * time.Millisecond
		}
		tr := truth{}
		alive := []*instance{f.start("disk-0"), f.start("disk-1")}
		alive[0].waitRunning()
		for round := range 4 {
			for range 5 + rng.IntN(10) {
				f.produce(tr, rng, 1+rng.IntN(60), 40)
				time.Sleep(time.Duration(rng.IntN(120)) * time.Millisecond)
			}
			i, disk := rng.IntN(len(alive)), "disk-"+strconv.Itoa(round+2)
			alive[i].kill(disk)
			zombie := alive[i]
			time.Sleep(time.Duration(rng.IntN(9000)) * time.Millisecond)
			alive[i] = f.start(disk)
			if rng.IntN(2) == 0 {
				zombie.cut.mend()
				time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
				zombie.cut.cut()
			}
			t.Logf("round %d: %s in the place of %s", round, disk, filepath.Base(zombie.dir))
		}
		f.produce(tr, rng, 50, 40)
		f.reap(alive...)
		f.waitCaughtUp(5 * time.Minute)
		f.settled(alive...)
		for _, in := range alive {
			if err := in.stop(); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute) // whatever a zombie has begun has ended
		f.checkFlushed(tr)
	})
}

// checkOutputs compares the sink with the truth: each output says what it is and what was before it.
func (f *fleet) checkOutputs(tr truth) {
	f.t.Helper()
	out, sent := f.numbers(testOut), 0
	for key, n := range tr {
		last := uint64(0)
		for i, v := range out[key] {
			if v&(1<<32-1) != last || v>>32 <= last {
				f.t.Fatalf("%s: output %d is %d after %d, want it after %d", key, i, v>>32, v&(1<<32-1), last)
			}
			last = v >> 32
		}
		if last != n {
			f.t.Errorf("%s: the last output is %d, %d were sent", key, last, n)
		}
		sent += len(out[key])
	}
	if len(out) != len(tr) {
		f.t.Errorf("%d keys in the output, %d were sent", len(out), len(tr))
	}
	f.t.Logf("%d outputs", sent)
}

// checkFlushed compares the sink and the changelogs with the truth.
func (f *fleet) checkFlushed(tr truth) {
	f.t.Helper()
	f.checkOutputs(tr)
	for _, name := range []string{string(testStore), "relayed"} {
		logged, _ := f.replay(testApp + "-" + name + "-changelog")
		for key, n := range tr {
			if logged[key] != n {
				f.t.Errorf("%s: %d in the changelog of %s, %d were sent", key, logged[key], name, n)
			}
		}
	}
}

// TestSimReadUncommitted: while commits fail and are undone, a read at READ_UNCOMMITTED is never behind a committed one
// that came before it, what it shows of the inputs is what it has counted, and a scan of what was undone ends with an
// error.
func TestSimReadUncommitted(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 2)
		fenceLikeKafka(f)
		if rng.IntN(2) == 0 {
			f.topo = cachedTopology
		}
		f.options = func(c *Config) {
			c.CommitInterval = time.Duration(100+rng.IntN(900)) * time.Millisecond
			if rng.IntN(4) == 0 {
				c.Guarantee = AtLeastOnce
			}
			c.CacheMaxBytes = []int64{-1, 500, 1 << 20}[rng.IntN(3)]
		}
		tr := truth{}
		in := f.start("a")
		in.waitRunning()
		var on atomic.Bool
		on.Store(true)
		failures := f.failOffsetCommits(func() bool { return on.Load() && rng.IntN(3) == 0 })
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var readers sync.WaitGroup
		var ahead, cut atomic.Int64
		for p := range store.Partition(2) {
			readers.Go(func() {
				for ctx.Err() == nil {
					if err := in.compareReads(ctx, p, &ahead, &cut); err != nil && ctx.Err() == nil {
						t.Error(err)
						return
					}
					time.Sleep(time.Duration(rng.IntN(40)) * time.Millisecond)
				}
			})
		}
		for range 80 {
			f.produce(tr, rng, 1+rng.IntN(40), 30)
			time.Sleep(time.Duration(rng.IntN(150)) * time.Millisecond)
		}
		on.Store(false)
		cancel()
		readers.Wait()
		f.waitCaughtUp(3 * time.Minute)
		f.checkReads(tr, in)
		t.Logf("%d commits were undone, %d reads were ahead of the last one, %d were cut", failures.Load(), ahead.Load(), cut.Load())
		if ahead.Load() == 0 {
			t.Error("no read saw what was not committed")
		}
	})
}

// failOffsetCommits refuses the offsets of a transaction when now says so, and counts how often.
func (f *fleet) failOffsetCommits(now func() bool) *atomic.Int64 {
	failures := new(atomic.Int64)
	f.cluster.ControlKey(int16(kmsg.TxnOffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.cluster.KeepControl()
		if !now() {
			return nil, nil, false
		}
		failures.Add(1)
		f.happened("broker", "refused with UNKNOWN_SERVER_ERROR: TxnOffsetCommit")
		r := req.(*kmsg.TxnOffsetCommitRequest)
		resp := r.ResponseKind().(*kmsg.TxnOffsetCommitResponse)
		for _, rt := range r.Topics {
			at := kmsg.NewTxnOffsetCommitResponseTopic()
			at.Topic = rt.Topic
			for _, rp := range rt.Partitions {
				ap := kmsg.NewTxnOffsetCommitResponseTopicPartition()
				ap.Partition, ap.ErrorCode = rp.Partition, kerr.UnknownServerError.Code
				at.Partitions = append(at.Partitions, ap)
			}
			resp.Topics = append(resp.Topics, at)
		}
		return resp, nil, true
	})
	return failures
}

// compareReads reads a partition committed and then uncommitted.
func (in *instance) compareReads(ctx context.Context, p store.Partition, ahead, cut *atomic.Int64) error {
	before, committed, err := in.sum(ctx, p, store.ReadCommitted)
	if err != nil {
		return unlessPassing(err)
	}
	after, running, err := in.sum(ctx, p, store.ReadUncommitted)
	if e, ok := errors.AsType[*store.NotReadyError](err); ok {
		if e.Store != testStore || e.RetryAfter == 0 {
			return fmt.Errorf("store %q, retry after %s: %w", e.Store, e.RetryAfter, err)
		}
		cut.Add(1)
		return nil
	}
	if err != nil {
		return unlessPassing(err)
	}
	if after < before || running.Sequence < committed.Sequence {
		return fmt.Errorf("partition %d: uncommitted %d of commit %d, after %d of commit %d", p, after, running.Sequence, before, committed.Sequence)
	}
	if running.Isolation == store.ReadUncommitted {
		ahead.Add(1)
	}
	return nil
}

// unlessPassing forgives what ends by itself: a membership that was lost is another one soon.
func unlessPassing(err error) error {
	if errors.Is(err, store.ErrNotReady) || errors.Is(err, store.ErrMoved) {
		return nil
	}
	return err
}

// sum scans a partition: the counts together, and what the reading is worth. A scan shows whole batches, so the counts
// are as many as records were read.
func (in *instance) sum(ctx context.Context, p store.Partition, isolation store.Isolation) (uint64, store.Facts, error) {
	r, err := in.rt.Read(ctx, testStore, p, store.ReadOptions{Isolation: isolation})
	if err != nil {
		return 0, store.Facts{}, err
	}
	defer r.Close()
	kv, err := r.KeyValue()
	if err != nil {
		return 0, store.Facts{}, err
	}
	it, err := kv.Scan(ctx, store.Scan{})
	if err != nil {
		return 0, store.Facts{}, err
	}
	defer it.Close()
	var n uint64
	for it.Next() {
		n += binary.BigEndian.Uint64(it.Entry().Data)
		time.Sleep(4 * time.Millisecond) // let something happen in the middle
	}
	return n, r.Facts(), it.Err()
}

// windowCounter counts by window behind the record cache and forwards what it lets go of.
type windowCounter struct {
	ctx     *Context
	windows store.Window
}

func (p *windowCounter) Init(ctx *Context) (err error) {
	p.ctx = ctx
	if p.windows, err = ctx.WindowStore("windows"); err != nil {
		return err
	}
	return ctx.OnFlush("windows", func(f store.Flushed) error {
		if f.End != f.Start+1000 {
			return fmt.Errorf("window %d to %d", f.Start, f.End)
		}
		return ctx.Forward(Record{Key: fmt.Appendf(nil, "%s@%d", f.Key, f.Start), Value: pair(f), Timestamp: f.New.Timestamp})
	})
}

func (p *windowCounter) Process(r *Record) error {
	start := r.Timestamp / 1000 * 1000
	n, err := readCount(p.windows.Fetch(r.Key, start))
	if err != nil {
		return err
	}
	return p.windows.Put(r.Key, start, store.Value{Data: binary.BigEndian.AppendUint64(nil, n+1), Timestamp: r.Timestamp})
}

func (p *windowCounter) Close() error { return nil }

// TestSimCacheWindows: TestSimCache for a window store, whose rows come out of the cache as windows.
func TestSimCacheWindows(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 2)
		fenceLikeKafka(f)
		f.topo = func() *Topology {
			return NewTopology().
				AddSource("source", SourceOptions{}, testInput).
				AddProcessor("count", func() Processor { return &windowCounter{} }, "source").
				AddStateStore(store.Spec{
					Name: "windows", Kind: store.KindTimestampedWindow, Caching: true, Retention: time.Hour, WindowSize: time.Second,
				}, "count").
				AddSink("sink", SinkOptions{}, testOut, "count")
		}
		f.options = func(c *Config) {
			c.SessionTimeout, c.HeartbeatInterval, c.TransactionTimeout = 6*time.Second, 500*time.Millisecond, 5*time.Second
			c.RebalanceTimeout = 5 * time.Second
			c.CacheMaxBytes = []int64{-1, 300, 1 << 20}[rng.IntN(3)]
		}
		tr := truth{}
		in := f.start("disk-0")
		in.waitRunning()
		for round := range 3 {
			for range 5 + rng.IntN(10) {
				records := make([]*kgo.Record, 1+rng.IntN(40))
				for i := range records {
					key, ts := fmt.Sprint("key-", rng.IntN(10)), time.Now().Add(-time.Duration(rng.IntN(3000))*time.Millisecond)
					tr[fmt.Sprintf("%s@%d", key, ts.UnixMilli()/1000*1000)]++
					records[i] = &kgo.Record{Topic: testInput, Key: []byte(key), Timestamp: ts}
				}
				if err := f.client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Duration(rng.IntN(120)) * time.Millisecond)
			}
			disk := "disk-" + strconv.Itoa(round+1)
			in.kill(disk)
			time.Sleep(time.Duration(rng.IntN(9000)) * time.Millisecond)
			in = f.start(disk)
		}
		f.reap(in)
		f.waitCaughtUp(5 * time.Minute)
		if err := in.stop(); err != nil {
			t.Fatal(err)
		}
		f.checkOutputs(tr)
	})
}
