package hostproc

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

func TestSelfRuns(t *testing.T) {
	t.Parallel()
	self := Self()
	if !self.known() {
		t.Fatal("this system does not tell")
	}
	if got := Look(self, self); got != Running {
		t.Errorf("this process: %s", got)
	}
	if self != Self() {
		t.Errorf("%+v, then %+v", self, Self())
	}
}

// idOf names a child of this process.
func idOf(t *testing.T, pid int) ID {
	t.Helper()
	id := Self()
	id.PID = pid
	st, err := readStat("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	id.StartTime = st.start
	return id
}

// A process that is stopped runs; one that was killed is gone as soon as it has ended, collected or not; its PID in the hands
// of another process is not it.
func TestLookAtChildren(t *testing.T) {
	t.Parallel()
	self := Self()
	child := exec.CommandContext(t.Context(), "sleep", "600")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	id := idOf(t, child.Process.Pid)
	if got := Look(self, id); got != Running {
		t.Errorf("a child: %s", got)
	}
	if err := child.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if got := Look(self, id); got != Running {
		t.Errorf("a child that is stopped: %s", got)
	}
	reused := id
	reused.StartTime--
	if got := Look(self, reused); got != Gone {
		t.Errorf("a process that had the PID before: %s", got)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for Look(self, id) != Gone { // nobody has collected it
		select {
		case <-t.Context().Done():
			t.Fatal("a child that was killed still runs")
		case <-time.After(time.Millisecond):
		}
	}
	_ = child.Wait()
	if got := Look(self, id); got != Gone {
		t.Errorf("a child that was collected: %s", got)
	}
}

// A directory keeps its name when its content changes and when it is moved within its file system; a copy has another.
func TestDirectory(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	dir, moved, other := filepath.Join(root, "a"), filepath.Join(root, "b"), filepath.Join(root, "c")
	for _, d := range []string{dir, other} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	name := Directory(dir)
	if name == "" || Directory(other) == name || Directory(filepath.Join(root, "none")) != "" {
		t.Errorf("%q, another %q", name, Directory(other))
	}
	if err := os.WriteFile(filepath.Join(dir, "f"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir, moved); err != nil {
		t.Fatal(err)
	}
	if got := Directory(moved); got != name {
		t.Errorf("%q after the move, was %q", got, name)
	}
}
