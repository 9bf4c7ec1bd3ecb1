package childproc

import "syscall"

// own keeps signals of the terminal from the child, and lets no child outlive us.
func own(a *syscall.SysProcAttr) { a.Setpgid, a.Pdeathsig = true, syscall.SIGKILL }
