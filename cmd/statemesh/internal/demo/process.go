package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// event is a line that a child writes to standard output (-o json).
type event struct {
	Event    string `json:"event"`
	Endpoint string `json:"endpoint"`
	Instance string `json:"instance"`
}

// process is a child of this process. It ends by stop, kill, or by itself.
type process struct {
	name    string
	cmd     *exec.Cmd
	logPath string
	begun   time.Time

	events chan event    // closed when the child has closed its output
	exited chan struct{} // closed when the child has ended; err is set before
	err    error
}

// start runs this binary with args. Its log goes to <dir>/<name>.log.
func start(binary, dir, name string, env []string, args ...string) (*process, error) {
	p := &process{
		name: name, logPath: filepath.Join(dir, name+".log"), begun: time.Now(),
		events: make(chan event, 16), exited: make(chan struct{}),
	}
	log, err := os.OpenFile(p.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()    // the child has its own
	p.cmd = exec.Command(binary, args...) //nolint:noctx // it is stopped in order, not killed with a context
	p.cmd.Stderr, p.cmd.Env, p.cmd.SysProcAttr = log, env, childAttr()
	// A pipe of our own: that of StdoutPipe is closed by Wait, under the reader.
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.cmd.Stdout = in
	if err := errors.Join(p.cmd.Start(), in.Close()); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", name, err), out.Close())
	}
	var reader sync.WaitGroup
	reader.Go(func() { p.read(out) })
	go func() {
		defer close(p.exited)
		p.err = p.cmd.Wait()
		reader.Wait()
	}()
	return p, nil
}

// read turns the child's output into events until it ends.
func (p *process) read(out io.ReadCloser) {
	defer close(p.events)
	defer func() { _ = out.Close() }()
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) == nil {
			select {
			case p.events <- e:
			default: // nobody waits for it any more
			}
		}
	}
}

// await returns the next event of a kind. A child that ends first is an error with the last lines of its log.
func (p *process) await(ctx context.Context, kind string) (event, error) {
	for {
		select {
		case e, ok := <-p.events:
			if !ok {
				<-p.exited
				return event{}, fmt.Errorf("%s ended before it was %s: %w\n%s", p.name, kind, errOr(p.err), p.tail())
			}
			if e.Event == kind {
				return e, nil
			}
		case <-ctx.Done():
			return event{}, fmt.Errorf("%s was not %s in time: %w\n%s", p.name, kind, context.Cause(ctx), p.tail())
		}
	}
}

func errOr(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// alive reports whether the child has not ended.
func (p *process) alive() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// kill ends the child at once, with SIGKILL where there is one, and waits for it.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// stop asks the child to end and kills it if it does not within the time. It returns how a child that was asked ended.
func (p *process) stop(within time.Duration) error {
	if !p.alive() {
		return nil
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.kill()
		return nil //nolint:nilerr // this system has no such signal, or the child has just ended
	}
	select {
	case <-p.exited:
		if p.err != nil {
			return fmt.Errorf("%s: %w after SIGTERM\n%s", p.name, p.err, p.tail())
		}
		return nil
	case <-time.After(within):
		p.kill()
		return fmt.Errorf("%s did not end within %s after SIGTERM\n%s", p.name, within, p.tail())
	}
}

// tail returns the last lines of the child's log.
func (p *process) tail() string {
	const n = 8
	data, err := os.ReadFile(p.logPath)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// errors returns the first errors of the child's log.
func (p *process) errors() []string {
	const most = 5
	data, err := os.ReadFile(p.logPath)
	if err != nil {
		return []string{err.Error()}
	}
	var found []string
	for line := range strings.Lines(string(data)) {
		if strings.Contains(line, "level=ERROR") && len(found) < most {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

// memory is the resident memory of the child in bytes, 0 where it cannot be told.
func (p *process) memory() int64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid()))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		var kib int64
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	return 0
}
