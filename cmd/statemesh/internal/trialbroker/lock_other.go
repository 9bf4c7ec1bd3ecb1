//go:build !unix

package trialbroker

import (
	"errors"
	"os"
)

// lockFile refuses: without a lock two brokers could share a directory and destroy each other's data.
func lockFile(*os.File) error {
	return errors.New("a data directory needs file locks, which this system lacks; run the broker in memory")
}
