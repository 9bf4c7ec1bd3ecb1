package kafka

import (
	"encoding/binary"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// recordCost is what the client spends on a fetched record beside its bytes.
	recordCost = 176
	// sentCost is the same for a record to be produced, with the promise and what the caller keeps of it.
	sentCost = 320
	// leastFetch is the smallest fetch that is asked for, as it comes from the broker.
	leastFetch = 64 << 10
	// usualRatio is what a fetched byte is taken to cost in memory until it is known.
	usualRatio = 4
)

// sizer keeps what a consumer's fetches cost in memory at what they may: a broker counts compressed bytes, which unpack to
// one and a half times as much or to fifty times. It watches the batches and asks for less when they unpack to more.
type sizer struct {
	client atomic.Pointer[kgo.Client]
	// memory is what one fetch may cost.
	memory int64

	mu sync.Mutex
	// fetched and cost are sums over the last batches, older ones counting less.
	fetched, cost int64
	asked         int32
}

var (
	_ kgo.HookNewClient      = (*sizer)(nil)
	_ kgo.HookFetchBatchRead = (*sizer)(nil)
)

func newSizer(fetchBytes int64) *sizer {
	s := &sizer{memory: fetchBytes / concurrentFetches}
	s.asked = s.size()
	return s
}

// OnNewClient is called by the client.
func (s *sizer) OnNewClient(cl *kgo.Client) { s.client.Store(cl) }

// OnFetchBatchRead is called by the client for each batch that it has unpacked.
func (s *sizer) OnFetchBatchRead(_ kgo.BrokerMetadata, _ string, _ int32, m kgo.FetchBatchMetrics) {
	const forget = 1 << 20
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fetched += int64(m.CompressedBytes)
	s.cost += max(int64(m.UncompressedBytes), int64(m.CompressedBytes)) + int64(m.NumRecords)*recordCost
	if s.fetched > forget {
		s.fetched, s.cost = s.fetched/2, s.cost/2
	}
	size := s.size()
	if d := size - s.asked; d < s.asked/8 && -d < s.asked/8 {
		return
	}
	s.asked = size
	if cl := s.client.Load(); cl != nil {
		cl.UpdateFetchMaxBytes(size, min(size, mostOfPartition))
	}
}

// size is how many bytes to ask a broker for.
func (s *sizer) size() int32 {
	n := s.memory / usualRatio
	if s.fetched > 0 {
		n = s.memory * s.fetched / max(s.cost, s.fetched)
	}
	return int32(max(n, leastFetch))
}

// recycler lends the client the memory for what it fetches, and has it back with the last record of a batch. All that is
// fetched is dead within a moment and is most of what a thread allocates: without this the collector runs twice as often.
// What is not used for two collections is freed.
type recycler struct {
	records, bytes [classes]sync.Pool
}

var (
	_ kgo.PoolRecords         = (*recycler)(nil)
	_ kgo.PoolDecompressBytes = (*recycler)(nil)
)

// GetRecords is called by the client, as are the others.
func (r *recycler) GetRecords(n int) []kgo.Record {
	c := classFor(n)
	if s, ok := r.records[c].Get().(*[]kgo.Record); ok {
		return *s
	}
	return make([]kgo.Record, 0, max(n, sizeOf(c)))
}

func (r *recycler) PutRecords(s []kgo.Record) { r.records[classOf(cap(s))].Put(&s) }

func (r *recycler) GetDecompressBytes(compressed []byte, codec kgo.CompressionCodecType) []byte {
	n := usualRatio * len(compressed)
	if codec == kgo.CodecSnappy {
		if v, used := binary.Uvarint(compressed); used > 0 && v < maxInflated { // unless it is framed; then this is a guess too
			n = int(v)
		}
	}
	c := classFor(n)
	if s, ok := r.bytes[c].Get().(*[]byte); ok {
		return *s
	}
	return make([]byte, 0, max(n, sizeOf(c)))
}

func (r *recycler) PutDecompressBytes(s []byte) { r.bytes[classOf(cap(s))].Put(&s) }

// Slices are kept by their capacity, in classes of four to an octave: 8, 10, 12, 14, 16, 20, ...
const classes = 4 * 26

func sizeOf(class int) int { return (4 + class%4) << (class / 4) * 2 }

// classOf is the class whose size a slice of n has at least.
func classOf(n int) int {
	n /= 2
	if n < 4 {
		return 0
	}
	e := bits.Len(uint(n)) - 3
	return min(4*e+n>>e-4, classes-1)
}

// classFor is the class whose slices have room for n.
func classFor(n int) int {
	c := classOf(n)
	if sizeOf(c) < n {
		c++
	}
	return min(c, classes-1)
}
