package layered_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/engine"
	"github.com/statemesh/statemesh/store/layered"
)

// The process that TestCrash kills. What it writes in commit n of a task follows from n alone, so whoever opens the copy
// can tell the state of commit n from every other.

const (
	crashTasks   = 3
	crashKeys    = 300
	crashWindows = 7
	// crashStep is how much stream time a commit adds.
	crashStep      = 100
	crashRetention = 30 * time.Second
)

var crashSpecs = []store.Spec{
	{Name: "d", Kind: store.KindTimestampedKeyValue},
	{Name: "w", Kind: store.KindWindow, WindowSize: time.Second, Retention: crashRetention, SegmentInterval: 5 * time.Second},
}

// crashValue is what key i of the key-value store holds after commit n of a task; ok is false when it is not there.
// A key has a period; it is written in each, and every third time deleted.
func crashValue(task, n int64, i int) (value string, ok bool) {
	period := int64(3 + i%58)
	phase := (int64(i)*7 + task) % period
	if n < phase || n < 1 {
		return "", false
	}
	round := (n - phase) / period
	at := phase + round*period
	if at < 1 || round%3 == 2 {
		return "", false
	}
	return fmt.Sprintf("%d@%d %0*d", i, at, 20+i%180, at), true
}

// crashCommit makes commit n of a task.
func crashCommit(task *layered.Task, n int64) error {
	id := int64(task.ID().Partition)
	d, err := task.KeyValue("d")
	if err != nil {
		return err
	}
	w, err := task.Window("w")
	if err != nil {
		return err
	}
	for i := range crashKeys {
		period := int64(3 + i%58)
		if n%period != (int64(i)*7+id)%period {
			continue
		}
		key := fmt.Appendf(nil, "key-%04d", i)
		v := store.Value{Timestamp: n}
		if value, ok := crashValue(id, n, i); ok {
			v.Data = []byte(value)
		}
		if err := d.Put(key, v); err != nil {
			return err
		}
	}
	if err := w.Put(fmt.Appendf(nil, "window-%d", n%crashWindows), n*crashStep, store.Value{Data: binary.BigEndian.AppendUint64(nil, uint64(n))}); err != nil {
		return err
	}
	log := store.LogPosition{LeaderEpoch: -1, Next: store.Offset(n)}
	task.Commit(store.Checkpoint{
		Sequence: store.Sequence(n), StreamTime: n * crashStep,
		Changelogs: map[store.Name]store.LogPosition{"d": log, "w": log},
		Inputs:     map[store.TopicPartition]store.Offset{{Topic: "in"}: store.Offset(n)},
	})
	return nil
}

func crashConfig(dir string) layered.Config {
	return layered.Config{
		Dir: dir, MoveBytes: 256 << 10, MoveInterval: 15 * time.Millisecond, MemTableBytes: 1 << 20, MinFreeBytes: 1,
		DropWait: time.Millisecond,
	}
}

// crashChild commits until it is killed, or told to close by the end of its input.
func crashChild(dir string, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	cfg := crashConfig(dir)
	cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	s, err := layered.Open(ctx, cfg)
	if err != nil {
		return err
	}
	ended := make(chan error, 4)
	running := 1
	go func() { ended <- s.Run(ctx) }()
	tasks := make([]*layered.Task, crashTasks)
	for p := range tasks {
		if tasks[p], err = s.OpenTask(ctx, store.TaskID{Partition: store.Partition(p)}, crashSpecs); err != nil {
			return err
		}
	}
	say(out, "ready")
	if _, peek := os.LookupEnv(crashPeek); peek {
		for _, task := range tasks {
			err = errors.Join(err, task.Close(ctx))
		}
		cancel()
		return errors.Join(err, <-ended, s.Close())
	}
	stop := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, in); close(stop) }()
	for _, task := range tasks {
		running++
		go func() { ended <- crashWriter(ctx, s, task, out, stop) }()
	}
	go func() { // one more, which comes and goes
		for p := store.Partition(100); ; p++ {
			if err := crashVisitor(ctx, s, store.TaskID{Partition: p % 3}, stop); err != nil {
				return
			}
		}
	}()
	loaded := make(chan error, 1)
	go func() { loaded <- crashLoader(ctx, s, tasks[loadedID.Partition], stop) }()
	<-stop
	for range tasks {
		err = errors.Join(err, <-ended)
	}
	err = errors.Join(err, <-loaded)
	for _, task := range tasks {
		err = errors.Join(err, task.Close(ctx))
	}
	cancel()
	err = errors.Join(err, <-ended, s.Close())
	say(out, "closed")
	return err
}

func crashWriter(ctx context.Context, s *layered.Stores, task *layered.Task, out io.Writer, stop chan struct{}) error {
	if task.Checkpoint().Restoring { // new, or what was there is not complete: from the start
		if err := task.Wipe(ctx); err != nil {
			return err
		}
	}
	first := int64(task.Checkpoint().Sequence) + 1
	say(out, "begins", task.ID().Partition, first)
	for n := first; ; n++ {
		select {
		case <-stop:
			return nil
		default:
		}
		if err := crashCommit(task, n); err != nil {
			return err
		}
		if n%500 == 0 {
			if err := layered.MoveNow(s, task); err != nil {
				return err
			}
			say(out, "durable", task.ID().Partition, n)
		}
	}
}

// crashVisitor opens a copy of its own sub-topology, fills it, and drops it.
func crashVisitor(ctx context.Context, s *layered.Stores, id store.TaskID, stop chan struct{}) error {
	id.Subtopology = 1
	task, err := s.OpenTask(ctx, id, crashSpecs)
	if err != nil {
		return err
	}
	for n := int64(1); n < 200; n++ {
		select {
		case <-stop:
			return errors.Join(task.Close(ctx), io.EOF)
		default:
		}
		if err := crashCommit(task, n); err != nil {
			return err
		}
	}
	if err := task.Close(ctx); err != nil {
		return err
	}
	return s.DropTask(ctx, id)
}

// loadedID is the task that crashLoader fills. What a commit makes of it is what it makes of the one of the same partition.
var loadedID = store.TaskID{Subtopology: 2}

// crashLoader loads copies of a task that is being written, in many moves, and goes on with each for some commits.
func crashLoader(ctx context.Context, s *layered.Stores, donor *layered.Task, stop chan struct{}) error {
	layered.LoadBytes(s, 4<<10)
	task, err := s.OpenTask(ctx, loadedID, crashSpecs)
	if err != nil {
		return err
	}
	for {
		select {
		case <-stop:
			return task.Close(ctx)
		default:
		}
		n, err := crashLoad(ctx, donor, task)
		switch {
		case errors.Is(err, store.ErrNotReady), errors.Is(err, engine.ErrDropped): // the donor begins, or is too fast
			continue
		case err != nil:
			return err
		}
		for next := n + 1; next < n+50; next++ {
			if err := crashCommit(task, next); err != nil {
				return err
			}
		}
	}
}

// crashLoad loads a copy of one task into another, and returns which commit it is of.
func crashLoad(ctx context.Context, donor, task *layered.Task) (n int64, err error) {
	snap, err := donor.Snapshot()
	if err != nil {
		return 0, err
	}
	defer snap.Close()
	c, err := snap.Copy()
	if err != nil {
		return 0, err
	}
	h := c.Header(time.Now())
	h.Task = loadedID
	l, err := task.Load(ctx, h, time.Now())
	if err != nil {
		return 0, err
	}
	for done := false; !done; {
		var rows []store.CopyRow
		if rows, done, err = c.Read(ctx, l.Place(), 2<<10); err != nil {
			return 0, errors.Join(err, l.Abandon(ctx))
		}
		if err := l.Add(ctx, rows); err != nil {
			return 0, err
		}
	}
	return int64(h.Checkpoint.Sequence), l.Finish(ctx)
}

// crashDir names, in the child's environment, the directory that it works on.
const crashDir = "STATEMESH_TEST_CRASH_DIR"

// crashPeek lets the child open everything and close it again.
const crashPeek = "STATEMESH_TEST_CRASH_PEEK"

// runCrashChild is the child's main function, if this process is the child.
func runCrashChild() (code int, child bool) {
	dir, child := os.LookupEnv(crashDir)
	if !child {
		return 0, false
	}
	out := bufio.NewWriterSize(os.Stdout, 0)
	if err := crashChild(dir, os.Stdin, flushed{out}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1, true
	}
	return 0, true
}

// say tells the parent something. When that is gone nothing matters any more.
func say(out io.Writer, what ...any) { _, _ = fmt.Fprintln(out, what...) }

// flushed writes through: what is said must be out before the kill.
type flushed struct{ w *bufio.Writer }

func (f flushed) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	return n, errors.Join(err, f.w.Flush())
}

// TestCrashContent: the closed form says what commits write.
func TestCrashContent(t *testing.T) {
	t.Parallel()
	want := make(map[string]string)
	for n := int64(1); n < 500; n++ {
		for i := range crashKeys {
			period := int64(3 + i%58)
			if n%period != (int64(i)*7+2)%period {
				continue
			}
			delete(want, fmt.Sprint(i))
			if v, ok := crashValue(2, n, i); ok {
				want[fmt.Sprint(i)] = v
			}
		}
		for i := range crashKeys {
			v, ok := crashValue(2, n, i)
			if had, there := want[fmt.Sprint(i)]; ok != there || v != had {
				t.Fatalf("commit %d, key %d: %q, %t, want %q, %t", n, i, v, ok, had, there)
			}
		}
	}
}
