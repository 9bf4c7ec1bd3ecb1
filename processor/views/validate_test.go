package views

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/statemesh/statemesh/processor"
)

func TestValidate(t *testing.T) {
	good := View{Name: "v", Topic: "t", Format: CSV, Columns: []string{"a", "b"}, Key: []string{"a"}, Type: Sum, Field: "b"}
	change := func(f func(*View)) []View {
		v := good
		f(&v)
		return []View{v}
	}
	for _, tt := range []struct {
		name  string
		views []View
		want  string // the errors, one a line
	}{
		{"good", []View{good}, ""},
		{"none", nil, "views: at least one view is needed"},
		{"no name", change(func(v *View) { v.Name = "" }), "views[0].name: needs a name"},
		{"bad name", change(func(v *View) { v.Name = "a/b" }), `views[0].name: name "a/b": '/' is not one of a-z A-Z 0-9 . _ -`},
		{"no topic", change(func(v *View) { v.Topic = "" }), "views[0].topic: topic name is empty"},
		{"pattern", change(func(v *View) { v.Topic = "x.*" }), `views[0].topic: topic "x.*": topic patterns are not supported; name each topic`},
		{"no format", change(func(v *View) { v.Format, v.Columns = "", nil }), "views[0].format: is missing; want one of json, csv, string, bytes"},
		{
			"other format", change(func(v *View) { v.Format, v.Columns = "avro", nil }),
			`views[0].format: "avro" is unknown; want one of json, csv, string, bytes`,
		},
		{"csv without columns", change(func(v *View) { v.Columns = nil }), "views[0].columns: csv needs the names of its columns, in order"},
		{"columns of json", change(func(v *View) { v.Format = JSON }), `views[0].columns: only csv has columns, not "json"`},
		{"empty column", change(func(v *View) { v.Columns = []string{"a", "b", ""} }), "views[0].columns[2]: a column needs a name"},
		{"column twice", change(func(v *View) { v.Columns = []string{"a", "b", "a"} }), `views[0].columns[2]: "a" is named twice`},
		{"column of bytes", change(func(v *View) { v.Columns = []string{"a", "b", "\xff"} }), "views[0].columns[2]: the name is not valid UTF-8"},
		{"unknown key", change(func(v *View) { v.Key = []string{"a", "c"} }), `views[0].key[1]: "c" is not a column; the columns are a, b`},
		{"empty key field", change(func(v *View) { v.Key = []string{""} }), "views[0].key[0]: a field needs a name"},
		{"key twice", change(func(v *View) { v.Key = []string{"a", "b", "a"} }), `views[0].key[2]: "a" is named twice`},
		{
			"no type", change(func(v *View) { v.Type = "" }),
			"views[0].type: is missing; want one of table, latest, count, sum, min, max, avg, stats",
		},
		{
			"other type", change(func(v *View) { v.Type = "median" }),
			`views[0].type: "median" is unknown; want one of table, latest, count, sum, min, max, avg, stats`,
		},
		{"no field", change(func(v *View) { v.Field = "" }), "views[0].field: type sum needs the field it is about"},
		{"unknown field", change(func(v *View) { v.Field = "c" }), `views[0].field: "c" is not a column; the columns are a, b`},
		{"field of a count", change(func(v *View) { v.Type = Count }), "views[0].field: type count is about no field"},
		{
			"field of a string", change(func(v *View) { v.Format, v.Columns, v.Key = String, nil, nil }),
			`views[0].field: "b": the only field of a string is "value"`,
		},
		{"field of bytes", change(func(v *View) { v.Format, v.Columns, v.Key = Bytes, nil, nil }), `views[0].field: "b": bytes have no fields`},
		{
			"path with a hole", change(func(v *View) { v.Format, v.Columns, v.Field = JSON, nil, "a..b" }),
			`views[0].field: "a..b": a path has a name before and after each dot`,
		},
		{"negative partitions", change(func(v *View) { v.Partitions = -1 }), "views[0].partitions: -1: want 0 for as many as the topic has, or more"},
		{
			"partitions without key", change(func(v *View) { v.Partitions, v.Key = 3, nil }),
			"views[0].partitions: a view by the record's key has the partitions of its topic",
		},
		{"key format with key", change(func(v *View) { v.KeyFormat = "int64" }), "views[0].key_format: a key made of fields is a string"},
		{
			"unknown key format", change(func(v *View) { v.KeyFormat, v.Key = "roman", nil }),
			`views[0].key_format: "roman" is unknown; want one of bytes, string, bool, int16, int32, int64, float, double, uuid, time, json, ordered-int32, ordered-int64, ordered-double, avro, json-schema`,
		},
		{
			"windows of a table", change(func(v *View) { v.Type, v.Field, v.Window = Table, "", Window{Tumbling: time.Hour} }),
			"views[0].window: type table keeps no windows",
		},
		{"no windows", change(func(v *View) { v.Window.Grace = time.Hour }), "views[0].window: want one of tumbling, hopping, sliding, session"},
		{
			"two kinds of windows", change(func(v *View) { v.Window = Window{Sliding: time.Hour, Session: time.Hour} }),
			"views[0].window.session: the windows are sliding already",
		},
		{
			"all about windows", change(func(v *View) { v.Window = Window{Hopping: time.Hour, Grace: -1, Retention: -1} }),
			"views[0].window.advance: hopping windows need it: one begins every so often\n" +
				"views[0].window.grace: -1ns is negative\nviews[0].window.retention: -1ns is negative",
		},
		{
			"holes between windows", change(func(v *View) { v.Window = Window{Hopping: time.Hour, Advance: 2 * time.Hour} }),
			"views[0].window.hopping: advance 2h0m0s is above the size 1h0m0s: records between windows would be in none",
		},
		{
			"advance of sessions", change(func(v *View) { v.Window = Window{Session: time.Hour, Advance: time.Hour} }),
			"views[0].window.advance: only hopping windows have one",
		},
		{
			"retention too short", change(func(v *View) { v.Window = Window{Tumbling: time.Hour, Grace: time.Minute, Retention: time.Hour} }),
			"views[0].window.retention: 1h0m0s is below 1h1m0s, for which records may change a window",
		},
		{
			"parts of a millisecond", change(func(v *View) { v.Window = Window{Session: 1500 * time.Microsecond} }),
			"views[0].window.session: gap 1.5ms: want whole milliseconds",
		},
		{
			"negative", change(func(v *View) { v.Window = Window{Tumbling: -time.Hour} }),
			"views[0].window.tumbling: size -1h0m0s: want at least 1ms",
		},
		{
			"versions of a sum", change(func(v *View) { v.History = -time.Hour }),
			"views[0].versioned.history: type sum keeps no versions\nviews[0].versioned.history: -1h0m0s: want at least 1ms",
		},
		{"global sum", change(func(v *View) { v.Global = true }), "views[0].global: type sum depends on the order over all partitions; only a table can be global"},
		{
			"global by field", change(func(v *View) { v.Global, v.Type, v.Field, v.OffsetReset = true, Table, "", processor.ResetLatest }),
			"views[0].global: a global table is by the record's key: its topic is its changelog\n" +
				"views[0].offset_reset: a global table reads its topic from the start",
		},
		{
			"global and another",
			[]View{good, {Name: "w", Topic: "t", Format: JSON, Type: Table, Global: true}},
			"views[1].topic: views[0] reads topic t already, and a global table shares its topic with no view",
		},
		{"time of no column", change(func(v *View) { v.Timestamp = "c" }), `views[0].timestamp: "c" is not a column; the columns are a, b`},
		{
			"two times of a topic",
			[]View{good, {Name: "w", Topic: "t", Format: JSON, Type: Count, Timestamp: "at"}},
			`views[1].timestamp: "at", but views[0] reads topic t with ""; a record has one time`,
		},
		{"unknown reset", change(func(v *View) { v.OffsetReset = 9 }), "views[0].offset_reset: offset-reset-9: want earliest, latest or none"},
		{"two of a name", []View{good, good}, `views[1].name: "v" is the name of views[0] already`},
		{
			"two resets of a topic",
			[]View{good, {Name: "w", Topic: "t", Format: Bytes, Type: Count, OffsetReset: processor.ResetLatest}},
			"views[1].offset_reset: latest, but views[0] reads topic t with default; a topic is read once",
		},
		{
			"everything at once",
			[]View{good, {Format: "x", Key: []string{""}, Type: Sum}},
			"views[1].name: needs a name\n" +
				"views[1].topic: topic name is empty\n" +
				"views[1].format: \"x\" is unknown; want one of json, csv, string, bytes\n" +
				"views[1].key[0]: a field needs a name\n" +
				"views[1].field: type sum needs the field it is about",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			if err := Validate(tt.views); err != nil {
				got = err.Error()
				for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
					if f, ok := errors.AsType[*FieldError](e); !ok || !strings.HasPrefix(f.Path, "views") {
						t.Errorf("%T %v is no *FieldError", e, e)
					}
				}
			}
			if got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
			_, err := Topology(tt.views)
			if (err == nil) != (tt.want == "") {
				t.Errorf("Topology: %v", err)
			}
		})
	}
}
