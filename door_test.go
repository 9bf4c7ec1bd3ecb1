package statemesh

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// While the server has stopped but the group is not left, connections are closed, not refused: a refusal says that the
// process is dead. (design: the listener closes after LeaveGroup)
func TestDoor(t *testing.T) {
	t.Parallel()
	lis, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &door{Listener: lis}
	dial := func() (net.Conn, error) { return new(net.Dialer).DialContext(t.Context(), "tcp", lis.Addr().String()) }

	accepted := make(chan error, 2)
	go func() {
		conn, err := d.Accept()
		if err == nil {
			err = conn.Close()
		}
		accepted <- err
		_, err = d.Accept()
		accepted <- err
	}()
	conn, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := <-accepted; err != nil {
		t.Fatalf("while it is open: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-accepted; !errors.Is(err, net.ErrClosed) {
		t.Errorf("an accept under way: %v, want net.ErrClosed", err)
	}
	if _, err := d.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("an accept after Close: %v, want net.ErrClosed", err)
	}
	if err := d.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}

	var wg sync.WaitGroup
	wg.Go(d.turnAway)
	for range 3 {
		conn, err := dial()
		if err != nil {
			t.Fatalf("refused before the group is left: %v", err)
		}
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !isReset(err) {
			t.Errorf("turned away with %v, want the connection closed", err)
		}
		_ = conn.Close()
	}
	if err := lis.Close(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if conn, err := dial(); err == nil {
		_ = conn.Close()
		t.Error("still open")
	}
}

func isReset(err error) bool { return err != nil && strings.Contains(err.Error(), "reset") }

func TestProcessID(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	id, err := processID(dir)
	if err != nil {
		t.Fatal(err)
	}
	again, err := processID(dir)
	if err != nil || again != id {
		t.Errorf("again: %s, %v; was %s", again, err, id)
	}
	if other, err := processID(t.TempDir()); err != nil || other == id {
		t.Errorf("another directory: %s, %v", other, err)
	}
	left, err := filepath.Glob(filepath.Join(dir, processIDFile+".*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if err := os.WriteFile(filepath.Join(dir, processIDFile), []byte("../../etc"), 0o600); err != nil {
		t.Fatal(err)
	}
	if id, err := processID(dir); err == nil {
		t.Errorf("a damaged file gives %q", id)
	}
	if _, err := processID(filepath.Join(dir, "nowhere")); err == nil {
		t.Error("a directory that is not there gives an id")
	}
}
