package layered

import (
	"context"

	"github.com/statemesh/statemesh/store/engine"
	"github.com/statemesh/statemesh/store/memdb"
)

// databasePrefix begins the name of a database's directory.
const databasePrefix = "badger-"

func (s *Stores) openEngines(context.Context) error {
	s.memory = memdb.New()
	s.disks = append(s.disks, disk{Engine: memdb.New(), limits: engine.Limits{RecordBytes: 1 << 20, Setting: "MemTableBytes"}})
	return nil
}
