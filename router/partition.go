package router

import "github.com/statemesh/statemesh/store"

// Murmur2 is the hash of Kafka's default partitioner (org.apache.kafka.common.utils.Utils.murmur2): 32 bits, seed
// 0x9747b28c. The result is what Java prints, so it may be negative.
func Murmur2(key []byte) int32 {
	const (
		seed uint32 = 0x9747b28c
		m    uint32 = 0x5bd1e995
		r           = 24
	)
	h := seed ^ uint32(len(key))
	for len(key) >= 4 {
		k := uint32(key[0]) | uint32(key[1])<<8 | uint32(key[2])<<16 | uint32(key[3])<<24
		k *= m
		k ^= k >> r
		k *= m
		h *= m
		h ^= k
		key = key[4:]
	}
	switch len(key) {
	case 3:
		h ^= uint32(key[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(key[1]) << 8
		fallthrough
	case 1:
		h ^= uint32(key[0])
		h *= m
	}
	h ^= h >> 13
	h *= m
	h ^= h >> 15
	return int32(h)
}

// PartitionFor is the partition that Kafka's default partitioner gives a record with this key in a topic of n partitions:
// the hash without its sign bit, modulo n. n must be positive. An empty key hashes like any other; a record without a
// key belongs to no partition, and no caller should ask for one.
func PartitionFor(key []byte, n int32) store.Partition {
	return store.Partition((Murmur2(key) & 0x7fffffff) % n)
}
