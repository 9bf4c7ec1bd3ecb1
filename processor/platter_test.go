package processor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/engine"
)

// platter is an instance's disk, which may be slow, or take no writes, for a while. The files are real and take no virtual time, so this
// is where the stores meet their databases.
type platter struct {
	mu    sync.Mutex
	takes time.Duration // each operation
	err   error         // of each write
}

// The errors of a database whose disk takes no writes.
var (
	errDiskFull   = fmt.Errorf("database: 0 bytes of disk are free: %w", engine.ErrReadOnly)
	errDiskBroken = fmt.Errorf("database: write: %w", syscall.EIO)
)

func (p *platter) becomes(takes time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.takes, p.err = takes, err
}

// wait is the time that an operation takes, and why it may not write.
func (p *platter) wait(ctx context.Context) error {
	p.mu.Lock()
	takes, err := p.takes, p.err
	p.mu.Unlock()
	if takes <= 0 {
		return err
	}
	done := time.NewTimer(takes)
	defer done.Stop()
	select {
	case <-done.C:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// under puts the disk below what is kept on it.
func (p *platter) under(e engine.Engine) engine.Engine { return &onPlatter{Engine: e, disk: p} }

type onPlatter struct {
	engine.Engine
	disk *platter
}

func (o *onPlatter) Open(ctx context.Context, task store.TaskID, stores []engine.Declared) (engine.Space, error) {
	if err := o.disk.wait(ctx); err != nil {
		return engine.Space{}, err
	}
	return o.Engine.Open(ctx, task, stores)
}

func (o *onPlatter) Move(ctx context.Context, moves ...engine.Move) error {
	if err := o.disk.wait(ctx); err != nil {
		return err
	}
	return o.Engine.Move(ctx, moves...)
}

func (o *onPlatter) Drop(ctx context.Context, id engine.SpaceID) error {
	if err := o.disk.wait(ctx); err != nil {
		return err
	}
	return o.Engine.Drop(ctx, id)
}

func (o *onPlatter) Reclaim(ctx context.Context) (pending bool, err error) {
	if err := o.disk.wait(ctx); err != nil {
		return true, err
	}
	return o.Engine.Reclaim(ctx)
}

func (o *onPlatter) Snapshot(id engine.SpaceID) (engine.Snapshot, error) {
	s, err := o.Engine.Snapshot(id)
	if err != nil {
		return nil, err
	}
	return &slowSnapshot{Snapshot: s, disk: o.disk}, nil
}

// slowSnapshot reads from a disk. What is read is there: a disk that takes no writes is read all the same.
type slowSnapshot struct {
	engine.Snapshot
	disk *platter
}

func (s *slowSnapshot) Get(id engine.StoreID, segment engine.Segment, key, dst []byte) ([]byte, error) {
	_ = s.disk.wait(context.Background())
	return s.Snapshot.Get(id, segment, key, dst)
}

func (s *slowSnapshot) Iterate(r engine.Range) (engine.Iterator, error) {
	_ = s.disk.wait(context.Background())
	return s.Snapshot.Iterate(r)
}

// copyDir copies a state directory, as a kill leaves it: files that come or go while it is copied, in no virtual time, make it begin
// again.
func copyDir(tb testing.TB, from, to string) {
	tb.Helper()
	for before := listing(tb, from); ; {
		if err := copyFiles(from, to); err != nil {
			tb.Fatal(err)
		}
		after := listing(tb, from)
		if maps.Equal(before, after) {
			return
		}
		before = after
		if err := os.RemoveAll(to); err != nil {
			tb.Fatal(err)
		}
	}
}

// listing is the files below a directory, with their sizes.
func listing(tb testing.TB, dir string) map[string]int64 {
	tb.Helper()
	sizes := make(map[string]int64)
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return ignoreGone(err)
		}
		info, err := d.Info()
		if err == nil {
			sizes[path] = info.Size()
		}
		return ignoreGone(err)
	})
	if err != nil {
		tb.Fatal(err)
	}
	return sizes
}

func ignoreGone(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

func copyFiles(from, to string) error {
	return filepath.WalkDir(from, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return ignoreGone(err)
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		dst := filepath.Join(to, rel)
		if d.IsDir() {
			return os.MkdirAll(dst, 0o755)
		}
		if filepath.Base(path) == "LOCK" || d.Type()&os.ModeType != 0 {
			return nil
		}
		src, err := os.Open(path)
		if err != nil {
			return ignoreGone(err)
		}
		defer func() { _ = src.Close() }()
		out, err := os.Create(dst)
		if err != nil {
			return err
		}
		_, err = io.Copy(out, src)
		return errors.Join(err, out.Close())
	})
}
