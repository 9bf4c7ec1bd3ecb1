package engine

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/statemesh/statemesh/store"
)

// The errors of engines beside those of package store.
var (
	// ErrDropped reports a read of what was dropped, or has expired, while the snapshot was open. What the read had
	// returned so far is right, but it is not all.
	ErrDropped = fmt.Errorf("the data was dropped: %w", store.ErrClosed)
	// ErrReadOnly reports an engine that takes no moves until the cause is removed; reads go on at the last whole move.
	ErrReadOnly = errors.New("store: the engine takes no writes")
)

// SpaceID names a key space of one engine.
type SpaceID uint32

// StoreID names a store inside a key space.
type StoreID uint16

// Segment is the part of a store that expires as a whole. Segments are ordered by number; segment 0 never expires.
type Segment uint64

// Space describes a key space.
type Space struct {
	ID   SpaceID
	Task store.TaskID
	// Stores are the stores the space has, with their ids.
	Stores map[store.Name]Placed
	// Record is that of the last move; nil when there was none.
	Record []byte
}

// Placed is a store with its place in a key space.
type Placed struct {
	ID   StoreID
	Kind store.Kind
}

// Declared is a store that a key space shall have.
type Declared struct {
	Name store.Name
	Kind store.Kind
	// Fresh asks for an empty store: what an earlier one of this name holds is dropped.
	Fresh bool
}

// Write is one change of a move. A nil Value deletes. The slices are valid only until the next one is asked for.
type Write struct {
	Store   StoreID
	Segment Segment
	Key     []byte
	Value   []byte
}

// Move is a set of changes that become part of a key space together with the record that describes them.
type Move struct {
	Space SpaceID
	// Writes yields each key at most once, ordered by store, segment and key.
	Writes iter.Seq[Write]
	Record []byte
}

// Range selects the keys of one segment of a store. From is inclusive, To is exclusive; nil is open.
type Range struct {
	Store    StoreID
	Segment  Segment
	From, To []byte
	Reverse  bool
}

// Engine keeps key spaces. Safe for concurrent use.
type Engine interface {
	// Spaces lists the key spaces that are not dropped.
	Spaces() []Space
	// Open returns the key space of a task with exactly the declared stores, creating what is missing. Ids that are new
	// are durable when it returns. Stores that are not declared are dropped.
	Open(ctx context.Context, task store.TaskID, stores []Declared) (Space, error)
	// Move applies the moves of one or more key spaces, all or nothing. When it returns nil they are as durable as the
	// engine makes anything; when it returns an error nothing of them is visible, now or later. ctx bounds the wait for
	// the engine's turn, not the move itself. Many moves in one call share the cost of making them durable.
	Move(ctx context.Context, moves ...Move) error
	// Snapshot pins the state after the last move of the engine. It must be released.
	Snapshot(id SpaceID) (Snapshot, error)
	// Size says roughly how many rows a key space holds, and how many bytes their keys and values have; 0 when that is not
	// known, as of what was written just now. It reads no rows.
	Size(id SpaceID) (rows, bytes int64)
	Upkeep
	// Close ends everything that is open with store.ErrClosed and releases the engine.
	Close() error
}

// Upkeep is the part of an Engine that makes room.
type Upkeep interface {
	// Drop hides a key space; that is durable when it returns. Reclaim gives its bytes back.
	Drop(ctx context.Context, id SpaceID) error
	// Expire says that segments 1 to below-1 of a store are dead: nobody asks a snapshot taken from now on for them, and
	// what later moves write there is left out. Snapshots that are open may go on reading them, until Reclaim. It costs
	// little, does no I/O and never takes anything back: a lower below does nothing. An engine forgets it when it is
	// closed, so who knows what is dead says it again after opening; say it only of what a durable record proves dead.
	// ErrDropped when there is no such key space.
	Expire(id SpaceID, s StoreID, below Segment) error
	// Reclaim gives back what Drop, Open and Expire have left behind. What readers still may look at is left for a later
	// call, which pending reports; but only for so long: then their reads of that, and only of that, end with ErrDropped.
	Reclaim(ctx context.Context) (pending bool, err error)
}

// Snapshot reads one key space as it was after one move. Safe for concurrent use.
type Snapshot interface {
	// Get appends the value of key to dst and returns it, or store.ErrNotFound. The result is the caller's
	// and never nil.
	Get(id StoreID, segment Segment, key, dst []byte) ([]byte, error)
	// Iterate opens an ordered read. The snapshot may be released before the iterator is closed.
	Iterate(r Range) (Iterator, error)
	// Release ends the use of the snapshot. Idempotent.
	Release()
}

// Iterator walks a range. It belongs to one goroutine; Close is idempotent and ends it.
type Iterator interface {
	Next() bool
	// Key and Value are valid until the next call of Next or Close and must not be changed.
	Key() []byte
	Value() []byte
	Err() error
	Close()
}

// Limits says what an engine can hold.
type Limits struct {
	// KeyBytes bounds a key, RecordBytes key and value together; 0 is no bound.
	KeyBytes, RecordBytes int64
	// Setting names what sets RecordBytes; KeyBytes is the format's.
	Setting string
}
