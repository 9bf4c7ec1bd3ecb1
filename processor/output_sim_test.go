package processor

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/store"
)

// tally writes a number per record and, by the wall clock, a numbered report of its partition, both to the sink. The
// numbers are in its store: a hole, a repetition or a step back in the sink is an output without its state, or a state
// without its output.
type tally struct{ counter }

func (p *tally) Init(ctx *Context) error {
	if err := p.counter.Init(ctx); err != nil {
		return err
	}
	key := fmt.Appendf(nil, "report-%d", ctx.TaskID().Partition)
	_, err := ctx.Schedule(70*time.Millisecond, WallClockTime, func(ts int64) error {
		n, err := readCount(p.kv.Get(key))
		if err != nil {
			return err
		}
		value := binary.BigEndian.AppendUint64(nil, n+1)
		if err := p.kv.Put(key, store.Value{Data: value, Timestamp: ts}); err != nil {
			return err
		}
		return p.ctx.Forward(Record{Key: key, Value: value, Timestamp: ts})
	})
	return err
}

func tallyTopology() *Topology {
	return NewTopology().
		AddSource("source", SourceOptions{}, testInput).
		AddProcessor("tally", func() Processor { return &tally{} }, "source").
		AddStateStore(store.Spec{Name: testStore, Kind: store.KindTimestampedKeyValue}, "tally").
		AddSink("sink", SinkOptions{}, testOut, "tally")
}

// numbers reads a topic as a committed reader does: the values of each key in order.
func (f *fleet) numbers(topic string) map[string][]uint64 {
	f.t.Helper()
	ends, err := kadm.NewClient(f.client).ListCommittedOffsets(f.t.Context(), topic)
	if err != nil {
		f.t.Fatal(err)
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(f.brokers...), kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100 * time.Millisecond),
	}
	if f.dial != nil {
		opts = append(opts, kgo.Dialer(f.dial))
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		f.t.Fatal(err)
	}
	defer cl.Close()
	left := make(map[int32]int64)
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	all := make(map[string][]uint64)
	for len(left) > 0 {
		for _, r := range cl.PollFetches(f.t.Context()).Records() {
			if end, ok := left[r.Partition]; ok && r.Offset+1 >= end {
				delete(left, r.Partition)
			}
			if !r.Attrs.IsControl() {
				all[string(r.Key)] = append(all[string(r.Key)], binary.BigEndian.Uint64(r.Value))
			}
		}
	}
	return all
}

// TestSimPunctuatedOutput: what records and punctuations send to a sink is there exactly once and in order, whatever is
// killed whenever, and whatever disk the successor finds: that of the moment, an older one, or none.
func TestSimPunctuatedOutput(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		const partitions = 3
		f := newFleet(t, true, partitions)
		fenceLikeKafka(f)
		f.topo = tallyTopology
		// A short rebalance timeout, because kfake keeps a member whose connection broke in a join for as long.
		f.options = func(c *Config) {
			c.SessionTimeout, c.HeartbeatInterval, c.TransactionTimeout = 6*time.Second, 500*time.Millisecond, 5*time.Second
			c.RebalanceTimeout = 5 * time.Second
		}
		tr := truth{}
		produce := func(rounds int) {
			for range rounds {
				f.produce(tr, rng, 1+rng.IntN(30), 40)
				time.Sleep(time.Duration(rng.IntN(120)) * time.Millisecond)
			}
		}
		alive := []*instance{f.start("disk-0"), f.start("disk-1")}
		disks := []string{"disk-0", "disk-1"}
		alive[0].waitRunning()
		var zombies []*instance
		for round := range 6 {
			produce(5 + rng.IntN(15))
			i := rng.IntN(len(alive))
			disk := "disk-" + strconv.Itoa(len(disks))
			victim := alive[i]
			switch rng.IntN(4) {
			case 0: // a new disk
				victim.cut.cut()
			case 1: // that of another instance, of some time ago
				victim.cut.cut()
				copyDir(t, filepath.Join(f.dir, disks[rng.IntN(len(disks))]), filepath.Join(f.dir, disk))
			default:
				victim.kill(disk)
			}
			disks = append(disks, disk)
			zombies = append(zombies, victim)
			time.Sleep(time.Duration(rng.IntN(9000)) * time.Millisecond)
			alive[i] = f.start(disk)
			if rng.IntN(2) == 0 { // the killed one was only cut off
				z := zombies[rng.IntN(len(zombies))]
				z.cut.mend()
				time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
				z.cut.cut()
			}
			t.Logf("round %d: %s in the place of %s", round, disk, victim.dir)
		}
		produce(5)
		f.reap(alive...)
		f.waitCaughtUp(5 * time.Minute)
		f.settled(alive...)
		for _, in := range alive {
			if err := in.stop(); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute) // whatever a zombie has begun has ended
		last, _ := f.replay(testApp + "-counts-changelog")
		out := f.numbers(testOut)
		reports := 0
		for key, numbers := range out {
			for i, n := range numbers {
				if n != uint64(i+1) {
					t.Fatalf("%s: number %d is %d: %v", key, i+1, n, numbers[max(0, i-3):min(len(numbers), i+4)])
				}
			}
			if uint64(len(numbers)) != last[key] {
				t.Errorf("%s: %d in the output, %d in the state", key, len(numbers), last[key])
			}
			if want, ok := tr[key]; ok && uint64(len(numbers)) != want {
				t.Errorf("%s: %d in the output, %d were sent", key, len(numbers), want)
			} else if !ok {
				reports++
			}
		}
		for key := range tr {
			if len(out[key]) == 0 {
				t.Errorf("%s: not in the output", key)
			}
		}
		if reports != partitions {
			t.Errorf("%d partitions reported, want %d", reports, partitions)
		}
	})
}
