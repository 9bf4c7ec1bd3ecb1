//go:build invariants || race

package layered

// opener notes who opens a read.
func opener() []uintptr { return callers() }
