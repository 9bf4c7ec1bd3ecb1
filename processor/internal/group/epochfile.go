package group

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/statemesh/statemesh/router"
)

// loadEpoch reads the highest epoch kept at path; 0 when there is no file. A file that is not one number is an error:
// it was not written here.
func loadEpoch(path string) (router.Epoch, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil || n < 0 || n > int64(maxEpoch) {
		return 0, fmt.Errorf("epoch file %s: want one number >= 0: remove the file if no instance of the application is running", path)
	}
	return router.Epoch(n), nil
}

// saveEpoch replaces the file at path so that a crash at any point leaves the old or the new number, durably.
func saveEpoch(path string, epoch router.Epoch) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.WriteString(strconv.FormatInt(int64(epoch), 10) + "\n")
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
