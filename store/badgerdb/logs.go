package badgerdb

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/statemesh/statemesh/store"
)

// Badger replays the log of a memtable up to the first entry that is not right and cuts the rest without a word. In the
// newest log that is the end of what was written, or loses the newest records of D together with all that follows. In an
// older one it may take data that a record in a newer log speaks of: a state that no commit made. So the logs are read
// before Badger has them, and what their records of D say is compared with what is there.

// checkLogs removes the logs that must not be replayed from a closed database, and reports whether something is missing in
// the others that a record of D relies on. after is the record that the first one in them follows on, which tables have; 0
// when there is none. What follows the last whole entry of a log is cut off, as Badger would do it; but some of what may be
// there Badger refuses, and then it leaves what it has opened so far open, or reserves the gigabytes that a broken length
// asks for.
func checkLogs(dir string) (after uint64, err error) {
	names, err := pruneLogs(dir)
	if err != nil {
		return 0, err
	}
	l := logs{moves: make(map[uint64]check)}
	ends := make(map[string]int64) // of the logs with something behind their end
	var cut string
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			return 0, err
		}
		if len(b) >= logHeader && binary.BigEndian.Uint64(b) != 0 {
			return 0, fmt.Errorf("log %s names a key to decrypt it with: %w", filepath.Base(name), store.ErrCorrupt)
		}
		before := len(l.records)
		end := readLog(b, l.add)
		if cut != "" && len(l.records) > before {
			return 0, fmt.Errorf("log %s ends before its end, and a newer one goes on: %w", filepath.Base(cut), store.ErrCorrupt)
		}
		if len(bytes.Trim(b[end:], "\x00")) > 0 {
			cut = cmp.Or(cut, name)
			ends[name] = int64(end)
		}
	}
	if err := l.verify(); err != nil {
		return 0, err
	}
	for name, end := range ends {
		if err := os.Truncate(name, end); err != nil {
			return 0, err
		}
	}
	if len(l.records) == 0 {
		return 0, nil
	}
	return l.records[0].chk.Previous, nil
}

// pruneLogs removes logs and returns the names of the others, in order.
//
// Memtables are flushed in order, so those before one whose log is gone are in tables too. Their logs are there only
// because an iterator was still looking at them, and to replay them would be wrong: the tombstones of what they hold may have
// been compacted away together with what they cover.
//
// That reads a gap in the numbers as a flush, so no log may go for another reason: Badger would remove a newest one without
// entries and use the next number. Badger empties a log before it removes it, so one without a byte is one that is gone or,
// as the newest, one that was about to begin; Badger itself would refuse both.
func pruneLogs(dir string) ([]string, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.mem"))
	if err != nil {
		return nil, err
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(logNumber(a), logNumber(b)) })
	end := len(names) // from here on there is nothing in them
	for ; end > 0; end-- {
		b, err := os.ReadFile(names[end-1])
		if err != nil {
			return nil, err
		}
		if readLog(b, func(logEntry) {}) > logHeader {
			break
		}
	}
	// A newest log without entries counts here: the one before it is stale when numbers between them are missing.
	first := len(names)
	for ; first > 0; first-- {
		info, err := os.Stat(names[first-1])
		if err != nil {
			return nil, err
		}
		gap := first < len(names) && logNumber(names[first-1]) != logNumber(names[first])-1
		if gap || first <= end && info.Size() == 0 {
			break
		}
	}
	first = min(first, end)
	// Those without entries go last, from the newest on: a kill in between leaves no gap that was not there.
	gone := slices.Clone(names[end:])
	slices.Reverse(gone)
	for _, name := range append(slices.Clone(names[:first]), gone...) {
		if err := os.Remove(name); err != nil {
			return nil, err
		}
	}
	return names[first:end], nil
}

// logNumber is the number in the name of a log.
func logNumber(name string) int64 {
	n, err := strconv.ParseInt(strings.TrimSuffix(filepath.Base(name), ".mem"), 10, 64)
	if err != nil {
		return math.MaxInt64 // Badger says what it means
	}
	return n
}

// logs is what the logs of a database hold.
type logs struct {
	records []durableRecord // of D, in the order in which they were written
	moves   map[uint64]check
}

// durableRecord is one record of D.
type durableRecord struct {
	ts  uint64
	chk check
	err error
}

func (l *logs) add(e logEntry) {
	switch {
	case bytes.Equal(e.key, durableKey) && !e.deleted:
		chk, err := decodeCheck(e.value)
		l.records = append(l.records, durableRecord{e.ts, chk, err})
	case len(e.key) > 0 && e.key[0] == dataPrefix:
		have := l.moves[e.ts]
		have.Timestamp = e.ts
		if e.deleted {
			have.Deletes++
		} else {
			have.add(e.key, e.value)
		}
		l.moves[e.ts] = have
	}
}

// verify compares each record with the one that it says was before it, and with the data that was written in between. The
// first record may follow on what is in tables already.
func (l *logs) verify() error {
	if len(l.records) == 0 {
		return nil
	}
	seen := make(map[uint64]bool, len(l.records))
	for _, r := range l.records {
		if r.err != nil {
			return r.err
		}
		seen[r.ts] = true
		if r.chk.Previous < l.records[0].ts {
			continue
		}
		if !seen[r.chk.Previous] {
			return fmt.Errorf("record %d follows on record %d, which is not in the logs: %w", r.ts, r.chk.Previous, store.ErrCorrupt)
		}
		want, have := r.chk, l.moves[r.chk.Timestamp]
		if (want.Count > 0 || want.Deletes > 0) && (have.Count != want.Count || have.Sum != want.Sum || have.Deletes != want.Deletes) {
			return fmt.Errorf("move %d: %d values and %d deletes are in the logs, want %d and %d: %w",
				want.Timestamp, have.Count, have.Deletes, want.Count, want.Deletes, store.ErrCorrupt)
		}
	}
	return nil
}

// logEntry is a key with its value in a log.
type logEntry struct {
	key, value []byte
	ts         uint64
	deleted    bool
}

// The format of Badger's logs (v4: memtable.go, value.go, structs.go). After a header come entries: two bytes of flags, the
// lengths of key and value and an expiry as varints, key, value and a checksum. Those of a transaction are followed by one
// with its timestamp.
const (
	logHeader    = 20
	flagDelete   = 1 << 0
	flagTxn      = 1 << 6
	flagFinished = 1 << 7
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// readLog calls visit for the entries that Badger would replay, and returns where those end.
func readLog(b []byte, visit func(logEntry)) (end int) {
	var txn []logEntry
	var open uint64
	for at := min(logHeader, len(b)); ; {
		end = max(end, min(logHeader, len(b)))
		e, flags, n := readEntry(b[at:])
		if n == 0 {
			return end
		}
		at += n
		switch {
		case flags&flagTxn != 0:
			if open == 0 {
				open = e.ts
			}
			if open != e.ts {
				return end
			}
			txn = append(txn, e)
		case flags&flagFinished != 0:
			if ts, err := strconv.ParseUint(string(e.value), 10, 64); err != nil || ts != open {
				return end
			}
			for _, e := range txn {
				visit(e)
			}
			txn, open, end = txn[:0], 0, at
		case open != 0:
			return end
		default:
			visit(e)
			end = at
		}
	}
}

// readEntry reads one entry, of length 0 when there is none.
func readEntry(b []byte) (e logEntry, flags byte, n int) {
	if len(b) < 2 {
		return e, 0, 0
	}
	flags, n = b[0], 2
	var lengths [3]uint64 // key, value, expiry
	for i := range lengths {
		v, size := binary.Uvarint(b[n:])
		if size <= 0 {
			return e, 0, 0
		}
		lengths[i] = v
		n += size
	}
	key, value := lengths[0], lengths[1]
	if key > 1<<16 || key < 8 || value > uint64(len(b)) || uint64(n)+key+value+crc32.Size > uint64(len(b)) {
		return e, 0, 0
	}
	sum := n + int(key+value)
	if crc32.Checksum(b[:sum], castagnoli) != binary.BigEndian.Uint32(b[sum:]) {
		return e, 0, 0
	}
	split := n + int(key)
	e = logEntry{
		key: b[n : split-8], value: b[split:sum], ts: math.MaxUint64 - binary.BigEndian.Uint64(b[split-8:]), deleted: flags&flagDelete != 0,
	}
	return e, flags, sum + crc32.Size
}
