//go:build invariants || race

package layered

import (
	"fmt"
	"runtime"
	"strings"
)

// opener says where an iterator was opened: the first caller outside of this package.
func opener() string {
	pcs := make([]uintptr, 16)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for {
		f, more := frames.Next()
		if !strings.Contains(f.Function, "store/layered.") || !more {
			return fmt.Sprintf("%s (%s:%d)", f.Function, f.File, f.Line)
		}
	}
}
