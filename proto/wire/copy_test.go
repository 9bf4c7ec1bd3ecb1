package wire_test

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"google.golang.org/protobuf/proto"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/store"
)

var copyTask = store.TaskID{Subtopology: 2, Partition: 7}

func copyHeader() store.CopyHeader {
	return store.CopyHeader{
		Format: store.CopyFormat, Task: copyTask, Age: 3 * time.Second, Rows: 100, Bytes: 5000,
		Stores: []store.CopyStore{
			{Name: "counts", Kind: store.KindTimestampedKeyValue},
			{Name: "hours", Kind: store.KindWindow, Retention: time.Hour, Segment: time.Minute, Duplicates: true, Last: 9},
		},
		Checkpoint: store.Checkpoint{
			Sequence: 12, StreamTime: 99,
			Changelogs: map[store.Name]store.LogPosition{
				"counts": {TopicID: [16]byte{1, 2, 3}, LeaderEpoch: 4, Next: 500}, "hours": {LeaderEpoch: -1, Next: 0},
			},
			Inputs:     map[store.TopicPartition]store.Offset{{Topic: "in", Partition: 7}: 41},
			Position:   store.Position{"in": {7: 40}},
			StoreTimes: map[store.Name]int64{"hours": 98},
		},
	}
}

// sent is a message as it is at the other end.
func sent[M proto.Message](t *testing.T, m, into M) M {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := proto.Unmarshal(b, into); err != nil {
		t.Fatal(err)
	}
	return into
}

func TestCopyHeader(t *testing.T) {
	for _, age := range []time.Duration{-1, 0, 3 * time.Second} {
		want := copyHeader()
		want.Age = age
		id, have, err := wire.ToCopyHeader(copyTask, sent(t, wire.FromCopyHeader("id-1", "a", want), &statemeshv1.CopyHeader{}))
		if err != nil || id != "id-1" || !reflect.DeepEqual(have, want) {
			t.Errorf("age %s: %s, %v\nhave %+v\nwant %+v", age, id, err, have, want)
		}
	}
	for name, spoil := range map[string]func(*statemeshv1.CopyHeader){
		"no id":            func(m *statemeshv1.CopyHeader) { m.Id = "" },
		"a store twice":    func(m *statemeshv1.CopyHeader) { m.Stores[1].Name = "counts" },
		"a nameless store": func(m *statemeshv1.CopyHeader) { m.Stores[1].Name = "" },
		"an unknown kind":  func(m *statemeshv1.CopyHeader) { m.Stores[0].Kind = 99 },
		"no offset":        func(m *statemeshv1.CopyHeader) { m.Stores[0].NextOffset = -1 },
		"half a topic id":  func(m *statemeshv1.CopyHeader) { m.Stores[0].TopicId = []byte{1} },
		"no retention":     func(m *statemeshv1.CopyHeader) { m.Stores[1].RetentionMs = -1 },
		"no segment":       func(m *statemeshv1.CopyHeader) { m.Stores[1].SegmentMs = 1 << 62 },
		"from the future":  func(m *statemeshv1.CopyHeader) { m.Age.Seconds = -1 },
	} {
		m := wire.FromCopyHeader("id-1", "a", copyHeader())
		spoil(m)
		if _, _, err := wire.ToCopyHeader(copyTask, m); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCopyRequest(t *testing.T) {
	for _, want := range []store.CopyRequest{
		{Task: copyTask},
		{Task: copyTask, ForOwner: true},
		{Task: copyTask, After: &store.CopyMark{ID: "x", Rows: 3, Checksum: 0xdeadbeef, Place: store.CopyPlace{Store: 1, Segment: 1 << 60, Key: []byte("k")}}},
	} {
		have, err := wire.ToCopyRequest(sent(t, wire.FromCopyRequest(want), &statemeshv1.CopyTaskRequest{}))
		if err != nil || !reflect.DeepEqual(have, want) {
			t.Errorf("have %+v, want %+v: %v", have, want, err)
		}
	}
	for _, m := range []*statemeshv1.CopyTaskRequest{
		{Subtopology: -1},
		{Partition: -1},
		{After: &statemeshv1.CopyPlace{}},
		{After: &statemeshv1.CopyPlace{Id: "x", Store: 1 << 16}},
		{After: &statemeshv1.CopyPlace{Id: "x", Rows: -1}},
	} {
		if _, err := wire.ToCopyRequest(m); !errors.Is(err, store.ErrInvalidRequest) {
			t.Errorf("%v: %v", m, err)
		}
	}
}

func chunkOf(sum *wire.CopySum, rows ...store.CopyRow) *statemeshv1.CopyChunk {
	var b []byte
	for _, r := range rows {
		b = wire.AppendCopyRow(b, r)
	}
	sum.Rows, sum.Checksum = sum.Rows+int64(len(rows)), wire.CopyChecksum(sum.Checksum, b)
	return &statemeshv1.CopyChunk{Rows: b, Count: int32(len(rows)), Checksum: sum.Checksum}
}

// TestCopyChunks: rows come as they were sent, chunk after chunk; a chunk that was changed, left out or repeated does not.
func TestCopyChunks(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var out wire.CopySum
	var all [][]store.CopyRow
	var chunks []*statemeshv1.CopyChunk
	for i := range 5 {
		var rows []store.CopyRow
		for range 1 + rng.IntN(5) {
			r := store.CopyRow{Store: uint16(i * 10_000), Segment: rng.Uint64(), Key: make([]byte, 1+rng.IntN(200)), Value: make([]byte, rng.IntN(300))}
			for j := range r.Key {
				r.Key[j] = byte(rng.Uint32())
			}
			rows = append(rows, r)
		}
		all, chunks = append(all, rows), append(chunks, chunkOf(&out, rows...))
	}
	var in wire.CopySum
	var into []store.CopyRow
	for i, c := range chunks {
		rows, err := in.ToCopyRows(copyTask, c, into)
		if err != nil || !reflect.DeepEqual(rows, all[i]) {
			t.Fatalf("chunk %d: %v", i, err)
		}
		into = rows
	}
	if err := in.ToCopyEnd(copyTask, &statemeshv1.CopyEnd{Rows: out.Rows, Checksum: out.Checksum}); err != nil {
		t.Error(err)
	}
	if err := in.ToCopyEnd(copyTask, &statemeshv1.CopyEnd{Rows: out.Rows - 1, Checksum: out.Checksum}); !errors.Is(err, store.ErrCopyBroken) {
		t.Errorf("a row less: %v", err)
	}
	var first wire.CopySum
	if _, err := first.ToCopyRows(copyTask, chunks[1], nil); !errors.Is(err, store.ErrCopyBroken) {
		t.Errorf("the second chunk first: %v", err)
	}
	if _, err := in.ToCopyRows(copyTask, chunks[4], nil); !errors.Is(err, store.ErrCopyBroken) {
		t.Errorf("the last chunk twice: %v", err)
	}
	for i := range chunks[0].GetRows() {
		c := proto.Clone(chunks[0]).(*statemeshv1.CopyChunk)
		c.Rows[i] ^= 1 << rng.IntN(8)
		var sum wire.CopySum
		_, err := sum.ToCopyRows(copyTask, c, nil)
		if broken, ok := errors.AsType[*store.CopyBrokenError](err); !ok || broken.Task != copyTask || !strings.Contains(broken.Reason, "checksum") {
			t.Fatalf("byte %d changed: %v", i, err)
		}
		if sum != (wire.CopySum{}) {
			t.Fatal("the sum has moved")
		}
	}
}

// FuzzCopyChunk: whatever comes with a checksum that fits, it is rows that make the same bytes, or refused.
func FuzzCopyChunk(f *testing.F) {
	var sum wire.CopySum
	c := chunkOf(&sum, store.CopyRow{Store: 1, Segment: 2, Key: []byte("key"), Value: []byte("value")}, store.CopyRow{Key: []byte("k")})
	f.Add(c.GetRows(), c.GetCount())
	f.Add(make([]byte, 4*wire.CopyChunkRows+4), int32(wire.CopyChunkRows+1))
	f.Add(make([]byte, 400), int32(math.MaxInt32))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, int32(1))
	f.Add([]byte{0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, int32(1))
	f.Fuzz(func(t *testing.T, b []byte, count int32) {
		var s wire.CopySum
		rows, err := s.ToCopyRows(copyTask, &statemeshv1.CopyChunk{Rows: b, Count: count, Checksum: wire.CopyChecksum(0, b)}, nil)
		if err != nil {
			if !errors.Is(err, store.ErrCopyBroken) {
				t.Fatal(err)
			}
			return
		}
		total := 0
		for _, r := range rows {
			total += len(r.Key) + len(r.Value)
		}
		last := rows[len(rows)-1]
		if len(rows) != int(count) || len(rows) > wire.CopyChunkRows || total > len(b) || total-len(last.Key)-len(last.Value) >= wire.CopyChunkBytes {
			t.Fatalf("%d rows with %d bytes of %d", len(rows), total, len(b))
		}
		var again []byte
		for _, r := range rows {
			again = wire.AppendCopyRow(again, r)
		}
		if len(again) == len(b) && !bytes.Equal(again, b) {
			t.Fatal("other rows")
		}
	})
}

// TestHostileChunks: a chunk that would be unpacked into many times its size, or that says that it is what it is not, is refused before
// anything is made of it; one that is as full as a chunk may be is not.
func TestHostileChunks(t *testing.T) { // measures what the process allocates, so nothing runs beside it
	tiny := func(n int) (b []byte) { return make([]byte, 4*n) } // rows without key and value
	long := bytes.Repeat([]byte("v"), wire.CopyChunkBytes)
	full := wire.AppendCopyRow(nil, store.CopyRow{Key: []byte("a"), Value: long})
	for name, c := range map[string]struct {
		rows  []byte
		count int
	}{
		"as many rows as a message holds": {tiny(wire.MaxMessageBytes / 4), wire.MaxMessageBytes / 4},
		"a row too many":                  {tiny(wire.CopyChunkRows + 1), wire.CopyChunkRows + 1},
		"more than it has":                {tiny(10), wire.CopyChunkRows},
		"fewer than it has":               {tiny(wire.MaxMessageBytes / 4), 1},
		"none":                            {tiny(10), 0},
		"less than none":                  {tiny(10), -1},
		"nothing":                         {nil, 1},
		"a row behind what fills it":      {wire.AppendCopyRow(bytes.Clone(full), store.CopyRow{Key: []byte("b")}), 2},
		"a length that is none":           {[]byte{0, 0, 0xff, 0xff, 0xff, 0xff, 0x7f, 0}, 1},
	} {
		m := &statemeshv1.CopyChunk{Rows: c.rows, Count: int32(c.count), Checksum: wire.CopyChecksum(0, c.rows)}
		var sum wire.CopySum
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := sum.ToCopyRows(copyTask, m, nil)
		runtime.ReadMemStats(&after)
		if !errors.Is(err, store.ErrCopyBroken) || sum != (wire.CopySum{}) {
			t.Errorf("%s: %v, sum %+v", name, err, sum)
		}
		// What a chunk may be unpacked into, and what the test's own runtime does.
		if made := after.TotalAlloc - before.TotalAlloc; made > 2*wire.CopyChunkRows*uint64(unsafe.Sizeof(store.CopyRow{})) {
			t.Errorf("%s: %d bytes were allocated", name, made)
		}
	}
	for name, c := range map[string]struct {
		rows  []byte
		count int
	}{
		"as many rows as may be": {tiny(wire.CopyChunkRows), wire.CopyChunkRows},
		"a row that fills it":    {full, 1},
		"the last goes beyond it": {
			wire.AppendCopyRow(wire.AppendCopyRow(nil, store.CopyRow{Key: []byte("a"), Value: long[:len(long)-2]}), store.CopyRow{Key: []byte("b"), Value: long}), 2,
		},
	} {
		m := &statemeshv1.CopyChunk{Rows: c.rows, Count: int32(c.count), Checksum: wire.CopyChecksum(0, c.rows)}
		var sum wire.CopySum
		if rows, err := sum.ToCopyRows(copyTask, m, nil); err != nil || len(rows) != c.count {
			t.Errorf("%s: %d rows, %v", name, len(rows), err)
		}
	}
}
