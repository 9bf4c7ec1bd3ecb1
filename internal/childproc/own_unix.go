//go:build unix && !linux

package childproc

import "syscall"

// own keeps signals of the terminal from the child.
func own(a *syscall.SysProcAttr) { a.Setpgid = true }
