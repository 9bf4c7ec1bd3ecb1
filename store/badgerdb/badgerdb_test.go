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

func openDB(t testing.TB, opt badgerdb.Options) *badgerdb.DB {
	t.Helper()
	db, err := badgerdb.Open(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}
