package main

import (
	"fmt"
	"os"
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

// residentMB is the resident memory of the process in MB, 0 where the system does not say.
func residentMB() float64 {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 64)
			if err == nil {
				return kb / 1024
			}
		}
	}
	return 0
}

func perSecond(n int, d time.Duration) float64 { return float64(n) / d.Seconds() }

// key is the i-th key: 16 bytes, as in the Kafka Streams baseline.
func key(i int) []byte { return fmt.Appendf(nil, "user-%011d", i) }
