//go:build chaos

package chaos

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// instance is one process of the fleet, over its incarnations.
type instance struct {
	number   int
	binary   string
	config   string
	dir      string
	listen   string // where it listens; peers and clients dial endpoint, which leads there
	endpoint string
	front    *link   // from peers and clients
	links    []*link // to the brokers, one each

	mu     sync.Mutex
	cmd    *exec.Cmd
	exited chan struct{} // closed when cmd has ended
	paused bool
}

func newInstance(t *testing.T, number int, binary, config string) *instance {
	t.Helper()
	dir := filepath.Join(t.TempDir(), fmt.Sprintf("instance-%d", number))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	front := newLink(t)
	i := &instance{number: number, binary: binary, config: config, dir: dir, listen: freeAddr(t), endpoint: front.addr, front: front}
	for range *nodes {
		i.links = append(i.links, newLink(t))
	}
	return i
}

// freeAddr is an address that was free a moment ago; an instance must come back at the same one.
func freeAddr(t *testing.T) string {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lis.Close() }()
	return lis.Addr().String()
}

func (i *instance) String() string { return fmt.Sprintf("instance %d", i.number) }

// brokers are the addresses at which the instance knows the brokers.
func (i *instance) brokers() []string {
	var all []string
	for _, l := range i.links {
		all = append(all, l.addr)
	}
	return all
}

// state is the state directory.
func (i *instance) state() string { return filepath.Join(i.dir, "state") }

// backup keeps a copy of the state directory of an instance that does not run, in the place of the one before.
func (i *instance) backup() error {
	old := filepath.Join(i.dir, "backup")
	return errors.Join(os.RemoveAll(old), os.CopyFS(old, os.DirFS(i.state())))
}

// recall puts the backup, if there is one, in the place of the state directory, as somebody does who restores a disk.
func (i *instance) recall() error {
	old := filepath.Join(i.dir, "backup")
	if _, err := os.Stat(old); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(os.RemoveAll(i.state()), os.CopyFS(i.state(), os.DirFS(old)))
}

// start runs the next incarnation. Its log goes on in the same file.
func (i *instance) start() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	log, err := os.OpenFile(filepath.Join(i.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	cmd := exec.Command(i.binary, "serve", "-c", i.config,
		"--set", "bootstrap.servers="+strings.Join(i.brokers(), ","), "--set", "state.dir="+i.state(), "--set", "listen="+i.listen, "--set", "application.server="+i.endpoint)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return errors.Join(err, log.Close())
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		_ = log.Close()
		close(exited)
	}()
	i.cmd, i.exited, i.paused = cmd, exited, false
	return nil
}

// signal sends sig to the running incarnation, if there is one.
func (i *instance) signal(sig syscall.Signal) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.cmd == nil {
		return
	}
	_ = i.cmd.Process.Signal(sig)
	i.paused = sig == syscall.SIGSTOP
}

// end ends the incarnation with sig and waits for it.
func (i *instance) end(sig syscall.Signal) {
	i.mu.Lock()
	cmd, exited, paused := i.cmd, i.exited, i.paused
	i.cmd = nil
	i.mu.Unlock()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Signal(sig)
	if paused && sig != syscall.SIGKILL {
		_ = cmd.Process.Signal(syscall.SIGCONT)
	}
	select {
	case <-exited:
	case <-time.After(60 * time.Second):
		_ = cmd.Process.Kill()
		<-exited
	}
}

// drain runs the command against the instance itself and returns how it ended: it may fail, for others may be away.
func (i *instance) drain(ctx context.Context, args ...string) string {
	args = append([]string{"drain", "--addr", i.listen}, args...)
	out, err := exec.CommandContext(ctx, i.binary, args...).CombinedOutput()
	return strings.TrimSpace(fmt.Sprintf("%s %v: %v\n%s", i, args, err, out))
}

// runs reports whether there is an incarnation.
func (i *instance) runs() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.cmd != nil
}

// died reports an incarnation that ended by itself.
func (i *instance) died() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.cmd == nil {
		return false
	}
	select {
	case <-i.exited:
		return true
	default:
		return false
	}
}

// logged counts the lines of the log that say this.
func (i *instance) logged(text string) int {
	b, err := os.ReadFile(filepath.Join(i.dir, "log"))
	if err != nil {
		return 0 // a spare that never ran
	}
	return strings.Count(string(b), text)
}

// tail is the end of the log.
func (i *instance) tail() string {
	b, err := os.ReadFile(filepath.Join(i.dir, "log"))
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-6000):])
}

// build makes the binary under test.
func build(ctx context.Context, t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "statemesh")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", bin, "github.com/statemesh/statemesh/cmd/statemesh")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return bin
}
