package postgrestest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/statemesh/statemesh/internal/childproc"
)

// ErrNotInstalled reports that there is no initdb below /usr/lib/postgresql or in PATH.
var ErrNotInstalled = errors.New("postgrestest: PostgreSQL is not installed; Debian: apt-get install postgresql")

// startTimeout bounds a start. After a SIGKILL the log is replayed first.
const startTimeout = 90 * time.Second

// programs finds the directory with initdb and postgres: the newest of Debian's, which is outside of PATH.
func programs() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil {
		return "", err
	}
	version := func(path string) int {
		n, _ := strconv.Atoi(strings.Split(path, "/")[4])
		return n
	}
	slices.SortFunc(found, func(a, b string) int { return version(b) - version(a) })
	if path, err := exec.LookPath("initdb"); err == nil {
		found = append(found, path)
	}
	for _, initdb := range found {
		dir := filepath.Dir(initdb)
		if _, err := os.Stat(filepath.Join(dir, "postgres")); err == nil {
			return dir, nil
		}
	}
	return "", ErrNotInstalled
}

// Server is one PostgreSQL. Its methods may be called by any goroutine, one at a time.
type Server struct {
	bin, dir string
	port     int
	settings []string

	mu   sync.Mutex
	proc *childproc.Process // nil: not running
}

// Start makes a database cluster in a new directory and returns when it serves. settings are more of "name=value". The caller calls Close.
func Start(ctx context.Context, settings ...string) (*Server, error) {
	bin, err := programs()
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin, settings: settings}
	if s.dir, err = os.MkdirTemp("", "statemesh-postgres-"); err != nil {
		return nil, err
	}
	if err := s.init(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// URL connects as the superuser to the database postgres.
func (s *Server) URL() string {
	return fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable", s.Addr())
}

// Addr is host:port, the same over restarts.
func (s *Server) Addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// Restart starts a server that was stopped or killed, and returns when it serves.
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil {
		return errors.New("postgrestest: the server is running")
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		p, err := s.launch(ctx)
		if err != nil {
			return err
		}
		if err = s.serves(ctx, p); err == nil {
			s.proc = p
			return nil
		}
		p.End(syscall.SIGKILL)
		// The last processes of a server that was killed hold its memory for a moment.
		if ctx.Err() != nil {
			return fmt.Errorf("postgrestest: start: %w; end of its log:\n%s", err, s.LogTail(4096))
		}
	}
}

// Stop ends the server in order, its transactions rolled back. Stopping one that does not run does nothing.
func (s *Server) Stop() { s.end(syscall.SIGINT) }

// Kill ends the server and its processes at once (SIGKILL).
func (s *Server) Kill() { s.end(syscall.SIGKILL) }

// Close stops the server and removes its directory.
func (s *Server) Close() error {
	s.Stop()
	return os.RemoveAll(s.dir)
}

// LogTail is the end of the server's log, at most n bytes.
func (s *Server) LogTail(n int64) string { return childproc.LogTail(s.log(), n) }

func (s *Server) log() string { return filepath.Join(s.dir, "log") }

func (s *Server) init(ctx context.Context) error {
	if err := give(s.dir); err != nil {
		return fmt.Errorf("postgrestest: %w", err)
	}
	ports, err := childproc.FreePorts(1)
	if err != nil {
		return err
	}
	s.port = ports[0]
	cmd := s.command(ctx, "initdb", "-D", s.data(), "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("postgrestest: initdb: %w: %s", err, out)
	}
	return s.Restart(ctx)
}

// launch starts the process, which outlives this call.
func (s *Server) launch(ctx context.Context) (*childproc.Process, error) {
	log, err := os.OpenFile(s.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	args := []string{
		"-D", s.data(), "-h", "127.0.0.1", "-p", strconv.Itoa(s.port), "-k", "",
		"-c", "fsync=off", // a kill loses nothing that the kernel has; the power stays on
		"-c", "max_connections=200", "-c", "shared_buffers=32MB",
	}
	for _, setting := range s.settings {
		args = append(args, "-c", setting)
	}
	cmd := s.command(context.WithoutCancel(ctx), "postgres", args...)
	cmd.Stdout, cmd.Stderr = log, log
	p, err := childproc.Launch(cmd)
	if err = errors.Join(err, log.Close()); err != nil {
		return nil, fmt.Errorf("postgrestest: start: %w", err)
	}
	return p, nil
}

// serves returns when the server takes connections, or with an error when it or ctx ends before.
func (s *Server) serves(ctx context.Context, p *childproc.Process) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		cmd := s.command(ctx, "pg_isready", "-q", "-h", "127.0.0.1", "-p", strconv.Itoa(s.port))
		if cmd.Run() == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-p.Done():
			return errors.New("the process ended")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (s *Server) end(sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return
	}
	workers := children(s.proc.Pid())
	s.proc.End(sig)
	s.proc = nil
	if sig != syscall.SIGKILL {
		return
	}
	for _, pid := range workers {
		_ = syscall.Kill(pid, sig)
	}
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

func (s *Server) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, name), args...)
	cmd.Dir = s.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.dir, "LC_ALL=C", "TZ=UTC"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: credential()}
	return cmd
}

// children lists the processes that a server has begun, where the kernel tells.
func children(pid int) (pids []int) {
	list, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return nil
	}
	for field := range bytes.FieldsSeq(list) {
		if n, err := strconv.Atoi(string(field)); err == nil {
			pids = append(pids, n)
		}
	}
	return pids
}
