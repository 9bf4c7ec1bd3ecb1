package badgerdb

import (
	"bytes"

	"github.com/statemesh/statemesh/store/engine"
)

// Size adds up the tables that hold rows of the key space. One that holds those of others too is divided by how many there
// are in it; what is in memtables is not counted, and deleted or overwritten rows are until they are compacted away.
func (db *DB) Size(id engine.SpaceID) (rows, size int64) {
	if db.enter() != nil {
		return 0, 0
	}
	defer db.leave()
	db.mu.Lock()
	if db.spaces[id] == nil {
		db.mu.Unlock()
		return 0, 0
	}
	prefixes := make([][]byte, 0, len(db.spaces))
	for other := range db.spaces {
		prefixes = append(prefixes, appendSpace(nil, other))
	}
	db.mu.Unlock()
	own := appendSpace(nil, id)
	for _, t := range db.badger.Tables() {
		within := func(prefix []byte) bool {
			return bytes.Compare(cut(t.Left, len(prefix)), prefix) <= 0 && bytes.Compare(prefix, cut(t.Right, len(prefix))) <= 0
		}
		if !within(own) {
			continue
		}
		among := int64(0)
		for _, prefix := range prefixes {
			if within(prefix) {
				among++
			}
		}
		among = max(among, 1)
		rows, size = rows+int64(t.KeyCount)/among, size+int64(t.UncompressedSize)/among
	}
	return rows, size
}

// cut is b without what is behind n bytes.
func cut(b []byte, n int) []byte { return b[:min(n, len(b))] }
