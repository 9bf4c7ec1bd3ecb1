package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh"
	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/views"
)

const (
	idleFor = 30 * time.Second
	tick    = 10 * time.Millisecond // USER_HZ is 100 everywhere
)

// resident measures one instance in a process of its own, with the defaults of a served instance: four tasks count all
// records, and then nothing happens for a while.
func resident(ctx context.Context, b *bench) (err error) {
	const topic, partitions = "resident", 4
	if err := b.create(ctx, topic, partitions, nil); err != nil {
		return err
	}
	if err := b.load(ctx, topic, b.records, b.input); err != nil {
		return err
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.brokers...))
	if err != nil {
		return err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	child, err := b.startChild(ctx, topic)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, child.stop()) }()
	if err := caughtUp(ctx, adm, topic, child.exited); err != nil {
		return err
	}
	busy, err := child.memory("VmHWM:")
	if err != nil {
		return err
	}
	// What is recent moves to the engine 5 seconds after its commit; what was needed for a burst goes back to the system.
	if err := pause(ctx, 15*time.Second); err != nil {
		return err
	}
	cpu, logs, err := child.idle(ctx, adm)
	if err != nil {
		return err
	}
	now, err := child.memory("VmRSS:")
	if err != nil {
		return err
	}
	anon, err := child.memory("RssAnon:")
	if err != nil {
		return err
	}
	name := fmt.Sprintf("instance of %d tasks, %d keys", partitions, b.keys)
	b.table.figure(name+": most while counting", "resident MB", busy, "< 150")
	b.table.figure(name+": idle", "resident MB", now, "< 150")
	b.table.figure(name+": idle, without mapped files", "resident MB", anon, "")
	b.table.figure(name+": idle", "% of a core", 100*cpu.Seconds()/idleFor.Seconds(), "< 1")
	b.table.figure(name+fmt.Sprintf(": idle for %s", idleFor), "records written", float64(logs), "0")
	return nil
}

// serve is what the process of resident does, until its standard input ends.
func (b *bench) serve(ctx context.Context, topic string, stdin io.Reader) error {
	if b.profiles != "" { // before what is allocated while starting
		runtime.MemProfileRate = 64 << 10
	}
	cfg := statemesh.Config{
		Processor: processor.Config{
			ApplicationID: topic, Kafka: processor.KafkaConfig{Brokers: b.brokers}, NumStandbyReplicas: b.standbys,
		},
		Views:       []views.View{{Name: b.view, Topic: topic, Format: views.Bytes, Type: views.Count}},
		StateDir:    b.dir,
		Listen:      b.listen,
		MemoryLimit: b.memoryLimit,
	}
	if b.view == "rows" {
		cfg.Views[0].Type = views.Table
	}
	if topic == memoryApp {
		cfg.Views = memoryViews()
	}
	return b.serveUntil(ctx, cfg, stdin)
}

// serveUntil runs an instance until standard input ends.
func (b *bench) serveUntil(ctx context.Context, cfg statemesh.Config, stdin io.Reader) error {
	inst, err := statemesh.New(cfg)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	profiled := make(chan error, 1)
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, stdin)
		if b.profiles != "" {
			profiled <- b.profileMemory("instance")
		}
		close(profiled)
	}()
	err = inst.Run(ctx)
	select {
	case e := <-profiled:
		return errors.Join(err, e)
	default:
		return err
	}
}

// child is that process.
type child struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	exited chan struct{}
	err    error // once exited is closed
}

func (b *bench) startChild(ctx context.Context, topic string, more ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args := []string{"-brokers", strings.Join(b.brokers, ","), "-serve", topic, "-dir", filepath.Join(b.dir, topic), "-profile", b.profiles}
	return b.startProcess(exec.CommandContext(ctx, self, append(args, more...)...))
}

// startProcess starts one that ends with its standard input.
func (b *bench) startProcess(cmd *exec.Cmd) (*child, error) {
	cmd.Stderr = b.log
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &child{cmd: cmd, stdin: stdin, exited: make(chan struct{})}
	go func() {
		c.err = cmd.Wait()
		close(c.exited)
	}()
	return c, nil
}

func (c *child) stop() error {
	err := c.stdin.Close()
	<-c.exited
	return errors.Join(err, c.err)
}

// memory of the process in MB, by its name in /proc.
func (c *child) memory(field string) (float64, error) {
	return memoryMB(strconv.Itoa(c.cmd.Process.Pid), field)
}

// idle returns the CPU that the process uses while nothing happens, and how many records anybody wrote meanwhile to
// what it might write to: changelogs, offsets, transactions.
func (c *child) idle(ctx context.Context, adm *kadm.Client) (cpu time.Duration, records int64, err error) {
	before, err := c.ticks()
	if err != nil {
		return 0, 0, err
	}
	first, err := written(ctx, adm)
	if err != nil {
		return 0, 0, err
	}
	if err := pause(ctx, idleFor); err != nil {
		return 0, 0, err
	}
	last, err := written(ctx, adm)
	if err != nil {
		return 0, 0, err
	}
	after, err := c.ticks()
	return time.Duration(after-before) * tick, last - first, err
}

// ticks of CPU that the process has used, user and system.
func (c *child) ticks() (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(b), ") ") // the name before it may contain anything
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat: %d fields", c.cmd.Process.Pid, len(fields))
	}
	user, err := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	return user + system, errors.Join(err, err2)
}

// written is the sum of the end offsets of all topics, the broker's own included.
func written(ctx context.Context, adm *kadm.Client) (int64, error) {
	topics, err := adm.ListTopicsWithInternal(ctx)
	if err != nil {
		return 0, err
	}
	ends, err := adm.ListEndOffsets(ctx, topics.Names()...)
	if err != nil {
		return 0, err
	}
	var sum int64
	ends.Each(func(o kadm.ListedOffset) { sum += max(o.Offset, 0) })
	return sum, ends.Error()
}

// caughtUp waits until the application has committed all of its topic, which is also its name.
func caughtUp(ctx context.Context, adm *kadm.Client, topic string, exited <-chan struct{}) error {
	return caughtUpWith(ctx, adm, topic, topic, exited)
}

// caughtUpWith is the same for an application with a name of its own.
func caughtUpWith(ctx context.Context, adm *kadm.Client, app, topic string, exited <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	ends, err := adm.ListEndOffsets(ctx, topic)
	if err != nil {
		return err
	}
	for {
		committed, err := adm.FetchOffsets(ctx, app)
		if err == nil {
			done := true
			ends.Each(func(o kadm.ListedOffset) {
				at, ok := committed.Lookup(o.Topic, o.Partition)
				done = done && ok && at.At >= o.Offset
			})
			if done {
				return nil
			}
		}
		select {
		case <-exited:
			return errors.New("the instance ended")
		default:
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
