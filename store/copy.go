package store

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// CopyFormat is the version of the rows of a copy. It changes when an older program could not read, or would damage, what
// is in them; a receiver takes no other.
const CopyFormat = 1

// The errors of a copy that goes from one instance to another. That it was pinned for too long is [ErrOpenTooLong]; see
// [CopyExpiredError].
var (
	// ErrCopyRefused reports a copy that this instance cannot use: nothing of it was taken. See [CopyRefusedError].
	ErrCopyRefused = errors.New("store: copy refused")
	// ErrCopyBroken reports rows that are no copy of a state: what was taken of it is gone. See [CopyBrokenError].
	ErrCopyBroken = errors.New("store: copy is broken")
	// ErrCopyCut reports a copy whose sender cannot be reached any more, or has said nothing for too long. It may be gone on with.
	ErrCopyCut = errors.New("store: copy is cut off")
)

// CopyHeader says what a copy of a task's state is: all rows of its logged stores as one published commit made them.
// A store without a changelog is not in it, for it is lost with its owner.
type CopyHeader struct {
	// Format of the rows; see [CopyFormat].
	Format uint32
	Task   TaskID
	// Stores in the order in which their rows come.
	Stores []CopyStore
	// Checkpoint of the commit, of the stores in the copy alone. Its WallTime means nothing: Age takes its place.
	Checkpoint Checkpoint
	// Age is how long before the header was made the commit was acknowledged, by the clock of who made it; -1 when that is
	// unknown. A receiver counts it from the moment it sent its request, by its own clock, which makes the copy look older
	// than it is.
	Age time.Duration
	// Rows and Bytes, of keys and values, say roughly how much is to come; 0 when unknown.
	Rows, Bytes int64
}

// CopyStore is a store of a copy, with all that decides where its rows lie and how they are read.
type CopyStore struct {
	Name Name
	Kind Kind
	// Retention and Segment are those of a store that has segments, 0 of any other. In whole milliseconds.
	Retention, Segment time.Duration
	// Duplicates says that the rows of a window are numbered; Last is the number that the latest got.
	Duplicates bool
	Last       int32
}

// CopyStoreOf describes a store in a copy. Last is left to who has the state.
func CopyStoreOf(s Spec) CopyStore {
	c := CopyStore{Name: s.Name, Kind: s.Kind, Duplicates: s.RetainDuplicates}
	if s.Retention > 0 { // which only stores with segments have
		c.Retention, c.Segment = s.Retention, s.Segment()
	}
	return c
}

// Differs says why rows of c are of no use to a store that is described by own; "" when they are.
func (c CopyStore) Differs(own CopyStore) string {
	switch {
	case c.Kind != own.Kind:
		return fmt.Sprintf("it is a %s store, here a %s store", c.Kind, own.Kind)
	case c.Retention != own.Retention:
		return fmt.Sprintf("its retention is %s, here %s", c.Retention, own.Retention)
	case c.Segment != own.Segment:
		return fmt.Sprintf("its segment interval is %s, here %s", c.Segment, own.Segment)
	case c.Duplicates != own.Duplicates:
		return fmt.Sprintf("its duplicates are kept: %t, here %t", c.Duplicates, own.Duplicates)
	default:
		return ""
	}
}

// CopyRow is one row of a copy, as an engine keeps it.
type CopyRow struct {
	// Store is the index in CopyHeader.Stores.
	Store   uint16
	Segment uint64
	// Key and Value are the engine's bytes: a value with a timestamp has it in front. Value may be empty; nil is the same.
	Key, Value []byte
}

// Place of the row.
func (r CopyRow) Place() CopyPlace { return CopyPlace{Store: r.Store, Segment: r.Segment, Key: r.Key} }

// CopyPlace is a place in the order of a copy: by store, segment and key. The zero value is before every row.
type CopyPlace struct {
	Store   uint16
	Segment uint64
	Key     []byte
}

// Compare orders places.
func (p CopyPlace) Compare(o CopyPlace) int {
	if c := cmp.Or(cmp.Compare(p.Store, o.Store), cmp.Compare(p.Segment, o.Segment)); c != 0 {
		return c
	}
	return bytes.Compare(p.Key, o.Key)
}

// Clone returns a copy with a key of its own.
func (p CopyPlace) Clone() CopyPlace {
	p.Key = bytes.Clone(p.Key)
	return p
}

// CopyMark is how far a copy has come that one instance sends another: enough to go on with it when the connection breaks.
type CopyMark struct {
	// ID under which the sender has pinned the copy.
	ID string
	// Place of the last row that came; Rows counts those up to it.
	Place CopyPlace
	Rows  int64
	// Checksum is the CRC-32C over those rows as they are on the wire.
	Checksum uint32
}

// CopyRequest asks another instance for the copy of a task.
type CopyRequest struct {
	Task TaskID
	// ForOwner says that the task is to run where the copy goes to, and that nobody processes it before. Otherwise it is for a standby,
	// which may wait.
	ForOwner bool
	// After is where to go on with a copy that broke off; nil: a new one, from its beginning.
	After *CopyMark
}

// Copy is a copy of a task, pinned so that it can be sent. It belongs to one goroutine.
type Copy interface {
	// ID names it as long as it is pinned.
	ID() string
	// Header describes it. Age is as of this call.
	Header() CopyHeader
	// Read returns the rows that follow a place, as many as have about limit bytes, at least one; done says that none follow. They
	// are good until the next call. [*CopyExpiredError] when the copy has been pinned for as long as it may be.
	Read(ctx context.Context, after CopyPlace, limit int) (rows []CopyRow, done bool, err error)
	// Sent says that the receiver needs no more of it, unless the last message was lost.
	Sent()
	// Close lets go of it. It stays pinned for a while, so that a receiver whose connection broke can go on.
	Close()
}

// CopyTaker takes a copy as it comes.
type CopyTaker interface {
	// Begin is told what comes, before the first row, also when a copy is gone on with. Its error ends the copy.
	Begin(ctx context.Context, id string, h CopyHeader) error
	// Take takes rows that follow each other, which are good until it returns, and the mark behind the last of them. Its error
	// ends the copy.
	Take(ctx context.Context, rows []CopyRow, to CopyMark) error
}

// CopyRefusedError says why a copy is of no use to this instance.
type CopyRefusedError struct {
	Task TaskID
	// Store that it is about; empty when it is about the whole copy.
	Store  Name
	Reason string
}

func (e *CopyRefusedError) Error() string {
	if e.Store != "" {
		return fmt.Sprintf("copy of task %s refused: store %s: %s", e.Task, e.Store, e.Reason)
	}
	return fmt.Sprintf("copy of task %s refused: %s", e.Task, e.Reason)
}

// Is matches ErrCopyRefused.
func (e *CopyRefusedError) Is(target error) bool { return target == ErrCopyRefused }

// CopyBrokenError says which row cannot be one of a copy, and why. It never contains the row itself.
type CopyBrokenError struct {
	Task TaskID
	// Store of the row; empty when it names none.
	Store Name
	// Row is its number, from 1.
	Row    int64
	Reason string
}

func (e *CopyBrokenError) Error() string {
	if e.Store != "" {
		return fmt.Sprintf("copy of task %s: row %d, store %s: %s", e.Task, e.Row, e.Store, e.Reason)
	}
	return fmt.Sprintf("copy of task %s: row %d: %s", e.Task, e.Row, e.Reason)
}

// Is matches ErrCopyBroken.
func (e *CopyBrokenError) Is(target error) bool { return target == ErrCopyBroken }

// CopyExpiredError says that a copy was pinned for as long as it may be, which follows from its size and the rate at which it is
// sent. Its receiver was too slow, or came back too often.
type CopyExpiredError struct {
	Task TaskID
	// After is how long that is.
	After time.Duration
}

func (e *CopyExpiredError) Error() string {
	return fmt.Sprintf("copy of task %s: pinned for %s, no longer", e.Task, e.After.Round(time.Second))
}

// Is matches ErrOpenTooLong and ErrClosed.
func (e *CopyExpiredError) Is(target error) bool {
	return target == ErrOpenTooLong || target == ErrClosed
}
