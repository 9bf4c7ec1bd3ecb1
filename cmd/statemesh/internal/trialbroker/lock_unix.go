//go:build unix

package trialbroker

import (
	"errors"
	"os"
	"syscall"
)

var errHeld = errors.New("another broker holds it")

// lockFile takes an exclusive lock that ends with the process.
func lockFile(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errHeld
	}
	return err
}
