//go:build unix

// Package childproc runs the services that tests and tools start themselves: each ends with whoever started it, however that ends, and is
// waited for.
package childproc

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Process is a started child. All methods are safe for concurrent use.
type Process struct {
	pid  int
	done chan struct{}
}

// Launch starts cmd, away from the signals of the terminal; what cmd.SysProcAttr says beside that stays. Where the kernel can, it kills the child
// when we die, which goes by the thread that started it: that thread stays, waiting for the child.
func Launch(cmd *exec.Cmd) (*Process, error) {
	p := &Process{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		if cmd.SysProcAttr == nil {
			cmd.SysProcAttr = &syscall.SysProcAttr{}
		}
		own(cmd.SysProcAttr)
		err := cmd.Start()
		if err == nil {
			p.pid = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ends is its log's matter
		}
	}()
	return p, <-started
}

// Pid of the child.
func (p *Process) Pid() int { return p.pid }

// Done is closed when it has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// End signals the child and waits until it is gone. One that is stopped is woken, and one that does not heed for 30 s is killed.
func (p *Process) End(sig syscall.Signal) {
	_ = syscall.Kill(p.pid, syscall.SIGCONT) // a paused one hears nothing
	_ = syscall.Kill(p.pid, sig)
	t := time.NewTimer(30 * time.Second)
	defer t.Stop()
	select {
	case <-p.done:
	case <-t.C:
		_ = syscall.Kill(p.pid, syscall.SIGKILL)
		<-p.done
	}
}

// LogTail is the end of a file, at most n bytes, or why there is none.
func LogTail(path string, n int64) string {
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = f.Close() }()
	if st, err := f.Stat(); err == nil && st.Size() > n {
		_, _ = f.Seek(-n, io.SeekEnd)
	}
	tail, _ := io.ReadAll(f)
	return string(tail)
}

// FreePorts asks the kernel for n ports of loopback that nobody listens on.
func FreePorts(n int) (ports []int, err error) {
	for range n {
		l, e := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it listens at once or not at all
		if e != nil {
			return nil, errors.Join(err, e)
		}
		defer func() { err = errors.Join(err, l.Close()) }() // at the end: a port that is free again may be given again
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
