//go:build !(invariants || race)

package layered

// opener says where an iterator was opened; only builds with assertions pay for that.
func opener() string { return "unknown: build with -tags invariants to see it" }
