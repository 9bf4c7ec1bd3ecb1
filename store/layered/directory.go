package layered

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/statemesh/statemesh/store"
)

const (
	lockFile = "LOCK"

	// lockWait is how long a directory that this process still holds is waited for: its Stores are closing.
	lockWait = 10 * time.Second
	lockPoll = 10 * time.Millisecond
)

// directory is a locked state directory.
type directory struct {
	path string
	lock *os.File
}

// lockDirectory creates, locks and checks a state directory. The lock belongs to the open file, so it ends with the
// process however that ends, and the file is never removed.
func lockDirectory(ctx context.Context, path string) (*directory, error) {
	return lockDirectoryWith(ctx, path, upgrades)
}

// lockDirectoryWith is lockDirectory with other steps from older formats.
func lockDirectoryWith(ctx context.Context, path string, steps map[int]upgrade) (*directory, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("state directory %s: %w", path, err)
	}
	f, err := os.OpenFile(filepath.Join(path, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("state directory %s: lock: %w", path, err)
	}
	d := &directory{path: path, lock: f}
	if err := d.acquire(ctx); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if err := d.checkVersion(steps); err != nil {
		return nil, errors.Join(err, d.release())
	}
	return d, nil
}

// acquire takes the lock. A holder in this process is waited for, one in another is not.
func (d *directory) acquire(ctx context.Context) error {
	timeout := time.NewTimer(lockWait)
	defer timeout.Stop()
	for {
		err := syscall.Flock(int(d.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return fmt.Errorf("state directory %s: lock: %w", d.path, err)
		}
		holder := d.holder()
		held := fmt.Errorf("state directory %s: held by process %s: %w", d.path, holder, store.ErrLocked)
		if holder != strconv.Itoa(os.Getpid()) {
			return held
		}
		poll := time.NewTimer(lockPoll)
		select {
		case <-poll.C:
		case <-timeout.C:
			return held
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", held, context.Cause(ctx))
		}
	}
	if err := d.lock.Truncate(0); err != nil {
		return fmt.Errorf("state directory %s: lock: %w", d.path, err)
	}
	if _, err := d.lock.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0); err != nil {
		return fmt.Errorf("state directory %s: lock: %w", d.path, err)
	}
	return nil
}

// holder is the process id that the lock file names.
func (d *directory) holder() string {
	b := make([]byte, 32)
	n, _ := d.lock.ReadAt(b, 0)
	if n == 0 {
		return "unknown"
	}
	return string(b[:n])
}

// release gives the lock back. A nil directory has none.
func (d *directory) release() error {
	if d == nil {
		return nil
	}
	return d.lock.Close()
}

// writeDurably writes a new file so that after a crash it is there whole or not at all.
func writeDurably(path string, b []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	_, err = tmp.Write(b)
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return syncDirectory(filepath.Dir(path))
}

func syncDirectory(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
