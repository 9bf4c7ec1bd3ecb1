package statemesh

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
)

// Files of the instance in the application's state directory.
const (
	processIDFile = "process.id"
	epochFile     = "epoch"
	// incarnationFile is there while an incarnation may be in the group.
	incarnationFile = "incarnation"
)

// processID returns the id kept in dir, or begins one. The caller holds the directory's lock. The id brings an instance
// back to the tasks it holds copies of, so a damaged file is an error: a new id would cost a restore of everything.
func processID(dir string) (string, error) {
	path := filepath.Join(dir, processIDFile)
	data, err := os.ReadFile(path)
	switch {
	case err == nil:
		id, err := uuid.Parse(strings.TrimSpace(string(data)))
		if err != nil {
			return "", fmt.Errorf("process id %s: %w: remove the file to begin a new id, which moves this instance's tasks", path, err)
		}
		return id.String(), nil
	case !errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("process id: %w", err)
	}
	id := uuid.NewString()
	if err := writeDurably(path, []byte(id+"\n")); err != nil {
		return "", fmt.Errorf("process id: %w", err)
	}
	return id, nil
}

// writeDurably replaces the file at path: after a crash it holds the old content or the new.
func writeDurably(path string, data []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(data)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
