package configfile

import (
	"time"

	"github.com/statemesh/statemesh/sink"
	"github.com/statemesh/statemesh/sink/postgres"
)

// postgresKey begins the settings of the database, and is the key of relations that are written to it.
const postgresKey = "postgres"

// database is what is said of PostgreSQL: for all relations, and for each that is written to it.
type database struct {
	// parts of a connection, instead of conf.URL.
	host, name, user, rootCert string
	port                       int
	sslMode                    sslMode
	conf                       postgres.Config // but for what is a relation's
	create                     bool
	options                    sink.Config // but for what is a relation's
	writes                     []*write
}

// sslMode is libpq's.
type sslMode string

// sslModes are all of libpq's.
var sslModes = []sslMode{"disable", "allow", "prefer", "require", "verify-ca", "verify-full"}

// write is what a relation says under postgres.
type write struct {
	relation, path                string
	name, table, schema           string
	columns                       []renamed
	key                           []string
	partitionColumn, offsetColumn string
	source                        sink.Source
	onError                       sink.Policy
}

// renamed is a column and its name in the table.
type renamed struct{ column, name string }

// newDatabase has the defaults of the packages that do the work.
func newDatabase() database {
	o := sink.Config{}.WithDefaults()
	o.BatchBytes = 0 // by the memory there is
	return database{conf: postgres.Config{}.WithDefaults(), create: true, sslMode: "prefer", port: 5432, options: o}
}

func postgresql() Section {
	return Section{"PostgreSQL", []Setting{
		hidden(text("postgres.url", "", func(d *draft) *string { return &d.database.conf.URL },
			"Database that relations with `postgres` are written to: `postgres://user@host:5432/name`, or `host=... dbname=...`, as libpq has it. Several hosts with "+
				"`target_session_attrs=read-write` follow a failover. Never shown.")),
		text("postgres.host", "", func(d *draft) *string { return &d.database.host },
			"Host, or directory of the socket, instead of postgres.url."),
		integer("postgres.port", "5432", 1, 65535, func(d *draft) *int { return &d.database.port }, "Port, with postgres.host."),
		text("postgres.database", "(the user)", func(d *draft) *string { return &d.database.name }, "Name of the database, with postgres.host."),
		text("postgres.user", "(that of the process)", func(d *draft) *string { return &d.database.user }, "User, with postgres.host."),
		choice("postgres.sslmode", "prefer", func(d *draft) *sslMode { return &d.database.sslMode }, sslModes,
			"Whether the connection is encrypted and the server's certificate checked, with postgres.host; verify-full does both."),
		file("postgres.sslrootcert", "(the system's)", func(d *draft) *string { return &d.database.rootCert },
			"PEM file with the authorities that the server's certificate must be signed by, with postgres.host."),
		secret("postgres.password", func(d *draft) *string { return &d.database.conf.Password },
			"Password; better given as an environment variable. Default: that of postgres.url, or of libpq's password file."),
		file("postgres.password.file", "", func(d *draft) *string { return &d.database.conf.PasswordFile },
			"File with the password, read for each connection: a new one needs no restart."),
		text("postgres.schema", "public", func(d *draft) *string { return &d.database.conf.Schema }, "Schema of the tables that say no other, and of postgres.offsets.table."),
		text("postgres.offsets.table", "statemesh_offsets", func(d *draft) *string { return &d.database.conf.OffsetsTable },
			"Table with the offset that each partition is written up to. It is part of what makes rows exact."),
		boolean("postgres.create.tables", "true", func(d *draft) *bool { return &d.database.create },
			"Make tables that are missing. With false they are an error that says the SQL. Tables that are there are never altered."),
		integer("postgres.pool.max", "4", 1, 1000, func(d *draft) *int32 { return &d.database.conf.MaxConns },
			"Connections of an instance for each relation that is written, opened as they are needed."),
		integer("postgres.batch.max.records", "1000", 1, 1_000_000, func(d *draft) *int { return &d.database.options.BatchRecords },
			"Most records of one transaction."),
		size("postgres.batch.max.bytes", "(by postgres.max.bytes, at most 4MiB)", func(d *draft) *int64 { return &d.database.options.BatchBytes },
			"Most bytes of keys and values of one transaction; a record that is larger goes alone."),
		duration("postgres.linger.ms", "50ms", func(d *draft) *time.Duration { return &d.database.options.Linger },
			"How long a change waits for others, to be written with them."),
		size("postgres.max.bytes", "(by memory.limit, 4MiB to 32MiB for each relation)", func(d *draft) *int64 { return &d.cfg.SinkBytes },
			"Memory of all that is on its way to the database."),
		duration("postgres.timeout.ms", "1m0s", func(d *draft) *time.Duration { return &d.database.options.Timeout },
			"How long one transaction may take before it is cut off and tried again."),
		duration("postgres.transaction.idle.timeout.ms", "30s", func(d *draft) *time.Duration { return &d.database.conf.IdleTimeout },
			"After how long the database ends a transaction whose client has vanished."),
		duration("postgres.retry.backoff.ms", "100ms", func(d *draft) *time.Duration { return &d.database.options.Backoff },
			"Shortest wait before a database that is away is tried again. It is tried for ever, and nothing else waits for it."),
		duration("postgres.retry.backoff.max.ms", "30s", func(d *draft) *time.Duration { return &d.database.options.MaxBackoff }, "Longest such wait."),
		duration("postgres.restart.backoff.ms", "1s", func(d *draft) *time.Duration { return &d.database.options.RestartBackoff },
			"Shortest wait before a relation is tried again whose writing has ended with an error that somebody must mend."),
		duration("postgres.restart.backoff.max.ms", "1m0s", func(d *draft) *time.Duration { return &d.database.options.MaxRestartBackoff }, "Longest such wait."),
	}}
}

// hidden makes a setting one whose values are never printed.
func hidden(s Setting) Setting {
	s.Secret = true
	return s
}
