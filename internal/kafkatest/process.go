package kafkatest

import (
	"context"
	"errors"
	"net"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// process is a started child and who waits for it.
type process struct {
	pid  int
	done chan struct{} // closed when it has ended
}

// launch starts cmd. The kernel kills it when we die (see ownProcess), which goes by the thread that started it: that
// thread stays, waiting for the child.
func launch(cmd *exec.Cmd) (*process, error) {
	p := &process{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		cmd.SysProcAttr = ownProcess()
		err := cmd.Start()
		if err == nil {
			p.pid = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			_ = cmd.Wait() // how a broker ends is its log's matter
		}
	}()
	return p, <-started
}

// serves returns when something listens at addr, or with an error when the process or ctx ends before.
func (p *process) serves(ctx context.Context, addr string) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var dialer net.Dialer
	for {
		if conn, err := dialer.DialContext(ctx, "tcp", addr); err == nil {
			return conn.Close()
		}
		select {
		case <-tick.C:
		case <-p.done:
			return errors.New("the process ended")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// end signals the process and waits until it is gone.
func (p *process) end(sig syscall.Signal) {
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

// freePorts asks the kernel for ports that nobody listens on.
func freePorts(n int) ([]int, error) {
	ports := make([]int, n)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it listens at once or not at all
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }()
		ports[i] = l.Addr().(*net.TCPAddr).Port
	}
	return ports, nil
}
