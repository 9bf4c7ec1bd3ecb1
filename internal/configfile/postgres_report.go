package configfile

import (
	"errors"
	"strings"

	"github.com/statemesh/statemesh"
	"github.com/statemesh/statemesh/processor/changes"
	"github.com/statemesh/statemesh/sink"
	"github.com/statemesh/statemesh/sink/postgres"
)

// ofAll are the fields of sinks and databases that are said for all relations at once.
var ofAll = map[string]string{
	"URL": "postgres.url", "Password": "postgres.password", "PasswordFile": "postgres.password.file", "OffsetsTable": "postgres.offsets.table",
	"MaxConns": "postgres.pool.max", "IdleTimeout": "postgres.transaction.idle.timeout.ms", "BatchRecords": "postgres.batch.max.records",
	"BatchBytes": "postgres.batch.max.bytes", "Linger": "postgres.linger.ms", "Timeout": "postgres.timeout.ms", "Backoff": "postgres.retry.backoff.ms",
	"MaxBackoff": "postgres.retry.backoff.max.ms", "RestartBackoff": "postgres.restart.backoff.ms", "MaxRestartBackoff": "postgres.restart.backoff.max.ms",
}

// ofOne are those that a relation says, by the key.
var ofOne = map[string]string{
	"Relation": "", "Database": "", "Name": "name", "Table": "table", "Schema": "schema", "Columns": "columns", "KeyColumns": "key",
	"PartitionColumn": "partition_column", "OffsetColumn": "offset_column", "Source": "source", "OnError": "on_error",
}

// reportSink places findings about what a relation says under postgres.
func (p *parser) reportSink(e *statemesh.SinkError) {
	w := p.draft.database.writes[e.Index]
	if schema, ok := errors.AsType[*sink.SchemaError](e.Err); ok {
		for _, problem := range schema.Problems {
			p.at(p.closest(w.path+".columns"), w.path+": "+problem.Reason, "")
		}
		return
	}
	var field, reason string
	if f, ok := errors.AsType[*sink.ConfigError](e.Err); ok {
		field, reason = f.Field, f.Reason
	} else if f, ok := errors.AsType[*changes.ConfigError](e.Err); ok {
		field, reason = f.Field, f.Reason
	} else if f, ok := errors.AsType[*postgres.ConfigError](e.Err); ok {
		field, reason = f.Field, f.Reason
	} else {
		p.at(p.closest(w.path), w.path+": "+e.Err.Error(), "")
		return
	}
	if name, ok := ofAll[field]; ok {
		place := p.places[name]
		if place.Origin == "" {
			place = p.closest(w.path)
		}
		p.at(place, name+": "+reason, "")
		return
	}
	part, of, _ := strings.Cut(strings.TrimSuffix(field, "]"), "[")
	path := w.path
	if key, ok := ofOne[part]; ok && key != "" {
		path += "." + key
	}
	if of != "" {
		path += "." + of
	}
	p.at(p.closest(path), path+": "+reason, "")
}
