package streams

import (
	"encoding/binary"
	"testing"
)

// TestMurmur128: upstream's vectors (Murmur3Test).
func TestMurmur128(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]int64{
		"21":                         {5857341059704281894, -5288187638297930763},
		"foobar":                     {-351361463397418609, 8959716011862540668},
		"a-little-bit-long-string":   {8836256500583638442, -198172363548498523},
		"a-little-bit-longer-string": {1838346159335108511, 8794688210320490705},
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": {-4024021876037397259, -1482317706335141238},
		"abc": {1489494923063836066, -5440978547625122829},
	} {
		sum := murmur128([]byte(text), 123)
		have := [2]int64{int64(binary.BigEndian.Uint64(sum[:])), int64(binary.BigEndian.Uint64(sum[8:]))}
		if have != want {
			t.Errorf("%q: %v, want %v", text, have, want)
		}
	}
}
