package configfile

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/statemesh/statemesh/sink"
	"github.com/statemesh/statemesh/sink/postgres"
)

// TestDatabase: what is said for all relations, and of each, arrives in its sink.
func TestDatabase(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/postgres.yaml")
	if err != nil {
		t.Fatal(err)
	}
	l, err := Load(Source{Path: "postgres.yaml", Data: data})
	if err != nil {
		t.Fatal(err)
	}
	if l.Config.SinkBytes != 64<<20 || len(l.Config.Sinks) != 4 {
		t.Fatalf("%d bytes for %d sinks", l.Config.SinkBytes, len(l.Config.Sinks))
	}
	all := postgres.Config{
		URL:      `host='db.example' port='5433' dbname='shop' user='it\'s me' sslmode='verify-full'`,
		Password: "secret", Schema: "reports", OffsetsTable: "offsets", NoCreate: true, MaxConns: 2, IdleTimeout: 5 * time.Second,
	}.WithDefaults()
	options := sink.Config{
		BatchRecords: 500, BatchBytes: 1 << 20, Linger: 10 * time.Millisecond, Timeout: 30 * time.Second, Backoff: 50 * time.Millisecond,
		MaxBackoff: 5 * time.Second, RestartBackoff: 2 * time.Second, MaxRestartBackoff: 10 * time.Second,
	}
	for i, change := range []func(db *postgres.Config, o *sink.Config) (relation string, columns []string){
		func(db *postgres.Config, _ *sink.Config) (string, []string) {
			db.Table = "raw_orders"
			return "orders", nil
		},
		func(db *postgres.Config, o *sink.Config) (string, []string) {
			db.Table, db.Schema, db.PartitionColumn, db.OffsetColumn, o.OnError = "dear_orders", "public", "p", "o", sink.Skip
			return "dear", nil
		},
		func(db *postgres.Config, o *sink.Config) (string, []string) {
			db.Table, db.Columns, db.KeyColumns = "sales", map[string]string{"sum": "total", "n": "orders"}, []string{"customer", "since", "until"}
			o.Name, o.Source = "sales-2", sink.FromTopic
			return "sales", []string{"sum", "n"}
		},
		func(db *postgres.Config, _ *sink.Config) (string, []string) {
			db.Table = "items"
			return "items", []string{"n"}
		},
	} {
		db, o := all, options
		relation, columns := change(&db, &o)
		s := l.Config.Sinks[i]
		if s.Relation != relation {
			t.Errorf("sink %d is of %s, want %s", i, s.Relation, relation)
		}
		if diff := cmp.Diff(columns, s.Columns); diff != "" {
			t.Errorf("columns of %s, -want +got:\n%s", relation, diff)
		}
		if diff := cmp.Diff(db, s.Database); diff != "" {
			t.Errorf("database of %s, -want +got:\n%s", relation, diff)
		}
		if diff := cmp.Diff(o, s.Options); diff != "" {
			t.Errorf("options of %s, -want +got:\n%s", relation, diff)
		}
	}
}

// TestDatabaseSecrets: the password comes from the environment, a file, or the URL, and is never shown.
func TestDatabaseSecrets(t *testing.T) {
	t.Parallel()
	const file = "application.id: a\nstate.dir: s\nbootstrap.servers: b:1\ntopology:\n  t: {topic: t, format: json, columns: {a: int}, postgres: t}\n"
	path := t.TempDir() + "/password"
	if err := os.WriteFile(path, []byte("geheim\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		src  Source
		want postgres.Config
	}{
		"environment": {
			Source{Env: []string{"STATEMESH_POSTGRES_URL=postgres://me@db/d", "STATEMESH_POSTGRES_PASSWORD=geheim"}},
			postgres.Config{URL: "postgres://me@db/d", Password: "geheim"},
		},
		"file": {
			Source{Set: []string{"postgres.host=db", "postgres.password.file=" + path}},
			postgres.Config{URL: "host='db' port='5432' sslmode='prefer'", PasswordFile: path},
		},
		"URL": {Source{Set: []string{"postgres.url=postgres://me:geheim@db/d"}}, postgres.Config{URL: "postgres://me:geheim@db/d"}},
	} {
		tt.src.Data = []byte(file)
		l, err := Load(tt.src)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		tt.want.Table = "t"
		if diff := cmp.Diff(tt.want.WithDefaults(), l.Config.Sinks[0].Database); diff != "" {
			t.Errorf("%s, -want +got:\n%s", name, diff)
		}
	}
	for _, s := range Settings() {
		if (s.Name == "postgres.url" || s.Name == "postgres.password") != s.Secret && strings.HasPrefix(s.Name, "postgres.") {
			t.Errorf("%s: secret is %v", s.Name, s.Secret)
		}
	}
}
