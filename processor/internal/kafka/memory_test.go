package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestSizer: whatever the batches unpack to, a fetch of the size asked for costs what it may.
func TestSizer(t *testing.T) {
	const memory = 4 << 20
	tests := []struct {
		name  string
		batch kgo.FetchBatchMetrics
		want  int32
	}{
		{"plain and large", kgo.FetchBatchMetrics{NumRecords: 1, CompressedBytes: 1 << 20, UncompressedBytes: 1 << 20}, memory},
		{"plain and small", kgo.FetchBatchMetrics{NumRecords: 1000, CompressedBytes: 24_000, UncompressedBytes: 24_000}, memory * 24 / 200},
		{"ten times", kgo.FetchBatchMetrics{NumRecords: 1000, CompressedBytes: 32_400, UncompressedBytes: 148_000}, memory / 10},
		{"beyond all measure", kgo.FetchBatchMetrics{NumRecords: 100_000, CompressedBytes: 10_000, UncompressedBytes: 8 << 20}, leastFetch},
		{"control batch, empty", kgo.FetchBatchMetrics{}, memory / usualRatio},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newSizer(concurrentFetches * memory)
			opts := append(testConfig().Opts(), kgo.WithHooks(s))
			cl := client(t, opts)
			if have := s.asked; have != memory/usualRatio {
				t.Fatalf("asks for %d before it knows anything, want %d", have, memory/usualRatio)
			}
			for range 200 {
				s.OnFetchBatchRead(kgo.BrokerMetadata{}, "in", 0, tt.batch)
			}
			if off := s.asked - tt.want; off > tt.want/8 || off < -tt.want/8 {
				t.Errorf("asks for %d, want %d", s.asked, tt.want)
			}
			if tt.batch.CompressedBytes == 0 {
				return
			}
			if have := cl.OptValue(kgo.FetchMaxBytes); have != s.asked {
				t.Errorf("the client asks for %v, want %d", have, s.asked)
			}
			if have, want := cl.OptValue(kgo.FetchMaxPartitionBytes), min(s.asked, mostOfPartition); have != want {
				t.Errorf("the client asks for %v of a partition, want %d", have, want)
			}
		})
	}
}

// TestSizerFollows: a topic whose records change is followed within some megabytes.
func TestSizerFollows(t *testing.T) {
	s := newSizer(16 << 20)
	for range 1000 {
		s.OnFetchBatchRead(kgo.BrokerMetadata{}, "in", 0, kgo.FetchBatchMetrics{NumRecords: 1, CompressedBytes: 16 << 10, UncompressedBytes: 16 << 10})
	}
	if s.asked < 3<<20 {
		t.Fatalf("asks for %d, want nearly 4 MiB", s.asked)
	}
	for range 500 {
		s.OnFetchBatchRead(kgo.BrokerMetadata{}, "in", 0, kgo.FetchBatchMetrics{NumRecords: 500, CompressedBytes: 16 << 10, UncompressedBytes: 240 << 10})
	}
	if s.asked > 300<<10 {
		t.Errorf("asks for %d of what unpacks to 20 times, want a twentieth of 4 MiB", s.asked)
	}
}

// TestRecyclerClasses: what a class lends out has room for what was asked, and comes back to a class that it satisfies.
func TestRecyclerClasses(t *testing.T) {
	for n := range 1 << 17 {
		up, down := classFor(n), classOf(n)
		if sizeOf(up) < n {
			t.Fatalf("%d: class %d has only %d", n, up, sizeOf(up))
		}
		if sizeOf(down) > n && n >= 8 {
			t.Fatalf("%d: class %d wants %d", n, down, sizeOf(down))
		}
		if n >= 16 && sizeOf(up) > n+n/4+2 {
			t.Fatalf("%d: class %d wastes %d", n, up, sizeOf(up)-n)
		}
		if sizeOf(classOf(sizeOf(up))) != sizeOf(up) {
			t.Fatalf("%d: a slice of class %d comes back to class %d", n, up, classOf(sizeOf(up)))
		}
	}
	for _, huge := range []int{maxInflated, 1 << 40} {
		if c := classFor(huge); c < 0 || c >= classes {
			t.Errorf("%d: class %d of %d", huge, c, classes)
		}
	}
}

// TestRecyclerLends: whatever is asked for is there, also where the pool's guess is wrong.
func TestRecyclerLends(t *testing.T) {
	r := new(recycler)
	for _, n := range []int{0, 1, 7, 500, 100_000} {
		recs := r.GetRecords(n)
		if cap(recs) < n {
			t.Errorf("%d records: room for %d", n, cap(recs))
		}
		r.PutRecords(recs)
	}
	for _, compressed := range [][]byte{nil, {0xff}, make([]byte, 10_000)} {
		b := r.GetDecompressBytes(compressed, kgo.CodecSnappy)
		if len(b) != 0 {
			t.Errorf("%d bytes are in use already", len(b))
		}
		r.PutDecompressBytes(b)
		r.PutDecompressBytes(r.GetDecompressBytes(compressed, kgo.CodecZstd))
	}
	r.PutDecompressBytes(nil)
}
