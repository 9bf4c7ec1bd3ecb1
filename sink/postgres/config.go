package postgres

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/statemesh/statemesh/sink"
)

// Config of a [Target]. The zero value of a field means its default.
type Config struct {
	// URL of the database, or its settings as "host=... dbname=...", as libpq has them; what is not in it comes from libpq's environment
	// variables and password file. Required. It is never logged.
	URL string
	// Password, or PasswordFile, which is read for each connection: whoever renews it restarts nothing. Default: that of URL, or libpq's. Neither is
	// ever logged.
	Password, PasswordFile string
	// Schema that the tables are in. Default "public".
	Schema string
	// Table that rows are written to. Required.
	Table string
	// NoCreate leaves missing tables to an operator: they are an error that says how to make them.
	NoCreate bool
	// Columns renames columns of the relation: the name in the table by the name in the relation. Default: the same.
	Columns map[string]string
	// KeyColumns are the names of the key's columns. Default "key", and of a windowed table "key", "window_start", "window_end".
	KeyColumns []string
	// PartitionColumn and OffsetColumn tell the rows of a stream apart. Defaults "topic_partition" and "topic_offset".
	PartitionColumn, OffsetColumn string
	// OffsetsTable has the offsets of all sinks. Default "statemesh_offsets".
	OffsetsTable string
	// MaxConns is how many transactions there are at a time. Default 4: more partitions than that take turns.
	MaxConns int32
	// IdleTimeout ends a transaction whose client has vanished without a word, so that another one may go on. Default 30s.
	IdleTimeout time.Duration
}

// ConfigError is one thing that is wrong with a [Config].
type ConfigError struct{ Field, Reason string }

func (e *ConfigError) Error() string { return fmt.Sprintf("postgres %s: %s", e.Field, e.Reason) }

// Validate reports everything that is wrong, joined, each as a [*ConfigError]. It does not connect.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	bad := func(field, format string, args ...any) {
		errs = append(errs, &ConfigError{Field: field, Reason: fmt.Sprintf(format, args...)})
	}
	if c.URL == "" {
		bad("URL", "required")
	} else if _, err := pgxpool.ParseConfig(c.URL); err != nil {
		bad("URL", "%v", err) // the library leaves the password out
	}
	if c.Password != "" && c.PasswordFile != "" {
		bad("PasswordFile", "a password is given as well; one of them is enough")
	}
	if c.Table == "" {
		bad("Table", "required")
	}
	if c.Table == c.OffsetsTable {
		bad("Table", "%q is the table of the offsets", c.Table)
	}
	for _, f := range []struct{ field, name string }{
		{"Schema", c.Schema}, {"Table", c.Table}, {"OffsetsTable", c.OffsetsTable}, {"PartitionColumn", c.PartitionColumn}, {"OffsetColumn", c.OffsetColumn},
	} {
		if problem := badName(f.name); problem != "" {
			bad(f.field, "%q: %s", f.name, problem)
		}
	}
	for from, to := range c.Columns {
		if problem := badName(to); problem != "" {
			bad("Columns["+from+"]", "%q: %s", to, problem)
		}
	}
	for _, name := range c.KeyColumns {
		if problem := badName(name); problem != "" {
			bad("KeyColumns", "%q: %s", name, problem)
		}
	}
	if c.MaxConns < 1 {
		bad("MaxConns", "%d: at least 1", c.MaxConns)
	}
	if c.IdleTimeout < time.Millisecond {
		bad("IdleTimeout", "%s: at least 1ms", c.IdleTimeout)
	}
	return errors.Join(errs...)
}

// Check reports everything that is wrong with writing rows of a schema, joined, without connecting: what Validate does, and names of columns,
// as a [*sink.SchemaError].
func (c Config) Check(s sink.Schema) error {
	_, err := newLayout(c.withDefaults(), s)
	return errors.Join(c.Validate(), err)
}

// Target is [New] for whoever knows no PostgreSQL.
func (c Config) Target(ctx context.Context) (sink.Target, error) {
	t, err := New(ctx, c)
	if err != nil {
		return nil, err
	}
	return t, nil
}

// WithDefaults returns c with every zero field replaced by what it means.
func (c Config) WithDefaults() Config { return c.withDefaults() }

// String is what may be shown of it.
func (c Config) String() string { return "PostgreSQL table " + c.Schema + "." + c.Table }

// maxName is the longest name that PostgreSQL does not cut off.
const maxName = 63

func badName(name string) string {
	switch {
	case len(name) > maxName:
		return fmt.Sprintf("%d bytes, PostgreSQL cuts names off after %d", len(name), maxName)
	case name == "":
		return "a name is required"
	default:
		for _, r := range name {
			if r == 0 {
				return "a name has no zero byte"
			}
		}
		return ""
	}
}

func (c Config) withDefaults() Config {
	c.Schema = cmp.Or(c.Schema, "public")
	c.PartitionColumn = cmp.Or(c.PartitionColumn, "topic_partition")
	c.OffsetColumn = cmp.Or(c.OffsetColumn, "topic_offset")
	c.OffsetsTable = cmp.Or(c.OffsetsTable, "statemesh_offsets")
	c.MaxConns = cmp.Or(c.MaxConns, 4)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, 30*time.Second)
	return c
}

// password gives the settings of a connection the password that is not in URL.
func (c Config) password(_ context.Context, conn *pgx.ConnConfig) error {
	switch {
	case c.Password != "":
		conn.Password = c.Password
	case c.PasswordFile != "":
		b, err := os.ReadFile(c.PasswordFile)
		if err != nil {
			return fmt.Errorf("password: %w", err)
		}
		conn.Password = string(bytes.TrimRight(b, "\r\n"))
	}
	return nil
}
