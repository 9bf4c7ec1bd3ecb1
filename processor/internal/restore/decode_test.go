package restore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/statemesh/statemesh/store"
)

// testRecord is one record of a batch; the offset is relative to the batch's.
type testRecord struct {
	delta      int32
	time       int64
	key, value []byte
	headers    []kmsg.Header
}

// testBatch encodes a batch of message format 2 that covers the offsets from first to last.
func testBatch(first, last store.Offset, attributes int16, producer int64, records ...testRecord) []byte {
	var raw []byte
	for _, r := range records {
		kr := kmsg.Record{TimestampDelta64: r.time, OffsetDelta: r.delta, Key: r.key, Value: r.value, Headers: r.headers}
		kr.Length = int32(len(kr.AppendTo(nil)) - 1) // a length of 0 takes one byte
		raw = kr.AppendTo(raw)
	}
	if codec := kgo.CompressionCodecType(attributes & attrCodec); codec != 0 {
		c, err := kgo.DefaultCompressor(map[kgo.CompressionCodecType]kgo.CompressionCodec{
			kgo.CodecGzip: kgo.GzipCompression(), kgo.CodecSnappy: kgo.SnappyCompression(),
			kgo.CodecLz4: kgo.Lz4Compression(), kgo.CodecZstd: kgo.ZstdCompression(),
		}[codec])
		if err != nil {
			panic(err)
		}
		var buf bytes.Buffer
		raw, _ = c.Compress(&buf, raw)
	}
	rb := kmsg.RecordBatch{
		FirstOffset: int64(first), PartitionLeaderEpoch: 5, Magic: 2, Attributes: attributes,
		LastOffsetDelta: int32(last - first), FirstTimestamp: 1000, MaxTimestamp: 9000, ProducerID: producer,
		NumRecords: int32(len(records)), Records: raw,
	}
	b := rb.AppendTo(nil)
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-batchPrefix))
	binary.BigEndian.PutUint32(b[crcAt:], crc32.Checksum(b[crcFrom:], castagnoli))
	return b
}

// marker encodes a control batch: type 0 aborts, 1 commits.
func marker(at store.Offset, producer int64, typ int16) []byte {
	key := kbin.AppendInt16(kbin.AppendInt16(nil, 0), typ)
	return testBatch(at, at, attrControl|attrTransaction, producer, testRecord{key: key, value: make([]byte, 6)})
}

func decodeAll(t *testing.T, d *decoder, c chunk) (out []string, n counts, err error) {
	t.Helper()
	n, err = d.decode(c, func(changes []store.Change) error {
		for _, c := range changes {
			out = append(out, fmt.Sprintf("%q=%q(%t)@%d", c.Key, c.Value, c.Value != nil, c.Timestamp))
		}
		return nil
	})
	return out, n, err
}

// TestDecodeEqualsTheClientLibrary: random batches of every codec, with aborted and committed transactions of several
// producers interleaved, nulls, empty values and headers, read from random positions.
func TestDecodeEqualsTheClientLibrary(t *testing.T) {
	d := newDecoder()
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 2))
		var raw []byte
		var aborted []kmsg.FetchResponseTopicPartitionAbortedTransaction
		open := map[int64]store.Offset{} // producer -> first offset of its transaction
		next := store.Offset(rng.IntN(5))
		begin := next
		for range 2 + rng.IntN(20) {
			next += store.Offset(rng.IntN(3)) // holes
			pid := int64(rng.IntN(3))
			if first, ok := open[pid]; ok && rng.IntN(2) == 0 {
				typ := int16(rng.IntN(2))
				if typ == 0 {
					aborted = append(aborted, kmsg.FetchResponseTopicPartitionAbortedTransaction{ProducerID: pid, FirstOffset: int64(first)})
				}
				raw = append(raw, marker(next, pid, typ)...)
				delete(open, pid)
				next++
				continue
			}
			attributes := int16(rng.IntN(5))
			if rng.IntN(4) == 0 {
				attributes |= attrAppendTime
			}
			if _, ok := open[pid]; ok || rng.IntN(2) == 0 {
				attributes |= attrTransaction
				if !ok {
					open[pid] = next
				}
			} else {
				pid = -1
			}
			last := next + store.Offset(rng.IntN(6))
			var records []testRecord
			for o := next; o <= last; o++ {
				if rng.IntN(4) == 0 {
					continue // cleaned away
				}
				r := testRecord{delta: int32(o - next), time: int64(rng.IntN(100)), key: fmt.Appendf(nil, "k%d", rng.IntN(9)), value: fmt.Appendf(nil, "v%d", o)}
				switch rng.IntN(6) {
				case 0:
					r.value = nil
				case 1:
					r.value = []byte{}
				case 2:
					r.headers = []kmsg.Header{{Key: "h", Value: []byte("x")}, {Key: "h"}}
				}
				records = append(records, r)
			}
			raw = append(raw, testBatch(next, last, attributes, pid, records...)...)
			next = last + 1
		}
		// Transactions that are still open when the fetch ends are not in a read-committed answer; end them.
		for pid := range int64(3) {
			if _, ok := open[pid]; ok {
				raw = append(raw, marker(next, pid, 1)...)
				next++
			}
		}
		rng.Shuffle(len(aborted), func(i, j int) { aborted[i], aborted[j] = aborted[j], aborted[i] })
		from := begin + store.Offset(rng.IntN(int(next-begin)))
		c := chunk{from: from, raw: append(raw, raw[:rng.IntN(60)]...), aborted: aborted}
		have, n, err := decodeAll(t, d, c)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		o := kgo.ProcessFetchPartitionOpts{Offset: int64(from), IsolationLevel: kgo.ReadCommitted(), Topic: "log"}
		fp, position := kgo.ProcessFetchPartition(o, &kmsg.FetchResponseTopicPartition{RecordBatches: c.raw, AbortedTransactions: aborted}, kgo.DefaultDecompressor(), nil)
		if fp.Err != nil {
			t.Fatalf("seed %d: the library: %v", seed, fp.Err)
		}
		var want []string
		for _, r := range fp.Records {
			want = append(want, fmt.Sprintf("%q=%q(%t)@%d", r.Key, r.Value, r.Value != nil, r.Timestamp.UnixMilli()))
		}
		if !slices.Equal(have, want) || int(n.records) != len(want) {
			t.Fatalf("seed %d, from %d:\n%v\n%v", seed, from, have, want)
		}
		if got, epoch, err := survey(c.raw, from); err != nil || int64(got) != position || epoch != 5 {
			t.Fatalf("seed %d: position %d epoch %d (%v), want %d", seed, got, epoch, err, position)
		}
	}
}

func TestDecodeRefusesWhatIsBroken(t *testing.T) {
	good := testBatch(0, 1, 0, -1, testRecord{key: []byte("a"), value: []byte("1")}, testRecord{delta: 1, key: []byte("b")})
	resum := func(b []byte) []byte {
		binary.BigEndian.PutUint32(b[crcAt:], crc32.Checksum(b[crcFrom:], castagnoli))
		return b
	}
	with := func(set func(b []byte) []byte) []byte { return set(slices.Clone(good)) }
	for name, c := range map[string]struct {
		raw  []byte
		want string
	}{
		"bit flip":         {with(func(b []byte) []byte { b[len(b)-1] ^= 1; return b }), "checksum"},
		"old format":       {with(func(b []byte) []byte { b[magicAt] = 1; return b }), "message format 1"},
		"negative length":  {with(func(b []byte) []byte { binary.BigEndian.PutUint32(b[8:], 1<<31); return b }), "batch of"},
		"negative count":   {with(func(b []byte) []byte { binary.BigEndian.PutUint32(b[57:], 1<<31); return resum(b) }), "records from offset"},
		"too many records": {with(func(b []byte) []byte { binary.BigEndian.PutUint32(b[57:], 3); return resum(b) }), "record 2 of 3 is cut off"},
		"record too long":  {with(func(b []byte) []byte { b[batchHeader] = 126; return resum(b) }), "record 0 of 2 is cut off"},
		"key too long":     {with(func(b []byte) []byte { b[batchHeader+4] = 100; return resum(b) }), "malformed"},
		"not compressed":   {with(func(b []byte) []byte { b[22] = byte(kgo.CodecLz4); return resum(b) }), "decompress"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := decodeAll(t, newDecoder(), chunk{raw: c.raw}); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
	out, n, err := decodeAll(t, newDecoder(), chunk{raw: testBatch(0, 1, 0, -1, testRecord{value: []byte("no key")}, testRecord{delta: 1, key: []byte{}, value: []byte("empty key")})})
	if err != nil || n.skipped != 1 || n.records != 1 || len(out) != 1 {
		t.Errorf("null key: %v %+v %v", out, n, err)
	}
	refusal := errors.New("full")
	if _, err := newDecoder().decode(chunk{raw: good}, func([]store.Change) error { return refusal }); !errors.Is(err, refusal) {
		t.Errorf("error of the store: %v", err)
	}
}

// FuzzDecode: no input makes the decoder panic or loop.
func FuzzDecode(f *testing.F) {
	f.Add(testBatch(0, 1, 0, -1, testRecord{key: []byte("a"), value: []byte("1")}))
	f.Add(testBatch(7, 9, int16(kgo.CodecLz4)|attrTransaction, 3, testRecord{key: []byte("a")}))
	f.Add(marker(3, 1, 0))
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, fix := range []bool{false, true} {
			if fix && len(raw) >= batchHeader {
				raw = slices.Clone(raw)
				binary.BigEndian.PutUint32(raw[crcAt:], crc32.Checksum(raw[crcFrom:], castagnoli))
			}
			if next, _, _ := survey(raw, 5); next < 5 {
				t.Errorf("position went back to %d", next)
			}
			_, _ = newDecoder().decode(chunk{raw: raw, aborted: []kmsg.FetchResponseTopicPartitionAbortedTransaction{{ProducerID: 3}}}, func([]store.Change) error { return nil })
		}
	})
}

// TestDecoderKeepsLittle: a run of many small batches, and large ones after it, leave a bounded number of bytes behind.
func TestDecoderKeepsLittle(t *testing.T) {
	d := newDecoder()
	batches := func(n, size int) chunk {
		var raw []byte
		for i := range n {
			at := store.Offset(i)
			raw = append(raw, testBatch(at, at, int16(kgo.CodecSnappy), -1, testRecord{key: []byte("k"), value: make([]byte, size)})...)
		}
		return chunk{raw: raw}
	}
	for _, c := range []chunk{batches(1000, 10), batches(100, 1<<20), batches(1, 4<<20)} {
		if _, _, err := decodeAll(t, d, c); err != nil {
			t.Fatal(err)
		}
		kept := 0
		for _, buf := range d.free {
			kept += cap(buf)
		}
		if kept != d.freeBytes || kept > keepBytes {
			t.Errorf("%d bytes are kept, %d are counted, %d may be", kept, d.freeBytes, keepBytes)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	records := make([]testRecord, 5000)
	for i := range records {
		records[i] = testRecord{delta: int32(i), time: int64(i), key: fmt.Appendf(nil, "key-%05d", i%1000), value: bytes.Repeat([]byte{byte(i)}, 40)}
	}
	for name, codec := range map[string]kgo.CompressionCodecType{"none": kgo.CodecNone, "lz4": kgo.CodecLz4} {
		raw := testBatch(0, store.Offset(len(records)-1), int16(codec), -1, records...)
		b.Run(name, func(b *testing.B) {
			d := newDecoder()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := d.decode(chunk{raw: raw}, func([]store.Change) error { return nil }); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(records)), "ns/record")
		})
		b.Run(name+"/library", func(b *testing.B) {
			b.ReportAllocs()
			dec := kgo.DefaultDecompressor()
			for b.Loop() {
				fp, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{IsolationLevel: kgo.ReadCommitted()}, &kmsg.FetchResponseTopicPartition{RecordBatches: raw}, dec, nil)
				if len(fp.Records) != len(records) {
					b.Fatal(len(fp.Records))
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(records)), "ns/record")
		})
	}
}

// TestDecodeRecords: a log that is read as the records of a source topic keeps headers, offsets and records without a key,
// hands over nothing from the bound on, and leaves the decoder as it was.
func TestDecodeRecords(t *testing.T) {
	d := newDecoder()
	header := func(k, v string) kmsg.Header { return kmsg.Header{Key: k, Value: []byte(v)} }
	for codec := range int16(5) {
		raw := testBatch(10, 14, codec, -1,
			testRecord{delta: 0, time: 1, key: []byte("a"), value: []byte("before")},
			testRecord{delta: 1, time: 2, key: []byte("a"), value: []byte("1"), headers: []kmsg.Header{header("h", "x"), header("h", ""), {Key: "null"}}},
			testRecord{delta: 2, time: 3, value: []byte("no key")},
			testRecord{delta: 3, time: 4, key: []byte("a")},
			testRecord{delta: 4, time: 5, key: []byte("a"), value: []byte("beyond")},
		)
		var have []string
		n, err := d.decodeRecords(chunk{from: 11, until: 14, raw: raw}, 7, func(records []Record) error {
			for _, r := range records {
				have = append(have, fmt.Sprintf("%d@%d %q=%q %d %q", r.Partition, r.Offset, r.Key, r.Value, r.Timestamp, r.Headers))
			}
			return nil
		})
		want := []string{
			`7@11 "a"="1" 1002 [{"h" "x"} {"h" ""} {"null" ""}]`, `7@12 ""="no key" 1003 []`, `7@13 "a"="" 1004 []`,
		}
		if err != nil || !slices.Equal(have, want) || n.records != 3 || n.skipped != 0 {
			t.Errorf("codec %d: %q, %v, %+v; want %q", codec, have, err, n, want)
		}
		plain, n, err := decodeAll(t, d, chunk{from: 10, raw: raw})
		if err != nil || len(plain) != 4 || n.skipped != 1 {
			t.Errorf("codec %d: as a changelog: %q, %v, %+v", codec, plain, err, n)
		}
	}
	for _, bad := range [][]byte{nil, {3}, {2, 1}, {2, 2, 'k', 9}, {0x80}} {
		if headers, err := readHeaders(bad); err == nil {
			t.Errorf("headers %x: %v", bad, headers)
		}
	}
}

// TestStreamProof: what a follower has is proven by a high watermark that it has reached, as of the time the fetch that told
// it was sent; and only what was applied counts.
func TestStreamProof(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	s := &stream{follow: true, next: 10}
	s.note(at(1), 12)
	if !s.proven.IsZero() {
		t.Errorf("proven at %v with 2 records missing", s.proven)
	}
	s.next, s.pending = 12, 1
	s.note(at(2), 13)
	if !s.proven.IsZero() || !s.seen.Equal(at(1)) {
		t.Errorf("proven %v, seen %v: nothing is applied yet, and 13 not reached", s.proven, s.seen)
	}
	s.pending = 0
	s.note(at(3), 13)
	if !s.proven.Equal(at(1)) {
		t.Errorf("proven %v, want that of the watermark 12", s.proven)
	}
	for i := range 100 { // far behind: what is remembered stays bounded
		s.note(at(10+i), store.Offset(1000+i))
	}
	if len(s.marks) > 16 {
		t.Errorf("%d marks", len(s.marks))
	}
	s.next = 1099
	if s.note(at(200), 1099); !s.proven.Equal(at(200)) {
		t.Errorf("proven %v after all was reached", s.proven)
	}
}
