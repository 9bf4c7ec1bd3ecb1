package layered

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/engine"
)

// Copy reads the rows of a snapshot for another instance, which loads them (Task.Load). It belongs to one goroutine at a
// time, and ends with the snapshot: nothing is pinned between two calls but that.
type Copy struct {
	snap   *Snapshot
	header store.CopyHeader
	// acknowledged is the WallTime of the commit.
	acknowledged int64
	numbers      []int // of the stores, in the task

	// recent is what the tables hold of the store that is being read, by segment and from the newest table on.
	recent map[engine.Segment][][]*entry
	of     int // its number in the task; -1: of none

	rows  []store.CopyRow
	block []byte
}

// Copy begins a copy of what the snapshot shows. *store.CopyRefusedError when that is no whole commit, or a state that has
// no logged store.
func (s *Snapshot) Copy() (*Copy, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	v := s.view
	refuse := func(name store.Name, reason string) error {
		return &store.CopyRefusedError{Task: v.task.id, Store: name, Reason: reason}
	}
	if v.running != nil {
		return nil, refuse("", "the snapshot shows more than a commit")
	}
	cp := v.cp.Clone()
	cp.Changelogs, cp.StoreTimes, cp.WallTime = make(map[store.Name]store.LogPosition), make(map[store.Name]int64), 0
	c := &Copy{snap: s, acknowledged: v.cp.WallTime, of: -1}
	for i, sv := range v.stores {
		if sv.spec.NoChangelog {
			continue
		}
		name := sv.spec.Name
		pos, ok := v.cp.Changelogs[name]
		if !ok {
			return nil, refuse(name, "the commit has no changelog position of it")
		}
		cp.Changelogs[name] = pos
		if sv.now.time != noTime {
			cp.StoreTimes[name] = sv.now.time
		}
		c.numbers = append(c.numbers, i)
	}
	if len(c.numbers) == 0 {
		return nil, refuse("", "no store of the task has a changelog")
	}
	slices.SortFunc(c.numbers, func(a, b int) int { return copyOrder(&v.stores[a], &v.stores[b]) })
	c.header = store.CopyHeader{Format: store.CopyFormat, Task: v.task.id, Checkpoint: cp}
	for _, i := range c.numbers {
		sv := &v.stores[i]
		cs := store.CopyStoreOf(sv.spec)
		cs.Last = sv.now.seq
		c.header.Stores = append(c.header.Stores, cs)
	}
	c.header.Rows, c.header.Bytes = v.size()
	return c, nil
}

// copyOrder puts the stores first whose segments expire soonest: what is gone before it was read ends the copy.
func copyOrder(a, b *storeView) int {
	interval := func(sv *storeView) int64 {
		if sv.segments == nil {
			return math.MaxInt64
		}
		return sv.segments.interval
	}
	return cmp.Or(cmp.Compare(interval(a), interval(b)), cmp.Compare(a.spec.Name, b.spec.Name))
}

// Header says what is copied. now is by the clock of who set the WallTime of the commit.
func (c *Copy) Header(now time.Time) store.CopyHeader {
	h := c.header
	h.Stores, h.Checkpoint = slices.Clone(h.Stores), h.Checkpoint.Clone()
	h.Age = -1
	if c.acknowledged > 0 {
		h.Age = max(0, now.Sub(time.UnixMilli(c.acknowledged)))
	}
	return h
}

// Read returns the rows that follow a place, as many as have about limit bytes of keys and values, at least one; done says
// that there are no more behind them. The rows are valid until the next call. The same place always gives the same rows. The
// errors are those of a read of the snapshot: store.ErrOpenTooLong after Config.IteratorMaxAge, engine.ErrDropped when a
// segment has expired since and its space was taken back, the cause of ctx.
func (c *Copy) Read(ctx context.Context, after store.CopyPlace, limit int) (rows []store.CopyRow, done bool, err error) {
	if int(after.Store) >= len(c.numbers) {
		return nil, false, &store.InvalidRequestError{Field: "place", Reason: fmt.Sprintf("store %d of %d", after.Store, len(c.numbers))}
	}
	if err := c.snap.enter(); err != nil {
		c.recent, c.of = nil, -1
		return nil, false, err
	}
	defer c.snap.leave()
	c.rows, c.block = c.rows[:0], c.block[:0]
	for i := int(after.Store); i < len(c.numbers); i++ {
		sv := &c.snap.view.stores[c.numbers[i]]
		for _, segment := range sv.copied() {
			if uint64(segment) < after.Segment {
				continue
			}
			var key []byte
			if uint64(segment) == after.Segment {
				key = after.Key
			}
			full, err := c.readSegment(ctx, i, segment, key, limit)
			if err != nil {
				return nil, false, sv.wrap(err)
			}
			if full {
				return c.rows, false, nil
			}
		}
		after = store.CopyPlace{}
	}
	return c.rows, true, nil
}

// copied lists the segments that may hold rows which are alive.
func (sv *storeView) copied() []engine.Segment {
	if sv.segments == nil {
		return unsegmented
	}
	alive := sv.segments.between(sv.segments.live(sv.now.time), sv.now.time)
	if sv.spec.Kind != store.KindVersioned {
		return alive
	}
	return append([]engine.Segment{0}, alive...)
}

// readSegment reads what is behind a key in a segment of the i-th store; full says that the limit is reached.
func (c *Copy) readSegment(ctx context.Context, i int, segment engine.Segment, after []byte, limit int) (full bool, err error) {
	const between = 1024 // rows, from one look at ctx to the next
	v, number := c.snap.view, c.numbers[i]
	sv := &v.stores[number]
	sc := rowScan{sp: span{}.behind(after), segments: []engine.Segment{segment}}
	m := newMerge(sv.spec.Kind, sc, v.tick)
	defer m.close()
	for _, entries := range c.tables(number)[segment] {
		m.start(tableCursor{rest: within(entries, sc.sp.lo, nil)})
	}
	if err := m.addEngine(v.bases[sv.engine].snap, sv.id); err != nil {
		return false, err
	}
	for passed := 0; ; passed++ {
		if passed%between == 0 && ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		r, ok := m.next()
		if !ok {
			return false, m.err
		}
		if r.ver == nil || r.ver.live {
			if len(c.block) >= limit && len(c.rows) > 0 {
				return true, nil
			}
			if err := c.take(sv, uint16(i), r, m); err != nil {
				return false, err
			}
		}
		m.pass(r)
	}
}

// take appends a row unless it is dead.
func (c *Copy) take(sv *storeView, i uint16, r row, m *merge) error {
	from := len(c.block)
	c.block = append(c.block, r.key...)
	value := len(c.block)
	if r.ver == nil {
		c.block = append(c.block, m.engine.value()...)
	} else {
		c.block = appendStored(c.block, sv.spec.Kind, r.ver.data, r.ver.timestamp)
	}
	out := store.CopyRow{Store: i, Segment: uint64(r.segment), Key: c.block[from:value:value], Value: c.block[value:len(c.block):len(c.block)]}
	at, err := sv.timeOf(out)
	if err != nil {
		return err
	}
	if r.segment > 0 && at < sv.segments.live(sv.now.time) {
		c.block = c.block[:from]
		return nil
	}
	c.rows = append(c.rows, out)
	return nil
}

// tables is what the tables hold of a store, by segment and from the newest table on.
func (c *Copy) tables(number int) map[engine.Segment][][]*entry {
	if c.of == number {
		return c.recent
	}
	c.recent, c.of = make(map[engine.Segment][][]*entry), number
	for _, l := range c.snap.view.stores[number].layers {
		if l.table.order == nil {
			c.recent[0] = append(c.recent[0], l.table.sorted(l.count))
			continue
		}
		bySegment := make(map[engine.Segment][]*entry)
		for n := l.table.order.from(nil); n != nil; n = n.next[0].Load() {
			if n.entry.at(c.snap.view.tick) != nil {
				bySegment[n.segment] = append(bySegment[n.segment], n.entry)
			}
		}
		for segment, entries := range bySegment {
			c.recent[segment] = append(c.recent[segment], entries)
		}
	}
	return c.recent
}

// timeOf is the time that decides about a row's segment and expiry; 0 in a store without segments. An error says that it is
// no row of this store.
func (p *placed) timeOf(r store.CopyRow) (int64, error) {
	if timestamped(p.spec.Kind) && len(r.Value) < timestampBytes {
		return 0, fmt.Errorf("value of %d bytes has no timestamp: %w", len(r.Value), store.ErrCorrupt)
	}
	switch {
	case p.segments == nil:
		return 0, nil
	case p.spec.Kind != store.KindVersioned:
		at, _, err := p.rowTime(r.Key)
		return at, err
	}
	at := int64(binary.BigEndian.Uint64(r.Value))
	if r.Segment == 0 {
		return at, nil
	}
	_, from, err := store.ParseVersionKey(r.Key)
	if err == nil && at < from {
		err = fmt.Errorf("version from %d to %d: %w", from, at, store.ErrCorrupt)
	}
	return at, err
}
