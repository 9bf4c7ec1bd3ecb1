package storetest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// KillImage copies a state directory as a kill at this point would leave it: what was written is there, synced or not.
// A copy takes time, a kill does not: when files came, went or changed in size meanwhile it is made again.
func KillImage(from, to string) error {
	for range 100 {
		before, err := listing(from)
		if err != nil {
			return err
		}
		if err := os.RemoveAll(to); err != nil {
			return err
		}
		cerr := os.CopyFS(to, os.DirFS(from))
		after, err := listing(from)
		if err != nil {
			return err
		}
		if slices.Equal(before, after) {
			return cerr
		}
	}
	return errors.New("the directory does not come to rest")
}

// file is what tells whether a file has changed under a copy. The logs of a database keep their size while they are
// written, but nothing is written to them while the caller holds still.
type file struct {
	name string
	size int64
}

func listing(dir string) ([]file, error) {
	var out []file
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		out = append(out, file{path, info.Size()})
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil // went while it was listed: the next listing differs
	}
	return out, err
}
