package postgres

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/statemesh/statemesh/processor/expr"
	"github.com/statemesh/statemesh/sink"
)

var tableSchema = sink.Schema{
	Keys: oneKey, Columns: []sink.Column{{Name: "a", Type: expr.String}, {Name: "b", Type: expr.Int}, {Name: "c.d", Type: expr.JSON}},
}

// TestSchemaErrors: everything that is wrong is named at once, and the SQL that is given mends it.
func TestSchemaErrors(t *testing.T) {
	tests := []struct {
		name   string
		tables string // %[1]s is the schema
		change func(*Config)
		want   []string
	}{
		{"nothing is there, and nothing is made", "", func(c *Config) { c.NoCreate = true }, []string{`no table "%[1]s"."statemesh_offsets"`, `no table "%[1]s"."prices"`}},
		{
			"columns", "create table %[1]s.prices (a int, b text, key text, more int not null, fine int not null default 1, also int generated always as identity)", nil,
			[]string{`column "a" is integer, want text or character varying or uuid`, `column "b" is text`, `column "c.d" is missing`, `column "more" must not be null`},
		},
		{"no unique index", `create table %[1]s.prices (key text, a text, b bigint, "c.d" json); create index on %[1]s.prices (key)`, nil, []string{"no unique index has just the columns of the key"}},
		{"a unique index of more", `create table %[1]s.prices (key text, a text, b bigint, "c.d" json, unique (key, a))`, nil, []string{"no unique index"}},
		{"a partial index", `create table %[1]s.prices (key text, a text, b bigint, "c.d" json); create unique index on %[1]s.prices (key) where b > 0`, nil, []string{"no unique index"}},
		{"offsets", "create table %[1]s.statemesh_offsets (sink text, topic text, partition bigint, topic_id uuid, next_offset bigint)", nil, []string{"column partition of", "column leader_epoch of", "column caught_up_at of", "column updated_at of"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := server(t)
			db := connect(t, s)
			name := newSchema(t, db)
			if tt.tables != "" {
				run(t, db, fmt.Sprintf(tt.tables, name))
			}
			change := func(*Config) {}
			if tt.change != nil {
				change = tt.change
			}
			target := newTestTarget(t, s, name, nil, change)
			for range 3 { // an index is looked for once the columns are right
				err := target.Open(t.Context(), tableSchema)
				if err == nil {
					break
				}
				problem, ok := errors.AsType[*sink.SchemaError](err)
				if !ok {
					t.Fatal(err)
				}
				for _, want := range tt.want {
					if want = fmt.Sprintf(strings.ReplaceAll(want, "%[1]s", "%[1]v"), name); strings.Contains(want, "%!") {
						want, _, _ = strings.Cut(want, "%!")
					}
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%v: nothing of %q", err, want)
					}
				}
				tt.want = nil
				for _, p := range problem.Problems {
					run(t, db, p.SQL)
				}
			}
			if tt.want != nil {
				t.Error("the tables are taken")
			}
			if err := target.Open(t.Context(), tableSchema); err != nil {
				t.Fatalf("mended as told: %v", err)
			}
			if _, err := target.Begin(t.Context(), testPlace, 0); err != nil {
				t.Fatal(err)
			}
			if _, err := apply(t, target, 0, 1, sink.Fail, sink.Row{Key: []any{"k"}, Values: []any{"a", int64(1), nil}}, sink.Row{Key: []any{"l"}}); err != nil {
				t.Fatalf("mended as told: %v", err)
			}
		})
	}
}

// TestNames: columns are renamed, and what cannot be a table is said before one is made.
func TestNames(t *testing.T) {
	target, db, name := opened(t, tableSchema, func(c *Config) {
		c.Columns, c.KeyColumns = map[string]string{"a": `odd " name`, "c.d": "cd"}, []string{"id"}
	})
	if _, err := apply(t, target, 0, 1, sink.Fail, sink.Row{Key: []any{"k"}, Values: []any{"x", int64(1), nil}}); err != nil {
		t.Fatal(err)
	}
	if have := ask(t, db, fmt.Sprintf(`select id, "odd "" name", b, cd from %s.%s`, name, testTable)); have[0] != "k|x|1|<nil>" {
		t.Errorf("%v", have)
	}
	for want, change := range map[string]func(*Config){
		`two columns are called "key"`:        func(c *Config) { c.Columns = map[string]string{"a": "key"} },
		`column "z" is renamed`:               func(c *Config) { c.Columns = map[string]string{"z": "y"} },
		"2 names are given for the 1 columns": func(c *Config) { c.KeyColumns = []string{"a1", "a2"} },
		`two columns are called "b"; rename`:  func(c *Config) { c.KeyColumns = []string{"b"} },
	} {
		cfg := Config{URL: "postgres://localhost", Table: "t"}.withDefaults()
		change(&cfg)
		if _, err := newLayout(cfg, tableSchema); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestRights: what a user may not do is said with the grant that is missing.
func TestRights(t *testing.T) {
	s := server(t)
	db := connect(t, s)
	name := newSchema(t, db)
	user := "user_" + name
	run(t, db, "create role "+user+" login")
	run(t, db, fmt.Sprintf("grant usage on schema %s to %s", name, user))
	as := func(c *Config) { c.URL = strings.Replace(c.URL, "postgres@", user+"@", 1) }
	target := newTestTarget(t, s, name, nil, as)
	mend := func(want string) {
		t.Helper()
		err := target.Open(t.Context(), tableSchema)
		problem, ok := errors.AsType[*sink.SchemaError](err)
		if !ok || !strings.Contains(err.Error(), want) {
			t.Fatalf("%v, want %q", err, want)
		}
		for _, p := range problem.Problems {
			run(t, db, p.SQL)
		}
	}
	mend("no right to make it") // the offsets
	mend("no right to make it") // the table; and the grants for the offsets
	mend("no right to insert")
	if err := target.Open(t.Context(), tableSchema); err != nil {
		t.Error(err)
	}
}

// TestOpenTogether: instances that start together make one table.
func TestOpenTogether(t *testing.T) {
	s := server(t)
	db := connect(t, s)
	name := newSchema(t, db)
	var all sync.WaitGroup
	for range 8 {
		target := newTestTarget(t, s, name, nil)
		all.Go(func() {
			if err := target.Open(t.Context(), tableSchema); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func TestConfig(t *testing.T) {
	err := Config{
		URL: "postgres://localhost:x", Table: "statemesh_offsets", Schema: strings.Repeat("x", 64), Columns: map[string]string{"a": ""},
		KeyColumns: []string{"\x00"}, MaxConns: -1, IdleTimeout: -1,
	}.Validate()
	for _, want := range []string{"URL", "Table", "Schema", "Columns[a]", "KeyColumns", "MaxConns", "IdleTimeout"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: nothing on %s", err, want)
		}
	}
	secret := Config{URL: "postgres://u:geheim@localhost:x/d", Table: "t"}.Validate()
	if secret == nil || strings.Contains(secret.Error(), "geheim") {
		t.Errorf("%v", secret)
	}
	if _, err := New(t.Context(), Config{}); err == nil {
		t.Error("an empty configuration is taken")
	}
	target, err := New(t.Context(), Config{URL: "postgres://localhost:1/d", Table: "t"})
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	if _, err := target.Begin(t.Context(), testPlace, 0); !errors.Is(err, errNotOpen) {
		t.Error(err)
	}
	if _, err := target.Apply(t.Context(), sink.Batch{}); !errors.Is(err, errNotOpen) {
		t.Error(err)
	}
}

// TestReadOnly: a server that takes no writes for the moment, such as a primary that is one no more, is away.
func TestReadOnly(t *testing.T) {
	s := server(t)
	db := connect(t, s)
	name := newSchema(t, db)
	target := newTestTarget(t, s, name, nil, func(c *Config) { c.URL += "&default_transaction_read_only=on" })
	err := target.Open(t.Context(), tableSchema)
	if _, fits := errors.AsType[*sink.SchemaError](err); fits || !hasCode(err, readOnly) || !strings.Contains(err.Error(), readOnly) {
		t.Errorf("%v, want that it is read only", err)
	}
	if err := newTestTarget(t, s, name, nil).Open(t.Context(), tableSchema); err != nil {
		t.Fatal(err)
	}
	if err := target.Open(t.Context(), tableSchema); err != nil { // nothing is to be made
		t.Fatal(err)
	}
	if _, err := target.Begin(t.Context(), testPlace, 0); !hasCode(err, readOnly) {
		t.Errorf("%v, want that it is read only", err)
	}
}
