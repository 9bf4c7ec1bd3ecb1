package layered

import (
	"encoding/binary"
	"hash/maphash"
	"testing"
)

// TestVersionsServeOtherKeys: the versions that piled up while a reader held back the oldest tick are used again, also for keys
// that come new, so that a table costs no more after many moves than after one.
func TestVersionsServeOtherKeys(t *testing.T) {
	const keys, behind = 1000, 8
	tb := newTable(maphash.MakeSeed())
	tick := uint64(1)
	write := func(first, n int, oldest uint64) {
		for i := range n {
			key := binary.BigEndian.AppendUint32(nil, uint32(first+i))
			tb.put(tb.enter(0, key, tb.hash(key)), []byte("12345678"), 0, marks{current: tick, published: tick - 1, oldest: oldest})
		}
		tick++
	}
	write(0, keys, 0)
	held := tick - 1
	for range behind {
		write(0, keys, held)
	}
	full := tb.bytes.Load()
	for range 3 { // the reader is gone
		write(0, keys, tick-1)
	}
	if have := tb.bytes.Load(); have != full {
		t.Errorf("known keys: %d bytes, %d before", have, full)
	}
	write(keys, 2*keys, tick-1)
	added := tb.bytes.Load() - full
	if most := int64(2 * keys * (4 + entryCost)); added > most {
		t.Errorf("%d new keys cost %d bytes, want at most %d: their versions were there", 2*keys, added, most)
	}
	for i := range 3 * keys {
		key := binary.BigEndian.AppendUint32(nil, uint32(i))
		e := tb.find(0, key, tb.hash(key))
		if e == nil {
			t.Fatalf("key %d is not there", i)
		}
		if v := e.at(tick); v == nil || string(v.data) != "12345678" {
			t.Fatalf("key %d: %v", i, v)
		}
	}
}
