package badgerdb_test

import (
	"testing"

	"github.com/statemesh/statemesh/store/badgerdb"
	"github.com/statemesh/statemesh/store/engine"
	"github.com/statemesh/statemesh/store/storetest"
)

func TestEngine(t *testing.T) {
	t.Parallel()
	storetest.Engine(t, func(t *testing.T) engine.Engine { return openDB(t, badgerdb.Options{Dir: t.TempDir()}) })
}

func openDB(tb testing.TB, opt badgerdb.Options) *badgerdb.DB {
	tb.Helper()
	db, err := badgerdb.Open(tb.Context(), opt)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := db.Close(); err != nil {
			tb.Error(err)
		}
	})
	return db
}
