package configfile

import (
	"fmt"
	"io"
	"strings"

	"github.com/statemesh/statemesh/processor/declared"
	"github.com/statemesh/statemesh/processor/expr"
)

// WriteDocs writes docs/config.md.
func WriteDocs(w io.Writer) error {
	var b strings.Builder
	b.WriteString(`# Configuration

<!-- Generated from the table of settings by "make docs". Do not edit. -->

` + "`statemesh serve -c mesh.yaml`" + ` reads a YAML file of the settings below. Keys may be written flat
(` + "`commit.interval.ms: 100`" + `) or nested. Names are Kafka's and Kafka Streams' where the meaning is theirs. A value is
looked for in this order: ` + "`--set key=value`" + `, environment variable, file, default.

Durations are written as ` + "`500ms`, `30s`, `5m`" + `; a bare number counts milliseconds. Sizes are bytes, or ` + "`64KiB`, `16MiB`, `2GiB`" + `.
Unknown keys, wrong values and contradictions are all reported at once: ` + "`statemesh config validate mesh.yaml`" + `.

`)
	for _, s := range Sections() {
		fmt.Fprintf(&b, "## %s\n\n| key, variable | type | default | meaning |\n|---|---|---|---|\n", s.Title)
		for _, k := range s.Settings {
			fmt.Fprintf(&b, "| `%s`<br>`%s` | %s | %s | %s |\n", k.Name, k.Env(), cell(k.Type), codeOrWords(k.Default), cell(k.Meaning))
		}
		b.WriteString("\n")
	}
	b.WriteString("## Views\n\n`views` is a list. Each entry is one view: a store, filled from one topic.\n\n" +
		"| key | type | default | meaning |\n|---|---|---|---|\n")
	for _, k := range ViewKeys() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", k.Name, cell(k.Type), codeOrWords(k.Default), cell(k.Meaning))
	}
	writeRelations(&b)
	b.WriteString(`
## Example

` + "```yaml" + `
` + Example + "```\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// writeRelations describes declared topologies.
func writeRelations(b *strings.Builder) {
	b.WriteString("\n## Topology\n\n`topology` declares streams, joins and aggregates: a mapping of names to what each is, in any order. It takes the " +
		"place of `views`. See [Topologies without code](declared.md).\n")
	for _, part := range []struct {
		title string
		keys  []RelationKey
	}{
		{"", RelationKeys(&declared.Relation{})},
		{"### Columns of a topic\n\n`columns: {name: {type: ...}}`, or shorter `columns: {name: type}`.", columnKeys(&expr.Column{})},
		{"### Joins\n\n`joins: [{with: ...}]`", joinKeys(&declared.Join{})},
		{"### Written to PostgreSQL\n\n`postgres: {table: name}`, or shorter `postgres: name`. The connection is in [PostgreSQL](#postgresql) above.", postgresKeys(&write{})},
		{"### Aggregates\n\n`aggregate: {name: {sum: expression}}`, one function per column, or `name: count`.", functionKeys(&declared.AggregateColumn{})},
	} {
		if part.title != "" {
			b.WriteString("\n" + part.title + "\n")
		}
		b.WriteString("\n| key | type | default | meaning |\n|---|---|---|---|\n")
		for _, k := range part.keys {
			fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", k.Name, cell(k.Type), codeOrWords(k.Default), cell(k.Meaning))
		}
	}
}

// Example is a small configuration that is valid.
const Example = `application.id: flights
bootstrap.servers: localhost:9092
state.dir: ./state
listen: 127.0.0.1:7070

views:
  - name: flights-by-dest
    topic: flights
    format: csv
    columns: [carrier, origin, dest, dep_delay]
    key: [dest]
    type: count
  - name: delay-by-carrier
    topic: flights
    format: csv
    columns: [carrier, origin, dest, dep_delay]
    key: [carrier]
    type: stats
    field: dep_delay
  - name: departures-per-hour
    topic: flights
    format: csv
    columns: [carrier, origin, dest, dep_delay]
    key: [origin]
    type: count
    window: {tumbling: 1h, grace: 10m}
`

// cell escapes what would end a cell of a table.
func cell(s string) string { return strings.ReplaceAll(s, "|", "\\|") }

// codeOrWords shows a default as code, and words as words.
func codeOrWords(s string) string {
	if words, ok := strings.CutPrefix(s, "("); ok {
		return strings.TrimSuffix(words, ")")
	}
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}
