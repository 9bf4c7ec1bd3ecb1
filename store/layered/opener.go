package layered

import (
	"fmt"
	"runtime"
	"strings"
)

// callers are the program counters of who opens a read.
func callers() []uintptr {
	pcs := make([]uintptr, 16)
	return pcs[:runtime.Callers(3, pcs)]
}

// describe says where a read was opened: the first caller outside of this package.
func describe(pcs []uintptr) string {
	if len(pcs) == 0 {
		return "not noted: one in 256 is, and all with -tags invariants"
	}
	frames := runtime.CallersFrames(pcs)
	for {
		f, more := frames.Next()
		if !strings.Contains(f.Function, "store/layered.") || !more {
			return fmt.Sprintf("%s (%s:%d)", f.Function, f.File, f.Line)
		}
	}
}
