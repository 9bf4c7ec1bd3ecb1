package layered_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
	"github.com/statemesh/statemesh/store/storetest"
)

var crashes = flag.Int("crashes", 15, "how often TestCrash kills its process")

// TestCrash kills a process that commits as fast as it can, at random moments: while it opens, while it commits, moves,
// expires, drops and loads copies, and while it closes. What is there afterwards is exactly what one commit made, not older than what
// was said to be durable. After some of the kills the ends of files are cut or scrambled too; then it is what one commit
// made, or the copy is refused, to be rebuilt (SE-07, SE-09).
func TestCrash(t *testing.T) {
	t.Parallel()
	seed := storetest.Seed(t)
	kept, err := os.MkdirTemp("", "statemesh-crash-") //nolint:usetesting // what failed stays, to be looked at
	if err != nil {
		t.Fatal(err)
	}
	c := &crash{t: t, rng: rand.New(rand.NewPCG(seed, 0)), dir: filepath.Join(kept, "state"), before: filepath.Join(kept, "before")}
	defer func() {
		if !t.Failed() {
			if err := os.RemoveAll(kept); err != nil {
				t.Error(err)
			}
			return
		}
		t.Logf("%s\n-seed=%d draws the same kills and damage, but not the moment of a kill\nas it was before it was opened: %s\nas it is now: %s\nthe processes said:\n%s%s",
			c.what, seed, c.before, c.dir, &c.said, &c.log)
	}()
	for i := 0; i < *crashes && !t.Failed(); i++ { // a round that failed is the last, so that what it left stays
		c.what = fmt.Sprintf("round %d, a plain kill", i)
		c.said.Reset()
		c.kill()
		damaged := i%3 == 2 && c.damage()
		if damaged {
			c.what = fmt.Sprintf("round %d, a kill and then %s", i, c.damaged)
		}
		if err := storetest.KillImage(c.dir, c.before); err != nil {
			t.Fatal(err)
		}
		if damaged {
			c.restart()
		}
		c.verify(damaged)
	}
	t.Logf("%d kills, files damaged after %d, refused %d times; the longest life of a copy had %d commits; copies of others: %d whole, %d empty",
		*crashes, c.damages, c.refused, c.longest, c.whole, c.empty)
	if c.longest == 0 {
		t.Error("nothing was ever durable: the test shows nothing")
	}
}

type crash struct {
	t   *testing.T
	rng *rand.Rand
	dir string
	// before is a copy of dir as the last kill and the damage left it.
	before string
	// what happened in this round, in words, and what was done to a file in the last one that was damaged.
	what, damaged string

	log              bytes.Buffer // of all processes since the last look
	said             bytes.Buffer // by them, in this round
	damages, refused int
	// last are the commits that were found, or said to be durable, by task.
	last    [crashTasks]int64
	longest int64
	// whole and empty are how many copies of another task were found so.
	whole, empty int
}

// kill runs the child and kills it.
func (c *crash) kill() {
	for range c.rng.IntN(3) { // some that do not even get to open it
		c.run(time.Duration(c.rng.IntN(60))*time.Millisecond, "")
	}
	switch c.rng.IntN(3) {
	case 0:
		c.run(time.Duration(c.rng.IntN(150))*time.Millisecond, "close")
	default:
		c.run(time.Duration(20+c.rng.IntN(700))*time.Millisecond, "ready")
	}
}

// run kills a child some time after it has come to a point, or has begun.
func (c *crash) run(after time.Duration, point string) {
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), crashDir+"="+c.dir)
	var stderr bytes.Buffer
	cmd.Stderr = io.MultiWriter(&stderr, &c.log)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	var once sync.Once
	kill := func() { once.Do(func() { time.AfterFunc(after, func() { _ = cmd.Process.Kill() }) }) }
	if point == "" {
		kill()
	}
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		var task int
		var n int64
		line := lines.Text()
		fmt.Fprintln(&c.said, line)
		switch {
		case line == "ready" && point == "ready":
			kill()
		case line == "ready" && point == "close":
			time.AfterFunc(100*time.Millisecond, func() { _ = stdin.Close(); kill() })
		case line == "closed":
			kill()
		default:
			if k, _ := fmt.Sscanf(line, "durable %d %d", &task, &n); k == 2 {
				c.last[task] = max(c.last[task], n)
			}
		}
	}
	err = cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || exit.Exited()) || ctx.Err() != nil {
		c.t.Fatalf("%s: the process ended by itself: %v %v\n%s", c.what, err, ctx.Err(), &stderr)
	}
}

// restart does what a supervisor does with a process that ends while it opens what is damaged: it starts it again. The
// second must come up.
func (c *crash) restart() {
	for range 2 {
		cmd := exec.CommandContext(c.t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), crashDir+"="+c.dir, crashPeek+"=")
		cmd.Stderr = &c.log
		if cmd.Run() == nil {
			return
		}
	}
	c.t.Fatalf("%s: it does not come up again:\n%s", c.what, &c.log)
}

// verify opens what is left.
func (c *crash) verify(damaged bool) {
	c.t.Helper()
	cfg := crashConfig(c.dir)
	cfg.Logger = slog.New(slog.NewTextHandler(&c.log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	s, err := layered.Open(c.t.Context(), cfg)
	if err != nil {
		c.t.Fatalf("%s: %v", c.what, err)
	}
	refused := c.quarantined()
	if refused && !damaged {
		c.t.Errorf("%s: a kill was taken for damage:\n%s", c.what, &c.log)
	}
	for p := range c.last {
		id := store.TaskID{Partition: store.Partition(p)}
		task, err := s.OpenTask(c.t.Context(), id, crashSpecs)
		if err != nil {
			c.t.Fatalf("%s: task %s: %v", c.what, id, err)
		}
		cp := task.Checkpoint()
		n := int64(cp.Sequence)
		switch {
		case cp.Restoring && (damaged || c.last[p] == 0): // to be rebuilt
			refused, n = true, 0
		case cp.Restoring:
			c.t.Errorf("%s: task %s is not complete after commit %d was durable", c.what, id, c.last[p])
		case !damaged && n < c.last[p]:
			c.t.Errorf("%s: task %s is at commit %d, but %d was durable", c.what, id, n, c.last[p])
			fallthrough
		default:
			c.check(task, n)
		}
		c.last[p], c.longest = n, max(c.longest, n)
		if err := task.Close(c.t.Context()); err != nil {
			c.t.Error(err)
		}
	}
	c.loaded(s, damaged)
	if damaged && refused {
		c.refused++
	}
	if err := s.Close(); err != nil {
		c.t.Errorf("%s: close: %v", c.what, err)
	}
	if !c.t.Failed() {
		c.log.Reset()
	}
}

// loaded looks at the copy of another task that was being loaded, or had been: it is that of one commit, or empty.
func (c *crash) loaded(s *layered.Stores, damaged bool) {
	c.t.Helper()
	task, err := s.OpenTask(c.t.Context(), loadedID, crashSpecs)
	if err != nil {
		c.t.Fatalf("%s: task %s: %v", c.what, loadedID, err)
	}
	switch cp := task.Checkpoint(); {
	case !cp.Restoring:
		c.whole++
		c.check(task, int64(cp.Sequence))
	case !damaged:
		c.empty++
		wiped(c.t, task, crashSpecs)
	}
	if err := task.Close(c.t.Context()); err != nil {
		c.t.Error(err)
	}
}

// check compares a copy with what its commit made.
func (c *crash) check(task *layered.Task, n int64) {
	c.t.Helper()
	if next := task.Checkpoint().Changelogs["w"].Next; int64(next) != n {
		c.t.Errorf("%s: task %s: commit %d and changelog position %d", c.what, task.ID(), n, next)
	}
	snap, err := task.Snapshot()
	if err != nil {
		c.t.Fatal(err)
	}
	defer snap.Close()
	want := make(map[string]string)
	for i := range crashKeys {
		if v, ok := crashValue(int64(task.ID().Partition), n, i); ok {
			want[fmt.Sprintf("key-%04d", i)] = v
		}
	}
	for k, v := range pinned(c.t, snap, "d") {
		if want[k] != v {
			c.t.Errorf("%s: task %s at commit %d: %s is %q, want %q", c.what, task.ID(), n, k, v, want[k])
		}
		delete(want, k)
	}
	if len(want) > 0 {
		c.t.Errorf("%s: task %s at commit %d: %d keys are missing: %v", c.what, task.ID(), n, len(want), want)
	}

	windows, err := snap.Windows("w")
	if err != nil {
		c.t.Fatal(err)
	}
	it, err := windows.Scan(c.t.Context(), store.WindowScan{To: math.MaxInt64})
	if err != nil {
		c.t.Fatal(err)
	}
	defer it.Close()
	var found []int64
	for it.Next() {
		e := it.Entry()
		at := int64(binary.BigEndian.Uint64(e.Data))
		if e.Start != at*crashStep || at > n || string(e.Key) != fmt.Sprintf("window-%d", at%crashWindows) {
			c.t.Errorf("%s: task %s at commit %d: window %s of %d holds %d", c.what, task.ID(), n, e.Key, e.Start, at)
		}
		found = append(found, at)
	}
	if alive := min(n, int64(crashRetention/time.Millisecond)/crashStep); it.Err() != nil || int64(len(found)) != alive {
		slices.Sort(found)
		c.t.Errorf("%s: task %s at commit %d, store times %v: %d windows, want %d, %v: %v", c.what, task.ID(), n,
			task.Checkpoint().StoreTimes, len(found), alive, it.Err(), found)
	}
}

// quarantined takes away the directories that were moved aside and reports whether there were any.
func (c *crash) quarantined() bool {
	dirs, err := filepath.Glob(filepath.Join(c.dir, "*.corrupt-*"))
	if err != nil {
		c.t.Fatal(err)
	}
	for _, dir := range dirs {
		if err := os.RemoveAll(dir); err != nil {
			c.t.Fatal(err)
		}
	}
	return len(dirs) > 0
}

// damage cuts or scrambles the end of what was written to one file of the database, and reports whether there was one.
func (c *crash) damage() bool {
	var files []string
	err := filepath.WalkDir(c.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.Contains(path, "badger-") && filepath.Ext(path) != ".opening" && filepath.Ext(path) != ".begun" {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		c.t.Fatal(err)
	}
	if len(files) == 0 {
		return false
	}
	name := files[c.rng.IntN(len(files))]
	b, err := os.ReadFile(name)
	if err != nil {
		c.t.Fatal(err)
	}
	end := len(bytes.TrimRight(b, "\x00"))
	if end == 0 {
		return false
	}
	tail := 1 + c.rng.IntN(min(end, 4096))
	if c.rng.IntN(2) == 0 {
		b = b[:end-tail]
		c.damaged = fmt.Sprintf("%s cut by %d from %d bytes", name, tail, end)
	} else {
		var at []int
		for i := range 1 + c.rng.IntN(8) {
			at = append(at, end-1-(i*c.rng.IntN(tail))%tail)
			b[at[i]] ^= byte(1 + c.rng.IntN(255))
		}
		c.damaged = fmt.Sprintf("%s scrambled at %v of %d bytes", name, at, end)
	}
	if err := os.WriteFile(name, b, 0o600); err != nil {
		c.t.Fatal(err)
	}
	c.damages++
	return true
}
