package badgerdb

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/engine"
)

// The keys of a database. They are stored on disk and must not change:
//
//	00 'D'                                         durable: the record that moves D, with the check of the last move
//	00 'N'                                         next: the id of the next key space
//	00 'T'                                         tombstones: how many rows were deleted since all was compacted
//	00 'S' space(4)                                descriptor of a key space
//	00 'R' space(4)                                record of the last move of a key space
//	01 space(4) store(2) segment(8) key            a value
//	02 ...                                         never a value: padding
//
// Numbers are big-endian, so that what expires or is dropped together lies together.
const (
	metaPrefix = 0x00
	dataPrefix = 0x01

	prefixBytes = 1 + 4 + 2 + 8
)

var (
	durableKey   = []byte{metaPrefix, 'D'}
	nextSpaceKey = []byte{metaPrefix, 'N'}
	tombsKey     = []byte{metaPrefix, 'T'}
	descriptors  = []byte{metaPrefix, 'S'}
)

func descriptorKey(id engine.SpaceID) []byte { return spaceKey('S', id) }
func recordKey(id engine.SpaceID) []byte     { return spaceKey('R', id) }

func spaceKey(kind byte, id engine.SpaceID) []byte {
	return binary.BigEndian.AppendUint32([]byte{metaPrefix, kind}, uint32(id))
}

func appendSpace(dst []byte, id engine.SpaceID) []byte {
	return binary.BigEndian.AppendUint32(append(dst, dataPrefix), uint32(id))
}

func appendStore(dst []byte, space engine.SpaceID, id engine.StoreID) []byte {
	return binary.BigEndian.AppendUint16(appendSpace(dst, space), uint16(id))
}

func appendSegment(dst []byte, space engine.SpaceID, id engine.StoreID, segment engine.Segment) []byte {
	return binary.BigEndian.AppendUint64(appendStore(dst, space, id), uint64(segment))
}

// descriptor is a key space as it is stored.
type descriptor struct {
	Task      string                   `json:"task"`
	NextStore engine.StoreID           `json:"next_store"`
	Stores    map[store.Name]placement `json:"stores"`
	// Doomed are ids of stores whose bytes are still to be given back.
	Doomed []engine.StoreID `json:"doomed,omitempty"`
	// Dropped hides the whole space.
	Dropped bool `json:"dropped,omitempty"`
}

type placement struct {
	ID   engine.StoreID `json:"id"`
	Kind store.Kind     `json:"kind"`
}

func (d descriptor) encode() ([]byte, error) { return json.Marshal(d) }

func decodeDescriptor(b []byte) (descriptor, store.TaskID, error) {
	var d descriptor
	if err := json.Unmarshal(b, &d); err != nil {
		return d, store.TaskID{}, fmt.Errorf("descriptor of a key space: %w: %w", store.ErrCorrupt, err)
	}
	id, err := store.ParseTaskID(d.Task)
	if err != nil {
		return d, id, fmt.Errorf("descriptor of a key space: %w: %w", store.ErrCorrupt, err)
	}
	return d, id, nil
}

// check describes the last move, so that opening a database can tell whether all of it is there. Invariant: Count is 0 or
// every value of the move is still the newest of its key. Deletes can be found in logs only: compaction may remove them.
type check struct {
	Timestamp uint64 // of the move's data
	Count     uint64 // of values
	Sum       uint64 // of their hashes
	Deletes   uint64
	// Previous is D before this record.
	Previous uint64
}

const (
	checkBytes    = 40
	oldCheckBytes = 24 // without deletes and previous, as format 1 of the state directory has it
)

// add counts a value.
func (c *check) add(key, value []byte) {
	var d xxhash.Digest
	d.Reset()
	_, _ = d.Write(key)
	_, _ = d.Write(value)
	c.Count++
	c.Sum += d.Sum64()
}

func (c *check) encode() []byte {
	b := make([]byte, 0, checkBytes)
	for _, v := range []uint64{c.Timestamp, c.Count, c.Sum, c.Deletes, c.Previous} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	return b
}

func decodeCheck(b []byte) (check, error) {
	if len(b) != checkBytes && len(b) != oldCheckBytes {
		return check{}, fmt.Errorf("record of the last move: %d bytes, want %d: %w", len(b), checkBytes, store.ErrCorrupt)
	}
	c := check{Timestamp: binary.BigEndian.Uint64(b), Count: binary.BigEndian.Uint64(b[8:]), Sum: binary.BigEndian.Uint64(b[16:])}
	if len(b) == checkBytes {
		c.Deletes, c.Previous = binary.BigEndian.Uint64(b[24:]), binary.BigEndian.Uint64(b[32:])
	}
	return c, nil
}
