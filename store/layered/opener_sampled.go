//go:build !(invariants || race)

package layered

// opener notes who opens a read, for one in 256 random numbers: that costs a microsecond, and a program that forgets to close reads does
// so more than once.
func opener(draw uint32) *callers {
	if draw%256 != 0 {
		return nil
	}
	return whoCalls()
}
