package configfile

import (
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/declared"
	"github.com/statemesh/statemesh/processor/expr"
	"github.com/statemesh/statemesh/serde"
)

// topologyKey holds the relations of a declared topology.
const topologyKey = "topology"

// RelationKey is one key of a relation of a topology, or of a part of one.
type RelationKey struct {
	Name, Type, Default, Meaning string

	read func(p *parser, path string, value *yaml.Node)
}

// topology reads the relations: a mapping of names to what each is.
func (p *parser) topology(m *yaml.Node) {
	if m.Kind != yaml.MappingNode {
		p.bad(m, topologyKey+": want names of streams and tables, not "+kindOf(m), "write \"topology:\" and below it \"clicks:\" with what it is")
		return
	}
	t, before := &declared.Topology{}, len(p.problems)
	for i := 0; i+1 < len(m.Content); i += 2 {
		key, value := m.Content[i], resolve(m.Content[i+1])
		path := topologyKey + "." + key.Value
		switch {
		case !p.claim(path, key):
		case value.Kind != yaml.MappingNode:
			p.bad(value, path+": want keys and values, not "+kindOf(value), "")
		default:
			r := declared.Relation{Name: key.Value, Place: p.place(key)}
			p.part("a relation", path, value, RelationKeys(&r))
			t.Relations = append(t.Relations, defaults(r))
		}
	}
	p.draft.cfg.Declared, p.halfRead = t, len(p.problems) > before
}

// defaults says what is not said: an aggregate is a table, everything else a stream.
func defaults(r declared.Relation) declared.Relation {
	if r.Kind == "" {
		r.Kind = declared.Stream
		if r.Aggregate != nil {
			r.Kind = declared.Table
		}
	}
	if r.Aggregate != nil && r.KeyFormat != "" && r.Key == nil {
		r.Aggregate.KeyFormat, r.KeyFormat = r.KeyFormat, ""
	}
	if r.Topic != "" {
		r.Source.Layout.KeyFormat, r.KeyFormat = r.KeyFormat, ""
	}
	return r
}

func (p *parser) place(n *yaml.Node) declared.Place {
	return declared.Place{File: p.file, Line: n.Line, Column: n.Column}
}

// part reads a mapping of these keys.
func (p *parser) part(what, path string, m *yaml.Node, keys []RelationKey) {
	g := group{what: what, explain: foreignRelation}
	for _, k := range keys {
		g.names = append(g.names, k.Name)
	}
	g.read = func(at int, name string, key, value *yaml.Node) {
		if !p.isNull(name, key, value) {
			keys[at].read(p, name, value)
		}
	}
	p.walk(g, path, m)
}

const eachHint = "write each: {item: list}"

// foreignRelation explains words of other tools.
func foreignRelation(name string) string {
	return map[string]string{
		"filter": "write where", "having": "write a relation from this one, with where", "type": "write kind",
		"stream": "write topic or from", "source": "write topic or from", "sink": "write to, or postgres", "output": "write to",
		"schema": "write columns", "join": "write joins, a list", "group": "write group_by", "emit_on_close": "write emit: on_close",
		"explode": eachHint, "unnest": eachHint, "flat_map": eachHint, "flatmap": eachHint, "unarchive": eachHint, "foreach": eachHint,
		"mode": "what it is decides: rows of a table are upserted, records of a stream inserted",
	}[name]
}

// RelationKeys lists the keys of a relation; what they say goes to r.
func RelationKeys(r *declared.Relation) []RelationKey {
	l := &r.Source.Layout
	keys := []RelationKey{
		wordOf("kind", "stream; table with aggregate", func() *declared.Kind { return &r.Kind },
			[]declared.Kind{declared.Stream, declared.Table, declared.GlobalTable},
			"What it is. A table can be asked under its name; a global one is read from a topic, and whole on every instance."),
		words("topic", func() *string { return &r.Topic }, "Topic that it is read from. Either this or from."),
		wordOf("format", "", func() *expr.Format { return &l.Format }, []expr.Format{expr.CSV, expr.JSONObject, expr.Text},
			"How the values of the topic are written. Required with topic."),
		{
			Name: "columns", Type: "mapping", Meaning: "Columns of the topic's values, in order: name: type, or name: {type: ..., optional: true, field: ...}. " +
				"Types: " + strings.Join(expr.TypeNames(), ", ") + ".",
			read: func(p *parser, path string, n *yaml.Node) { l.Columns = p.columns(path, n) },
		},
		{
			Name: "header", Type: "list", Default: "(the columns)", Meaning: "All columns of a csv record, in order, when columns has not all of them.",
			read: func(p *parser, path string, n *yaml.Node) { l.Header, _ = p.items(path, n) },
		},
		yes("key_optional", func() *bool { return &l.KeyOptional }, "Records of the topic may have no key."),
		expression("timestamp", func() **expr.Source { return &r.Source.Timestamp }, "Time of a record of the topic. Default: its own."),
		{
			Name: "offset_reset", Type: "earliest | latest | none", Default: "(auto.offset.reset)",
			Meaning: "Where to start in a topic that the application has not read before.",
			read: scalarOf("earliest | latest | none", func(s string) (err error) {
				r.Source.OffsetReset, err = processor.ParseOffsetReset(s)
				return err
			}),
		},
		lasting("versioned.history", func() *time.Duration { return &r.Source.History }, "Keep the versions of a table's rows for so long, by the time of records."),
		words("from", func() *string { return &r.From }, "Stream or table that it is made of."),
		{
			Name: "joins", Type: "list", Meaning: "Joins with other relations, one after the other; see below.",
			read: func(p *parser, path string, n *yaml.Node) { r.Joins = p.joins(path, n) },
		},
		{
			Name: "each", Type: "mapping", Meaning: "Makes a record of each item of a list: name: expression of the list; the item is the column of that name.",
			read: func(p *parser, path string, n *yaml.Node) { r.Each = p.each(path, n) },
		},
		expression("where", func() **expr.Source { return &r.Where }, "Keeps the records for which it is true."),
		{
			Name: "select", Type: "mapping", Default: "(all there are)", Meaning: "Columns, in order: name: expression.",
			read: func(p *parser, path string, n *yaml.Node) { r.Select = p.selected(path, n) },
		},
		expression("key", func() **expr.Source { return &r.Key }, "New key of a stream."),
		{
			Name: "key_format", Type: joinNames(serde.KnownFormats()), Default: "(bytes for a topic's; for new ones by their type)",
			Meaning: "How the keys are written, the topic's or the new ones. Expressions write none of a schema registry's.",
			read:    scalarOf("format", func(v string) error { r.KeyFormat = v; return nil }),
		},
		words("to", func() *string { return sinkOf(r) }, "Topic that it is written to, as JSON objects; it must exist."),
		written(&r.Name),
	}
	return append(append(keys, aggregateKeys(r)...), tableKeys(r)...)
}

// aggregateKeys are those of groups.
func aggregateKeys(r *declared.Relation) []RelationKey {
	a := func() *declared.Aggregate {
		if r.Aggregate == nil {
			r.Aggregate = &declared.Aggregate{}
		}
		return r.Aggregate
	}
	window := func(name string, at func(*declared.Window) *time.Duration, meaning string) RelationKey {
		return lasting("window."+name, func() *time.Duration { return at(&a().Window) }, meaning)
	}
	return []RelationKey{
		expression("group_by", func() **expr.Source { return &a().By }, "What groups are made by; the key of the result. Default: the key."),
		window("tumbling", func(w *declared.Window) *time.Duration { return &w.Tumbling }, "Groups are split into windows of this size. One of tumbling, hopping, sliding and session."),
		window("hopping", func(w *declared.Window) *time.Duration { return &w.Hopping }, "Windows of this size, one of which begins every advance."),
		window("advance", func(w *declared.Window) *time.Duration { return &w.Advance }, "How often a hopping window begins."),
		window("sliding", func(w *declared.Window) *time.Duration { return &w.Sliding }, "Windows whose records are at most so far apart."),
		window("session", func(w *declared.Window) *time.Duration { return &w.Session }, "Sessions: records of a group at most so far apart are in one."),
		window("grace", func(w *declared.Window) *time.Duration { return &w.Grace }, "How much longer a window takes late records."),
		{
			Name: "aggregate", Type: "mapping", Meaning: "Columns of the result, in order; see below.",
			read: func(p *parser, path string, n *yaml.Node) { a().Columns = p.aggregates(path, n) },
		},
		{
			Name: "emit", Type: "on_update | on_close", Default: "on_update", Meaning: "Whether windows are told with each change, or once, when they are closed.",
			read: scalarOf("on_update | on_close", func(s string) error {
				a().OnClose = s == "on_close"
				return oneOf(s, "on_update", "on_close")
			}),
		},
		whole("partitions", func() *int32 { return &a().Partitions }, "(as many as the topics)", "Partitions of the repartition topic that group_by needs."),
	}
}

// tableKeys are those of stores and of what tables tell.
func tableKeys(r *declared.Relation) []RelationKey {
	s := func() *declared.Suppress {
		if r.Suppress == nil {
			r.Suppress = &declared.Suppress{}
		}
		return r.Suppress
	}
	return []RelationKey{
		yes("suppress.until_close", func() *bool { return &s().UntilClose }, "Tell only the last result of a window."),
		lasting("suppress.until", func() *time.Duration { return &s().Until }, "Tell at most one change of a key in so much time."),
		whole("suppress.max_records", func() *int { return &s().MaxRecords }, "(no bound)", "Changes that are held back at most, per task."),
		{
			Name: "suppress.max_bytes", Type: "bytes", Default: "(no bound)", Meaning: "The same in bytes.",
			read: scalarOf("bytes", func(v string) (err error) { s().MaxBytes, err = parseBytes(v); return err }),
		},
		{
			Name: "suppress.when_full", Type: "emit_early | shut_down", Default: "emit_early", Meaning: "What follows when a bound is reached.",
			read: scalarOf("emit_early | shut_down", func(v string) error {
				s().ShutDown = v == "shut_down"
				return oneOf(v, "emit_early", "shut_down")
			}),
		},
		yes("store.in_memory", func() *bool { return &r.Store.InMemory }, "Keep the table in memory; it is rebuilt from its changelog at every start."),
		{
			Name: "store.cache", Type: "boolean", Default: "true", Meaning: "Tell only the last change of a key in each commit downstream.",
			read: scalarOf("boolean", func(v string) error {
				cache, err := parseBool(v)
				r.Store.NoCache = err == nil && !cache
				return err
			}),
		},
		lasting("store.retention", func() *time.Duration { return &r.Store.Retention }, "How long windows are kept. Default: as long as they may change."),
		{
			Name: "store.changelog", Type: "mapping", Meaning: "Properties of the changelog topic.",
			read: func(p *parser, path string, n *yaml.Node) {
				r.Store.Changelog = make(map[string]string)
				p.pairs(path, n, func(key, value *yaml.Node) {
					if text, ok := p.scalar(path+"."+key.Value, "text", value); ok {
						r.Store.Changelog[key.Value] = text
					}
				})
			},
		},
	}
}

func sinkOf(r *declared.Relation) *string {
	if r.Sink == nil {
		r.Sink = &declared.Sink{}
	}
	return &r.Sink.Topic
}
