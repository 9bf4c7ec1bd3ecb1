package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
)

// The keys under which rows of window and session stores are kept, in engines, changelogs and cursors: upstream's
// (WindowKeySchema, SessionKeySchema). Times are Unix milliseconds, at least 0, so that they sort as bytes.
const (
	windowSuffix  = 8 + 4 // start, seq
	sessionSuffix = 8 + 8 // end, start
)

// MaxSeq is the greatest number that tells rows of one window of a key apart; after it comes 0 again.
const MaxSeq = math.MaxInt32

// WindowKey is key | start | seq: the row of a window. seq is 0 where no duplicates are kept.
func WindowKey(key []byte, start int64, seq int32) []byte {
	return AppendWindowKey(make([]byte, 0, len(key)+windowSuffix), key, start, seq)
}

// AppendWindowKey appends what WindowKey returns.
func AppendWindowKey(dst, key []byte, start int64, seq int32) []byte {
	dst = binary.BigEndian.AppendUint64(append(dst, key...), uint64(start))
	return binary.BigEndian.AppendUint32(dst, uint32(seq))
}

// ParseWindowKey splits what WindowKey joined; key shares row. ErrCorrupt when row cannot be such a key.
func ParseWindowKey(row []byte) (key []byte, start int64, seq int32, err error) {
	n := len(row) - windowSuffix
	if n < 1 {
		return nil, 0, 0, fmt.Errorf("window row with a key of %d bytes: %w", len(row), ErrCorrupt)
	}
	start = int64(binary.BigEndian.Uint64(row[n:]))
	seq = int32(binary.BigEndian.Uint32(row[n+8:]))
	if start < 0 || seq < 0 {
		return nil, 0, 0, fmt.Errorf("window row with start %d, number %d: %w", start, seq, ErrCorrupt)
	}
	return row[:n:n], start, seq, nil
}

// WindowLower is at or below every row whose key is at least key; nil, which bounds nothing, for nil.
func WindowLower(key []byte) []byte { return padded(key, windowSuffix) }

// WindowUpper is the least bound, inclusive, of every row whose key is at most key and whose start is at most start;
// nil, which bounds nothing, for a nil key. Rows above either lie below it too: what lies in bounds is looked at again.
//
// Upstream's bound (OrderedBytes.upperRange) is the same unless a byte of the key equals the first one of the time: there
// upstream's is too low and misses rows.
func WindowUpper(key []byte, start int64) []byte {
	if key == nil {
		return nil
	}
	var suffix [windowSuffix]byte
	binary.BigEndian.PutUint64(suffix[:], uint64(start))
	binary.BigEndian.PutUint32(suffix[8:], MaxSeq)
	return greatest(key, suffix[:])
}

// SessionKey is key | end | start: the row of a session.
func SessionKey(key []byte, start, end int64) []byte {
	return AppendSessionKey(make([]byte, 0, len(key)+sessionSuffix), key, start, end)
}

// AppendSessionKey appends what SessionKey returns.
func AppendSessionKey(dst, key []byte, start, end int64) []byte {
	dst = binary.BigEndian.AppendUint64(append(dst, key...), uint64(end))
	return binary.BigEndian.AppendUint64(dst, uint64(start))
}

// ParseSessionKey splits what SessionKey joined; key shares row. ErrCorrupt when row cannot be such a key.
func ParseSessionKey(row []byte) (key []byte, start, end int64, err error) {
	n := len(row) - sessionSuffix
	if n < 1 {
		return nil, 0, 0, fmt.Errorf("session row with a key of %d bytes: %w", len(row), ErrCorrupt)
	}
	end = int64(binary.BigEndian.Uint64(row[n:]))
	start = int64(binary.BigEndian.Uint64(row[n+8:]))
	if start < 0 || end < start {
		return nil, 0, 0, fmt.Errorf("session row from %d to %d: %w", start, end, ErrCorrupt)
	}
	return row[:n:n], start, end, nil
}

// SessionLower is at or below every row whose key is at least key; nil, which bounds nothing, for nil.
func SessionLower(key []byte) []byte { return padded(key, sessionSuffix) }

// SessionUpper is the least bound, inclusive, of every row whose key is at most key, whose end is at most end and whose
// start is at most start; nil, which bounds nothing, for a nil key. See [WindowUpper].
func SessionUpper(key []byte, start, end int64) []byte {
	if key == nil {
		return nil
	}
	var suffix [sessionSuffix]byte
	binary.BigEndian.PutUint64(suffix[:], uint64(end))
	binary.BigEndian.PutUint64(suffix[8:], uint64(start))
	return greatest(key, suffix[:])
}

// padded is key with n zeros: a key that goes on where this one ends may do so with zeros.
func padded(key []byte, n int) []byte {
	if key == nil {
		return nil
	}
	return append(append(make([]byte, 0, len(key)+n), key...), make([]byte, n)...)
}

// greatest is the greatest of p + suffix over the non-empty prefixes p of key. Keys at most key are its prefixes, or
// differ from it where they have the lower byte.
func greatest(key, suffix []byte) []byte {
	best := min(1, len(key))
	for n := best + 1; n <= len(key); n++ {
		// key[:best] + suffix against key[:n] + suffix
		diff := min(n-best, len(suffix))
		c := bytes.Compare(suffix[:diff], key[best:best+diff])
		if c == 0 && diff < len(suffix) {
			c = bytes.Compare(suffix[diff:], suffix[:len(suffix)-diff])
		}
		if c <= 0 {
			best = n
		}
	}
	return append(append(make([]byte, 0, best+len(suffix)), key[:best]...), suffix...)
}
