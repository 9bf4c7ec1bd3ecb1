//go:build unix && !linux

package kafkatest

import "syscall"

// ownProcess keeps signals of the terminal from the child.
func ownProcess() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
