package configfile

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/statemesh/statemesh/internal/nearest"
)

// parser walks the YAML tree and collects what it finds, good and bad.
type parser struct {
	file     string
	data     []byte
	draft    *draft
	settings map[string]Setting
	names    []string
	// places says where each setting was given, for problems that are only seen later.
	places   map[string]Problem
	problems LoadError
	// halfRead: parts of the topology could not be read, and would be missed.
	halfRead bool
	// unreadable: there is no content to check as a whole.
	unreadable bool
}

func newParser(file string, d *draft) *parser {
	p := &parser{file: file, draft: d, settings: make(map[string]Setting), places: make(map[string]Problem)}
	for _, s := range Settings() {
		p.settings[s.Name] = s
		p.names = append(p.names, s.Name)
	}
	return p
}

// parse reads a whole document. An empty one is a valid configuration with nothing set.
func (p *parser) parse(data []byte) {
	p.data = data
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		p.unreadable = true
		p.syntax(err)
		return
	}
	if len(doc.Content) == 0 {
		return
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return
	}
	if root.Kind != yaml.MappingNode {
		p.unreadable = true
		p.bad(root, "want keys and values, one per line, such as \"application.id: flights\"", "")
		return
	}
	p.mapping(root, "")
}

var yamlLine = regexp.MustCompile(`line (\d+): `)

// syntax turns the library's text into a problem with a place: the library has only the text.
func (p *parser) syntax(err error) {
	msg := strings.TrimPrefix(err.Error(), "yaml: ")
	pr := Problem{Origin: p.file, Text: "YAML: " + msg}
	if m := yamlLine.FindStringSubmatchIndex(msg); m != nil {
		if n, err := strconv.Atoi(msg[m[2]:m[3]]); err == nil {
			pr.Line, pr.Column = n, 1
			pr.Text = "YAML: " + msg[:m[0]] + msg[m[1]:]
		}
	}
	p.problems = append(p.problems, pr)
}

func (p *parser) bad(n *yaml.Node, text, hint string) {
	p.problems = append(p.problems, Problem{Origin: p.file, Line: n.Line, Column: n.Column, Text: text, Hint: hint})
}

// mapping reads the keys below prefix. Keys may be written flat ("commit.interval.ms: 100") or nested.
func (p *parser) mapping(m *yaml.Node, prefix string) {
	for i := 0; i+1 < len(m.Content); i += 2 {
		key, value := m.Content[i], resolve(m.Content[i+1])
		if key.Kind != yaml.ScalarNode {
			p.bad(key, "a key must be plain text", "")
			continue
		}
		if key.Tag == "!!merge" {
			p.bad(key, "merge keys (<<) are not supported", "write the settings out")
			continue
		}
		name := prefix + key.Value
		if read := map[string]func(*yaml.Node){viewsKey: p.views, topologyKey: p.topology}[name]; read != nil {
			if p.claim(name, key) {
				read(value)
			}
			continue
		}
		if s, ok := p.settings[name]; ok {
			if p.claim(name, key) {
				p.setting(s, key, value)
			}
			continue
		}
		if value.Kind == yaml.MappingNode && p.isPrefix(name+".") {
			p.mapping(value, name+".")
			continue
		}
		p.unknown(key, name)
	}
}

// claim notes where a key was given; a key given twice is a problem, since one of the two would be ignored.
func (p *parser) claim(name string, at *yaml.Node) bool {
	if first, twice := p.places[name]; twice {
		p.bad(at, name+" is given twice", fmt.Sprintf("the first is in line %d", first.Line))
		return false
	}
	p.places[name] = Problem{Origin: p.file, Line: at.Line, Column: at.Column}
	return true
}

func (p *parser) isPrefix(prefix string) bool {
	return slices.ContainsFunc(p.names, func(n string) bool { return strings.HasPrefix(n, prefix) })
}

func (p *parser) setting(s Setting, key, value *yaml.Node) {
	var text string
	switch {
	case value.Kind == yaml.ScalarNode && value.Tag == "!!null":
		p.bad(key, s.Name+" has no value", "remove the line for the default, "+orNone(s.Default))
		return
	case value.Kind == yaml.ScalarNode:
		text = value.Value
	case value.Kind == yaml.SequenceNode && s.list:
		items := make([]string, 0, len(value.Content))
		for _, item := range value.Content {
			item = resolve(item)
			if item.Kind != yaml.ScalarNode {
				p.bad(item, s.Name+": want plain text in the list", "")
				return
			}
			items = append(items, item.Value)
		}
		text = strings.Join(items, ",")
	default:
		p.bad(value, fmt.Sprintf("%s: want %s, not %s", s.Name, article(s.Type), kindOf(value)), "")
		return
	}
	if err := s.set(p.draft, text); err != nil {
		p.bad(value, s.Name+": "+err.Error(), "")
	}
}

func (p *parser) unknown(key *yaml.Node, name string) {
	p.bad(key, "unknown key "+name, explainUnknown(name, append(slices.Clone(p.names), viewsKey, topologyKey)))
}

// explainUnknown says what to write instead of a name that is not ours.
func explainUnknown(name string, known []string) string {
	if h, ok := foreign[name]; ok {
		return h
	}
	if near := nearest.Of(name, known); near != "" {
		return "did you mean " + near + "?"
	}
	return "`statemesh config` lists every key"
}

// foreign explains keys that people try: other tools' names for ours, and upstream's that have no meaning here.
var foreign = map[string]string{
	"brokers":               "write bootstrap.servers",
	"kafka.brokers":         "write bootstrap.servers",
	"seed.brokers":          "write bootstrap.servers",
	"app.id":                "write application.id",
	"group.id":              "write application.id, which is the consumer group",
	"threads":               "write num.stream.threads",
	"advertise":             "write application.server",
	"advertised.listeners":  "write application.server",
	"address":               "write listen",
	"port":                  "write listen, as host:port",
	"admin":                 "write admin.listen",
	"metrics.listen":        "write admin.listen, which serves metrics and profiles",
	"sasl.jaas.config":      "write sasl.username and sasl.password",
	"sasl.user":             "write sasl.username",
	"postgres":              "write postgres.url",
	"group.instance.id":     "static membership is not supported: a member that leaves gives its tasks away at once",
	"rocksdb.config.setter": "stores are kept in Badger; store.move.bytes and store.move.interval.ms are its settings",
	"default.key.serde":     "views state their own format",
	"default.value.serde":   "views state their own format",
}

func resolve(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "keys and values"
	case yaml.SequenceNode:
		return "a list"
	default:
		return fmt.Sprintf("%q", n.Value)
	}
}

func article(typ string) string {
	switch {
	case strings.Contains(typ, "|"):
		return "one of " + typ
	case typ == "bytes":
		return "a size"
	case typ == "integer":
		return "a whole number"
	case strings.ContainsAny(typ[:1], "aeiou"):
		return "an " + typ
	default:
		return "a " + typ
	}
}

func orNone(def string) string {
	if def == "" {
		return "none"
	}
	return def
}

// environment applies STATEMESH_ variables. Those that name no setting are problems: a misspelt one would be ignored.
func (p *parser) environment(env []string) {
	byEnv := make(map[string]Setting, len(p.settings))
	names := make([]string, 0, len(p.settings))
	for _, s := range p.settings {
		byEnv[s.Env()] = s
		names = append(names, s.Env())
	}
	slices.Sort(names)
	slices.Sort(env)
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, EnvPrefix) || slices.Contains(reservedEnv, name) {
			continue
		}
		s, ok := byEnv[name]
		if !ok {
			hint := "`statemesh config` lists every variable"
			if near := nearest.Of(name, names); near != "" {
				hint = "did you mean " + near + "?"
			}
			p.problems = append(p.problems, Problem{Origin: "environment " + name, Text: "no such setting", Hint: hint})
			continue
		}
		if value != "" { // as everywhere, a variable that is empty is as good as none
			p.override(s, value, "environment "+name)
		}
	}
}

// reservedEnv are the variables that belong to flags of the command line.
var reservedEnv = []string{EnvPrefix + "ADDR", EnvPrefix + "CONFIG"}

// sets applies --set key=value.
func (p *parser) sets(pairs []string) {
	for _, kv := range pairs {
		name, value, ok := strings.Cut(kv, "=")
		origin := "--set " + name
		if !ok {
			p.problems = append(p.problems, Problem{Origin: origin, Text: "want key=value"})
			continue
		}
		s, ok := p.settings[name]
		if !ok {
			p.problems = append(p.problems, Problem{Origin: origin, Text: "unknown key " + name, Hint: explainUnknown(name, p.names)})
			continue
		}
		p.override(s, value, origin)
	}
}

func (p *parser) override(s Setting, value, origin string) {
	p.places[s.Name] = Problem{Origin: origin}
	if err := s.set(p.draft, value); err != nil {
		p.problems = append(p.problems, Problem{Origin: origin, Text: s.Name + ": " + err.Error()})
	}
}
