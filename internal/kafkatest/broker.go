package kafkatest

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

//go:embed server.properties log4j2.yaml
var files embed.FS

// Config of a broker. The zero value of a field means its default.
type Config struct {
	// Dir holds data, configuration and log. Required; it must be empty at the first start.
	Dir string
	// Libs is the directory of the jars. Default: .kafka/libs of the module that the working directory is in.
	Libs string
	// Properties override server.properties.
	Properties map[string]string
	// Heap of the JVM. Default "512m".
	Heap string
	// Warm lets the JVM compile with both compilers: a slower start and a faster broker, for measurements. Tests want the
	// fast start.
	Warm bool
	// Links are further listeners, each with the address that its clients are told to use: that of a proxy, which then
	// sees all that goes between them and the broker. Broker.Behind is where the proxy leads to.
	Links []string
	// StartTimeout bounds a start. Default 90s: after a SIGKILL on a loaded machine a start takes 15s.
	StartTimeout time.Duration
}

func (c Config) withDefaults() (Config, error) {
	if c.Dir == "" {
		return c, errors.New("kafkatest Dir: required")
	}
	if c.Libs == "" {
		root, err := moduleRoot()
		if err != nil {
			return c, err
		}
		c.Libs = filepath.Join(root, ".kafka", "libs")
	}
	if jars, _ := filepath.Glob(filepath.Join(c.Libs, "kafka_*.jar")); len(jars) == 0 {
		return c, fmt.Errorf("kafkatest: no Kafka in %s; make kafka-fetch gets it", c.Libs)
	}
	if c.Heap == "" {
		c.Heap = "512m"
	}
	if c.StartTimeout == 0 {
		c.StartTimeout = 90 * time.Second
	}
	return c, nil
}

func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("kafkatest: the working directory is in no module; set Libs")
		}
		dir = parent
	}
}

// Broker is one broker process. Its methods may be called by any goroutine, one at a time.
type Broker struct {
	cfg    Config
	addr   string   // of the clients' listener, the same over restarts
	behind []string // of the listeners of cfg.Links

	mu   sync.Mutex
	proc *process // nil: not running
}

// Start formats Dir, starts a broker on free ports and returns when it serves. The caller stops it.
func Start(ctx context.Context, cfg Config) (*Broker, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(2 + len(cfg.Links))
	if err != nil {
		return nil, err
	}
	b := &Broker{cfg: cfg, addr: fmt.Sprintf("127.0.0.1:%d", ports[0])}
	for _, port := range ports[2:] {
		b.behind = append(b.behind, fmt.Sprintf("127.0.0.1:%d", port))
	}
	if err := b.writeFiles(ports[1]); err != nil {
		return nil, err
	}
	format := b.java(ctx, "128m", "kafka.tools.StorageTool", "format", "-t", "c3RhdGVtZXNoLXRlc3QtMQ", "-c", b.path("server.properties"))
	if out, err := format.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("kafkatest: format: %w: %s", err, out)
	}
	if err := b.Restart(ctx); err != nil {
		return nil, err
	}
	return b, nil
}

// Brokers is what clients are configured with.
func (b *Broker) Brokers() []string { return []string{b.addr} }

// Behind is where the listener of Config.Links[link] listens.
func (b *Broker) Behind(link int) string { return b.behind[link] }

// Pid of the running process; 0 when it is not running.
func (b *Broker) Pid() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.proc == nil {
		return 0
	}
	return b.proc.pid
}

// Restart starts a broker that was stopped or killed, on the same directory and ports, and returns when it serves.
func (b *Broker) Restart(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.proc != nil {
		return errors.New("kafkatest: the broker is running")
	}
	ctx, cancel := context.WithTimeout(ctx, b.cfg.StartTimeout)
	defer cancel()
	log, err := os.OpenFile(b.path("broker.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	// The process outlives this call, so it is not bound to ctx.
	cmd := b.java(context.WithoutCancel(ctx), b.cfg.Heap, "kafka.Kafka", b.path("server.properties"))
	cmd.Stdout, cmd.Stderr = log, log
	p, err := launch(cmd)
	if err = errors.Join(err, log.Close()); err != nil {
		return fmt.Errorf("kafkatest: start: %w", err)
	}
	if err := p.serves(ctx, b.addr); err != nil {
		p.end(syscall.SIGKILL)
		return fmt.Errorf("kafkatest: start: %w; end of its log:\n%s", err, b.LogTail(4096))
	}
	b.proc = p
	return nil
}

// Stop ends the broker in order (SIGTERM), within 30 seconds, else it is killed. Stopping one that does not run does
// nothing.
func (b *Broker) Stop() { b.end(syscall.SIGTERM) }

// Kill ends the broker at once (SIGKILL) and returns when the process is gone.
func (b *Broker) Kill() { b.end(syscall.SIGKILL) }

// Pause stops the process without ending it (SIGSTOP); Resume lets it go on.
func (b *Broker) Pause() error { return b.signal(syscall.SIGSTOP) }

// Resume ends a Pause.
func (b *Broker) Resume() error { return b.signal(syscall.SIGCONT) }

// LogTail is the end of the broker's log, at most n bytes.
func (b *Broker) LogTail(n int64) string {
	f, err := os.Open(b.path("broker.log"))
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

func (b *Broker) end(sig syscall.Signal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.proc != nil {
		b.proc.end(sig)
		b.proc = nil
	}
}

func (b *Broker) signal(sig syscall.Signal) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.proc == nil {
		return errors.New("kafkatest: the broker is not running")
	}
	return syscall.Kill(b.proc.pid, sig)
}

func (b *Broker) path(name string) string { return filepath.Join(b.cfg.Dir, name) }

func (b *Broker) java(ctx context.Context, heap, class string, args ...string) *exec.Cmd {
	flags := []string{"-Xmx" + heap, "-Dlog4j2.configurationFile=" + b.path("log4j2.yaml")}
	if !b.cfg.Warm {
		flags = append(flags, "-XX:TieredStopAtLevel=1")
	}
	flags = append(flags, "-cp", filepath.Join(b.cfg.Libs, "*"), class)
	cmd := exec.CommandContext(ctx, "java", append(flags, args...)...)
	cmd.Dir = b.cfg.Dir
	return cmd
}

func (b *Broker) writeFiles(controller int) error {
	listeners := []string{"PLAINTEXT://" + b.addr, fmt.Sprintf("CONTROLLER://127.0.0.1:%d", controller)}
	advertised := []string{"PLAINTEXT://" + b.addr}
	protocols := []string{"PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT"}
	for i, told := range b.cfg.Links {
		listeners = append(listeners, fmt.Sprintf("LINK%d://%s", i, b.behind[i]))
		advertised = append(advertised, fmt.Sprintf("LINK%d://%s", i, told))
		protocols = append(protocols, fmt.Sprintf("LINK%d:PLAINTEXT", i))
	}
	own := map[string]string{
		"node.id":                        "1",
		"listeners":                      strings.Join(listeners, ","),
		"advertised.listeners":           strings.Join(advertised, ","),
		"listener.security.protocol.map": strings.Join(protocols, ","),
		"controller.quorum.voters":       fmt.Sprintf("1@127.0.0.1:%d", controller),
		"log.dirs":                       b.path("data"),
	}
	maps.Copy(own, b.cfg.Properties)
	base, err := files.ReadFile("server.properties")
	if err != nil {
		return err
	}
	log, err := files.ReadFile("log4j2.yaml")
	if err != nil {
		return err
	}
	var props bytes.Buffer
	for line := range strings.Lines(string(base)) {
		if key, _, ok := strings.Cut(line, "="); !ok || own[strings.TrimSpace(key)] == "" {
			props.WriteString(line)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(own)) {
		fmt.Fprintf(&props, "%s=%s\n", key, own[key])
	}
	return errors.Join(
		os.WriteFile(b.path("server.properties"), props.Bytes(), 0o600),
		os.WriteFile(b.path("log4j2.yaml"), log, 0o600),
	)
}

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
