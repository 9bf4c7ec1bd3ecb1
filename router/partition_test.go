package router

import (
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/store"
)

// The vectors are those of upstream's UtilsTest and of an independent implementation that reproduces them.
func TestMurmur2Vectors(t *testing.T) {
	for _, tc := range []struct {
		key  string
		hash int32
		by   map[int32]store.Partition
	}{
		{"21", -973932308, nil},
		{"foobar", -790332482, nil},
		{"a-little-bit-long-string", -985981536, nil},
		{"a-little-bit-longer-string", -1486304829, nil},
		{"abc", 479470107, nil},
		{"a", -1563381124, by(1, 0, 4, 4, 24)},
		{"b", -1853091852, by(2, 0, 2, 8, 46)},
		{"A", 1592744578, by(1, 2, 4, 10, 28)},
		{"B", 1411423576, by(1, 0, 4, 4, 26)},
		{"key", -1079937367, by(1, 1, 1, 1, 31)},
		{"key1", 28543940, by(2, 0, 2, 8, 40)},
		{"hello", 2132663229, by(0, 1, 3, 9, 29)},
		{"kafka", -798503068, by(1, 0, 4, 4, 30)},
		{"customer-1", 1939597761, by(0, 1, 3, 9, 11)},
		{"1", -1993445489, by(0, 3, 3, 3, 9)},
		{"0", 971027396, by(2, 0, 2, 8, 46)},
		{"\x00", 375494588, by(2, 0, 2, 8, 38)},
		{"\x00\x00\x00\x01", -173113808, by(0, 0, 0, 0, 40)},
		{"\x00\x00\x00\x02", 1586072243, by(2, 3, 5, 11, 43)},
		{"\x00\x00\x00\x00\x00\x00\x00\x01", 2100486060, by(0, 0, 0, 0, 10)},
		{"\x00\x00\x00\x00\x00\x00\x00\x02", 1195241604, by(0, 0, 0, 0, 4)},
		{"the quick brown fox", 2136040129, by(1, 1, 1, 1, 29)},
	} {
		if got := Murmur2([]byte(tc.key)); got != tc.hash {
			t.Errorf("%q: murmur2 %d, want %d", tc.key, got, tc.hash)
		}
		for n, want := range tc.by {
			if got := PartitionFor([]byte(tc.key), n); got != want {
				t.Errorf("%q of %d: partition %d, want %d", tc.key, n, got, want)
			}
		}
	}
}

func by(n3, n4, n6, n12, n50 store.Partition) map[int32]store.Partition {
	return map[int32]store.Partition{3: n3, 4: n4, 6: n6, 12: n12, 50: n50}
}

// MR-03: the router and the producers agree on the partition of a key: hashes with the top bit set, empty keys, and the
// key that another client once sent elsewhere.
func TestPartitionIsThatOfTheProducer(t *testing.T) {
	if got := PartitionFor([]byte("100:48069"), 12); got != 9 {
		t.Fatalf("100:48069 of 12: partition %d, want 9", got)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	producer := kgo.StickyKeyPartitioner(nil).ForTopic("t")
	negative := 0
	for i := range 10_000 {
		key := make([]byte, rng.IntN(40))
		for j := range key {
			key[j] = byte(rng.Uint32())
		}
		if Murmur2(key) < 0 {
			negative++
		}
		n := 1 + rng.IntN(500)
		if got, want := PartitionFor(key, int32(n)), producer.Partition(&kgo.Record{Key: key}, n); int(got) != want {
			t.Fatalf("key %d %x of %d: partition %d, the producer says %d", i, key, n, got, want)
		}
	}
	if negative < 4000 {
		t.Fatalf("only %d hashes have the top bit set", negative)
	}
}

func BenchmarkPartitionFor(b *testing.B) {
	key := []byte("customer-0000012345")
	b.ReportAllocs()
	var sum store.Partition
	for b.Loop() {
		sum += PartitionFor(key, 12)
	}
	_ = sum
}
