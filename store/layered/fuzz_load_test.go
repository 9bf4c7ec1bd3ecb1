package layered_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

// appendFuzzRow appends a row in the form that FuzzLoad reads.
func appendFuzzRow(dst []byte, r store.CopyRow) []byte {
	dst = binary.AppendUvarint(append(dst, byte(r.Store)), r.Segment)
	dst = append(binary.AppendUvarint(dst, uint64(len(r.Key))), r.Key...)
	return append(binary.AppendUvarint(dst, uint64(len(r.Value))), r.Value...)
}

// fuzzRows reads as many rows as there are.
func fuzzRows(b []byte) (rows []store.CopyRow) {
	number := func() (n uint64) {
		n, size := binary.Uvarint(b)
		b = b[max(0, size):]
		return n
	}
	piece := func() []byte {
		n := min(number(), uint64(len(b)))
		p := b[:n]
		b = b[n:]
		return p
	}
	for len(b) > 0 {
		r := store.CopyRow{Store: uint16(b[0])}
		b = b[1:]
		r.Segment, r.Key, r.Value = number(), piece(), piece()
		rows = append(rows, r)
	}
	return rows
}

// FuzzLoad: rows of whatever bytes are either loaded, and then they are what a copy of the state gives again, and every read
// of it ends; or they are refused by name, and nothing is there.
func FuzzLoad(f *testing.F) {
	var all []byte
	for _, r := range goodRows() {
		all = appendFuzzRow(all, r)
		f.Add(int64(20_000), appendFuzzRow(nil, r))
	}
	f.Add(int64(20_000), all)
	f.Add(int64(20_000), append(all, all...))
	f.Add(int64(1<<63-1), appendFuzzRow(nil, store.CopyRow{Store: 4, Key: []byte("a"), Value: stamped(1<<63-1, "x")}))
	f.Add(int64(-1), all)
	specs := copySpecs(true)
	s := openStores(f, layered.Config{Dir: f.TempDir()})
	task := openTask(f, s, task0, specs...)
	layered.LoadBytes(s, 100)
	m := copyModel{keys: map[string]bool{"a": true, "b": true}, specs: specs}
	f.Fuzz(func(t *testing.T, now int64, b []byte) {
		rows := fuzzRows(b)
		l, err := task.Load(t.Context(), copyHeader(specs, max(-1, now)), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Add(t.Context(), rows); err != nil {
			if !errors.Is(err, store.ErrCopyBroken) {
				t.Fatal(err)
			}
			if cp := task.Checkpoint(); !cp.Restoring || len(cp.Changelogs) > 0 {
				t.Fatalf("after broken rows: %+v", cp)
			}
			return
		}
		if err := l.Finish(t.Context()); err != nil {
			t.Fatal(err)
		}
		snap := snapshot(t, task)
		defer snap.Close()
		for i := range rows {
			rows[i].Key, rows[i].Value = bytes.Clone(rows[i].Key), append([]byte{}, rows[i].Value...)
		}
		h, got := rowsOf(t, snap, 50) // in an order of its own
		for i := range got {
			name := h.Stores[got[i].Store].Name
			got[i].Store = uint16(slices.IndexFunc(specs, func(s store.Spec) bool { return s.Name == name }))
			got[i].Value = append([]byte{}, got[i].Value...)
		}
		slices.SortFunc(got, func(a, b store.CopyRow) int { return a.Place().Compare(b.Place()) })
		if d := cmp.Diff(rows, got); d != "" && len(got)+len(rows) > 0 {
			t.Fatalf("(-loaded +copied)\n%s", d)
		}
		m.t, m.now = t, max(0, now)
		m.answers(snap)
	})
}
