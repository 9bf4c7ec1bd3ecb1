package store

import (
	"fmt"
	"time"
)

// Isolation says what a read may see (Kafka's isolation levels; KIP-892 for stores).
type Isolation uint8

// The levels.
const (
	// ReadCommitted sees whole commits only: the default.
	ReadCommitted Isolation = iota
	// ReadUncommitted also sees what the owner has processed and not yet committed, as of its last finished batch of
	// records. What an abort takes back was never there: a scan over it ends with an error.
	ReadUncommitted
)

// String is upper case, as on the wire.
func (i Isolation) String() string {
	if i == ReadUncommitted {
		return "READ_UNCOMMITTED"
	}
	return "READ_COMMITTED"
}

// ReadOptions is what the caller of a read insists on.
type ReadOptions struct {
	// MaxAge bounds the age of the answer; 0 means that no bound was stated.
	MaxAge time.Duration
	// Isolation is what the read may see. A standby has whole commits only, and answers either with the last.
	Isolation Isolation
	// OnlyActive accepts the copy of the owner alone, and no standby's.
	OnlyActive bool
	// AtLeast is what the answer must contain. Only the part that concerns the partition counts.
	AtLeast Token
	// Hasty answers with what is proven already: nobody is asked for more, because another copy is at hand.
	Hasty bool
	// Partial also accepts what a copy has so far that is being restored, which is no state that ever was: Facts.Partial says that
	// it was. Ignored with AtLeast, which such a state cannot meet, and by global stores; MaxAge holds, for the proven age.
	Partial bool
	// Wait lets the read wait for AtLeast, at most so long and within its context. 0: a copy that is behind answers
	// *BehindError at once.
	Wait time.Duration
}

// Facts says what a reading is worth.
type Facts struct {
	Role     Role
	Sequence Sequence
	// Position of the inputs; owned by the caller.
	Position Position
	// Token of the reading: whoever asks for at least this sees everything that the reading shows. At READ_UNCOMMITTED it
	// holds the last commit only.
	Token Token
	// Age is the proven upper limit of how old the state is, now, by the local clock; -1 in a partial state of which nothing is
	// proven.
	Age time.Duration
	// Isolation is what the reading shows.
	Isolation Isolation
	// Partial is not nil when the copy is being restored and this is what it has so far: values may be old, and what is not
	// there may be there.
	Partial *Partial
}

// Partial says how far a copy is that is being restored.
type Partial struct {
	// Restored of Total changelog offsets; both 0 when unknown. Left estimates how long the rest takes; 0 when unknown.
	Restored, Total int64
	Left            time.Duration
	// StreamTime is the store's own in this state, in Unix milliseconds; -1 in a key-value store and while there is none.
	StreamTime int64
}

// String is the progress: "3 of 10 restored, about 5s left".
func (p *Partial) String() string {
	text := fmt.Sprintf("%d of %d restored", p.Restored, p.Total)
	if p.Left > 0 {
		text += ", " + textOfLeft(p.Left)
	}
	return text
}

// textOfLeft says how long something takes that is not over.
func textOfLeft(d time.Duration) string {
	return fmt.Sprintf("about %s left", max(d.Round(time.Second), time.Second))
}

// Reading is one partition of one store pinned at one commit. It must be closed. Of the four kinds of reads a store answers
// one: the others return *WrongKindError.
type Reading interface {
	// KeyValue reads a (timestamped) key-value store.
	KeyValue() (KeyValueReader, error)
	// Windows reads a (timestamped) window store.
	Windows() (WindowReader, error)
	// Sessions reads a session store.
	Sessions() (SessionReader, error)
	// Versions reads a versioned store.
	Versions() (VersionedReader, error)
	// Facts may be asked again later: Age grows. Bounds are checked right before an answer is sent.
	Facts() Facts
	// Close ends the reading and what was opened from it.
	Close()
}

// NoReads refuses every kind of read: what a [Reading] embeds that has one of them.
type NoReads struct {
	Store Name
	Kind  Kind
}

// KeyValue is refused.
func (n NoReads) KeyValue() (KeyValueReader, error) { return nil, n.refuse("key-value reads") }

// Windows is refused.
func (n NoReads) Windows() (WindowReader, error) { return nil, n.refuse("window reads") }

// Sessions is refused.
func (n NoReads) Sessions() (SessionReader, error) { return nil, n.refuse("session reads") }

// Versions is refused.
func (n NoReads) Versions() (VersionedReader, error) { return nil, n.refuse("versioned reads") }

func (n NoReads) refuse(query string) error {
	return &WrongKindError{Store: n.Store, Kind: n.Kind, Query: query}
}
