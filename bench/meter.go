package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// usage is what the process has used up to a moment.
type usage struct {
	at  time.Time
	cpu time.Duration
}

func used() usage {
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		return usage{at: time.Now()}
	}
	return usage{at: time.Now(), cpu: time.Duration(ru.Utime.Nano() + ru.Stime.Nano())}
}

// since is what was used after from.
func (u usage) since(from usage) (wall, cpu time.Duration) {
	return u.at.Sub(from.at), u.cpu - from.cpu
}

// memoryMB reads a field of /proc/<pid>/status, in MB.
func memoryMB(pid, field string) (float64, error) {
	b, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, field); ok {
			kb, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 64)
			return kb / 1024, err
		}
	}
	return 0, fmt.Errorf("/proc/%s/status: no %s", pid, field)
}

// median sorts v.
func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

func perSecond(n int, d time.Duration) float64 { return float64(n) / d.Seconds() }

// key is the i-th key, "user-" and eleven digits: 16 bytes, as in the Kafka Streams baseline. It is made inside of what is
// measured, so it is made cheaply.
func key(i int) []byte {
	k := []byte("user-00000000000")
	for at := len(k) - 1; i > 0; at, i = at-1, i/10 {
		k[at] += byte(i % 10)
	}
	return k
}
