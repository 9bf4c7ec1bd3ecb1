package badgerdb

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/statemesh/statemesh/store"
)

// maxAttempts is how often opening a directory may end the process before the directory is taken for corrupt: some
// damage makes Badger exit where no caller can stop it. A process that is killed while it opens, by an impatient operator
// or a supervisor, looks the same, so it takes several in a row; what can be found before is looked for after the first.
const maxAttempts = 5

// Open opens the database in opt.Dir, or begins one, and undoes what a cut move left behind. A directory that is damaged
// is moved aside, kept under a name that says so, and an empty one begun: the changelogs have what it held.
func Open(ctx context.Context, opt Options) (*DB, error) {
	opt = opt.withDefaults()
	if err := opt.Tuning.Validate(); err != nil {
		return nil, fmt.Errorf("database %s: %w", opt.Dir, err)
	}
	if err := opt.Tuning.fits(opt.Dir); err != nil {
		return nil, fmt.Errorf("database %s: %w", opt.Dir, err)
	}
	if err := os.MkdirAll(opt.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("database %s: %w", opt.Dir, err)
	}
	attempts, err := beginAttempt(opt.Dir)
	if err != nil {
		return nil, fmt.Errorf("database %s: %w", opt.Dir, err)
	}
	var db *DB
	begun, err := exists(begunFile(opt.Dir))
	if err != nil {
		return nil, fmt.Errorf("database %s: %w", opt.Dir, err)
	}
	if attempts > maxAttempts {
		err = fmt.Errorf("opening it ended the process %d times: %w", attempts-1, store.ErrCorrupt)
	} else if attempts > 1 {
		err = probe(opt.badger(newLogger(ctx, opt.Logger)))
	}
	if err == nil {
		err = removeEmptyLogs(opt.Dir)
	}
	if err == nil {
		db, err = open(ctx, opt)
	}
	if err == nil && begun && db.durable == 0 {
		err = errors.Join(fmt.Errorf("nothing of what it held is there: %w", store.ErrCorrupt), db.Close())
	}
	if err != nil && !outside(err) {
		if db, err = replace(ctx, opt, err); err == nil {
			return db, endAttempt(opt.Dir)
		}
	}
	if err != nil && strings.Contains(err.Error(), lockText) {
		err = fmt.Errorf("%w: %w", store.ErrLocked, err)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("database %s: open: %w", opt.Dir, err), endAttempt(opt.Dir))
	}
	return db, endAttempt(opt.Dir)
}

// replace moves a damaged directory aside and opens an empty one.
func replace(ctx context.Context, opt Options, cause error) (*DB, error) {
	aside := opt.Dir + ".corrupt-" + time.Now().UTC().Format("20060102T150405.000000000")
	if err := os.Rename(opt.Dir, aside); err != nil {
		return nil, errors.Join(cause, err)
	}
	opt.Logger.ErrorContext(ctx, "database is damaged: moved aside, its copies are rebuilt from their changelogs",
		"dir", opt.Dir, "kept_as", aside, "error", cause)
	opt.Listener.Quarantined(aside)
	if err := os.MkdirAll(opt.Dir, 0o700); err != nil {
		return nil, err
	}
	if err := os.Remove(begunFile(opt.Dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := syncFile(filepath.Dir(opt.Dir)); err != nil {
		return nil, err
	}
	return open(ctx, opt)
}

// removeEmptyLogs removes value logs without a byte. A process that was killed right after it had created one leaves that,
// and Badger refuses to open it. The logs of memtables are pruneLogs' business.
func removeEmptyLogs(dir string) error {
	logs, err := filepath.Glob(filepath.Join(dir, "*.vlog"))
	if err != nil {
		return err
	}
	for _, name := range logs {
		info, err := os.Stat(name)
		if err == nil && info.Size() == 0 {
			err = os.Remove(name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// outside reports whether an error is one of the machine and says nothing about the data.
func outside(err error) bool {
	for _, errno := range []syscall.Errno{
		syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EROFS, syscall.EIO,
		syscall.EACCES, syscall.EPERM,
	} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, context.Canceled) || strings.Contains(err.Error(), lockText)
}

// lockText is all there is to tell Badger's lock by.
const lockText = "Cannot acquire directory lock"

// begunFile is a file beside the database that is there once anything is durable in it. Badger takes a manifest that was
// cut for one that ends there, and a database without tables for a new one.
func begunFile(dir string) string { return dir + ".begun" }

func exists(name string) (bool, error) {
	_, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// begin marks the database as begun. With the turn.
func (db *DB) begin() error {
	f, err := os.Create(begunFile(db.opt.Dir))
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close(), syncFile(filepath.Dir(db.opt.Dir)))
}

// The attempts to open a directory are counted by the length of a file beside it, which a success removes.
func attemptFile(dir string) string { return dir + ".opening" }

func beginAttempt(dir string) (int, error) {
	f, err := os.OpenFile(attemptFile(dir), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return 0, err
	}
	_, err = f.WriteString("x")
	info, serr := f.Stat()
	if err = errors.Join(err, serr, f.Close()); err != nil {
		return 0, err
	}
	return int(info.Size()), nil
}

func endAttempt(dir string) error {
	if err := os.Remove(attemptFile(dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("database %s: %w", dir, err)
	}
	return nil
}
