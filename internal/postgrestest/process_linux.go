package postgrestest

import "syscall"

// attributes keep signals of the terminal from the child, and let no child outlive us, however we end.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Credential: credential()}
}
