package views

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/internal/decode"
	"github.com/statemesh/statemesh/store"
)

// show is a value as a client with the format's codec sees it.
func show(format string, data []byte) string {
	switch format {
	case "int64":
		return strconv.FormatInt(int64(binary.BigEndian.Uint64(data)), 10)
	case "double":
		return strconv.FormatFloat(math.Float64frombits(binary.BigEndian.Uint64(data)), 'g', -1, 64)
	default:
		return string(data)
	}
}

func TestViews(t *testing.T) {
	csv := func(v View) View {
		v.Name, v.Topic, v.Format, v.Columns = "v", "t", CSV, []string{"carrier", "origin", "dest", "delay"}
		return v
	}
	jsn := func(v View) View {
		v.Name, v.Topic, v.Format = "v", "t", JSON
		return v
	}
	flights := []processor.Record{
		rec(10, "k1", "UA,EWR,IAH,2"),
		rec(30, "k2", "AA,JFK,MIA,-4.5"),
		rec(20, "k3", "UA,LGA,IAH,"),
		rec(25, "k1", "UA,EWR,ORD,11"),
	}
	for _, tt := range []struct {
		name    string
		view    View
		records []processor.Record
		want    string
		drops   string
	}{
		{"count by field", csv(View{Key: []string{"carrier"}, Type: Count}), flights, "AA=1@30 UA=3@25", ""},
		{"count by the record's key", csv(View{Type: Count}), flights, "k1=2@25 k2=1@30 k3=1@20", ""},
		{
			"count by two fields", csv(View{Key: []string{"origin", "dest"}, Type: Count}), flights,
			"EWR/IAH=1@10 EWR/ORD=1@25 JFK/MIA=1@30 LGA/IAH=1@20", "",
		},
		{"sum", csv(View{Key: []string{"carrier"}, Type: Sum, Field: "delay"}), flights, "AA=-4.5@30 UA=13@25", "missing field"},
		{"min", csv(View{Key: []string{"carrier"}, Type: Min, Field: "delay"}), flights, "AA=-4.5@30 UA=2@25", "missing field"},
		{"max", csv(View{Key: []string{"carrier"}, Type: Max, Field: "delay"}), flights, "AA=-4.5@30 UA=11@25", "missing field"},
		{
			"avg", csv(View{Key: []string{"carrier"}, Type: Avg, Field: "delay"}), flights,
			`AA={"count":1,"sum":-4.5,"avg":-4.5}@30 UA={"count":2,"sum":13,"avg":6.5}@25`, "missing field",
		},
		{
			"stats", csv(View{Key: []string{"carrier"}, Type: StatsOf, Field: "delay"}), flights,
			`AA={"count":1,"sum":-4.5,"min":-4.5,"max":-4.5,"avg":-4.5}@30 UA={"count":2,"sum":13,"min":2,"max":11,"avg":6.5}@25`,
			"missing field",
		},
		// A table follows the offsets, whatever the timestamps: k1 is the last record, UA too, though 10 < 30 came first.
		{
			"table by the record's key", csv(View{Type: Table}), flights,
			`k1={"carrier":"UA","origin":"EWR","dest":"ORD","delay":"11"}@25` +
				` k2={"carrier":"AA","origin":"JFK","dest":"MIA","delay":"-4.5"}@30` +
				` k3={"carrier":"UA","origin":"LGA","dest":"IAH"}@20`, "",
		},
		{"table, out of order", jsn(View{Type: Table}), []processor.Record{rec(20, "a", `1`), rec(10, "a", `2`)}, "a=2@10", ""},
		{"latest, out of order", jsn(View{Type: Latest}), []processor.Record{
			rec(20, "a", `1`), rec(10, "a", `2`), rec(20, "a", `3`), rec(19, "a", "<nil>"),
		}, "a=3@20", "older than the latest*2"},
		{"table deletes", jsn(View{Type: Table}), []processor.Record{
			rec(1, "a", `1`), rec(2, "b", `2`), rec(3, "a", "<nil>"),
			rec(4, "never", "<nil>"),
		}, "b=2@2", ""},
		{"latest deletes, and forgets when", jsn(View{Type: Latest}), []processor.Record{
			rec(5, "a", `1`), rec(6, "a", "<nil>"),
			rec(4, "a", `2`),
		}, "a=2@4", ""},
		{"csv latest deletes", csv(View{Type: Latest}), []processor.Record{rec(5, "a", "1,2,3,4"), rec(6, "a", "<nil>")}, "", ""},
		// SE-14: a null value deletes, an empty one is a value, and neither is a missing key.
		{"SE-14 empty value", View{Name: "v", Topic: "t", Format: Bytes, Type: Table}, []processor.Record{
			rec(1, "empty", ""), rec(1, "null", "x"), rec(2, "null", "<nil>"),
		}, "empty=@1", ""},
		{
			"SE-14 null value in an aggregate", jsn(View{Type: Count}),
			[]processor.Record{rec(1, "a", "<nil>"), rec(2, "a", "{}")},
			"a=1@2", "null value",
		},
		{"null value has no fields", jsn(View{Key: []string{"id"}, Type: Table}), []processor.Record{rec(1, "a", "<nil>")}, "", "null value"},
		{
			"null key", jsn(View{Type: Count}),
			[]processor.Record{rec(1, "<nil>", "{}"), rec(1, "", "{}"), rec(1, "a", "{}")},
			"a=1@1", "empty key, null key",
		},
		{"null key in a table", jsn(View{Type: Table}), []processor.Record{rec(1, "<nil>", "{}"), rec(1, "", "<nil>")}, "", "empty key, null key"},
		{"missing key field", csv(View{Key: []string{"dest"}, Type: Count}), []processor.Record{rec(1, "a", "UA,EWR,,2")}, "", "null key"},
		{
			"one of two key fields missing", csv(View{Key: []string{"origin", "dest"}, Type: Count}),
			[]processor.Record{rec(1, "a", "UA,EWR,,2"), rec(1, "a", "UA,,IAH,2"), rec(1, "a", "UA,E/R,I%H,2")},
			"E%2FR/I%25H=1@1", "null key*2",
		},
		{
			"json key fields", jsn(View{Key: []string{"a.b"}, Type: Count}),
			[]processor.Record{
				rec(1, "", `{"a":{"b":"x"}}`), rec(1, "", `{"a":{"b":1.50}}`), rec(1, "", `{"a":{"b":true}}`),
				rec(1, "", `{"a":{"b":null}}`), rec(1, "", `{"a":7}`), rec(1, "", `{}`), rec(1, "", `{"a":{"b":""}}`),
			},
			"1.50=1@1 true=1@1 x=1@1", "empty key, null key*3",
		},
		{
			"json: empty strings make a key of two", jsn(View{Key: []string{"a", "b"}, Type: Count}),
			[]processor.Record{rec(1, "", `{"a":"","b":""}`)},
			"/=1@1", "",
		},
		{"json numbers", jsn(View{Type: Sum, Field: "n"}), []processor.Record{
			rec(1, "k", `{"n":1e2}`), rec(2, "k", `{"n":-0.25}`), rec(3, "k", `{"n":null}`), rec(4, "k", `{}`),
		}, "k=99.75@2", "missing field*2"},
		{"strings", View{Name: "v", Topic: "t", Format: String, Key: []string{"value"}, Type: Count}, []processor.Record{
			rec(1, "", "to be"), rec(2, "", "or not"), rec(3, "", "to be"), rec(3, "", ""),
		}, "or not=1@2 to be=2@3", "empty key"},
		{"numbers in strings", View{Name: "v", Topic: "t", Format: String, Type: Max, Field: "value"}, []processor.Record{
			rec(1, "k", "-3"), rec(2, "k", "-2.5"),
		}, "k=-2.5@2", ""},
		{"strings table", View{Name: "v", Topic: "t", Format: String, Type: Table}, []processor.Record{rec(1, "k", "hi")}, "k=hi@1", ""},
		// The timestamp of an aggregate never goes back (upstream's KStreamAggregate).
		{"aggregate out of order", jsn(View{Type: Count}), []processor.Record{rec(9, "k", "1"), rec(3, "k", "1")}, "k=2@9", ""},
		{"integers are exact to 2^53", jsn(View{Type: Sum, Field: "n"}), []processor.Record{
			rec(1, "k", `{"n":9007199254740991}`), rec(1, "k", `{"n":1}`),
		}, "k=9.007199254740992e+15@1", ""},
		{"sum out of range", jsn(View{Type: Sum, Field: "n"}), []processor.Record{
			rec(1, "k", `{"n":1e308}`), rec(2, "k", `{"n":1e308}`), rec(3, "k", `{"n":-1e308}`),
		}, "k=0@3", "sum out of range"},
		{
			"stats out of range", jsn(View{Type: StatsOf, Field: "n"}),
			[]processor.Record{
				rec(1, "k", `{"n":1e308}`), rec(2, "k", `{"n":1e308}`),
			},
			`k={"count":1,"sum":1e+308,"min":1e+308,"max":1e+308,"avg":1e+308}@1`, "sum out of range",
		},
		{"any json in a table by the record's key", jsn(View{Type: Table}), []processor.Record{rec(1, "k", ` [1, "a"] `)}, `k= [1, "a"] @1`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMesh(t, tt.view)
			m.mustProcess(tt.records...)
			if got := m.dump(tt.view); got != tt.want {
				t.Errorf("store\n%s\nwant\n%s", got, tt.want)
			}
			if got := m.reasons(); got != tt.drops {
				t.Errorf("dropped %q, want %q", got, tt.drops)
			}
			if f := tt.view.Spec().ValueFormat; f == "json" {
				for k, v := range m.stores["v"].rows {
					if !json.Valid(v.Data) {
						t.Errorf("%s holds no JSON: %s", k, v.Data)
					}
				}
			}
		})
	}
}

func TestUndecodable(t *testing.T) {
	csv := View{Name: "v", Topic: "t", Format: CSV, Columns: []string{"a", "n"}, Key: []string{"a"}, Type: Sum, Field: "n"}
	jsn := View{Name: "v", Topic: "t", Format: JSON, Key: []string{"a"}, Type: Sum, Field: "n"}
	str := View{Name: "v", Topic: "t", Format: String, Type: Sum, Field: "value"}
	for _, tt := range []struct {
		view  View
		value string
		want  string
	}{
		{csv, "x", decode.ReasonColumns},
		{csv, "x,1,2", decode.ReasonColumns},
		{csv, "", decode.ReasonColumns},
		{csv, "x,1\ny,2", decode.ReasonCSV},
		{csv, `x,"1`, decode.ReasonCSV},
		{csv, `x,1"`, decode.ReasonCSV},
		{csv, `"x"y,1`, decode.ReasonCSV},
		{csv, "\xff,1", decode.ReasonUTF8},
		{csv, "x,one", decode.ReasonNumber},
		{csv, "x, 1", decode.ReasonNumber},
		{csv, "x,NaN", decode.ReasonNumber},
		{csv, "x,-Inf", decode.ReasonNumber},
		{csv, "x,0x10", decode.ReasonNumber},
		{csv, "x,1_000", decode.ReasonNumber},
		{csv, "x,1e999", decode.ReasonRange},
		{csv, "x,--1", decode.ReasonNumber},
		// A number that is none refuses the record also when its key is missing.
		{csv, ",one", decode.ReasonNumber},
		{jsn, "", decode.ReasonJSON},
		{jsn, "{", decode.ReasonJSON},
		{jsn, `{"a":1}x`, decode.ReasonJSON},
		{jsn, `[]`, decode.ReasonObject},
		{jsn, `"a"`, decode.ReasonObject},
		{jsn, `{"a":{}}`, decode.ReasonScalar},
		{jsn, `{"a":[1]}`, decode.ReasonScalar},
		{jsn, `{"a":1,"n":"1"}`, decode.ReasonNumber},
		{jsn, `{"a":1,"n":true}`, decode.ReasonNumber},
		{jsn, `{"a":1,"n":[]}`, decode.ReasonNumber},
		{jsn, `{"a":1,"n":01}`, decode.ReasonJSON},
		{jsn, `{"a":1,"n":1e400}`, decode.ReasonRange},
		{jsn, "{\"a\":\"\xff\"}", decode.ReasonUTF8},
		{str, "\xff", decode.ReasonUTF8},
		{str, "", decode.ReasonNumber},
		{str, "x", decode.ReasonNumber},
	} {
		m := newMesh(t, tt.view)
		if got := reasonOf(m.process(rec(1, "k", tt.value))); got != tt.want {
			t.Errorf("%s %q: reason %q, want %q", tt.view.Format, tt.value, got, tt.want)
		}
		if m.dump(tt.view) != "" || len(m.drops) > 0 {
			t.Errorf("%s %q: changed the store or counted a drop", tt.view.Format, tt.value)
		}
	}
}

// A record that one view of a topic cannot take must not have been counted by another one: a record that is skipped or
// dead-lettered would be half there.
func TestViewsOfATopicTakeARecordTogether(t *testing.T) {
	views := []View{
		{Name: "count", Topic: "t", Format: CSV, Columns: []string{"a", "n"}, Key: []string{"a"}, Type: Count},
		{Name: "raw", Topic: "t", Format: Bytes, Type: Table},
		{Name: "sum", Topic: "t", Format: CSV, Columns: []string{"a", "n"}, Type: Sum, Field: "n"},
		{Name: "lines", Topic: "t", Format: String, Key: []string{"value"}, Type: Count},
	}
	m := newMesh(t, views...)
	if len(m.selector.decoders) != 3 {
		t.Errorf("%d decoders, want one each for csv, bytes and string", len(m.selector.decoders))
	}
	if got := reasonOf(m.process(rec(1, "k", "x,y"))); got != decode.ReasonNumber {
		t.Fatalf("reason %q", got)
	}
	for _, v := range views {
		if got := m.dump(v); got != "" {
			t.Errorf("%s holds %s", v.Name, got)
		}
	}
	m.mustProcess(rec(2, "k", "x,7"), rec(3, "<nil>", ",8"))
	for i, want := range []string{"x=1@2", "k=x,7@2", "k=7@2", ",8=1@3 x,7=1@2"} {
		if got := m.dump(views[i]); got != want {
			t.Errorf("%s holds %s, want %s", views[i].Name, got, want)
		}
	}
	if got := m.reasons(); got != "null key*3" {
		t.Errorf("dropped %s", got)
	}
}

// What a processor keeps across records must not be the record's memory.
func TestNumbersStayApart(t *testing.T) {
	views := []View{
		{Name: "a", Topic: "t", Format: JSON, Type: Sum, Field: "x"},
		{Name: "b", Topic: "t", Format: JSON, Type: Sum, Field: "y"},
		{Name: "c", Topic: "t", Format: JSON, Key: []string{"k", "l"}, Type: Sum, Field: "y"},
		{Name: "d", Topic: "t", Format: JSON, Key: []string{"l", "k"}, Type: Sum, Field: "x"},
	}
	m := newMesh(t, views...)
	m.mustProcess(rec(1, "r", `{"x":1,"y":10,"k":"\u0041","l":"b\n"}`), rec(2, "r", `{"y":20,"x":2,"l":"b\n","k":"A"}`))
	for i, want := range []string{"r=3@2", "r=30@2", "A/b\n=30@2", "b\n/A=3@2"} {
		if got := m.dump(views[i]); got != want {
			t.Errorf("%s holds %q, want %q", views[i].Name, got, want)
		}
	}
}

func TestKeeperErrors(t *testing.T) {
	count := View{Name: "v", Topic: "t", Format: JSON, Type: Count}
	stats := View{Name: "v", Topic: "t", Format: JSON, Type: StatsOf, Field: "n"}
	sum := View{Name: "v", Topic: "t", Format: JSON, Type: Sum, Field: "n"}
	for _, tt := range []struct {
		name   string
		view   View
		stored string
		want   string
	}{
		{"count of 3 bytes", count, "abc", "[stored value of 3 bytes, want 8]"},
		{"empty count", count, "", "[stored value of 0 bytes, want 8]"},
		{"sum of 9 bytes", sum, "123456789", "[stored value of 9 bytes, want 8]"},
		{"stats of an average", stats, `{"count":1,"sum":2,"avg":2}`, `[stored statistics: no member ,"min":]`},
		{"stats of nothing", stats, `{"count":0,"sum":2,"min":1,"max":1,"avg":2}`, `[stored statistics: count 0 is no number of records]`},
		{"stats with more", stats, `{"count":1,"sum":2,"min":1,"max":1,"avg":2}x`, `[stored statistics: 2 bytes after the last member]`},
		{"stats cut", stats, `{"count":1,"sum":2`, `[stored statistics: no member ,"min":]`},
		// The state is bad, not the record: no handler may skip it.
		{"stats of words", stats, `{"count":1,"sum":two,"min":1,"max":1,"avg":2}`, `[stored statistics: ,"sum": is followed by no number]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMesh(t, tt.view)
			m.stores["v"].rows["k"] = store.Value{Data: []byte(tt.stored)}
			if got := reasonOf(m.process(rec(1, "k", `{"n":1}`))); got != tt.want {
				t.Errorf("error %s, want %s", got, tt.want)
			}
		})
	}
	m := newMesh(t, count)
	m.stores["v"].fail = errors.New("disk gone")
	if err := m.process(rec(1, "k", "{}")); !errors.Is(err, m.stores["v"].fail) {
		t.Errorf("error %v", err)
	}
	k := newKeeper(sum)
	if err := k.init(&place{mesh: m, view: "other"}); !errors.Is(err, store.ErrUnknownStore) {
		t.Errorf("error %v", err)
	}
	if err := k.init(&place{mesh: m, view: "v"}); err != nil {
		t.Fatal(err)
	}
	m.stores["v"].fail = nil
	for _, value := range []string{"seven..", string(binary.BigEndian.AppendUint64(nil, math.Float64bits(math.Inf(1))))} {
		if got := reasonOf(k.Process(&processor.Record{Key: []byte("k"), Value: []byte(value)})); got != reasonForwarded {
			t.Errorf("%q from a repartition topic: %s", value, got)
		}
	}
}

// The keepers that embedders use check what the selector checks for views.
func TestSuppliersForEmbedders(t *testing.T) {
	for name, tt := range map[string]struct {
		supplier processor.Supplier
		want     string
		drops    string
	}{
		"count":  {CountRecords("v"), "a=2", "empty key, null key, null value"},
		"table":  {KeepTable("v"), "a=2", "empty key, null key"},
		"latest": {KeepLatest("v"), "a=1", "empty key, null key, older than the latest"},
	} {
		t.Run(name, func(t *testing.T) {
			k, other := tt.supplier().(*keeper), tt.supplier().(*keeper)
			if k == other {
				t.Fatal("one processor for two tasks")
			}
			m := &mesh{t: t, stores: map[store.Name]*memory{"v": {rows: make(map[string]store.Value)}}}
			if err := k.init(&place{mesh: m, view: "v"}); err != nil {
				t.Fatal(err)
			}
			for _, r := range []processor.Record{rec(5, "a", "1"), rec(4, "a", "2"), rec(6, "<nil>", "3"), rec(6, "", "3"), rec(7, "b", "<nil>")} {
				if err := k.Process(&r); err != nil {
					t.Fatal(err)
				}
			}
			v := m.stores["v"].rows["a"].Data
			got := "a=" + string(v)
			if name == "count" {
				got = "a=" + show("int64", v)
			}
			if got != tt.want || m.reasons() != tt.drops || len(m.stores["v"].rows) != 1 {
				t.Errorf("%s, dropped %s; want %s, %s", got, m.reasons(), tt.want, tt.drops)
			}
			if err := k.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestSpec(t *testing.T) {
	for _, tt := range []struct {
		view       View
		key, value string
	}{
		{View{Format: JSON, Type: Table}, "string", "json"},
		{View{Format: CSV, Type: Latest, Key: []string{"a"}}, "string", "json"},
		{View{Format: String, Type: Table}, "string", "string"},
		{View{Format: Bytes, Type: Table}, "bytes", "bytes"},
		{View{Format: Bytes, Type: Count, KeyFormat: "int64"}, "int64", "int64"},
		{View{Format: JSON, Type: Sum}, "string", "double"},
		{View{Format: JSON, Type: Min}, "string", "double"},
		{View{Format: JSON, Type: Max}, "string", "double"},
		{View{Format: JSON, Type: Avg}, "string", "json"},
		{View{Format: JSON, Type: StatsOf}, "string", "json"},
	} {
		tt.view.Name, tt.view.InMemory = "v", true
		want := store.Spec{Name: "v", Kind: store.KindTimestampedKeyValue, InMemory: true, KeyFormat: tt.key, ValueFormat: tt.value}
		if got := tt.view.Spec(); got.Name != want.Name || got.Kind != want.Kind || !got.InMemory ||
			got.KeyFormat != want.KeyFormat || got.ValueFormat != want.ValueFormat {
			t.Errorf("%s of %s: %+v, want %+v", tt.view.Type, tt.view.Format, got, want)
		}
	}
}

func TestTopologyOfViews(t *testing.T) {
	top, err := Topology([]View{
		{
			Name: "flights_by_dest", Topic: "flights", Format: CSV, Columns: []string{"carrier", "dest"}, Key: []string{"dest"}, Type: Count,
			OffsetReset: processor.ResetEarliest,
		},
		{
			Name: "flights_by_key", Topic: "flights", Format: CSV, Columns: []string{"carrier", "dest"}, Type: Count,
			OffsetReset: processor.ResetEarliest,
		},
		{Name: "planes", Topic: "planes", Format: JSON, Type: Table, InMemory: true},
		{
			Name: "by_carrier", Topic: "flights", Format: CSV, Columns: []string{"carrier", "dest"}, Key: []string{"carrier"}, Type: Latest,
			Partitions: 2, OffsetReset: processor.ResetEarliest,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	b, err := top.Build("mesh")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.TrimLeft(`
Topologies:
   Sub-topology: 0
    Source: by_carrier (topics: [mesh-by_carrier-repartition])
      --> keep:by_carrier
    Processor: keep:by_carrier (stores: [by_carrier])
      --> none
      <-- by_carrier

   Sub-topology: 1
    Source: flights_by_dest (topics: [mesh-flights_by_dest-repartition])
      --> keep:flights_by_dest
    Processor: keep:flights_by_dest (stores: [flights_by_dest])
      --> none
      <-- flights_by_dest

   Sub-topology: 2
    Source: source:flights (topics: [flights])
      --> select:flights
    Processor: select:flights (stores: [])
      --> by_carrier:sink, flights_by_dest:sink, keep:flights_by_key
      <-- source:flights
    Sink: flights_by_dest:sink (topic: mesh-flights_by_dest-repartition)
      <-- select:flights
    Processor: keep:flights_by_key (stores: [flights_by_key])
      --> none
      <-- select:flights
    Sink: by_carrier:sink (topic: mesh-by_carrier-repartition)
      <-- select:flights

   Sub-topology: 3
    Source: source:planes (topics: [planes])
      --> select:planes
    Processor: select:planes (stores: [])
      --> keep:planes
      <-- source:planes
    Processor: keep:planes (stores: [planes])
      --> none
      <-- select:planes

`, "\n")
	if got := b.Describe(); got != want {
		t.Errorf("got\n%s", got)
	}
	if b.OffsetReset("flights") != processor.ResetEarliest || b.OffsetReset("planes") != processor.ResetDefault {
		t.Error("the offset resets are not those of the views")
	}
	p, err := b.Plan(map[string]int32{"flights": 4, "planes": 3})
	if err != nil {
		t.Fatal(err)
	}
	partitions := make(map[store.Name]int32)
	for _, s := range p.Stores {
		partitions[s.Name] = s.Partitions
	}
	for name, want := range map[store.Name]int32{"flights_by_dest": 4, "flights_by_key": 4, "by_carrier": 2, "planes": 3} {
		if partitions[name] != want {
			t.Errorf("%s has %d partitions, want %d", name, partitions[name], want)
		}
	}
}
