package layered

import (
	"bytes"
	"errors"

	"github.com/statemesh/statemesh/store"
)

// versions is what the writer of a versioned store keeps beside its rows. Writer only.
type versions struct {
	// deleted is at or above the time of every tombstone that counts: a key without a latest value has nothing that begins
	// later. A rollback leaves it, a start takes the time of the store: too much costs a look.
	deleted int64

	// puts are those of the running commit, in the order in which they go to the changelog; the hash of a row that
	// store.VersionKey would name leads to the last put of it.
	puts  []loggedPut
	last  map[uint64]int
	arena arena
}

// loggedPut is a put of a version. gone says that a later one of the same key and time takes its place.
type loggedPut struct {
	change store.Change
	gone   bool
}

// loggedCost is what a put in the log costs beside its bytes.
const loggedCost = 96

// begin starts with the state of a store whose time is now.
func (v *versions) begin(now int64) {
	v.forget()
	v.deleted = now
}

// logVersion puts a version down for the changelog. Compaction keeps the last record of a key, so the last is always that
// of its latest version: when a version is put before that, the latest one follows it once more. Without this a compacted
// changelog could restore an old value, or a deleted one, as the latest; upstream does.
func (p *part) logVersion(key, data []byte, timestamp, validTo int64) error {
	if p.spec.NoChangelog {
		return nil
	}
	p.noteVersion(key, data, timestamp)
	if validTo == store.NoEnd {
		return nil
	}
	latest, err := p.get(0, key)
	switch {
	case err == nil:
		p.noteVersion(key, latest.Data, latest.Timestamp)
		return nil
	case !errors.Is(err, store.ErrNotFound):
		return err
	}
	// A tombstone is the latest, for the version put ends: the row that begins last.
	now := p.now.time
	return p.eachRow(p.rowsOf(key, validTo, now, nil, true).in(p.placed, validTo, now), func(e store.Entry) bool {
		p.noteVersion(key, nil, e.Start)
		return false
	})
}

// noteVersion makes a version the last in the log of puts.
func (p *part) noteVersion(key, data []byte, timestamp int64) {
	v := p.versions
	p.row = store.AppendVersionKey(p.row[:0], key, timestamp)
	hash := p.active.hash(p.row)
	c := store.Change{Timestamp: timestamp}
	if i, ok := v.last[hash]; ok {
		if before := &v.puts[i]; before.change.Timestamp == timestamp && bytes.Equal(before.change.Key, key) {
			before.gone = true
			c.Key = before.change.Key
			if data != nil && bytes.Equal(before.change.Value, data) {
				c.Value = before.change.Value
			}
		}
	}
	if c.Key == nil {
		c.Key = v.arena.copy(key, 0)
	}
	if c.Value == nil && data != nil {
		c.Value = v.arena.copy(data, 0)
	}
	if v.last == nil {
		v.last = make(map[uint64]int)
	}
	v.last[hash] = len(v.puts)
	v.puts = append(v.puts, loggedPut{change: c})
	p.task.uncommitted += int64(len(key)+len(data)) + loggedCost
}

// changes yields the puts of the running commit in order.
func (v *versions) changes(name store.Name, yield func(store.Name, store.Change) bool) bool {
	for _, put := range v.puts {
		if !put.gone && !yield(name, put.change) {
			return false
		}
	}
	return true
}

// forget empties the log.
func (v *versions) forget() {
	const keep = 1 << 14 // of room for the next commit
	if cap(v.puts) > keep {
		v.puts, v.last = nil, nil
	}
	clear(v.puts)
	clear(v.last)
	v.puts, v.arena = v.puts[:0], arena{}
}
