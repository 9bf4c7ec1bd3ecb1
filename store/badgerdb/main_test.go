package badgerdb_test

import (
	"testing"

	"go.uber.org/goleak"
)

// Everything ends: no test leaves a goroutine behind. Badger leaves these two when it refuses to open a damaged directory;
// a database that is open has many more.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("github.com/dgraph-io/badger/v4.(*DB).monitorCache"),
		goleak.IgnoreTopFunction("github.com/dgraph-io/ristretto/v2/z.(*AllocatorPool).freeupAllocators"),
	)
}
