package configfile

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/statemesh/statemesh"
	"github.com/statemesh/statemesh/sink"
	"github.com/statemesh/statemesh/sink/postgres"
)

// postgresKeys lists the keys under a relation's postgres.
func postgresKeys(w *write) []RelationKey {
	return []RelationKey{
		{Name: "table", Type: "string", Default: "(the relation's name)", Meaning: "Table. It is made when it is missing, unless postgres.create.tables is false.", read: textTo(&w.table)},
		{Name: "schema", Type: "string", Default: "(postgres.schema)", Meaning: "Schema of the table. The offsets are in it, too.", read: textTo(&w.schema)},
		{
			Name: "columns", Type: "mapping", Default: "(all, by their names)", Meaning: "Columns that are written: column: name in the table. Or a list of columns.",
			read: func(p *parser, path string, n *yaml.Node) { w.columns = p.renamed(path, n) },
		},
		{
			Name: "key", Type: "list", Default: "(key; with windows key, window_start, window_end)", Meaning: "Names of the key's columns in the table.",
			read: func(p *parser, path string, n *yaml.Node) { w.key, _ = p.items(path, n) },
		},
		{Name: "partition_column", Type: "string", Default: "topic_partition", Meaning: "Of a stream: column of the partition.", read: textTo(&w.partitionColumn)},
		{Name: "offset_column", Type: "string", Default: "topic_offset", Meaning: "Of a stream: column of the offset.", read: textTo(&w.offsetColumn)},
		wordOf("source", "(changelog of a table; else topic)", func() *sink.Source { return &w.source }, []sink.Source{sink.FromChangelog, sink.FromTopic},
			"What is read: all that a table answers with, or the topic that it is written `to`, which has only final results with emit: on_close or suppress."),
		wordOf("on_error", string(sink.Fail), func() *sink.Policy { return &w.onError }, []sink.Policy{sink.Fail, sink.Skip},
			"What becomes of a record that is no row, or is refused by the database: fail ends the writing before it until it is mended, skip counts it and goes on."),
		{Name: "name", Type: "string", Default: "(the relation's name)", Meaning: "Name under which the offsets are kept. Another one reads everything from the beginning.", read: textTo(&w.name)},
	}
}

func textTo(at *string) func(p *parser, path string, n *yaml.Node) {
	return scalarOf("string", func(v string) error {
		if *at = v; v == "" {
			return errors.New("empty")
		}
		return nil
	})
}

// written is the key of a relation that has it written to PostgreSQL.
func written(relation *string) RelationKey {
	return RelationKey{
		Name: postgresKey, Type: "mapping", Meaning: "Has its committed changes written into a table of PostgreSQL; see below. Or just the table's name.",
		read: func(p *parser, path string, n *yaml.Node) {
			w := &write{relation: *relation, path: path}
			if n.Kind == yaml.MappingNode {
				p.part("postgres", path, n, postgresKeys(w))
			} else {
				textTo(&w.table)(p, path, n)
			}
			p.draft.database.writes = append(p.draft.database.writes, w)
		},
	}
}

// renamed reads columns, as a list or with their names in the table.
func (p *parser) renamed(path string, n *yaml.Node) (all []renamed) {
	if n.Kind == yaml.MappingNode {
		p.pairs(path, n, func(key, value *yaml.Node) {
			if name, ok := p.scalar(path+"."+key.Value, "string", value); ok {
				all = append(all, renamed{key.Value, name})
			}
		})
		return all
	}
	items, _ := p.items(path, n)
	for i, item := range items {
		if first := slices.Index(items, item); first < i {
			p.at(p.places[path+"["+strconv.Itoa(i)+"]"], fmt.Sprintf("%s[%d]: %s is given twice", path, i, item), "")
			continue
		}
		all = append(all, renamed{item, item})
	}
	return all
}

// databases makes sinks of what relations say under postgres.
func (p *parser) databases(d *draft) {
	db := &d.database
	p.connection(db)
	if p.halfRead || len(db.writes) == 0 {
		d.cfg.SinkBytes = 0
		return
	}
	owner := make(map[[2]string]string)
	for _, w := range db.writes {
		s := w.sink(db)
		d.cfg.Sinks = append(d.cfg.Sinks, s)
		conf := s.Database.(postgres.Config)
		table := [2]string{conf.Schema, conf.Table}
		if other := owner[table]; other != "" {
			p.at(p.closest(w.path+".table"), fmt.Sprintf("%s: the table %s.%s is that of %s, too", w.path, conf.Schema, conf.Table, other), "say another table")
		}
		owner[table] = w.relation
	}
}

// connection checks what belongs to the connection, and makes one setting of its parts.
func (p *parser) connection(db *database) {
	var given []string
	for _, name := range p.names {
		if _, ok := p.places[name]; ok && strings.HasPrefix(name, postgresKey+".") {
			given = append(given, name)
		}
	}
	if len(db.writes) == 0 {
		for _, name := range given {
			p.at(p.places[name], name+" is not used: no relation of topology is written to PostgreSQL", "write postgres: my_table under one")
		}
		return
	}
	for _, name := range []string{"postgres.port", "postgres.database", "postgres.user", "postgres.sslmode", "postgres.sslrootcert"} {
		if slices.Contains(given, name) && db.host == "" {
			p.at(p.places[name], name+" goes with postgres.host", "or is a part of postgres.url")
		}
	}
	switch {
	case db.host != "" && db.conf.URL != "":
		p.at(p.places["postgres.host"], "postgres.host contradicts postgres.url", "give one of them")
	case db.host != "":
		db.conf.URL = db.parts()
	case db.conf.URL == "":
		p.at(p.places[db.writes[0].path], db.writes[0].path+" needs a database", "give postgres.url or postgres.host")
		db.conf.URL = "host=unknown" // the rest can be looked at
	}
	db.conf.NoCreate = !db.create
	if path := db.conf.PasswordFile; path != "" {
		if _, err := os.ReadFile(path); err != nil {
			p.at(p.places["postgres.password.file"], "postgres.password.file: "+err.Error(), "")
		}
	}
}

// parts puts a connection together, as libpq has it.
func (db *database) parts() string {
	var b strings.Builder
	for _, f := range []struct{ name, value string }{
		{"host", db.host}, {"port", strconv.Itoa(db.port)}, {"dbname", db.name}, {"user", db.user}, {"sslmode", string(db.sslMode)}, {"sslrootcert", db.rootCert},
	} {
		if f.value != "" {
			fmt.Fprintf(&b, "%s='%s' ", f.name, strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(f.value))
		}
	}
	return strings.TrimSpace(b.String())
}

// sink is what a relation says, with what is said for all.
func (w *write) sink(db *database) statemesh.Sink {
	conf, options := db.conf, db.options
	conf.Table, conf.Schema = cmp.Or(w.table, w.relation), cmp.Or(w.schema, conf.Schema)
	conf.PartitionColumn, conf.OffsetColumn = cmp.Or(w.partitionColumn, conf.PartitionColumn), cmp.Or(w.offsetColumn, conf.OffsetColumn)
	conf.KeyColumns = w.key
	s := statemesh.Sink{Relation: w.relation}
	for _, c := range w.columns {
		s.Columns = append(s.Columns, c.column)
		if c.name != c.column {
			if conf.Columns == nil {
				conf.Columns = make(map[string]string)
			}
			conf.Columns[c.column] = c.name
		}
	}
	s.Options = sink.Config{
		Name: w.name, Source: w.source, OnError: w.onError, BatchRecords: options.BatchRecords, BatchBytes: options.BatchBytes, Linger: options.Linger,
		Timeout: options.Timeout, Backoff: options.Backoff, MaxBackoff: options.MaxBackoff, RestartBackoff: options.RestartBackoff,
		MaxRestartBackoff: options.MaxRestartBackoff,
	}
	s.Database = conf
	return s
}
