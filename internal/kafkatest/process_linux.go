package kafkatest

import "syscall"

// ownProcess keeps signals of the terminal from the child, and lets no child outlive us, however we end.
func ownProcess() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
