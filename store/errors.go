package store

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"
)

// The errors of the domain. proto/wire carries each over the network and back to the same error.
var (
	// ErrNotFound reports that the key has no value in the state that was read. It is a proof: only a replica that
	// serves the key's partition and meets the caller's bound may say it.
	ErrNotFound = errors.New("store: key not found")
	// ErrClosed reports the use of a store, snapshot or iterator after Close.
	ErrClosed = errors.New("store: closed")
	// ErrUnknownStore reports a store name that the topology does not have. See [UnknownStoreError].
	ErrUnknownStore = errors.New("store: unknown store")
	// ErrInvalidKey reports a key that cannot be in the store. See [InvalidKeyError].
	ErrInvalidKey = errors.New("store: invalid key")
	// ErrInvalidRequest reports a request that contradicts itself. See [InvalidRequestError].
	ErrInvalidRequest = errors.New("store: invalid request")
	// ErrTooLarge reports a key or value above a limit. See [TooLargeError].
	ErrTooLarge = errors.New("store: too large")
	// ErrMoved reports that another instance owns the partition. See [MovedError].
	ErrMoved = errors.New("store: moved")
	// ErrNotReady reports that the owner cannot answer yet: it restores, or cannot prove the age asked for. See
	// [NotReadyError].
	ErrNotReady = errors.New("store: not ready")
	// ErrNoReplica reports that no instance may answer. See [NoReplicaError].
	ErrNoReplica = errors.New("store: no replica")
	// ErrWrongPartition reports a key that does not belong to the partition named. See [WrongPartitionError].
	ErrWrongPartition = errors.New("store: wrong partition")
	// ErrWrongKind reports a query that this kind of store does not answer. See [WrongKindError].
	ErrWrongKind = errors.New("store: wrong store kind")
	// ErrOverloaded reports that the server refuses work it could do later. See [OverloadedError].
	ErrOverloaded = errors.New("store: overloaded")
	// ErrShuttingDown reports an instance that is leaving: ask another one.
	ErrShuttingDown = errors.New("store: instance is shutting down")
	// ErrPermissionDenied reports a caller who may not do what it asks for. See [PermissionDeniedError].
	ErrPermissionDenied = errors.New("store: permission denied")
	// ErrCorrupt reports local data that is not what was written. The local copy is dropped and rebuilt.
	ErrCorrupt = errors.New("store: local state is corrupt")
	// ErrLocked reports a state directory held by another process.
	ErrLocked = errors.New("store: state directory is locked")
	// ErrBehind reports a copy that has not reached the token asked for. See [BehindError].
	ErrBehind = errors.New("store: behind")
	// ErrNotActive reports a copy that is not the owner's, which the caller insists on. See [NotActiveError].
	ErrNotActive = errors.New("store: not active")
	// ErrPartial reports, beside ErrNotFound, that a key is not in the partial state of a copy that is being restored, for a
	// caller who accepts that: it proves nothing. See Facts.Partial.
	ErrPartial = errors.New("store: partial state")
	// ErrOpenTooLong reports a snapshot or an iterator that was open for so long that it was closed (store.iterator.max.age.ms), or
	// the copy of a task that was pinned for too long. A scan may be continued with a new one, from the last cursor.
	ErrOpenTooLong = fmt.Errorf("open for too long: %w", ErrClosed)
	// ErrTaskOpen reports a task that is open already in this process.
	ErrTaskOpen = errors.New("store: task is open")
)

// UnknownStoreError names the store and those there are.
type UnknownStoreError struct {
	Store Name
	Known []Name
}

func (e *UnknownStoreError) Error() string {
	if len(e.Known) == 0 {
		return fmt.Sprintf("store %s: no such store", e.Store)
	}
	return fmt.Sprintf("store %s: no such store; known: %s", e.Store, join(e.Known))
}

// Is matches ErrUnknownStore.
func (e *UnknownStoreError) Is(target error) bool { return target == ErrUnknownStore }

// InvalidKeyError says what is wrong with a key. It never contains the key itself.
type InvalidKeyError struct {
	Store  Name
	Reason string
}

func (e *InvalidKeyError) Error() string { return fmt.Sprintf("store %s: key: %s", e.Store, e.Reason) }

// Is matches ErrInvalidKey.
func (e *InvalidKeyError) Is(target error) bool { return target == ErrInvalidKey }

// InvalidRequestError names the field and what is wrong with it.
type InvalidRequestError struct {
	Field  string
	Reason string
}

func (e *InvalidRequestError) Error() string { return fmt.Sprintf("request %s: %s", e.Field, e.Reason) }

// Is matches ErrInvalidRequest.
func (e *InvalidRequestError) Is(target error) bool { return target == ErrInvalidRequest }

// TooLargeError names what is too large, in bytes. Limit says which setting decides.
type TooLargeError struct {
	Store       Name
	What        string // "key", "value", "record", "response"
	Size, Limit int64
	Setting     string // the setting or topic configuration that sets the limit
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("store %s: %s of %d bytes is above %d (%s)", e.Store, e.What, e.Size, e.Limit, e.Setting)
}

// Is matches ErrTooLarge.
func (e *TooLargeError) Is(target error) bool { return target == ErrTooLarge }

// MovedError says who owns the partition under which epoch of the metadata.
type MovedError struct {
	Store     Name
	Partition Partition
	// Instance and Endpoint of the new owner; empty when it is not known yet.
	Instance, Endpoint string
	Epoch              int64
}

func (e *MovedError) Error() string {
	to := cmp.Or(e.Endpoint, e.Instance, "an instance not known yet")
	return fmt.Sprintf("store %s partition %d: moved to %s (epoch %d)", e.Store, e.Partition, to, e.Epoch)
}

// Is matches ErrMoved.
func (e *MovedError) Is(target error) bool { return target == ErrMoved }

// NotReadyError says why the owner cannot answer, and when to ask again.
type NotReadyError struct {
	// Store is empty when it is about the instance.
	Store     Name
	Partition Partition
	// Reason is "restoring", "restoring from instance ..." while the copy of another instance is taken, "age not proven", "starting",
	// "rebalancing", "no metadata yet", or what the store says: "a copy is being loaded", to its writer, or that reads at
	// READ_UNCOMMITTED have to wait.
	Reason string
	// Building says that the copy is being built, from its changelogs or from another instance's: that takes its time. Else it is there,
	// or about to come, and what is missing is a matter of moments.
	Building bool
	// Restored and Total count changelog offsets of a restore, or rows while the copy of another instance is taken, which Reason
	// says; both 0 when unknown.
	Restored, Total int64
	// Left estimates how long the rest of a restore takes, by its rate so far; 0 when unknown.
	Left       time.Duration
	RetryAfter time.Duration
}

func (e *NotReadyError) Error() string {
	text := "not ready: " + e.Reason
	if e.Store != "" {
		text = fmt.Sprintf("store %s partition %d: %s", e.Store, e.Partition, text)
	}
	if e.Total > 0 {
		text += fmt.Sprintf(", %d of %d", e.Restored, e.Total)
	}
	if e.Left > 0 {
		text += ", " + textOfLeft(e.Left)
	}
	return text
}

// Is matches ErrNotReady.
func (e *NotReadyError) Is(target error) bool { return target == ErrNotReady }

// Candidate is an instance that was considered for a read, with the reason it was passed over.
type Candidate struct {
	Instance, Endpoint string
	Role               Role
	Reason             string
}

// NoReplicaError lists every candidate with the reason it was passed over.
type NoReplicaError struct {
	Store      Name
	Partition  Partition
	Epoch      int64
	Candidates []Candidate
}

func (e *NoReplicaError) Error() string {
	if len(e.Candidates) == 0 {
		return fmt.Sprintf("store %s partition %d: no instance holds it (epoch %d)", e.Store, e.Partition, e.Epoch)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "store %s partition %d: nobody may answer (epoch %d)", e.Store, e.Partition, e.Epoch)
	for i, c := range e.Candidates {
		sep := "; "
		if i == 0 {
			sep = ": "
		}
		fmt.Fprintf(&b, "%s%s %s: %s", sep, c.Role, cmp.Or(c.Endpoint, c.Instance), c.Reason)
	}
	return b.String()
}

// Is matches ErrNoReplica.
func (e *NoReplicaError) Is(target error) bool { return target == ErrNoReplica }

// WrongPartitionError says where the key belongs.
type WrongPartitionError struct {
	Store      Name
	Have, Want Partition
}

func (e *WrongPartitionError) Error() string {
	return fmt.Sprintf("store %s: the key belongs to partition %d, not %d", e.Store, e.Want, e.Have)
}

// Is matches ErrWrongPartition.
func (e *WrongPartitionError) Is(target error) bool { return target == ErrWrongPartition }

// WrongKindError names the kind of the store and what was asked of it.
type WrongKindError struct {
	Store Name
	Kind  Kind
	Query string
}

func (e *WrongKindError) Error() string {
	return fmt.Sprintf("store %s: a %s store does not answer %s", e.Store, e.Kind, e.Query)
}

// Is matches ErrWrongKind.
func (e *WrongKindError) Is(target error) bool { return target == ErrWrongKind }

// OverloadedError says which limit refused the work.
type OverloadedError struct {
	Limit      string
	RetryAfter time.Duration
}

func (e *OverloadedError) Error() string {
	return fmt.Sprintf("overloaded: %s; retry after %s", e.Limit, e.RetryAfter)
}

// Is matches ErrOverloaded.
func (e *OverloadedError) Is(target error) bool { return target == ErrOverloaded }

// PermissionDeniedError says what was refused and what the caller lacks.
type PermissionDeniedError struct {
	Action string
	Reason string
}

func (e *PermissionDeniedError) Error() string {
	return fmt.Sprintf("%s: permission denied: %s", e.Action, e.Reason)
}

// Is matches ErrPermissionDenied.
func (e *PermissionDeniedError) Is(target error) bool { return target == ErrPermissionDenied }

// BehindError says how far a copy is and what was asked for.
type BehindError struct {
	Store     Name
	Partition Partition
	// Have and Want are what concerns the partition.
	Have, Want Token
	RetryAfter time.Duration
}

func (e *BehindError) Error() string {
	return fmt.Sprintf("store %s partition %d: behind: have %s, want %s", e.Store, e.Partition, e.Have, e.Want)
}

// Is matches ErrBehind.
func (e *BehindError) Is(target error) bool { return target == ErrBehind }

// NotActiveError says what the copy is that is not the owner's.
type NotActiveError struct {
	Store      Name
	Partition  Partition
	Role       Role
	RetryAfter time.Duration
}

func (e *NotActiveError) Error() string {
	return fmt.Sprintf("store %s partition %d: not active: the copy is %s, the caller insists on the owner", e.Store, e.Partition, e.Role)
}

// Is matches ErrNotActive.
func (e *NotActiveError) Is(target error) bool { return target == ErrNotActive }

func join(names []Name) string {
	s := make([]string, len(names))
	for i, n := range names {
		s[i] = string(n)
	}
	return strings.Join(s, ", ")
}
