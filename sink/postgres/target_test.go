package postgres

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/statemesh/statemesh/processor/expr"
	"github.com/statemesh/statemesh/sink"
)

var (
	testPlace = sink.Place{Sink: "app-sink-t", Topic: "t", TopicID: [16]byte{1}, Partition: 2}
	oneKey    = []sink.Column{{Name: "key", Type: expr.String}}
)

// opened is a target that is open, at offset 0.
func opened(tb testing.TB, schema sink.Schema, change ...func(*Config)) (*Target, *pgxpool.Pool, string) {
	tb.Helper()
	s := server(tb)
	db := connect(tb, s)
	name := newSchema(tb, db)
	target := newTestTarget(tb, s, name, nil, change...)
	if err := target.Open(tb.Context(), schema); err != nil {
		tb.Fatal(err)
	}
	if at, err := target.Begin(tb.Context(), testPlace, 0); err != nil || at.Next != 0 || at.Epoch != -1 || at.TopicID != testPlace.TopicID {
		tb.Fatalf("%+v, %v", at, err)
	}
	return target, db, name
}

// apply applies rows as one batch.
func apply(tb testing.TB, target *Target, from, next int64, policy sink.Policy, rows ...sink.Row) (sink.Result, error) {
	tb.Helper()
	return target.Apply(tb.Context(), sink.Batch{Place: testPlace, From: from, Next: next, Epoch: 4, OnError: policy, Rows: rows})
}

// TestTypes: values of every type, and null of every type, come back as they were, as far as PostgreSQL can hold them.
func TestTypes(t *testing.T) {
	schema := sink.Schema{Keys: oneKey, Columns: []sink.Column{
		{Name: "s", Type: expr.String},
		{Name: "i", Type: expr.Int},
		{Name: "d", Type: expr.Double},
		{Name: "b", Type: expr.Bool},
		{Name: "y", Type: expr.Bytes},
		{Name: "t", Type: expr.Timestamp},
		{Name: "u", Type: expr.Duration},
		{Name: "j", Type: expr.JSON},
	}}
	target, db, name := opened(t, schema)
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_901_234, time.UTC)
	_, err := apply(t, target, 0, 3, sink.Fail,
		sink.Row{Offset: 0, Key: []any{"full"}, Values: []any{"é'\"\\", int64(-1 << 63), 1e-300, true, []byte{0, 255}, at, -36*time.Hour - 1500*time.Microsecond, json.RawMessage(`{"b":[1,2.50],"a":"\u00e9"}`)}},
		sink.Row{Offset: 1, Key: []any{""}, Values: []any{"", int64(0), 0.0, false, []byte{}, time.Time{}, time.Duration(0), json.RawMessage(`null`)}},
		sink.Row{Offset: 2, Key: []any{"null"}, Values: make([]any, 8)},
	)
	if err != nil {
		t.Fatal(err)
	}
	have := ask(t, db, fmt.Sprintf(`select key, s, i::text, d::text, b::text, encode(y, 'hex'), to_char(t at time zone 'utc', 'YYYY-MM-DD HH24:MI:SS.US'), u::text, j::text
		from %s.%s order by key`, name, testTable))
	want := []string{
		"||0|0|false||0001-01-01 00:00:00.000000|00:00:00|null",
		`full|é'"\|-9223372036854775808|1e-300|true|00ff|2026-01-02 03:04:05.678901|-36:00:00.0015|{"a": "é", "b": [1, 2.50]}`,
		"null" + strings.Repeat("|<nil>", 8),
	}
	if d := cmp.Diff(want, have); d != "" {
		t.Error(d)
	}
	types := ask(t, db, "select column_name::text, data_type::text, is_nullable::text from information_schema.columns where table_schema = $1 and table_name = $2 order by ordinal_position", name, testTable)
	wantTypes := []string{
		"key|text|NO", "s|text|YES", "i|bigint|YES", "d|double precision|YES", "b|boolean|YES", "y|bytea|YES", "t|timestamp with time zone|YES", "u|interval|YES", "j|jsonb|YES",
	}
	if d := cmp.Diff(wantTypes, types); d != "" {
		t.Error(d)
	}
}

// TestKeysOfEveryType: rows are found again by keys of every type, to be changed and deleted.
func TestKeysOfEveryType(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_901_234, time.UTC)
	for _, tt := range []struct {
		typ expr.Type
		key any
	}{
		{expr.String, "k"},
		{expr.Int, int64(5)},
		{expr.Double, 0.1},
		{expr.Bool, true},
		{expr.Bytes, []byte{0}},
		{expr.Timestamp, at},
	} {
		t.Run(tt.typ.String(), func(t *testing.T) {
			schema := sink.Schema{
				Keys:    []sink.Column{{Name: "key", Type: tt.typ}, {Name: "window_start", Type: expr.Timestamp}, {Name: "window_end", Type: expr.Timestamp}},
				Columns: []sink.Column{{Name: "n", Type: expr.Int}},
			}
			target, db, name := opened(t, schema)
			key, other := []any{tt.key, at, at.Add(time.Hour)}, []any{tt.key, at, at.Add(2 * time.Hour)}
			for i, rows := range [][]sink.Row{
				{{Key: key, Values: []any{int64(1)}}, {Key: other, Values: []any{int64(2)}}},
				{{Key: key, Values: []any{int64(3)}}},
				{{Key: other}},
			} {
				if _, err := apply(t, target, int64(i), int64(i+1), sink.Fail, rows...); err != nil {
					t.Fatal(err)
				}
			}
			if have := ask(t, db, fmt.Sprintf("select n from %s.%s", name, testTable)); !slices.Equal(have, []string{"3"}) {
				t.Errorf("%v, want 3", have)
			}
		})
	}
}

// TestOffsets: a batch is applied only where the database stands at its beginning; what it is told is what the next one finds.
func TestOffsets(t *testing.T) {
	target, db, name := opened(t, sink.Schema{Keys: oneKey, Columns: []sink.Column{{Name: "n", Type: expr.Int}}})
	row := func(n int64) sink.Row { return sink.Row{Offset: n, Key: []any{"k"}, Values: []any{n}} }
	steps := []struct {
		what       string
		from, next int64
		want       int64
	}{
		{"the first", 0, 5, 5},
		{"again, as one whose answer was lost", 0, 5, 5},
		{"one of somebody who is behind", 3, 8, 5},
		{"the next", 5, 9, 9},
		{"one ahead", 20, 30, 9},
		{"an empty one", 9, 9, 9},
	}
	for _, s := range steps {
		res, err := apply(t, target, s.from, s.next, sink.Fail, row(s.next))
		if err != nil || res.Next != s.want {
			t.Errorf("%s: %+v, %v, want %d", s.what, res, err, s.want)
		}
	}
	if have := ask(t, db, fmt.Sprintf("select n from %s.%s", name, testTable)); !slices.Equal(have, []string{"9"}) {
		t.Errorf("%v, want 9", have)
	}
	run(t, db, fmt.Sprintf("update %s.statemesh_offsets set caught_up_at = now() - interval '1 hour'", name))
	at, err := target.Begin(t.Context(), testPlace, 77)
	if err != nil || at.Next != 9 || at.Epoch != 4 || at.Age < time.Hour || at.Age > 2*time.Hour {
		t.Errorf("%+v, %v", at, err)
	}
	b := sink.Batch{Place: testPlace, From: 9, Next: 10, Caught: true, Age: 10 * time.Minute}
	if _, err := target.Apply(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if at, err := target.Begin(t.Context(), testPlace, 0); err != nil || at.Age < 10*time.Minute || at.Age > time.Hour {
		t.Errorf("%+v, %v, want an age of 10 minutes", at, err)
	}
	b.Place.TopicID = [16]byte{9}
	if res, err := target.Apply(t.Context(), b); err != nil || res.Next != -1 {
		t.Errorf("of another topic: %+v, %v, want -1", res, err)
	}
	run(t, db, fmt.Sprintf("delete from %s.statemesh_offsets", name))
	if res, err := apply(t, target, 10, 11, sink.Fail); err != nil || res.Next != -1 {
		t.Errorf("after a reset: %+v, %v, want -1", res, err)
	}
}

// TestRefused: rows that the database does not take are found among those that it does, and nothing of a batch is there without its offset.
func TestRefused(t *testing.T) {
	schema := sink.Schema{Keys: oneKey, Columns: []sink.Column{{Name: "n", Type: expr.Int}, {Name: "j", Type: expr.JSON}, {Name: "s", Type: expr.String}}}
	long := strings.Repeat("0123456789abcdef", 10_000)
	var noise strings.Builder // that does not compress
	for i := range 1000 {
		fmt.Fprintf(&noise, "%x", i*i*i*7919)
	}
	bad := map[string]sink.Row{
		"22P05": {Key: []any{"j"}, Values: []any{int64(1), json.RawMessage(`{"a":"\u0000"}`), nil}},
		"22021": {Key: []any{"zero\x00byte"}, Values: []any{int64(1), nil, nil}},
		"22003": {Key: []any{"n"}, Values: []any{int64(1 << 40), nil, nil}}, // the column is an integer
		"23514": {Key: []any{"c"}, Values: []any{int64(-1), nil, nil}},
		"22001": {Key: []any{"v"}, Values: []any{int64(1), nil, long}},
		"54000": {Key: []any{noise.String()}, Values: []any{int64(1), nil, nil}},
		"P0001": {Key: []any{"t"}, Values: []any{int64(13), nil, nil}},
		"23505": {Key: []any{"u"}, Values: []any{int64(2), nil, "unique"}}, // deferred: it fails with COMMIT
	}
	table := func(name string) string {
		return fmt.Sprintf(`create table %s.%s (key text primary key, n integer check (n >= 0), j jsonb, s varchar(100) unique deferrable initially deferred);
			create function %s.no() returns trigger language plpgsql as $$ begin if new.n = 13 then raise exception 'secret %%', new.n; end if; return new; end $$;
			create trigger no before insert or update on %s.%s for each row execute function %s.no()`, name, testTable, name, name, testTable, name)
	}
	for code, culprit := range bad {
		t.Run(code, func(t *testing.T) {
			s := server(t)
			db := connect(t, s)
			name := newSchema(t, db)
			run(t, db, table(name))
			target := newTestTarget(t, s, name, nil)
			if err := target.Open(t.Context(), schema); err != nil {
				t.Fatal(err)
			}
			if _, err := target.Begin(t.Context(), testPlace, 0); err != nil {
				t.Fatal(err)
			}
			rows := []sink.Row{{Offset: 1, Key: []any{"first"}, Values: []any{int64(1), json.RawMessage(`{}`), "unique"}}}
			for i := range 20 {
				rows = append(rows, sink.Row{Offset: int64(10 + i), Key: []any{fmt.Sprint("k", i)}, Values: []any{int64(i % 10), nil, nil}})
			}
			// A change of the culprit's key that is taken, before the one that is not.
			if code != "22021" && code != "54000" {
				rows = append(rows, sink.Row{Offset: 40, Key: culprit.Key, Values: []any{int64(5), nil, nil}})
			}
			culprit.Offset = 50
			rows = append(rows, culprit, sink.Row{Offset: 60, Key: []any{"last"}, Values: []any{int64(2), nil, nil}})
			_, err := apply(t, target, 0, 100, sink.Fail, rows...)
			refused, ok := errors.AsType[*sink.RefusedError](err)
			if !ok || refused.Code != code || refused.Offset != 50 || refused.Topic != "t" || refused.Partition != 2 {
				t.Fatalf("%v, want %s at offset 50", err, code)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("%v holds what the row holds", err)
			}
			if have := ask(t, db, fmt.Sprintf("select count(*) from %s.%s", name, testTable)); have[0] != "0" {
				t.Errorf("%s rows of a batch that failed", have[0])
			}
			res, err := apply(t, target, 0, 100, sink.Skip, rows...)
			if err != nil || res.Next != 100 || res.Upserts != len(rows)-1 || len(res.Refused) != 1 || res.Refused[0].Offset != 50 || res.Refused[0].Code != code {
				t.Fatalf("%+v, %v", res, err)
			}
			want := 22
			if code != "22021" && code != "54000" {
				want = 23
				if have := ask(t, db, fmt.Sprintf("select n from %s.%s where key = $1", name, testTable), culprit.Key[0]); !slices.Equal(have, []string{"5"}) {
					t.Errorf("the key that was refused has %v, want what it had before", have)
				}
			}
			if have := ask(t, db, fmt.Sprintf("select count(*) from %s.%s", name, testTable)); have[0] != fmt.Sprint(want) {
				t.Errorf("%s rows, want %d", have[0], want)
			}
			if have := ask(t, db, fmt.Sprintf("select next_offset from %s.statemesh_offsets", name)); !slices.Equal(have, []string{"100"}) {
				t.Errorf("offset %v, want 100", have)
			}
		})
	}
}

// TestDropped: a table that is dropped while rows are written is told with the way out, and not made anew behind the rows that are gone.
func TestDropped(t *testing.T) {
	schema := sink.Schema{Sink: testPlace.Sink, Keys: oneKey, Columns: []sink.Column{{Name: "n", Type: expr.Int}}}
	target, db, name := opened(t, schema, func(c *Config) { c.MaxConns = 1 })
	row := sink.Row{Key: []any{"k"}, Values: []any{int64(1)}}
	if _, err := apply(t, target, 0, 1, sink.Skip, row); err != nil {
		t.Fatal(err)
	}
	run(t, db, fmt.Sprintf("alter table %s.%s drop column n", name, testTable))
	mend := func(err error, want string) {
		t.Helper()
		e, ok := errors.AsType[*sink.SchemaError](err)
		if !ok || len(e.Problems) != 1 || !strings.Contains(err.Error(), want) {
			t.Fatalf("%v, want that %s", err, want)
		}
		run(t, db, e.Problems[0].SQL)
	}
	_, err := apply(t, target, 1, 2, sink.Skip, row)
	mend(err, `column "n" is missing`)
	if res, err := apply(t, target, 1, 2, sink.Skip, row); err != nil || res.Next != 2 {
		t.Errorf("%+v, %v once the column is back", res, err)
	}
	run(t, db, fmt.Sprintf("drop table %s.%s", name, testTable))
	_, err = apply(t, target, 2, 3, sink.Skip, row)
	if _, refused := errors.AsType[*sink.RefusedError](err); refused {
		t.Error("the row is refused")
	}
	mend(err, "was dropped")
	if err := target.Open(t.Context(), schema); err != nil {
		t.Fatal(err)
	}
	if at, err := target.Begin(t.Context(), testPlace, 0); err != nil || at.Next != 0 {
		t.Errorf("%+v, %v: the topic is read from its beginning", at, err)
	}
}

// TestAppend: rows of a stream are told apart by partition and offset, and the same one twice is refused rather than passed over.
func TestAppend(t *testing.T) {
	target, db, name := opened(t, sink.Schema{Keys: oneKey, Columns: []sink.Column{{Name: "n", Type: expr.Int}}, Append: true})
	rows := []sink.Row{{Offset: 3, Key: []any{"k"}, Values: []any{int64(1)}}, {Offset: 4, Key: []any{nil}, Values: []any{nil}}, {Offset: 6, Key: []any{"k"}, Values: []any{int64(1)}}}
	if res, err := apply(t, target, 0, 7, sink.Fail, rows...); err != nil || res.Upserts != 3 {
		t.Fatalf("%+v, %v", res, err)
	}
	have := ask(t, db, fmt.Sprintf("select topic_partition, topic_offset, key, n from %s.%s order by 2", name, testTable))
	if d := cmp.Diff([]string{"2|3|k|1", "2|4|<nil>|<nil>", "2|6|k|1"}, have); d != "" {
		t.Error(d)
	}
	_, err := apply(t, target, 7, 8, sink.Fail, rows[0])
	if refused, ok := errors.AsType[*sink.RefusedError](err); !ok || refused.Code != "23505" {
		t.Errorf("%v, want a refusal", err)
	}
}
