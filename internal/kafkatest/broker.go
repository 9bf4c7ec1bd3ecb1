package kafkatest

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"maps"
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

//go:embed server.properties log4j2.yaml
var files embed.FS

// Config of a broker, or of a cluster of them. The zero value of a field means its default.
type Config struct {
	// Dir holds data, configuration and log; of a cluster, a directory with these per node. Required; it must be empty at
	// the first start.
	Dir string
	// Nodes of the cluster, each a broker and a voter of the controllers' quorum. Default 1, and only StartCluster takes
	// more. Topics then have three replicas unless they are made with a number of their own, and two must be in sync.
	Nodes int
	// Libs is the directory of the jars. Default: .kafka/libs of the module that the working directory is in.
	Libs string
	// Properties override server.properties.
	Properties map[string]string
	// Heap of each JVM. Default "512m"; "256m" in a cluster.
	Heap string
	// Warm lets the JVM compile with both compilers: a slower start and a faster broker, for measurements. Tests want the
	// fast start.
	Warm bool
	// Links are further listeners, each with the addresses that its clients are told to use, one per node: those of
	// proxies, which then see all that goes between them and the brokers. Broker.Behind is where a proxy leads to.
	Links [][]string
	// StartTimeout bounds a start. Default 90s: after a SIGKILL on a loaded machine a start takes 15s.
	StartTimeout time.Duration
}

func (c Config) withDefaults() (Config, error) {
	if c.Dir == "" {
		return c, errors.New("kafkatest Dir: required")
	}
	if c.Nodes == 0 {
		c.Nodes = 1
	}
	for link, told := range c.Links {
		if len(told) != c.Nodes {
			return c, fmt.Errorf("kafkatest Links[%d]: %d addresses for %d nodes", link, len(told), c.Nodes)
		}
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
		if c.Nodes > 1 {
			c.Heap = "256m"
		}
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
	cfg     Config
	id      int      // of the node, from 1
	dir     string   // of this node
	addr    string   // of the clients' listener, the same over restarts
	control string   // of the controller's listener
	voters  string   // the quorum of controllers
	behind  []string // of the listeners of cfg.Links

	mu   sync.Mutex
	proc *childproc.Process // nil: not running
}

// Start formats Dir, starts a broker on free ports and returns when it serves. The caller stops it.
func Start(ctx context.Context, cfg Config) (*Broker, error) {
	if cfg.Nodes > 1 {
		return nil, fmt.Errorf("kafkatest Nodes: %d; StartCluster starts more than one", cfg.Nodes)
	}
	c, err := StartCluster(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return c.nodes[0], nil
}

// ID of the node, from 1.
func (b *Broker) ID() int { return b.id }

// Brokers is what clients of this one node are configured with.
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
	return b.proc.Pid()
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
	p, err := childproc.Launch(cmd)
	if err = errors.Join(err, log.Close()); err != nil {
		return fmt.Errorf("kafkatest: start: %w", err)
	}
	if err := serves(ctx, p, b.addr); err != nil {
		p.End(syscall.SIGKILL)
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
func (b *Broker) LogTail(n int64) string { return childproc.LogTail(b.path("broker.log"), n) }

func (b *Broker) end(sig syscall.Signal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.proc != nil {
		b.proc.End(sig)
		b.proc = nil
	}
}

func (b *Broker) signal(sig syscall.Signal) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.proc == nil {
		return errors.New("kafkatest: the broker is not running")
	}
	return syscall.Kill(b.proc.Pid(), sig)
}

func (b *Broker) path(name string) string { return filepath.Join(b.dir, name) }

// format writes the configuration and makes the data directory.
func (b *Broker) format(ctx context.Context) error {
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return err
	}
	if err := b.writeFiles(); err != nil {
		return err
	}
	cmd := b.java(ctx, "128m", "kafka.tools.StorageTool", "format", "-t", "c3RhdGVtZXNoLXRlc3QtMQ", "-c", b.path("server.properties"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kafkatest: format node %d: %w: %s", b.id, err, out)
	}
	return nil
}

func (b *Broker) java(ctx context.Context, heap, class string, args ...string) *exec.Cmd {
	flags := []string{"-Xmx" + heap, "-Dlog4j2.configurationFile=" + b.path("log4j2.yaml")}
	if !b.cfg.Warm {
		flags = append(flags, "-XX:TieredStopAtLevel=1")
	}
	if b.cfg.Nodes > 1 {
		flags = append(flags, "-XX:+UseSerialGC") // several heaps share the processors
	}
	flags = append(flags, "-cp", filepath.Join(b.cfg.Libs, "*"), class)
	cmd := exec.CommandContext(ctx, "java", append(flags, args...)...)
	cmd.Dir = b.dir
	return cmd
}

func (b *Broker) writeFiles() error {
	listeners := []string{"PLAINTEXT://" + b.addr, "CONTROLLER://" + b.control}
	advertised := []string{"PLAINTEXT://" + b.addr}
	protocols := []string{"PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT"}
	for i, told := range b.cfg.Links {
		listeners = append(listeners, fmt.Sprintf("LINK%d://%s", i, b.behind[i]))
		advertised = append(advertised, fmt.Sprintf("LINK%d://%s", i, told[b.id-1]))
		protocols = append(protocols, fmt.Sprintf("LINK%d:PLAINTEXT", i))
	}
	own := b.cfg.replication()
	maps.Copy(own, map[string]string{
		"node.id":                        strconv.Itoa(b.id),
		"listeners":                      strings.Join(listeners, ","),
		"advertised.listeners":           strings.Join(advertised, ","),
		"listener.security.protocol.map": strings.Join(protocols, ","),
		"controller.quorum.voters":       b.voters,
		"log.dirs":                       b.path("data"),
	})
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
