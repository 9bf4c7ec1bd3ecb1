package store

import (
	"encoding/binary"
	"fmt"
)

// versionSuffix is the start of validity.
const versionSuffix = 8

// VersionKey is key | start of validity, big endian: the row of an older version in a versioned store, and the cursor of
// every version. from is in Unix milliseconds, at least 0.
func VersionKey(key []byte, from int64) []byte {
	return AppendVersionKey(make([]byte, 0, len(key)+versionSuffix), key, from)
}

// AppendVersionKey appends what VersionKey returns.
func AppendVersionKey(dst, key []byte, from int64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, key...), uint64(from))
}

// ParseVersionKey splits what VersionKey joined; key shares row. ErrCorrupt when row cannot be such a key.
func ParseVersionKey(row []byte) (key []byte, from int64, err error) {
	n := len(row) - versionSuffix
	if n < 1 {
		return nil, 0, fmt.Errorf("version row with a key of %d bytes: %w", len(row), ErrCorrupt)
	}
	if from = int64(binary.BigEndian.Uint64(row[n:])); from < 0 {
		return nil, 0, fmt.Errorf("version row from %d: %w", from, ErrCorrupt)
	}
	return row[:n:n], from, nil
}
