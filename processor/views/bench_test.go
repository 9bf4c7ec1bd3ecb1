package views

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"testing"
	"time"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/store"
)

// idle takes what a selector forwards and does nothing with it.
type idle struct{ kv store.KeyValue }

func (idle) ForwardTo(string, processor.Record) error   { return nil }
func (idle) Drop(string)                                {}
func (i idle) Store(store.Name) (store.KeyValue, error) { return i.kv, nil }
func (idle) CurrentStreamTime() int64                   { return 0 }

func (idle) WindowStore(store.Name) (store.Window, error) { return nil, store.ErrWrongKind }
func (idle) VersionedStore(store.Name) (store.Versioned, error) {
	return nil, store.ErrWrongKind
}
func (idle) SessionStore(store.Name) (store.Session, error) { return nil, store.ErrWrongKind }

// oneRow is a store of one key that allocates nothing: what is left is the keeper's own.
type oneRow struct {
	store.KeyValue
	data []byte
	at   int64
}

func (o *oneRow) Get([]byte) (store.Value, error) {
	if o.data == nil {
		return store.Value{}, store.ErrNotFound
	}
	return store.Value{Data: o.data, Timestamp: o.at}, nil
}

func (o *oneRow) Put(_ []byte, v store.Value) error {
	o.data, o.at = append(o.data[:0], v.Data...), v.Timestamp
	return nil
}

var (
	csvColumns = []string{"carrier", "flight", "tailnum", "origin", "dest", "dep_delay", "time_hour"}
	csvRow     = []byte("UA,1545,N14228,EWR,IAH,-2,2013-01-01T10:00:00Z")
	jsonRow    = []byte(`{"carrier":"UA","flight":1545,"tailnum":"N14228","origin":"EWR","dest":"IAH","dep_delay":-2,"time_hour":"2013-01-01T10:00:00Z"}`)
)

// BenchmarkSelect is the work before the repartition topics: decode once, hand on to each view.
func BenchmarkSelect(b *testing.B) {
	of := func(f Format, columns []string, n int) []View {
		return []View{
			{Name: "by_dest", Topic: "t", Format: f, Columns: columns, Key: []string{"dest"}, Type: Count},
			{Name: "by_carrier", Topic: "t", Format: f, Columns: columns, Key: []string{"carrier"}, Type: Count},
			{Name: "delay", Topic: "t", Format: f, Columns: columns, Key: []string{"carrier"}, Type: StatsOf, Field: "dep_delay"},
			{Name: "latest", Topic: "t", Format: f, Columns: columns, Key: []string{"origin", "tailnum"}, Type: Latest},
		}[:n]
	}
	for _, bb := range []struct {
		name  string
		views []View
		row   []byte
	}{
		{"csv/1view", of(CSV, csvColumns, 1), csvRow},
		{"csv/4views", of(CSV, csvColumns, 4), csvRow},
		{"json/1view", of(JSON, nil, 1), jsonRow},
		{"json/4views", of(JSON, nil, 4), jsonRow},
	} {
		b.Run(bb.name, func(b *testing.B) {
			s := newSelector(bb.views, make([]string, len(bb.views)))
			s.ctx = idle{}
			r := processor.Record{Key: []byte("key"), Value: bb.row, Timestamp: 1}
			b.SetBytes(int64(len(bb.row)))
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Process(&r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkKeep is the work after the repartition topics, without the store's own.
func BenchmarkKeep(b *testing.B) {
	number := []byte{0x40, 0x45, 0, 0, 0, 0, 0, 0}
	for _, bb := range []struct {
		view  View
		value []byte
	}{
		{View{Name: "v", Type: Count, Format: CSV}, []byte{}},
		{View{Name: "v", Type: Sum, Format: CSV}, number},
		{View{Name: "v", Type: StatsOf, Format: CSV}, number},
		{View{Name: "v", Type: Latest, Format: CSV, Columns: csvColumns}, csvRow},
		{View{Name: "v", Type: Table, Format: JSON}, jsonRow},
	} {
		b.Run(string(bb.view.Type)+"/"+string(bb.view.Format), func(b *testing.B) {
			k := newKeeper(bb.view)
			if err := k.init(idle{kv: &oneRow{}}); err != nil {
				b.Fatal(err)
			}
			r := processor.Record{Key: []byte("UA"), Value: bb.value, Timestamp: 1}
			b.ReportAllocs()
			for b.Loop() {
				if err := k.Process(&r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkWindows is the work of a record in its windows, the store in memory included: one key, a record every second.
func BenchmarkWindows(b *testing.B) {
	for name, w := range map[string]Window{
		"tumbling": {Tumbling: time.Hour}, "hopping": {Hopping: 3 * time.Hour, Advance: time.Hour},
		"sliding": {Sliding: 10 * time.Second}, "session": {Session: 30 * time.Second},
	} {
		v := View{Name: "v", Topic: "t", Format: JSON, Type: Count, Window: w, InMemory: true}
		b.Run(name, func(b *testing.B) {
			m := &mesh{state: openTask(b, []store.Spec{v.Spec()})}
			k, ok := newProcessor(v).(node)
			if !ok {
				b.Fatal("a keeper of another kind")
			}
			if err := k.init(&place{mesh: m, view: "v"}); err != nil {
				b.Fatal(err)
			}
			r := processor.Record{Key: []byte("EWR"), Value: []byte{}}
			b.ReportAllocs()
			for b.Loop() {
				r.Timestamp += 1000
				m.time = r.Timestamp
				if err := k.Process(&r); err != nil {
					b.Fatal(err)
				}
			}
			if len(m.drops) > 0 {
				b.Fatal(m.drops[0])
			}
		})
	}
}

// BenchmarkStandardLibrary is what the decoders are measured against: the same row read with encoding/csv and
// encoding/json, one field taken.
func BenchmarkStandardLibrary(b *testing.B) {
	b.Run("csv", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			row, err := csv.NewReader(bytes.NewReader(csvRow)).Read()
			if err != nil || row[4] != "IAH" {
				b.Fatal(row, err)
			}
		}
	})
	b.Run("json", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var row struct {
				Dest string `json:"dest"`
			}
			if err := json.Unmarshal(jsonRow, &row); err != nil || row.Dest != "IAH" {
				b.Fatal(row, err)
			}
		}
	})
}

// TestAllocations holds the hot paths to their budget: nothing per record beside the store.
func TestAllocations(t *testing.T) {
	views := []View{
		{Name: "a", Topic: "t", Format: CSV, Columns: csvColumns, Key: []string{"dest"}, Type: Count},
		{Name: "b", Topic: "t", Format: CSV, Columns: csvColumns, Key: []string{"carrier", "dest"}, Type: Sum, Field: "dep_delay"},
		{Name: "c", Topic: "t", Format: JSON, Key: []string{"dest"}, Type: Latest},
	}
	for name, n := range map[string]float64{
		"csv":   allocs(views[:2], csvRow),
		"json":  allocs(views[2:], jsonRow),
		"count": testing.AllocsPerRun(100, keepOnce(View{Name: "v", Type: Count}, []byte{})),
		"stats": testing.AllocsPerRun(100, keepOnce(View{Name: "v", Type: StatsOf}, []byte{0x40, 0x45, 0, 0, 0, 0, 0, 0})),
		"table": testing.AllocsPerRun(100, keepOnce(View{Name: "v", Type: Latest, Format: CSV, Columns: csvColumns}, csvRow)),
	} {
		if n > 0 {
			t.Errorf("%s: %g allocations per record", name, n)
		}
	}
}

func allocs(views []View, row []byte) float64 {
	s := newSelector(views, make([]string, len(views)))
	s.ctx = idle{}
	r := processor.Record{Value: row, Timestamp: 1}
	return testing.AllocsPerRun(100, func() {
		if err := s.Process(&r); err != nil {
			panic(err)
		}
	})
}

func keepOnce(v View, value []byte) func() {
	k := newKeeper(v)
	if err := k.init(idle{kv: &oneRow{}}); err != nil {
		panic(err)
	}
	r := processor.Record{Key: []byte("UA"), Value: value, Timestamp: 1}
	return func() {
		if err := k.Process(&r); err != nil {
			panic(err)
		}
	}
}
