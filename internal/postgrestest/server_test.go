package postgrestest

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// query asks the server by its own client.
func query(t *testing.T, s *Server, sql string) string {
	t.Helper()
	out, err := s.command(t.Context(), "psql", "-X", "-A", "-t", "-d", s.URL(), "-c", sql).Output()
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return strings.TrimSpace(string(out))
}

// TestServer: what is committed survives a kill and a stop, and nothing is left when the server is closed.
func TestServer(t *testing.T) {
	s := Run(t)
	if _, err := exec.LookPath(s.bin + "/psql"); err != nil {
		t.Fatal(err) // the server's package brings it
	}
	query(t, s, "create table a (x int)")
	query(t, s, "insert into a values (1)")
	pid := s.proc.Pid()
	s.Kill()
	if err := syscall.Kill(pid, 0); err == nil {
		t.Errorf("process %d is still there", pid)
	}
	s.MustRestart(t)
	query(t, s, "insert into a values (2)")
	s.Stop()
	s.Stop()
	s.MustRestart(t)
	if have := query(t, s, "select count(*) from a"); have != "2" {
		t.Errorf("%s rows, want 2", have)
	}
	if err := s.Restart(t.Context()); err == nil {
		t.Error("started twice")
	}
	pid, dir := s.proc.Pid(), s.dir
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := syscall.Kill(pid, 0); err == nil {
		t.Errorf("process %d is still there", pid)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", dir, err)
	}
}
