package layered_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

// TestLocked is SE-09: another process that holds the directory is named, and so is the directory; the own one is waited
// for. The other process is this test binary.
func TestLocked(t *testing.T) {
	if dir := os.Getenv("STATEMESH_TEST_HOLD"); dir != "" {
		s, err := layered.Open(t.Context(), layered.Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = os.Stdout.WriteString("held\n")
		buf := make([]byte, 1)
		_, _ = os.Stdin.Read(buf) // until the parent closes it
		_ = s.Close()
		return
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestLocked$")
	cmd.Env = append(os.Environ(), "STATEMESH_TEST_HOLD="+dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 5)
	if _, err := out.Read(buf); err != nil || string(buf) != "held\n" {
		t.Fatalf("the other process says %q, %v", buf, err)
	}
	_, err = layered.Open(t.Context(), layered.Config{Dir: dir})
	if !errors.Is(err, store.ErrLocked) || !strings.Contains(err.Error(), dir) {
		t.Errorf("SE-09: a directory of another process: %v", err)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	s, err := layered.Open(t.Context(), layered.Config{Dir: dir})
	if err != nil {
		t.Fatalf("after the other process: %v", err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	again, err := layered.Open(t.Context(), layered.Config{Dir: dir})
	if err != nil {
		t.Fatalf("SE-09: a directory that this process is closing: %v", err)
	}
	wg.Wait()
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := layered.Open(t.Context(), layered.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "VERSION")
	for _, damage := range []func() error{
		func() error { return os.WriteFile(file, []byte("statemesh state 99\n"), 0o600) },
		func() error { return os.WriteFile(file, []byte("statemesh state 0\n"), 0o600) },
		func() error { return os.WriteFile(file, []byte("statemesh state two\n"), 0o600) },
		func() error { return os.WriteFile(file, nil, 0o600) },
		func() error { return os.Remove(file) },
	} {
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		_, err = layered.Open(t.Context(), layered.Config{Dir: dir})
		if e, ok := errors.AsType[*layered.VersionError](err); !ok || e.Dir != dir || e.Have == e.Want {
			t.Errorf("another version: %v", err)
		}
	}
}

// TestUpgrade: a directory of an older format is brought to this one, with what it holds.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openStores(t, layered.Config{Dir: dir})
	task := openTask(t, s, task0, disk)
	set(t, task, "d", "a", "1")
	task.Commit(checkpoint(1, "d"))
	if err := errors.Join(task.Close(t.Context()), s.Close()); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "VERSION")
	now, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("statemesh state 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = openStores(t, layered.Config{Dir: dir})
	task = openTask(t, s, task0, disk)
	equal(t, "after the upgrade", map[string]string{"a": "1"}, committed(t, task, "d"))
	if got, err := os.ReadFile(file); err != nil || string(got) != string(now) {
		t.Errorf("VERSION says %q, want %q, %v", got, now, err)
	}
}

// TestUpgradeSteps: steps run in order, again after one that failed, and the version is written when all are done.
func TestUpgradeSteps(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "VERSION")
	if err := os.WriteFile(file, fmt.Appendf(nil, "statemesh state %d\n", layered.FormatVersion-2), 0o600); err != nil {
		t.Fatal(err)
	}
	var ran []string
	fails := true
	steps := map[int]func(string) error{
		layered.FormatVersion - 2: func(string) error { ran = append(ran, "first"); return nil },
		layered.FormatVersion - 1: func(string) error {
			ran = append(ran, "second")
			if fails {
				return os.ErrPermission
			}
			return nil
		},
	}
	if err := layered.Upgrade(t.Context(), dir, steps); !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), dir) {
		t.Errorf("a step that fails: %v", err)
	}
	fails = false
	for range 2 {
		if err := layered.Upgrade(t.Context(), dir, steps); err != nil {
			t.Error(err)
		}
	}
	equal(t, "steps", []string{"first", "second", "first", "second"}, ran)
	if got, _ := os.ReadFile(file); string(got) != fmt.Sprintf("statemesh state %d\n", layered.FormatVersion) {
		t.Errorf("VERSION says %q", got)
	}
}

// TestCorruptDatabase is SE-15 as the instance sees it: the start goes on with empty copies.
func TestCorruptDatabase(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openStores(t, layered.Config{Dir: dir})
	task := openTask(t, s, task0, disk)
	set(t, task, "d", "a", "1")
	task.Commit(checkpoint(1, "d"))
	if err := errors.Join(task.Close(t.Context()), s.Close()); err != nil {
		t.Fatal(err)
	}
	tables, err := filepath.Glob(filepath.Join(dir, "badger-0", "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatalf("no tables: %v", err)
	}
	if err := os.Remove(tables[0]); err != nil {
		t.Fatal(err)
	}
	s = openStores(t, layered.Config{Dir: dir})
	if cp := openTask(t, s, task0, disk).Checkpoint(); cp.Sequence != 0 || !cp.Restoring {
		t.Errorf("SE-15: %+v", cp)
	}
	aside, err := filepath.Glob(filepath.Join(dir, "badger-0.corrupt-*"))
	if err != nil || len(aside) != 1 {
		t.Errorf("SE-15: moved aside: %v, %v", aside, err)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	_, err := layered.Open(t.Context(), layered.Config{MoveBytes: -1, Databases: 1000})
	for _, want := range []string{"state directory", "MoveBytes", "GOMAXPROCS"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not speak of %s: %v", want, err)
		}
	}
}
