package store

import "context"

// Value is a value with its timestamp.
type Value struct {
	// Data is nil for "no value" when written (a delete) and never nil when read.
	Data []byte
	// Timestamp in Unix milliseconds; -1 in what a plain key-value store returns.
	Timestamp int64
}

// Entry is one row of a scan.
type Entry struct {
	Key []byte
	Value
	// Start and End, in Unix milliseconds: of a window (End exclusive), a session (both inclusive) or the validity of a
	// version (End exclusive, NoEnd for the latest). 0 in key-value stores.
	Start, End int64
	// Cursor is where the row is in the order of its scan, which is that of these bytes, over all partitions: a scan with
	// this After goes on behind the row. In key-value stores it is Key.
	Cursor []byte
}

// Scan describes an ordered read. Order is unsigned lexicographic over the key bytes.
type Scan struct {
	// From and To are inclusive bounds; nil means open. From > To is an empty result, not an error.
	From, To []byte
	// Prefix restricts the scan to keys that start with it. It may not be combined with From or To.
	Prefix []byte
	// After continues a scan: only keys strictly beyond it, in the direction of the scan, are returned. nil: from the start.
	After []byte
	// Reverse returns rows in descending order. From stays the lower bound.
	Reverse bool
}

// Iterator walks a scan. It holds engine resources until it is closed.
//
//	for it.Next() { use(it.Entry()) }
//	if err := it.Err(); err != nil { ... }   // an end with an error is not the end of the data
//	it.Close()
//
// Close is idempotent. The entry's slices belong to the caller. An iterator belongs to one goroutine.
type Iterator interface {
	Next() bool
	Entry() Entry
	Err() error
	Close()
}

// KeyValueReader answers reads of one partition of one key-value store at one snapshot. Safe for concurrent use.
// A nil or empty key is [ErrInvalidKey] for Get; every method returns [ErrClosed] after the snapshot was closed.
type KeyValueReader interface {
	// Get returns the value of key, or ErrNotFound.
	Get(ctx context.Context, key []byte) (Value, error)
	// GetMany returns one result per key, in order; found[i] is false where there is none.
	GetMany(ctx context.Context, keys [][]byte) (values []Value, found []bool, err error)
	// Scan opens an ordered read.
	Scan(ctx context.Context, s Scan) (Iterator, error)
	// ApproximateCount estimates the number of keys (upstream's approximateNumEntries).
	ApproximateCount(ctx context.Context) (int64, error)
}

// KeyValue is the writer's store: what a processor uses. It belongs to the task's stream thread; it sees the writes of
// the running commit. Nothing it does is visible to queries before the commit.
type KeyValue interface {
	// Get returns the value of key, or ErrNotFound.
	Get(key []byte) (Value, error)
	// Put sets key; nil Data deletes. *TooLargeError when the engine or the changelog would not take it: nothing is
	// written then.
	Put(key []byte, v Value) error
	// PutIfAbsent sets key when it has no value; it returns the value that was there and true, or false.
	PutIfAbsent(key []byte, v Value) (Value, bool, error)
	// Delete removes key and returns what was there and true, or false.
	Delete(key []byte) (Value, bool, error)
	// Scan opens an ordered read. The store may be written while the iterator is open; the iterator shows the state at
	// its opening.
	Scan(s Scan) (Iterator, error)
	// ApproximateCount estimates the number of keys.
	ApproximateCount() (int64, error)
}
