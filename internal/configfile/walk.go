package configfile

import (
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/statemesh/statemesh/internal/nearest"
)

// group is a mapping below a list or map of the file: a view, a relation of a topology, a part of one.
type group struct {
	// what it is, for hints: "a view".
	what string
	// names of its keys; "window.grace" may be nested as well.
	names []string
	// explain says what to write instead of a name that is none; "": nothing special.
	explain func(name string) string
	// read takes the value of key at; path is that of the key.
	read func(at int, path string, key, value *yaml.Node)
}

// walk reads the keys of a mapping at path.
func (p *parser) walk(g group, path string, m *yaml.Node) { p.walkBelow(g, path, "", m) }

func (p *parser) walkBelow(g group, path, prefix string, m *yaml.Node) {
	for i := 0; i+1 < len(m.Content); i += 2 {
		key, value := m.Content[i], resolve(m.Content[i+1])
		full := prefix + key.Value
		at := slices.Index(g.names, full)
		switch {
		case at >= 0:
			if name := path + "." + full; p.claim(name, key) {
				g.read(at, name, key, value)
			}
		case slices.ContainsFunc(g.names, func(n string) bool { return strings.HasPrefix(n, full+".") }):
			switch below := path + "." + full; {
			case value.Kind != yaml.MappingNode:
				p.bad(value, below+": want keys and values, not "+kindOf(value), "")
			case p.claim(below, key):
				p.walkBelow(g, path, full+".", value)
			}
		default:
			p.bad(key, "unknown key "+full+" in "+path, g.hint(full))
		}
	}
}

func (g group) hint(name string) string {
	if g.explain != nil {
		if h := g.explain(name); h != "" {
			return h
		}
	}
	if near := nearest.Of(name, g.names); near != "" {
		return "did you mean " + near + "?"
	}
	return g.what + " has " + strings.Join(g.names, ", ")
}

// isNull reports a key without a value.
func (p *parser) isNull(path string, key, value *yaml.Node) bool {
	if value.Tag != "!!null" {
		return false
	}
	p.bad(key, path+" has no value", "remove the line")
	return true
}

// scalar is the text of a value that must have no parts.
func (p *parser) scalar(path, typ string, value *yaml.Node) (string, bool) {
	if value.Kind != yaml.ScalarNode {
		p.bad(value, path+": want "+article(typ)+", not "+kindOf(value), "")
		return "", false
	}
	return value.Value, true
}

// items are the texts of a list; one item needs no brackets.
func (p *parser) items(path string, value *yaml.Node) ([]string, bool) {
	switch value.Kind {
	case yaml.ScalarNode:
		return []string{value.Value}, true
	case yaml.SequenceNode:
		items := make([]string, len(value.Content))
		for i, item := range value.Content {
			item = resolve(item)
			if item.Kind != yaml.ScalarNode {
				p.bad(item, path+": want plain text in the list, not "+kindOf(item), "")
				return nil, false
			}
			p.places[path+"["+strconv.Itoa(i)+"]"] = p.placeOf(item)
			items[i] = item.Value
		}
		return items, true
	default:
		p.bad(value, path+": want a list, not "+kindOf(value), "")
		return nil, false
	}
}

func (p *parser) placeOf(n *yaml.Node) Problem {
	return Problem{Origin: p.file, Line: n.Line, Column: n.Column}
}
