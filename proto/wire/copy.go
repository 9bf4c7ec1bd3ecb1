package wire

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/store"
)

// A chunk of a copy.
const (
	// CopyChunkBytes is how many bytes of keys and values fill one message of a copy: a quarter of what flow control grants a
	// stream, so that one is read while others are on their way. Only the last row of a chunk may go beyond it.
	CopyChunkBytes = AnswerWindowBytes / 4
	// CopyChunkRows is how many rows go into one at most. What a row takes at the receiver is as much as a short row, so bytes alone
	// are no bound: a message of the greatest size could be unpacked into many times as much.
	CopyChunkRows = CopyChunkBytes / 16

	// minCopyRow is the shortest row: four numbers of a byte.
	minCopyRow = 4
)

// CopyChecksum is the checksum over the rows that had the checksum before, and those that follow.
func CopyChecksum(before uint32, rows []byte) uint32 { return crc32.Update(before, castagnoli, rows) }

// AppendCopyRow appends a row as a chunk has it.
func AppendCopyRow(b []byte, r store.CopyRow) []byte {
	b = binary.AppendUvarint(b, uint64(r.Store))
	b = binary.AppendUvarint(b, r.Segment)
	b = append(binary.AppendUvarint(b, uint64(len(r.Key))), r.Key...)
	return append(binary.AppendUvarint(b, uint64(len(r.Value))), r.Value...)
}

// CopySum is where the receiver of a copy stands, or its sender.
type CopySum struct {
	Rows     int64
	Checksum uint32
}

// ToCopyRows reads a chunk that follows those of the sum, and moves the sum behind it. into is used again. The rows lie in the
// message. A chunk that is not what was sent, or not the next, is [store.ErrCopyBroken].
func (s *CopySum) ToCopyRows(id store.TaskID, m *statemeshv1.CopyChunk, into []store.CopyRow) ([]store.CopyRow, error) {
	broken := func(row int, reason string) error {
		return &store.CopyBrokenError{Task: id, Row: s.Rows + int64(row), Reason: reason}
	}
	b, count := m.GetRows(), int(m.GetCount())
	if count < 1 || count > CopyChunkRows || len(b)/minCopyRow < count { // before anything is made of so many
		return nil, broken(1, fmt.Sprintf("a chunk of %d rows in %d bytes: want 1 to %d of at least %d", count, len(b), CopyChunkRows, minCopyRow))
	}
	sum := CopyChecksum(s.Checksum, b)
	if sum != m.GetChecksum() {
		return nil, broken(1, fmt.Sprintf("the checksum of what came is %08x, that of what was sent %08x", sum, m.GetChecksum()))
	}
	rows, size := slices.Grow(into[:0], count), 0
	for range count {
		if size >= CopyChunkBytes {
			return nil, broken(len(rows)+1, fmt.Sprintf("a chunk that goes on after %d bytes", size))
		}
		var r store.CopyRow
		var ok bool
		if r, b, ok = cutRow(b); !ok {
			return nil, broken(len(rows)+1, "cut off")
		}
		rows, size = append(rows, r), size+len(r.Key)+len(r.Value)
	}
	if len(b) > 0 {
		return nil, broken(count, fmt.Sprintf("%d bytes behind the last of %d rows", len(b), count))
	}
	s.Rows, s.Checksum = s.Rows+int64(count), sum
	return rows, nil
}

// ToCopyEnd checks that all came that was sent.
func (s *CopySum) ToCopyEnd(id store.TaskID, m *statemeshv1.CopyEnd) error {
	if s.Rows != m.GetRows() || s.Checksum != m.GetChecksum() {
		return &store.CopyBrokenError{Task: id, Row: s.Rows, Reason: fmt.Sprintf("%d rows came with checksum %08x, %d were sent with %08x",
			s.Rows, s.Checksum, m.GetRows(), m.GetChecksum())}
	}
	return nil
}

func cutRow(b []byte) (r store.CopyRow, rest []byte, ok bool) {
	number, b, ok := cutUvarint(b)
	if !ok || number > math.MaxUint16 {
		return r, nil, false
	}
	r.Store = uint16(number)
	if r.Segment, b, ok = cutUvarint(b); !ok {
		return r, nil, false
	}
	if r.Key, b, ok = cutBytes(b); !ok {
		return r, nil, false
	}
	r.Value, b, ok = cutBytes(b)
	return r, b, ok
}

func cutUvarint(b []byte) (v uint64, rest []byte, ok bool) {
	v, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, nil, false
	}
	return v, b[n:], true
}

func cutBytes(b []byte) (v, rest []byte, ok bool) {
	size, b, ok := cutUvarint(b)
	if !ok || size > uint64(len(b)) {
		return nil, nil, false
	}
	return b[:size:size], b[size:], true
}

// FromCopyRequest makes the message.
func FromCopyRequest(r store.CopyRequest) *statemeshv1.CopyTaskRequest {
	m := &statemeshv1.CopyTaskRequest{
		Subtopology: r.Task.Subtopology, Partition: int32(r.Task.Partition), ForOwner: r.ForOwner,
	}
	if a := r.After; a != nil {
		m.After = &statemeshv1.CopyPlace{
			Id: a.ID, Store: uint32(a.Place.Store), Segment: a.Place.Segment, Key: a.Place.Key, Rows: a.Rows, Checksum: a.Checksum,
		}
	}
	return m
}

// ToCopyRequest reads the message.
func ToCopyRequest(m *statemeshv1.CopyTaskRequest) (store.CopyRequest, error) {
	r := store.CopyRequest{
		Task: store.TaskID{Subtopology: m.GetSubtopology(), Partition: store.Partition(m.GetPartition())}, ForOwner: m.GetForOwner(),
	}
	if r.Task.Subtopology < 0 || r.Task.Partition < 0 {
		return r, &store.InvalidRequestError{Field: "task", Reason: "negative"}
	}
	a := m.GetAfter()
	if a == nil {
		return r, nil
	}
	if a.GetId() == "" || a.GetStore() > math.MaxUint16 || a.GetRows() < 0 {
		return r, &store.InvalidRequestError{Field: "after", Reason: "no place in a copy"}
	}
	r.After = &store.CopyMark{
		ID: a.GetId(), Rows: a.GetRows(), Checksum: a.GetChecksum(),
		Place: store.CopyPlace{Store: uint16(a.GetStore()), Segment: a.GetSegment(), Key: a.GetKey()},
	}
	return r, nil
}

// FromCopyHeader makes the message. by is the instance that answers.
func FromCopyHeader(id, by string, h store.CopyHeader) *statemeshv1.CopyHeader {
	cp := &h.Checkpoint
	inputs := make(store.Position)
	for tp, next := range cp.Inputs {
		inputs.Set(tp.Topic, tp.Partition, next)
	}
	m := &statemeshv1.CopyHeader{
		Id: id, Format: h.Format, Sequence: int64(cp.Sequence), Inputs: FromPosition(inputs), Position: FromPosition(cp.Position),
		StreamTimeMs: cp.StreamTime, Rows: h.Rows, Bytes: h.Bytes, AnsweredBy: by,
	}
	if h.Age >= 0 {
		m.Age = durationpb.New(h.Age)
	}
	for _, s := range h.Stores {
		log := cp.Changelogs[s.Name]
		w := &statemeshv1.CopyStore{
			Name: string(s.Name), Kind: fromKind(s.Kind), RetentionMs: s.Retention.Milliseconds(), SegmentMs: s.Segment.Milliseconds(),
			Duplicates: s.Duplicates, Last: s.Last, LeaderEpoch: log.LeaderEpoch, NextOffset: int64(log.Next),
		}
		if log.TopicID != [16]byte{} {
			w.TopicId = log.TopicID[:]
		}
		if t, ok := cp.StoreTimes[s.Name]; ok {
			w.StreamTimeMs = &t
		}
		m.Stores = append(m.Stores, w)
	}
	return m
}

// ToCopyHeader reads the message about a task.
func ToCopyHeader(task store.TaskID, m *statemeshv1.CopyHeader) (id string, h store.CopyHeader, err error) {
	if m.GetId() == "" {
		return "", h, malformed("header.id", "empty")
	}
	if n := len(m.GetStores()); n > math.MaxUint16+1 {
		return "", h, malformed("header.stores", fmt.Sprintf("%d of them", n))
	}
	h = store.CopyHeader{
		Format: m.GetFormat(), Task: task, Age: -1, Rows: max(m.GetRows(), 0), Bytes: max(m.GetBytes(), 0),
		Checkpoint: store.Checkpoint{
			Sequence: store.Sequence(m.GetSequence()), StreamTime: m.GetStreamTimeMs(), Position: ToPosition(m.GetPosition()),
			Changelogs: make(map[store.Name]store.LogPosition), Inputs: make(map[store.TopicPartition]store.Offset),
			StoreTimes: make(map[store.Name]int64),
		},
	}
	if a := m.GetAge(); a != nil {
		if a.CheckValid() != nil || a.AsDuration() < 0 {
			return "", h, malformed("header.age", "no duration >= 0")
		}
		h.Age = a.AsDuration()
	}
	for topic, byPartition := range ToPosition(m.GetInputs()) {
		for p, next := range byPartition {
			h.Checkpoint.Inputs[store.TopicPartition{Topic: topic, Partition: p}] = next
		}
	}
	for _, s := range m.GetStores() {
		if err := addCopyStore(&h, s); err != nil {
			return "", h, err
		}
	}
	return m.GetId(), h, nil
}

func addCopyStore(h *store.CopyHeader, s *statemeshv1.CopyStore) error {
	kind := toKind(s.GetKind())
	_, twice := h.Checkpoint.Changelogs[store.Name(s.GetName())]
	switch {
	case s.GetName() == "" || twice:
		return malformed("header.stores.name", "empty, or there twice")
	case kind == 0:
		return malformed("header.stores.kind", "unknown")
	case s.GetNextOffset() < 0:
		return malformed("header.stores.next_offset", "negative")
	case len(s.GetTopicId()) != 0 && len(s.GetTopicId()) != 16:
		return malformed("header.stores.topic_id", "not 16 bytes")
	case !inMillis(s.GetRetentionMs()), !inMillis(s.GetSegmentMs()):
		return malformed("header.stores", "a time that is none")
	}
	name := store.Name(s.GetName())
	log := store.LogPosition{LeaderEpoch: s.GetLeaderEpoch(), Next: store.Offset(s.GetNextOffset())}
	copy(log.TopicID[:], s.GetTopicId())
	h.Checkpoint.Changelogs[name] = log
	if s.StreamTimeMs != nil {
		h.Checkpoint.StoreTimes[name] = s.GetStreamTimeMs()
	}
	h.Stores = append(h.Stores, store.CopyStore{
		Name: name, Kind: kind, Retention: time.Duration(s.GetRetentionMs()) * time.Millisecond,
		Segment: time.Duration(s.GetSegmentMs()) * time.Millisecond, Duplicates: s.GetDuplicates(), Last: s.GetLast(),
	})
	return nil
}

// inMillis reports whether a number of milliseconds is a duration.
func inMillis(ms int64) bool { return ms >= 0 && ms <= math.MaxInt64/int64(time.Millisecond) }
