package store

import "context"

// NoEnd is the End of a version that is the latest of its key (upstream: an undefined validTo, -1).
const NoEnd = -1

// WindowScan selects rows of a window store. Order is that of the bytes of [WindowKey]: key, then start. The zero value
// with To = math.MaxInt64 is upstream's all().
type WindowScan struct {
	// Key selects the windows of one key. It may not be combined with KeyFrom and KeyTo.
	Key []byte
	// KeyFrom and KeyTo are inclusive bounds of the keys; nil is open. KeyFrom > KeyTo is an empty result.
	KeyFrom, KeyTo []byte
	// From and To are inclusive bounds of the window *starts*, in Unix milliseconds, at least 0. From > To is an empty
	// result, a negative bound an *InvalidRequestError.
	From, To int64
	// After continues a scan behind the row with this [Entry.Cursor], in the direction of the scan.
	After []byte
	// Reverse returns rows in descending order (upstream's backward variants). The bounds stay lower and upper ones.
	Reverse bool
}

// WindowReader answers reads of one partition of one window store at one snapshot. Safe for concurrent use. Rows whose
// start is at or before stream time minus retention are not there, stream time being the greatest start that this partition
// of the store has seen (upstream's in-memory line, for every engine).
type WindowReader interface {
	// Fetch returns the value of the window of key that starts exactly at start, or ErrNotFound. A store that keeps
	// duplicates returns the first.
	Fetch(ctx context.Context, key []byte, start int64) (Value, error)
	// Scan opens an ordered read. Entries have Start and End of the window, End exclusive and at most MaxInt64.
	Scan(ctx context.Context, s WindowScan) (Iterator, error)
	// ApproximateCount estimates the number of rows.
	ApproximateCount(ctx context.Context) (int64, error)
}

// Window is the writer's window store (upstream's WindowStore): what a processor uses. It belongs to the task's stream
// thread and sees the writes of the running commit.
type Window interface {
	// Put sets the window of key that starts at start; nil Data deletes it, and is ignored where duplicates are kept. A
	// start at or before stream time minus retention is dropped and counted, without an error. A start below 0 is an
	// *InvalidRequestError.
	Put(key []byte, start int64, v Value) error
	// Fetch is that of WindowReader.
	Fetch(key []byte, start int64) (Value, error)
	// Scan opens an ordered read. The store may be written while the iterator is open; it shows the state at its opening.
	Scan(s WindowScan) (Iterator, error)
}

// SessionScan selects rows of a session store by the overlap test of upstream's findSessions: a session is selected when
// its end is at least EarliestEnd and its start at most LatestStart. Order is that of the bytes of [SessionKey]: key, end,
// start.
type SessionScan struct {
	// Key selects the sessions of one key. It may not be combined with KeyFrom and KeyTo.
	Key []byte
	// KeyFrom and KeyTo are inclusive bounds of the keys; nil is open. KeyFrom > KeyTo is an empty result.
	KeyFrom, KeyTo []byte
	// EarliestEnd, LatestEnd and LatestStart are inclusive, in Unix milliseconds. LatestEnd serves KIP-825's search by
	// end time. Use math.MaxInt64 for no upper bound.
	EarliestEnd, LatestEnd, LatestStart int64
	// After continues a scan behind the row with this [Entry.Cursor], in the direction of the scan.
	After []byte
	// Reverse returns rows in descending order.
	Reverse bool
}

// SessionReader answers reads of one partition of one session store at one snapshot. Safe for concurrent use. Sessions
// whose end is at or before stream time minus retention are not there.
type SessionReader interface {
	// Fetch returns the value of exactly this session (upstream's fetchSession), or ErrNotFound.
	Fetch(ctx context.Context, key []byte, start, end int64) (Value, error)
	// Scan opens an ordered read. Entries have Start and End of the session, both inclusive.
	Scan(ctx context.Context, s SessionScan) (Iterator, error)
	// ApproximateCount estimates the number of sessions.
	ApproximateCount(ctx context.Context) (int64, error)
}

// Session is the writer's session store (upstream's SessionStore). It belongs to the task's stream thread and sees the
// writes of the running commit.
type Session interface {
	// Put sets the session of key from start to end, both inclusive, 0 <= start <= end; nil Data removes it. A session
	// that has expired is dropped and counted, without an error.
	Put(key []byte, start, end int64, v Value) error
	// Remove takes a session away.
	Remove(key []byte, start, end int64) error
	// Fetch is that of SessionReader.
	Fetch(key []byte, start, end int64) (Value, error)
	// Scan opens an ordered read, as Window.Scan does.
	Scan(s SessionScan) (Iterator, error)
}
