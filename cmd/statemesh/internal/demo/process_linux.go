package demo

import "syscall"

// childAttr keeps a Ctrl-C in the terminal from reaching the child, which this process stops in order, and ends the
// child when this process dies without having done so.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
