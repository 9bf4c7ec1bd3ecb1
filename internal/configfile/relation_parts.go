package configfile

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/statemesh/statemesh/processor/declared"
	"github.com/statemesh/statemesh/processor/expr"
)

// joinKeys lists the keys of a join.
func joinKeys(j *declared.Join) []RelationKey {
	return []RelationKey{
		words("with", func() *string { return &j.With }, "The other relation. Required."),
		words("as", func() *string { return &j.As }, "Prefix of its columns. Default: its name."),
		wordOf("kind", string(declared.Inner), func() *declared.JoinKind { return &j.Kind }, []declared.JoinKind{declared.Inner, declared.Left, declared.Outer},
			"What becomes of records without a partner: inner drops them, left keeps those of this side, outer those of both."),
		expression("on", func() **expr.Source { return &j.On }, "What must equal the other side's key. Default: the key. Between tables: a foreign key."),
		expression("other_on", func() **expr.Source { return &j.OtherOn }, "Between streams: what of the other side it must equal, instead of its key."),
		{
			Name: "within", Type: "duration", Meaning: "Between streams: how far apart records may be. Or before and after.",
			read: scalarOf("duration", func(v string) error {
				d, err := parseDuration(v)
				j.Before, j.After = d, d
				return err
			}),
		},
		lasting("before", func() *time.Duration { return &j.Before }, "Between streams: how much earlier the other record may be."),
		lasting("after", func() *time.Duration { return &j.After }, "Between streams: how much later the other record may be."),
		lasting("grace", func() *time.Duration { return &j.Grace }, "How late records may come: between streams, and with a versioned table."),
	}
}

// joins reads the list of joins.
func (p *parser) joins(path string, n *yaml.Node) (all []declared.Join) {
	if n.Kind == yaml.MappingNode { // one needs no dash
		n = &yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{n}}
	}
	if n.Kind != yaml.SequenceNode {
		p.bad(n, path+": want a list, not "+kindOf(n), "begin each join with \"- with: ...\"")
		return nil
	}
	for i, item := range n.Content {
		item = resolve(item)
		at := path + "[" + strconv.Itoa(i) + "]"
		p.places[at] = p.placeOf(item)
		if item.Kind != yaml.MappingNode {
			p.bad(item, at+": want keys and values, not "+kindOf(item), "")
			continue
		}
		j := declared.Join{Place: p.place(item)}
		p.part("a join", at, item, joinKeys(&j))
		all = append(all, j)
	}
	return all
}

// pairs goes through a mapping of free names.
func (p *parser) pairs(path string, m *yaml.Node, each func(key, value *yaml.Node)) {
	if m.Kind != yaml.MappingNode {
		p.bad(m, path+": want keys and values, not "+kindOf(m), "")
		return
	}
	for i := 0; i+1 < len(m.Content); i += 2 {
		key, value := m.Content[i], resolve(m.Content[i+1])
		name := path + "." + key.Value
		if p.claim(name, key) && !p.isNull(name, key, value) {
			each(key, value)
		}
	}
}

// columnKeys lists the keys of a column of a topic.
func columnKeys(c *expr.Column) []RelationKey {
	return []RelationKey{
		{Name: "type", Type: strings.Join(expr.TypeNames(), " | "), Meaning: "Required.", read: scalarOf("type", func(v string) (err error) {
			c.Type, err = expr.ParseType(v)
			return err
		})},
		yes("optional", func() *bool { return &c.Optional }, "It is null where it is missing."),
		words("field", func() *string { return &c.Field }, "What the record calls it. Default: its name."),
	}
}

func (p *parser) columns(path string, m *yaml.Node) (all []expr.Column) {
	p.pairs(path, m, func(key, value *yaml.Node) {
		c := expr.Column{Name: key.Value}
		if value.Kind == yaml.MappingNode {
			p.part("a column", path+"."+key.Value, value, columnKeys(&c))
		} else {
			columnKeys(&c)[0].read(p, path+"."+key.Value, value)
		}
		all = append(all, c)
	})
	return all
}

func (p *parser) selected(path string, m *yaml.Node) (all []declared.Column) {
	p.pairs(path, m, func(key, value *yaml.Node) {
		if src, ok := p.source(path+"."+key.Value, value); ok {
			all = append(all, declared.Column{Name: key.Value, Value: src, Place: p.place(key)})
		}
	})
	return all
}

// each reads one column, whose expression is a list.
func (p *parser) each(path string, m *yaml.Node) *declared.Column {
	all := p.selected(path, m)
	if m.Kind == yaml.MappingNode && len(m.Content) != 2 {
		p.bad(m, path+": want one name and one list", "lists in lists need relations of their own, one after the other")
	}
	if len(all) == 0 {
		return nil
	}
	return &all[0]
}

// source is an expression where it stands.
func (p *parser) source(path string, n *yaml.Node) (expr.Source, bool) {
	text, ok := p.scalar(path, "expression", n)
	return expr.Source{File: p.file, Line: n.Line, Column: n.Column, Text: text, Document: p.data}, ok
}

// functions of aggregates, as they are written: {sum: dep_delay}, with what else some of them need.
var functions = []declared.Function{
	declared.Count, declared.Sum, declared.Min, declared.Max, declared.Avg, declared.First, declared.Latest, declared.TopK, declared.Distinct, declared.Quantile,
}

var meanings = map[declared.Function]string{
	declared.Count:    "Number of records; with an expression: of those in which it is not null.",
	declared.Sum:      "Sum of an int or double.",
	declared.Min:      "Least value.",
	declared.Max:      "Greatest value.",
	declared.Avg:      "Mean of an int or double.",
	declared.First:    "Value with the least timestamp.",
	declared.Latest:   "Value with the greatest timestamp.",
	declared.TopK:     "The k values with the greatest `by`, the greatest first; a value is in it once, with the `by` it had last.",
	declared.Distinct: "About how many different values there were (HyperLogLog, standard error 0.8 %); exact for few.",
	declared.Quantile: "Quantile `q` of an int or double, off by at most 1 % of itself (DDSketch).",
}

// functionKeys lists the keys of a column of an aggregate.
func functionKeys(c *declared.AggregateColumn) []RelationKey {
	var keys []RelationKey
	for _, f := range functions {
		keys = append(keys, RelationKey{Name: string(f), Type: "expression", Meaning: meanings[f], read: func(p *parser, path string, n *yaml.Node) {
			if c.Function != "" {
				p.bad(n, fmt.Sprintf("%s: one function per column, and there is %s already", path, c.Function), "")
				return
			}
			if src, ok := p.source(path, n); ok {
				c.Function, c.Value = f, &src
			}
		}})
	}
	return append(keys,
		expression("by", func() **expr.Source { return &c.By }, "What top_k compares. Required with it."),
		whole("k", func() *int { return &c.K }, "", "How many top_k keeps, 1 to 1000. Required with it."),
		RelationKey{Name: "q", Type: "number", Meaning: "Which quantile, 0 to 1: 0.5 is the median. Required with it.", read: scalarOf("number", func(v string) (err error) {
			if c.Q, err = strconv.ParseFloat(v, 64); err != nil {
				return fmt.Errorf("%q is no number", v)
			}
			return nil
		})})
}

func (p *parser) aggregates(path string, m *yaml.Node) (all []declared.AggregateColumn) {
	p.pairs(path, m, func(key, value *yaml.Node) {
		c := declared.AggregateColumn{Name: key.Value, Place: p.place(key)}
		name := path + "." + key.Value
		switch {
		case value.Kind == yaml.ScalarNode && value.Value == string(declared.Count):
			c.Function = declared.Count
		case value.Kind == yaml.MappingNode:
			p.part("an aggregate", name, value, functionKeys(&c))
			if c.Function == "" {
				p.bad(value, name+": no function", "write one of "+joinNames(functions))
			}
		default:
			p.bad(value, name+": want count, or {sum: ...}, not "+kindOf(value), "functions are "+joinNames(functions))
			return
		}
		all = append(all, c)
	})
	return all
}
