package layered

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/statemesh/statemesh/store"
)

// noTimestamp is what a plain key-value store returns.
const noTimestamp = -1

// timestampBytes is the length of the timestamp before the value in a timestamped store.
const timestampBytes = 8

// appendStored appends the bytes that the engine keeps for a value of a store of this kind.
func appendStored(dst []byte, kind store.Kind, data []byte, timestamp int64) []byte {
	if kind == store.KindTimestampedKeyValue {
		dst = binary.BigEndian.AppendUint64(dst, uint64(timestamp))
	}
	return append(dst, data...)
}

// stored splits what the engine kept. The result shares b.
func stored(kind store.Kind, b []byte) (store.Value, error) {
	if kind != store.KindTimestampedKeyValue {
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
	Inputs     []inputOffset              `json:"inputs,omitempty"`
	Position   store.Position             `json:"position,omitempty"`
	StreamTime int64                      `json:"stream_time"`
	WallTime   int64                      `json:"wall_time,omitempty"`
	Restoring  bool                       `json:"restoring,omitempty"`
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

// encodeRecord writes cp for one engine: only the positions of the stores that keep says are its own, so that nothing an
// engine does not hold is ever called durable.
func encodeRecord(cp store.Checkpoint, keep func(store.Name) bool) ([]byte, error) {
	r := record{Sequence: cp.Sequence, Position: cp.Position, StreamTime: cp.StreamTime, WallTime: cp.WallTime, Restoring: cp.Restoring}
	for name, pos := range cp.Changelogs {
		if !keep(name) {
			continue
		}
		if r.Changelogs == nil {
			r.Changelogs = make(map[store.Name]logPosition)
		}
		r.Changelogs[name] = logPosition(pos)
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
func decodeRecord(b []byte) (store.Checkpoint, error) {
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return store.Checkpoint{}, fmt.Errorf("record of a move: %w: %w", store.ErrCorrupt, err)
	}
	cp := store.Checkpoint{
		Sequence: r.Sequence, Position: r.Position.Clone(), StreamTime: r.StreamTime, WallTime: r.WallTime, Restoring: r.Restoring,
		Changelogs: make(map[store.Name]store.LogPosition, len(r.Changelogs)),
		Inputs:     make(map[store.TopicPartition]store.Offset, len(r.Inputs)),
	}
	for name, pos := range r.Changelogs {
		cp.Changelogs[name] = store.LogPosition(pos)
	}
	for _, in := range r.Inputs {
		cp.Inputs[store.TopicPartition{Topic: in.Topic, Partition: in.Partition}] = in.Next
	}
	return cp, nil
}
