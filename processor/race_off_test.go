//go:build !race

package processor

const raceDetector = false
