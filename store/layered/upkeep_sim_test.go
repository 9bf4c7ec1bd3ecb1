package layered_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

// TestSpaceComesBack: some time after rows were deleted, windows have expired, or a task was dropped, the files are small
// again, with no further traffic, and beside a quiet task whose view stays open.
func TestSpaceComesBack(t *testing.T) {
	t.Parallel()
	const rows, size = 30_000, 800
	windows := store.Spec{Name: "w", Kind: store.KindWindow, WindowSize: time.Minute, Retention: time.Hour}
	for name, empty := range map[string]func(t *testing.T, s *layered.Stores, task *layered.Task){
		"deleted": func(t *testing.T, _ *layered.Stores, task *layered.Task) {
			for i := range rows {
				if err := kv(t, task, "d").Put(fmt.Appendf(nil, "%08d", i), store.Value{Timestamp: 2}); err != nil {
					t.Fatal(err)
				}
			}
			w, err := task.Window("w")
			if err != nil {
				t.Fatal(err)
			}
			if err := w.Put([]byte("now"), 10*time.Hour.Milliseconds(), store.Value{Data: []byte("1")}); err != nil { // all others are dead
				t.Fatal(err)
			}
			task.Commit(checkpoint(2, "d", "w"))
		},
		"dropped": func(t *testing.T, s *layered.Stores, task *layered.Task) {
			if err := errors.Join(task.Close(t.Context()), s.DropTask(t.Context(), task.ID())); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				s, err := layered.Open(t.Context(), layered.Config{Dir: dir, MemTableBytes: 2 << 20, MoveBytes: 4 << 20})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- s.Run(ctx) }()
				quiet := openTask(t, s, store.TaskID{Partition: 9}, disk)
				set(t, quiet, "d", "k", "v")
				quiet.Commit(checkpoint(1, "d"))
				task := openTask(t, s, task0, disk, windows)
				fillBoth(t, task, rows, size)
				time.Sleep(time.Minute)
				full := usage(t, dir)
				if full < rows*size {
					t.Fatalf("%d bytes are on disk, want at least %d", full, rows*size)
				}

				empty(t, s, task)
				time.Sleep(2 * time.Minute)
				if left := usage(t, dir); left > full/4 {
					t.Errorf("%d of %d bytes are still on disk", left, full)
				}
				equal(t, "the quiet task", map[string]string{"k": "v"}, committed(t, quiet, "d"))
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
				for _, open := range layered.OpenTasks(s) {
					if err := open.Close(context.WithoutCancel(ctx)); err != nil {
						t.Error(err)
					}
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// fillBoth puts rows of bytes that do not compress, half into the key-value store and half into windows.
func fillBoth(t *testing.T, task *layered.Task, rows, size int) {
	t.Helper()
	w, err := task.Window("w")
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range rows {
		value := store.Value{Data: make([]byte, size), Timestamp: 1}
		for j := 0; j < size; j += 8 {
			binary.LittleEndian.PutUint64(value.Data[j:], rng.Uint64())
		}
		key := fmt.Appendf(nil, "%08d", i)
		if i%2 == 0 {
			err = kv(t, task, "d").Put(key, value)
		} else {
			err = w.Put(key, int64(i)*100, value)
		}
		if err != nil {
			t.Fatal(err)
		}
		if i%1000 == 999 {
			task.Commit(checkpoint(1, "d", "w"))
		}
	}
}

// usage is what everything under dir takes of the disk.
func usage(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			bytes += info.Sys().(*syscall.Stat_t).Blocks * 512
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return bytes
}
