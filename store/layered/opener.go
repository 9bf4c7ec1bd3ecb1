package layered

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
)

// callers are the program counters of who opened a read, 0 behind the last.
type callers [16]uintptr

func whoCalls() *callers {
	c := new(callers)
	runtime.Callers(3, c[:])
	return c
}

// describe says where a read was opened: the first caller outside of this package.
func describe(c *callers) string {
	if c == nil {
		return "not noted: one in 256 is, and all with -tags invariants"
	}
	pcs := c[:]
	if n := slices.Index(pcs, 0); n >= 0 {
		pcs = pcs[:n]
	}
	frames := runtime.CallersFrames(pcs)
	for {
		f, more := frames.Next()
		if !strings.Contains(f.Function, "store/layered.") || !more {
			return fmt.Sprintf("%s (%s:%d)", f.Function, f.File, f.Line)
		}
	}
}
