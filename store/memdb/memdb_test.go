package memdb_test

import (
	"testing"

	"github.com/statemesh/statemesh/store/engine"
	"github.com/statemesh/statemesh/store/memdb"
	"github.com/statemesh/statemesh/store/storetest"
)

func TestEngine(t *testing.T) {
	t.Parallel()
	storetest.Engine(t, func(*testing.T) engine.Engine { return memdb.New() })
}
