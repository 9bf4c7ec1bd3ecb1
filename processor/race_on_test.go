//go:build race

package processor

// raceDetector says that the tests run under it.
const raceDetector = true
