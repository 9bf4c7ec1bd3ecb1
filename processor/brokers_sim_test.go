package processor

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// refusals are the errors that brokers answer requests of a kind with that they have not done, and that mean: again.
func refusals() map[kmsg.Key][]*kerr.Error {
	coordinator := []*kerr.Error{kerr.CoordinatorNotAvailable, kerr.NotCoordinator, kerr.CoordinatorLoadInProgress}
	leader := []*kerr.Error{kerr.NotLeaderForPartition, kerr.UnknownTopicOrPartition, kerr.KafkaStorageError}
	epochs := append(slices.Clone(leader), kerr.FencedLeaderEpoch, kerr.UnknownLeaderEpoch, kerr.OffsetNotAvailable)
	transaction := append(slices.Clone(coordinator), kerr.ConcurrentTransactions)
	return map[kmsg.Key][]*kerr.Error{
		kmsg.Produce:              append(slices.Clone(leader), kerr.NotEnoughReplicas),
		kmsg.Fetch:                epochs,
		kmsg.ListOffsets:          epochs,
		kmsg.OffsetForLeaderEpoch: epochs,
		kmsg.Metadata:             {kerr.UnknownTopicOrPartition, kerr.LeaderNotAvailable},
		kmsg.FindCoordinator:      {kerr.CoordinatorNotAvailable},
		kmsg.OffsetCommit:         coordinator,
		kmsg.OffsetFetch:          append(slices.Clone(coordinator), kerr.UnstableOffsetCommit),
		kmsg.JoinGroup:            coordinator,
		kmsg.SyncGroup:            coordinator,
		kmsg.Heartbeat:            append(slices.Clone(coordinator), kerr.RebalanceInProgress),
		kmsg.LeaveGroup:           coordinator,
		kmsg.DescribeGroups:       coordinator,
		kmsg.TxnOffsetCommit:      coordinator,
		kmsg.InitProducerID:       transaction,
		kmsg.AddPartitionsToTxn:   transaction,
		kmsg.AddOffsetsToTxn:      transaction,
		kmsg.EndTxn:               transaction,
	}
}

// afterwards are those that brokers answer with although they have done, or may yet do, what was asked: an append that was
// not acknowledged in time is in the log, and coordinators tell of it as of their own absence.
func afterwards() map[kmsg.Key][]*kerr.Error {
	coordinator := []*kerr.Error{kerr.CoordinatorNotAvailable, kerr.NotCoordinator}
	return map[kmsg.Key][]*kerr.Error{
		kmsg.Produce:            {kerr.RequestTimedOut, kerr.NotEnoughReplicasAfterAppend},
		kmsg.OffsetCommit:       append(slices.Clone(coordinator), kerr.RequestTimedOut),
		kmsg.TxnOffsetCommit:    append(slices.Clone(coordinator), kerr.RequestTimedOut),
		kmsg.InitProducerID:     coordinator,
		kmsg.AddPartitionsToTxn: coordinator,
		kmsg.AddOffsetsToTxn:    coordinator,
		kmsg.EndTxn:             coordinator,
		kmsg.LeaveGroup:         coordinator,
	}
}

// kindsOf are the kinds of requests of a table, in an order that a seed can draw from.
func kindsOf[V any](of map[kmsg.Key]V) []kmsg.Key {
	kinds := make([]kmsg.Key, 0, len(of))
	for k := range of {
		kinds = append(kinds, k)
	}
	slices.Sort(kinds)
	return kinds
}

// brokerFaults are what brokers do wrong, by the kind of the request.
type brokerFaults struct {
	f       *fleet
	rng     *rand.Rand
	answers *answers

	mu      sync.Mutex
	breaks  map[kmsg.Key]int // connections that are still to break at a request
	refused []*kfake.FaultHandle
}

func newBrokerFaults(f *fleet, rng *rand.Rand) *brokerFaults {
	b := &brokerFaults{f: f, rng: rng, answers: &answers{due: make(map[kmsg.Key][]amends)}, breaks: make(map[kmsg.Key]int)}
	f.meddle = b.answers.meddle
	f.cluster.Control(func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.cluster.KeepControl()
		key := kmsg.Key(req.Key())
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.breaks[key] == 0 {
			return nil, nil, false
		}
		b.breaks[key]--
		f.happened("broker", "connection breaks at "+key.Name())
		return nil, errors.New("the connection breaks"), true
	})
	return b
}

// pick draws one of a list.
func pick[V any](rng *rand.Rand, of []V) V { return of[rng.IntN(len(of))] }

// happen lets the next few requests of one kind go wrong in one way.
func (b *brokerFaults) happen() {
	kind, n := pick(b.rng, kindsOf(refusals())), 1+b.rng.IntN(5)
	switch b.rng.IntN(6) {
	case 0:
		b.f.trace.note("broker: the next %d connections break at %s", n, kind.Name())
		b.mu.Lock()
		b.breaks[kind] += n
		b.mu.Unlock()
	case 1:
		b.spoil(kind, n, "answer lost: "+kind.Name(), amends{lost: true})
	case 2:
		b.spoil(kind, n, "answer late: "+kind.Name(), amends{late: time.Duration(1+b.rng.IntN(3000)) * time.Millisecond})
	case 3:
		b.spoil(kind, n, "throttled: "+kind.Name(), amends{throttle: time.Duration(1+b.rng.IntN(3000)) * time.Millisecond})
	case 4:
		kind = pick(b.rng, kindsOf(afterwards()))
		err := pick(b.rng, afterwards()[kind])
		b.spoil(kind, n, "done, answered "+err.Message+": "+kind.Name(), amends{err: err})
	default:
		err := pick(b.rng, refusals()[kind])
		b.f.trace.note("broker: refuses the next %d %s: %s", n, kind.Name(), err.Message)
		b.refuse(kind, n, err)
	}
}

func (b *brokerFaults) spoil(kind kmsg.Key, n int, what string, how amends) {
	b.f.trace.note("broker: next %d, %s", n, what)
	how.heard = func() { b.f.happened("broker", what) }
	b.answers.spoil(kind, n, how)
}

func (b *brokerFaults) refuse(kind kmsg.Key, n int, err *kerr.Error) {
	what := "refused with " + err.Message + ": " + kind.Name()
	var last kmsg.Request
	h := b.f.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kind}, Err: err, Count: n, When: func(req kmsg.Request) bool {
		if req != last { // it is asked for each of its partitions
			last = req
			b.f.happened("broker", what)
		}
		return true
	}})
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refused = append(b.refused, h)
}

// calm ends what has not happened yet.
func (b *brokerFaults) calm() {
	b.answers.calm()
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.breaks)
	for _, h := range b.refused {
		h.Remove()
	}
}
