package store

import (
	"context"
	"math"
)

// NotPut is what [Versioned.Put] returns for a version that is older than history goes back (upstream's
// PUT_RETURN_CODE_NOT_PUT).
const NotPut = math.MinInt64

// Version is one version of a key (upstream's VersionedRecord, KIP-889): it was valid from Timestamp, inclusive, to
// ValidTo, exclusive.
type Version struct {
	Value
	// ValidTo in Unix milliseconds; NoEnd for the latest version.
	ValidTo int64
}

// VersionScan selects the versions of one key whose validity overlaps [From, To] (upstream's MultiVersionedKeyQuery,
// KIP-968): valid from at most To, and to beyond From. Tombstones are not returned. Order is by the start of validity.
// What GetAsOf does not find because it is older than history goes back is not there either; upstream shows what happens
// to be left of it.
type VersionScan struct {
	Key []byte
	// From and To are inclusive, in Unix milliseconds. From > To is an empty result.
	From, To int64
	// After continues a scan behind the row with this [Entry.Cursor], in the direction of the scan.
	After []byte
	// Reverse returns the newest version first, as upstream does by default.
	Reverse bool
}

// VersionedReader answers reads of one partition of one versioned store at one snapshot. Safe for concurrent use.
type VersionedReader interface {
	// Get returns the latest version of key, or ErrNotFound.
	Get(ctx context.Context, key []byte) (Version, error)
	// GetAsOf returns the version that was valid at asOf (the greatest timestamp <= asOf), or ErrNotFound: also when asOf is
	// older than stream time minus history retention, unless the latest version was valid by then already.
	GetAsOf(ctx context.Context, key []byte, asOf int64) (Version, error)
	// Scan opens an ordered read of one key's versions. Entries have Start and End of the validity, End exclusive or NoEnd.
	Scan(ctx context.Context, s VersionScan) (Iterator, error)
	// ApproximateCount estimates the number of keys that have a latest version.
	ApproximateCount(ctx context.Context) (int64, error)
}

// Versioned is the writer's versioned store (upstream's VersionedKeyValueStore, KIP-889). It belongs to the task's stream
// thread and sees the writes of the running commit.
type Versioned interface {
	// Put adds the version that begins at v.Timestamp; nil Data is a tombstone; a version with the same timestamp is
	// replaced. It returns when the validity of the new version ends: NoEnd when it is the latest, NotPut when the timestamp
	// is below stream time minus history retention, which is dropped and counted. Stream time is the greatest timestamp that
	// was put into this partition of the store. A negative timestamp is an *InvalidRequestError.
	Put(key []byte, v Value) (validTo int64, err error)
	// Delete returns what GetAsOf(timestamp) would have, and puts a tombstone at timestamp. ErrNotFound when nothing was valid;
	// the tombstone is put all the same. ErrNotFound also when the timestamp is too old for Put, which is counted; then
	// nothing is put.
	Delete(key []byte, timestamp int64) (Version, error)
	// Get and GetAsOf are those of VersionedReader.
	Get(key []byte) (Version, error)
	GetAsOf(key []byte, asOf int64) (Version, error)
	// Scan opens an ordered read of one key's versions.
	Scan(s VersionScan) (Iterator, error)
}
