package sink

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/changes"
	"github.com/statemesh/statemesh/processor/declared"
	"github.com/statemesh/statemesh/processor/expr"
	"github.com/statemesh/statemesh/serde"
)

func TestJudge(t *testing.T) {
	one, two := [16]byte{1}, [16]byte{2}
	compacted := changes.Log{Topic: "t", ID: one, Start: 10, End: 20, Compacts: true, DeleteRetention: time.Hour}
	deleted := changes.Log{Topic: "t", ID: one, Start: 10, End: 20, Deletes: true, DeleteRetention: time.Hour}
	both := compacted
	both.Deletes = true
	unknown := changes.Log{Topic: "t", ID: one, Start: 10, End: 20}
	tests := []struct {
		name   string
		at     Offset
		log    changes.Log
		stream bool
		gap    bool
		want   error
	}{
		{"within", Offset{TopicID: one, Next: 15}, compacted, false, false, nil},
		{"at the end", Offset{TopicID: one, Next: 20, Age: 2 * time.Hour}, compacted, false, false, nil},
		{"ids are not known", Offset{Next: 15}, compacted, false, false, nil},
		{"another topic", Offset{TopicID: two, Next: 15}, compacted, false, false, &RecreatedError{}},
		{"moved beyond the end that was asked for", Offset{TopicID: one, Next: 21}, compacted, false, false, nil},
		{"before a compacted log", Offset{TopicID: one, Next: 9}, compacted, false, true, nil},
		{"before a log that deletes", Offset{TopicID: one, Next: 9}, deleted, false, false, &GapError{}},
		{"before a log that does both", Offset{TopicID: one, Next: 9}, both, false, false, &GapError{}},
		{"before a log of which nobody tells", Offset{TopicID: one, Next: 9}, unknown, false, false, &GapError{}},
		{"a stream before a compacted log", Offset{TopicID: one, Next: 9}, compacted, true, false, &GapError{}},
		{"deletions forgotten", Offset{TopicID: one, Next: 15, Age: 2 * time.Hour}, compacted, false, false, &StaleError{}},
		{"deletions forgotten, and the beginning gone", Offset{TopicID: one, Next: 9, Age: 2 * time.Hour}, compacted, false, false, &StaleError{}},
		{"old, and nothing is compacted", Offset{TopicID: one, Next: 15, Age: 2 * time.Hour}, deleted, false, false, nil},
		{"an old stream", Offset{TopicID: one, Next: 15, Age: 2 * time.Hour}, compacted, true, false, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			gap, err := judge("app-sink-s", tt.at, tt.log, tt.stream)
			if gap != tt.gap || reflect.TypeOf(err) != reflect.TypeOf(tt.want) {
				t.Errorf("%v, %v, want %v, %T", gap, err, tt.gap, tt.want)
			}
			if err != nil && !strings.Contains(err.Error(), "app-sink-s") {
				t.Errorf("%v: does not name the sink", err)
			}
		})
	}
}

func TestLast(t *testing.T) {
	at := time.UnixMilli(5)
	rows := []Row{
		{Offset: 1, Key: []any{"a"}, Values: []any{1}},
		{Offset: 2, Key: []any{"b"}, Values: []any{2}},
		{Offset: 3, Key: []any{"a"}},
		{Offset: 4, Key: []any{"c"}, Values: []any{3}},
		{Offset: 5, Key: []any{"b"}, Values: []any{4}},
	}
	var have []int64
	for _, r := range Last(rows) {
		have = append(have, r.Offset)
	}
	if d := cmp.Diff([]int64{3, 4, 5}, have); d != "" {
		t.Error(d)
	}
	same := [][2][]any{
		{{math.Copysign(0, -1)}, {0.0}},
		{{math.NaN()}, {math.Float64frombits(math.Float64bits(math.NaN()) ^ 1)}},
		{{"k", at}, {"k", at.UTC()}},
	}
	for _, pair := range same {
		if n := len(Last([]Row{{Key: pair[0]}, {Key: pair[1]}})); n != 1 {
			t.Errorf("%v and %v are %d keys", pair[0], pair[1], n)
		}
	}
	other := [][]any{
		{"a", "bc"},
		{"ab", "c"},
		{"a;1:b"},
		{int64(1)},
		{int64(2)},
		{true},
		{false},
		{1.5},
		{[]byte("x")},
		{json.RawMessage("xy")},
		{at},
		{"k", at, at.Add(time.Millisecond)},
		{"k", at, at},
		{7 * time.Second},
	}
	var all []Row
	for _, k := range other {
		all = append(all, Row{Key: k})
	}
	if n := len(Last(all)); n != len(all) {
		t.Errorf("%d keys of %d", n, len(all))
	}
}

type noTarget struct{ Target }

func testConfig(c declared.Content) Config {
	return Config{
		ApplicationID: "app", Name: "s", Kafka: processor.KafkaConfig{Brokers: []string{"localhost:1"}}, Content: c, Target: noTarget{},
	}
}

// decode reads one record by the reader of a configuration.
func decode(t *testing.T, cfg Config, rec changes.Record) (Row, error) {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	in, err := s.reader.values.NewRow(s.reader.programs...)
	if err != nil {
		t.Fatal(err)
	}
	return s.reader.row(in, Place{Topic: cfg.Topic}, &rec)
}

func record(key, value []byte) changes.Record {
	return changes.Record{Record: processor.Record{Key: key, Value: value}, Offset: 7}
}

func TestDecodeTypes(t *testing.T) {
	c := declared.Content{Kind: declared.Table, KeyFormat: "string", Changelog: "x", Columns: []expr.Column{
		{Name: "s", Type: expr.String},
		{Name: "i", Type: expr.Int},
		{Name: "d", Type: expr.Double},
		{Name: "b", Type: expr.Bool},
		{Name: "y", Type: expr.Bytes},
		{Name: "t", Type: expr.Timestamp},
		{Name: "u", Type: expr.Duration},
		{Name: "j", Type: expr.JSON},
		{Name: "n", Type: expr.Int, Field: "elsewhere"},
	}}
	row, err := decode(t, testConfig(c), record([]byte("k"),
		[]byte(`{"s":"é","i":9007199254740993,"d":1.5,"b":true,"y":"AAE=","t":"2026-01-02T03:04:05.000006Z","u":"1m30s","j":{"a":[1.0]}}`)))
	if err != nil {
		t.Fatal(err)
	}
	want := Row{Offset: 7, Key: []any{"k"}, Values: []any{
		"é", int64(9007199254740993), 1.5, true,
		[]byte{0, 1},
		time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC), 90 * time.Second,
		json.RawMessage(`{"a":[1.0]}`), nil,
	}}
	if d := cmp.Diff(want, row); d != "" {
		t.Error(d)
	}
	for value, reason := range map[string]string{`{"i":1.5}`: "not a number", `{`: "invalid json", `[]`: "not a json object", `{"s":1}`: "wrong type"} {
		if _, err := decode(t, testConfig(c), record([]byte("k"), []byte(value))); err == nil || reasonOf(err) != reason {
			t.Errorf("%s: %v, want %s", value, err, reason)
		}
	}
	if _, err := decode(t, testConfig(c), record(nil, []byte(`{}`))); err == nil || reasonOf(err) != "null key" {
		t.Errorf("%v, want a null key", err)
	}
	if row, err := decode(t, testConfig(c), record([]byte("k"), nil)); err != nil || row.Values != nil {
		t.Errorf("%v, %v, want a deletion", row, err)
	}
}

func TestDecodeKeys(t *testing.T) {
	columns := []expr.Column{{Name: "n", Type: expr.Int}}
	must := func(b []byte, err error) []byte {
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	at := time.UnixMilli(60_000).UTC()
	table := declared.Content{Kind: declared.Table, Columns: columns, Changelog: "x", Topic: "out"}
	with := func(format string, change func(*declared.Content)) declared.Content {
		c := table
		c.KeyFormat = format
		if change != nil {
			change(&c)
		}
		return c
	}
	windowed := func(c *declared.Content) { c.Windowed = true }
	session := func(c *declared.Content) { c.Windowed, c.Session = true, true }
	win := serde.Windowed[int64]{Key: -3, Start: 60_000, End: 120_000}
	tests := []struct {
		name   string
		c      declared.Content
		source Source
		key    []byte
		want   []any
		bad    []byte
	}{
		{"bytes", with("", nil), "", []byte{0, 1}, []any{[]byte{0, 1}}, nil},
		{"int64", with("int64", nil), "", must(serde.Int64().Encode(-5)), []any{int64(-5)}, []byte("x")},
		{"int16", with("int16", nil), "", must(serde.Int16().Encode(-5)), []any{int64(-5)}, []byte("x")},
		{"double", with("double", nil), "", must(serde.Float64().Encode(2.5)), []any{2.5}, []byte("x")},
		{"bool", with("bool", nil), "", []byte{1}, []any{true}, []byte("x")},
		{"time", with("time", nil), "", must(serde.Time().Encode(at)), []any{at}, must(serde.Int64().Encode(math.MaxInt64))},
		{"json, as it is written", with("json", nil), "", []byte(`{"a": 1}`), []any{`{"a": 1}`}, []byte("{")},
		{"uuid", with("uuid", nil), "", []byte("11111111-2222-3333-4444-555555555555"), []any{"11111111-2222-3333-4444-555555555555"}, []byte("x")},
		{"ordered-int64", with("ordered-int64", nil), "", must(serde.OrderedInt64().Encode(-5)), []any{int64(-5)}, []byte("x")},
		{
			"window of a changelog", with("int64", windowed), FromChangelog, must(serde.TimeWindowedChangelog(serde.Int64(), time.Minute).Encode(win)),
			[]any{int64(-3), at, at.Add(time.Minute)},
			must(serde.TimeWindowed(serde.Int64(), time.Minute).Encode(win)),
		},
		{
			"window of a topic", with("int64", windowed), FromTopic, must(serde.TimeWindowed(serde.Int64(), time.Minute).Encode(win)),
			[]any{int64(-3), at, at.Add(time.Minute)},
			[]byte("short"),
		},
		{
			"session", with("int64", session), FromChangelog, must(serde.SessionWindowed(serde.Int64()).Encode(win)),
			[]any{int64(-3), at, at.Add(time.Minute)},
			[]byte("short"),
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := testConfig(tt.c)
			cfg.Source, cfg.WindowSize = tt.source, time.Minute
			row, err := decode(t, cfg, record(tt.key, []byte(`{"n":1}`)))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, row.Key); d != "" {
				t.Error(d)
			}
			if tt.bad == nil {
				return
			}
			if _, err := decode(t, cfg, record(tt.bad, nil)); err == nil || reasonOf(err) != "invalid key" {
				t.Errorf("%v, want an invalid key", err)
			}
		})
	}
	stream := with("string", func(c *declared.Content) { c.Kind = declared.Stream })
	if row, err := decode(t, testConfig(stream), record(nil, nil)); err != nil || !cmp.Equal(row, Row{Offset: 7, Key: []any{nil}, Values: []any{nil}}) {
		t.Errorf("%v, %v, want a row of nothing", row, err)
	}
}

// TestLayoutOfASource: a relation that is read from a topic has the values of that topic.
func TestLayoutOfASource(t *testing.T) {
	c := declared.Content{Kind: declared.Table, KeyFormat: "string", Topic: "in", Columns: []expr.Column{
		{Name: "user", Type: expr.String, Field: "u.id"}, {Name: "n", Type: expr.Int},
	}}
	cfg := testConfig(c)
	cfg.Layout = &expr.Layout{Format: expr.JSONObject, KeyFormat: "string", Columns: c.Columns}
	row, err := decode(t, cfg, record([]byte("k"), []byte(`{"u":{"id":"x"},"n":3}`)))
	if err != nil || !cmp.Equal(row.Values, []any{"x", int64(3)}) {
		t.Errorf("%v, %v", row, err)
	}
	if _, err := decode(t, cfg, record([]byte("k"), []byte(`{"n":3}`))); err == nil || reasonOf(err) != "missing field" {
		t.Errorf("%v, want a missing field", err)
	}
	cfg.Layout = &expr.Layout{Format: expr.CSV, Columns: []expr.Column{{Name: "n", Type: expr.Int}, {Name: "user", Type: expr.String}}}
	if row, err := decode(t, cfg, record([]byte("k"), []byte("3,x"))); err != nil || !cmp.Equal(row.Values, []any{"x", int64(3)}) {
		t.Errorf("%v, %v", row, err)
	}
	cfg.Layout = &expr.Layout{Format: expr.Text, Columns: []expr.Column{{Name: "n", Type: expr.String}}}
	if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "user") {
		t.Errorf("%v, want that the layout lacks user", err)
	}
}

func TestConfig(t *testing.T) {
	table := declared.Content{Kind: declared.Table, Changelog: "c-changelog", Topic: "out", Columns: []expr.Column{{Name: "n", Type: expr.Int}}}
	cfg := testConfig(table).withDefaults()
	if cfg.Source != FromChangelog || cfg.Topic != "app-c-changelog" || cfg.ID() != "app-sink-s" {
		t.Errorf("%s %s %s", cfg.Source, cfg.Topic, cfg.ID())
	}
	table.Changelog = ""
	if cfg := testConfig(table).withDefaults(); cfg.Source != FromTopic || cfg.Topic != "out" {
		t.Errorf("%s %s", cfg.Source, cfg.Topic)
	}
	bad := Config{
		Name: "a b", Source: "x", OnError: "y", Timeout: -1, StopTimeout: -1, Backoff: -1, MaxBackoff: -1, BatchRecords: -1,
		Content: declared.Content{Kind: declared.Table, Windowed: true},
	}
	err := bad.Validate()
	for _, want := range []string{
		"ApplicationID", "Name", "Content.Columns", "Source", "Topic", "WindowSize", "Target", "OnError", "Timeout", "StopTimeout", "Backoff",
		"MaxBackoff", "BatchRecords", "Brokers",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: nothing on %s", err, want)
		}
	}
	if _, err := New(bad); err == nil {
		t.Error("a bad configuration is taken")
	}
	avro := testConfig(declared.Content{Kind: declared.Table, KeyFormat: "avro", Topic: "t", Columns: []expr.Column{{Name: "n", Type: expr.Int}}})
	if _, err := New(avro); err == nil {
		t.Error("keys of a schema registry are taken")
	}
}

func TestErrorsSayTheWayOut(t *testing.T) {
	cause := errors.New("cause")
	for _, tt := range []struct {
		err  error
		want []string
	}{
		{&RefusedError{Topic: "t", Partition: 1, Refusal: Refusal{Offset: 2, Code: "23505", Detail: "constraint c"}}, []string{"t-1 offset 2", "23505", "constraint c", "on_error: skip"}},
		{&RefusedError{Topic: "t", Err: cause}, []string{"cause"}},
		{&SchemaError{Table: "p.t", Problems: []SchemaProblem{{"column a is missing", "alter table"}, {Reason: "b"}}}, []string{"p.t", "column a is missing", "mend with: alter table", "b"}},
		{&RecreatedError{Sink: "s", Topic: "t"}, []string{"made anew", "reset"}},
		{&GapError{Sink: "s", Topic: "t", Start: 5}, []string{"next_offset = 5", "reset"}},
		{&TruncatedError{Sink: "s", Topic: "t", Err: cause}, []string{"reset"}},
		{&StaleError{Sink: "s", Topic: "t", Retention: time.Hour}, []string{"1h0m0s", "delete.retention.ms", "reset"}},
	} {
		for _, want := range tt.want {
			if !strings.Contains(tt.err.Error(), want) {
				t.Errorf("%v: nothing of %q", tt.err, want)
			}
		}
	}
	if !errors.Is(&RefusedError{Err: cause}, cause) || !errors.Is(&TruncatedError{Err: cause}, cause) {
		t.Error("causes are lost")
	}
}
