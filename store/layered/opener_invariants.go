//go:build invariants || race

package layered

// opener notes who opens a read.
func opener(uint32) *callers { return whoCalls() }
