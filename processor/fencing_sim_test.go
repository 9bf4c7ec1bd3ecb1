package processor

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/statemesh/statemesh/store"
)

// tick is a processor that writes its store by the wall clock alone.
type tick struct{ counter }

func (p *tick) Init(ctx *Context) error {
	if err := p.counter.Init(ctx); err != nil {
		return err
	}
	_, err := ctx.Schedule(time.Second, WallClockTime, func(ts int64) error {
		n, err := readCount(p.kv.Get([]byte("ticks")))
		if err != nil {
			return err
		}
		value := binary.BigEndian.AppendUint64(nil, n+1)
		if err := p.kv.Put([]byte("ticks"), store.Value{Data: value, Timestamp: ts}); err != nil {
			return err
		}
		return ctx.Forward(Record{Key: []byte("ticks"), Value: value, Timestamp: ts})
	})
	return err
}

func tickTopology() *Topology {
	return NewTopology().
		AddSource("source", SourceOptions{}, testInput).
		AddProcessor("tick", func() Processor { return &tick{} }, "source").
		AddStateStore(store.Spec{Name: testStore, Kind: store.KindTimestampedKeyValue}, "tick").
		AddSink("sink", SinkOptions{}, testOut, "tick")
}

// fenceLikeKafka makes the broker bar a transactional id's former producers for good: kfake gives an id that is
// initialised anew one epoch more, and its former owner may come to use that epoch as well. Two initialisations
// put the former owner two epochs behind, as on Kafka.
func fenceLikeKafka(f *fleet) {
	newest := make(map[string]int16)
	f.cluster.Control(func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.cluster.KeepControl()
		if e, ok := req.(*kmsg.EndTxnRequest); ok && e.ProducerEpoch < newest[e.TransactionalID] {
			resp := e.ResponseKind().(*kmsg.EndTxnResponse)
			resp.ErrorCode = kerr.InvalidProducerEpoch.Code
			return resp, nil, true
		}
		return nil, nil, false
	})
}

// TestSimZombiePunctuation: an evicted owner whose writes come from a punctuation alone, with no offset moved, is barred
// by the group: a transaction without an offset commit would not be.
func TestSimZombiePunctuation(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 1)
		f.topo = tickTopology
		a := f.start("a")
		a.waitRunning()
		time.Sleep(10 * time.Second)
		a.cut.cut()
		b := f.start("b")
		time.Sleep(2 * time.Minute) // a is evicted, b owns the task and ticks on
		f.eventually("b serves", time.Minute, func() error { return allServe(1, b) })
		a.cut.mend()
		time.Sleep(time.Duration(10+rng.IntN(20)) * time.Second)
		_ = a.stop()
		time.Sleep(3 * time.Second)
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		logged, _ := f.replay(testApp + "-counts-changelog")
		// Each tick counts one up from the state of its predecessor and says so: had a zombie's tick been committed, a
		// number would be there twice. The changelog has one record per commit, in which there may be two ticks: one that
		// came late and the next.
		said, times := f.replay(testOut)
		if said["ticks"] != uint64(times["ticks"]) || logged["ticks"] != said["ticks"] {
			t.Fatalf("%d ticks said %d, the changelog ends at %d", times["ticks"], said["ticks"], logged["ticks"])
		}
		if logged["ticks"] < 60 {
			t.Fatalf("%d ticks in more than two minutes", logged["ticks"])
		}
	})
}

// TestSimTimersCommitWithinInterval: PL-10, first half: what a timer wrote survives a kill.
func TestSimTimersCommitWithinInterval(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 1)
		f.topo = tickTopology
		a := f.start("a")
		a.waitRunning()
		time.Sleep(10*time.Second + 500*time.Millisecond)
		a.kill("b")
		logged, _ := f.replay(testApp + "-counts-changelog")
		if logged["ticks"] < 9 || logged["ticks"] > 10 {
			t.Fatalf("%d ticks committed in 10.5s", logged["ticks"])
		}
	})
}

// TestSimIdle: PL-10, second half: an hour with nothing to do sends no commit, no record, no transaction.
func TestSimIdle(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 2)
		tr := truth{}
		f.produce(tr, rng, 100, 10)
		a := f.start("a")
		a.waitRunning()
		f.waitCaughtUp(time.Minute)
		time.Sleep(time.Minute)
		var sent atomic.Int64
		var names atomic.Value
		f.cluster.Control(func(req kmsg.Request) (kmsg.Response, error, bool) {
			f.cluster.KeepControl()
			switch req.(type) {
			case *kmsg.ProduceRequest, *kmsg.OffsetCommitRequest, *kmsg.TxnOffsetCommitRequest, *kmsg.EndTxnRequest,
				*kmsg.AddOffsetsToTxnRequest, *kmsg.AddPartitionsToTxnRequest, *kmsg.InitProducerIDRequest:
				sent.Add(1)
				names.Store(kmsg.NameForKey(req.Key()))
			}
			return nil, nil, false
		})
		time.Sleep(time.Hour)
		if n := sent.Load(); n != 0 {
			t.Fatalf("%d requests in an idle hour, the last one %v", n, names.Load())
		}
		f.check(tr, a)
	})
}

// TestSimEvictedByAnswers: the coordinator answers a commit with UNKNOWN_MEMBER_ID, and heartbeats too (RB-06): nothing
// of the commit stays, the thread joins anew, nothing is lost or repeated.
func TestSimEvictedByAnswers(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 3)
		tr := truth{}
		a := f.start("a")
		a.waitRunning()
		for range 5 {
			var left atomic.Int64
			left.Store(int64(1 + rng.IntN(3)))
			f.cluster.Control(func(req kmsg.Request) (kmsg.Response, error, bool) {
				if left.Load() <= 0 {
					return nil, nil, false
				}
				f.cluster.KeepControl()
				switch r := req.(type) {
				case *kmsg.TxnOffsetCommitRequest:
					left.Add(-1)
					f.happened("broker", "refused with UNKNOWN_MEMBER_ID: TxnOffsetCommit")
					resp := r.ResponseKind().(*kmsg.TxnOffsetCommitResponse)
					for _, rt := range r.Topics {
						at := kmsg.NewTxnOffsetCommitResponseTopic()
						at.Topic = rt.Topic
						for _, rp := range rt.Partitions {
							ap := kmsg.NewTxnOffsetCommitResponseTopicPartition()
							ap.Partition, ap.ErrorCode = rp.Partition, kerr.UnknownMemberID.Code
							at.Partitions = append(at.Partitions, ap)
						}
						resp.Topics = append(resp.Topics, at)
					}
					return resp, nil, true
				case *kmsg.HeartbeatRequest:
					left.Add(-1)
					f.happened("broker", "refused with UNKNOWN_MEMBER_ID: Heartbeat")
					resp := r.ResponseKind().(*kmsg.HeartbeatResponse)
					resp.ErrorCode = kerr.UnknownMemberID.Code
					return resp, nil, true
				}
				return nil, nil, false
			})
			for range 10 {
				f.produce(tr, rng, 30, 50)
				time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond)
			}
		}
		f.waitCaughtUp(2 * time.Minute)
		f.eventually("all served", time.Minute, func() error { return allServe(3, a) })
		f.check(tr, a)
	})
}

// TestSimCommitErrors answers the requests of commits with every error that may pass, at random, before or after they
// took effect (PL-01, PL-03, PL-11).
func TestSimCommitErrors(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 3)
		fenceLikeKafka(f)
		tr := truth{}
		a, b := f.start("a"), f.start("b")
		a.waitRunning()
		b.waitRunning()
		codes := []int16{
			kerr.CoordinatorNotAvailable.Code, kerr.NotCoordinator.Code, kerr.CoordinatorLoadInProgress.Code,
			kerr.ConcurrentTransactions.Code, kerr.RebalanceInProgress.Code, kerr.IllegalGeneration.Code, kerr.UnknownServerError.Code,
			kerr.InvalidProducerEpoch.Code, kerr.TransactionAbortable.Code,
		}
		var on atomic.Bool
		on.Store(true)
		var failures atomic.Int64
		f.cluster.ControlKey(int16(kmsg.TxnOffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
			if !on.Load() {
				return nil, nil, false
			}
			f.cluster.KeepControl()
			if rng.IntN(8) != 0 {
				return nil, nil, false
			}
			failures.Add(1)
			r := req.(*kmsg.TxnOffsetCommitRequest)
			code := codes[rng.IntN(len(codes))]
			f.happened("broker", "refused with "+kerr.TypedErrorForCode(code).Message+": TxnOffsetCommit")
			resp := r.ResponseKind().(*kmsg.TxnOffsetCommitResponse)
			for _, rt := range r.Topics {
				at := kmsg.NewTxnOffsetCommitResponseTopic()
				at.Topic = rt.Topic
				for _, rp := range rt.Partitions {
					ap := kmsg.NewTxnOffsetCommitResponseTopicPartition()
					ap.Partition, ap.ErrorCode = rp.Partition, code
					at.Partitions = append(at.Partitions, ap)
				}
				resp.Topics = append(resp.Topics, at)
			}
			return resp, nil, true
		})
		f.cluster.ControlKey(int16(kmsg.EndTxn), func(req kmsg.Request) (kmsg.Response, error, bool) {
			if !on.Load() {
				return nil, nil, false
			}
			f.cluster.KeepControl()
			if rng.IntN(10) != 0 {
				return nil, nil, false
			}
			failures.Add(1)
			f.happened("broker", "connection breaks at EndTxn")
			return nil, errors.New("the connection breaks"), true
		})
		for range 100 {
			f.produce(tr, rng, 20, 50)
			time.Sleep(time.Duration(rng.IntN(200)) * time.Millisecond)
		}
		on.Store(false)
		f.produce(tr, rng, 20, 50)
		f.waitCaughtUp(3 * time.Minute)
		f.eventually("all served", time.Minute, func() error { return allServe(3, a, b) })
		if n := failures.Load(); n < 10 {
			t.Fatalf("%d failures", n)
		}
		f.check(tr, a, b)
	})
}

// TestSimConnectionsBreak cuts every connection of an instance now and then: outcomes are unknown wherever they can be.
func TestSimConnectionsBreak(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 4)
		fenceLikeKafka(f)
		// A member whose connection broke in a join haunts kfake's group for the rebalance timeout, counted anew from each
		// join of another member: it must be shorter than the time between two joins.
		f.options = func(c *Config) { c.RebalanceTimeout = 5 * time.Second }
		tr := truth{}
		a, b := f.start("a"), f.start("b")
		a.waitRunning()
		b.waitRunning()
		for range 40 {
			f.produce(tr, rng, 20, 50)
			time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
			in := a
			if rng.IntN(2) == 0 {
				in = b
			}
			in.cut.cut()
			if rng.IntN(4) == 0 {
				time.Sleep(time.Duration(rng.IntN(15)) * time.Second)
			}
			in.cut.mend()
		}
		f.reap(a, b)
		f.waitCaughtUp(3 * time.Minute)
		f.eventually("all served", 2*time.Minute, func() error { return allServe(4, a, b) })
		f.check(tr, a, b)
	})
}

// TestSimStopWithoutBroker: PL-15. Stopping ends within its bound though no broker answers, says that it did not end well,
// and the state on disk is that of a commit.
func TestSimStopWithoutBroker(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 2)
		tr := truth{}
		reg := prometheus.NewRegistry()
		a := f.start("a", func(c *Config) { c.Registerer = reg })
		a.waitRunning()
		f.produce(tr, rng, 2000, 100)
		time.Sleep(time.Duration(rng.IntN(50)) * time.Millisecond)
		a.cut.cut()
		time.Sleep(time.Second)
		began := time.Now()
		err := a.stop()
		if took := time.Since(began); took > 40*time.Second {
			t.Fatalf("stopping took %s", took)
		}
		switch lag, lagErr := f.lag(); {
		case err != nil && strings.Contains(err.Error(), "did not answer"):
		case err == nil && lagErr == nil && lag == 0: // a commit was due just before the cut: nothing was left to lose
		case err == nil && lagErr == nil && metric(t, reg, "records_total") == 0: // nothing had come before the cut
		default:
			t.Fatalf("stop: %v, with a lag of %d (%v)", err, lag, lagErr)
		}
		b := f.start("a")
		f.waitCaughtUp(3 * time.Minute)
		f.eventually("all served", 2*time.Minute, func() error { return allServe(2, b) })
		f.check(tr, b)
	})
}
