package layered_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// Everything ends: no test leaves a goroutine behind. Badger leaves these two when it refuses to open a damaged directory;
// a database that is open has many more.
//
// The test binary is also the process that TestCrash kills.
func TestMain(m *testing.M) {
	if code, child := runCrashChild(); child {
		os.Exit(code) //nolint:forbidigo // this is the child's main
	}
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("github.com/dgraph-io/badger/v4.(*DB).monitorCache"),
		goleak.IgnoreTopFunction("github.com/dgraph-io/ristretto/v2/z.(*AllocatorPool).freeupAllocators"),
	)
}
