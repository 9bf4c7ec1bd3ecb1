package layered

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/engine"
)

// noTimestamp is what a plain key-value store returns.
const noTimestamp = -1

// timestampBytes is the length of the time before the value in a timestamped or versioned store.
const timestampBytes = 8

// timestamped reports whether the values of a kind are kept with a time: their timestamps or, in a versioned store, what
// history.go says.
func timestamped(kind store.Kind) bool {
	return kind == store.KindTimestampedKeyValue || kind == store.KindTimestampedWindow || kind == store.KindVersioned
}

// appendStored appends the bytes that the engine keeps for a value of a store of this kind.
func appendStored(dst []byte, kind store.Kind, data []byte, timestamp int64) []byte {
	if timestamped(kind) {
		dst = binary.BigEndian.AppendUint64(dst, uint64(timestamp))
	}
	return append(dst, data...)
}

// stored splits what the engine kept. The result shares b.
func stored(kind store.Kind, b []byte) (store.Value, error) {
	if !timestamped(kind) {
		return store.Value{Data: b, Timestamp: noTimestamp}, nil
	}
	if len(b) < timestampBytes {
		return store.Value{}, fmt.Errorf("value of %d bytes has no timestamp: %w", len(b), store.ErrCorrupt)
	}
	return store.Value{Data: b[timestampBytes:], Timestamp: int64(binary.BigEndian.Uint64(b))}, nil
}

// record is a checkpoint as an engine keeps it: JSON, for it is small, read by people in need, and grows by fields.
type record struct {
	Sequence   store.Sequence             `json:"sequence"`
	Changelogs map[store.Name]logPosition `json:"changelogs,omitempty"`
	// Stores says what the record is about: what it says of a store is true of the store with this id only.
	Stores     map[store.Name]storeRecord `json:"stores,omitempty"`
	Inputs     []inputOffset              `json:"inputs,omitempty"`
	Position   store.Position             `json:"position,omitempty"`
	StreamTime int64                      `json:"stream_time"`
	WallTime   int64                      `json:"wall_time,omitempty"`
	Restoring  bool                       `json:"restoring,omitempty"`
}

// storeRecord is what is kept of a store beside its rows.
type storeRecord struct {
	ID engine.StoreID `json:"id"`
	// Retention and Segment, in milliseconds, are those that decided where the rows lie and which are gone.
	Retention int64 `json:"retention,omitempty"`
	Segment   int64 `json:"segment,omitempty"`
	// Time is the store's own time, absent when it has seen nothing. Seq is the number of its last row.
	Time *int64 `json:"time,omitempty"`
	Seq  int32  `json:"seq,omitempty"`
}

type logPosition struct {
	TopicID     [16]byte     `json:"topic_id"`
	LeaderEpoch int32        `json:"leader_epoch"`
	Next        store.Offset `json:"next"`
}

type inputOffset struct {
	Topic     string          `json:"topic"`
	Partition store.Partition `json:"partition"`
	Next      store.Offset    `json:"next"`
}

// encodeRecord writes cp for one engine: only what concerns the stores it holds, so that nothing an engine does not hold
// is ever called durable.
func encodeRecord(cp store.Checkpoint, held []storeView) ([]byte, error) {
	r := record{
		Sequence: cp.Sequence, Position: cp.Position, StreamTime: cp.StreamTime, WallTime: cp.WallTime, Restoring: cp.Restoring,
		Changelogs: make(map[store.Name]logPosition), Stores: make(map[store.Name]storeRecord, len(held)),
	}
	for _, sv := range held {
		name := sv.spec.Name
		if pos, ok := cp.Changelogs[name]; ok && !sv.spec.NoChangelog {
			r.Changelogs[name] = logPosition(pos)
		}
		s := storeRecord{ID: sv.id, Seq: sv.now.seq}
		if sv.segments != nil {
			s.Retention, s.Segment = sv.segments.retention, sv.segments.interval
		}
		if sv.now.time != noTime {
			s.Time = &sv.now.time
		}
		r.Stores[name] = s
	}
	for tp, next := range cp.Inputs {
		r.Inputs = append(r.Inputs, inputOffset{tp.Topic, tp.Partition, next})
	}
	slices.SortFunc(r.Inputs, func(a, b inputOffset) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return json.Marshal(r)
}

// decodeRecord reads what encodeRecord wrote.
func decodeRecord(b []byte) (record, error) {
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return record{}, fmt.Errorf("record of a move: %w: %w", store.ErrCorrupt, err)
	}
	return r, nil
}

// checkpoint is what the record says, with the changelog positions of the stores that keep names.
func (r record) checkpoint(keep func(store.Name) bool) store.Checkpoint {
	cp := store.Checkpoint{
		Sequence: r.Sequence, Position: r.Position.Clone(), StreamTime: r.StreamTime, WallTime: r.WallTime, Restoring: r.Restoring,
		Changelogs: make(map[store.Name]store.LogPosition, len(r.Changelogs)),
		Inputs:     make(map[store.TopicPartition]store.Offset, len(r.Inputs)),
	}
	for name, pos := range r.Changelogs {
		if keep(name) {
			cp.Changelogs[name] = store.LogPosition(pos)
		}
	}
	for name, s := range r.Stores {
		if s.Time == nil {
			continue
		}
		if cp.StoreTimes == nil {
			cp.StoreTimes = make(map[store.Name]int64)
		}
		cp.StoreTimes[name] = *s.Time
	}
	for _, in := range r.Inputs {
		cp.Inputs[store.TopicPartition{Topic: in.Topic, Partition: in.Partition}] = in.Next
	}
	return cp
}

// fits reports whether what the record says of a store is true of the one with this id and of use to spec.
func (r record) fits(spec store.Spec, id engine.StoreID) bool {
	s, ok := r.Stores[spec.Name]
	if !ok || s.ID != id {
		return false
	}
	if seg := segmentsOf(spec); seg != nil && (s.Retention != seg.retention || s.Segment != seg.interval) {
		return false // rows would be looked for where they are not
	}
	// Without a position the changelog would be replayed from its start over what is there, and keys whose tombstones are
	// compacted away would come back to life.
	_, known := r.Changelogs[spec.Name]
	return known || spec.NoChangelog
}
