//go:build unix && !linux

package postgrestest

import "syscall"

// attributes keep signals of the terminal from the child.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: credential()}
}
