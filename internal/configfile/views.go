package configfile

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/views"
	"github.com/statemesh/statemesh/serde"
)

// viewsKey holds the list of views.
const viewsKey = "views"

// ViewKey is one key of an entry of the list of views.
type ViewKey struct {
	Name, Type, Default, Meaning string

	set  func(*views.View, string) error
	list func(*views.View, []string) // instead of set
}

// ViewKeys lists the keys of a view.
func ViewKeys() []ViewKey {
	return []ViewKey{
		viewText("name", "string", "", func(v *views.View) *string { return &v.Name },
			"Name of the view: of its store, and part of the names of its topics. Required."),
		viewText("topic", "string", "", func(v *views.View) *string { return &v.Topic }, "Topic to read. Required."),
		viewText("format", joinNames(views.Formats()), "", func(v *views.View) *views.Format { return &v.Format },
			"How the values of the topic are written. Required."),
		viewList("columns", func(v *views.View) *[]string { return &v.Columns },
			"Columns of a csv record, in order. Required with csv."),
		viewList("key", func(v *views.View) *[]string { return &v.Key },
			"Fields that make the key of the view. Empty: the key of the record. Otherwise records go through a repartition topic."),
		viewText("type", joinNames(views.Types()), "", func(v *views.View) *views.Type { return &v.Type },
			"What is kept per key. Required."),
		viewText("field", "string", "", func(v *views.View) *string { return &v.Field },
			"The number that sum, min, max, avg and stats are about."),
		viewDuration("window.tumbling", "", func(v *views.View) *time.Duration { return &v.Window.Tumbling },
			"Keep a value per key and window; windows of this size follow one another. Only for count, sum, min, max, avg and stats. One of tumbling, hopping, sliding and session."),
		viewDuration("window.hopping", "", func(v *views.View) *time.Duration { return &v.Window.Hopping },
			"Windows of this size, one of which begins every advance."),
		viewDuration("window.advance", "", func(v *views.View) *time.Duration { return &v.Window.Advance },
			"How often a hopping window begins. Required with hopping; at most its size."),
		viewDuration("window.sliding", "", func(v *views.View) *time.Duration { return &v.Window.Sliding },
			"Windows that end with a record, or begin behind one, and whose records are at most so far apart."),
		viewDuration("window.session", "", func(v *views.View) *time.Duration { return &v.Window.Session },
			"Sessions: records of a key at most so far apart are in one."),
		viewDuration("window.grace", "0s", func(v *views.View) *time.Duration { return &v.Window.Grace },
			"How much longer a window takes late records, by the time of records. What is later is dropped and counted."),
		viewDuration("window.retention", "(as long as records may change it, at least 24h)", func(v *views.View) *time.Duration { return &v.Window.Retention },
			"How long windows are kept, by the time of records."),
		viewDuration("versioned.history", "", func(v *views.View) *time.Duration { return &v.History },
			"Keep the versions of each key for so long, by the time of records: what was valid at a moment can be asked for. Only for table."),
		viewBool("global", func(v *views.View) *bool { return &v.Global },
			"Keep the whole table on every instance. Only for table, by the record's key; no other view may read its topic, which must keep everything: cleanup.policy=compact, or no limit of time and size."),
		viewText("timestamp", "string", "(the record's own)", func(v *views.View) *string { return &v.Timestamp },
			"Field with the time of the record: Unix milliseconds or RFC 3339. Views of one topic must agree."),
		{
			Name: "partitions", Type: "integer", Default: "(as many as the topic)", Meaning: "Partitions of the repartition topic. Only with a key.",
			set: func(v *views.View, s string) error {
				n, err := strconv.ParseInt(s, 10, 32)
				if err != nil {
					return fmt.Errorf("%q is no whole number", s)
				}
				v.Partitions = int32(n)
				return nil
			},
		},
		{
			Name: "offset_reset", Type: "earliest | latest | none", Default: "(auto.offset.reset)",
			Meaning: "Where to start in a topic that the application has not read before. Views of one topic must agree.",
			set: func(v *views.View, s string) (err error) {
				v.OffsetReset, err = processor.ParseOffsetReset(s)
				return err
			},
		},
		viewBool("in_memory", func(v *views.View) *bool { return &v.InMemory },
			"Keep the store in memory; it is rebuilt from its changelog at every start."),
		viewText("key_format", joinNames(serde.KnownFormats()), "(string; bytes for bytes)", func(v *views.View) *string { return &v.KeyFormat },
			"How the record's key is written, for people and generic clients. Only without a key."),
	}
}

// engineSetting is the setting that somebody may have in mind who writes an option of the engine into a view.
func engineSetting(key string) (string, bool) {
	plain := strings.NewReplacer("_", "", ".", "", "-", "").Replace(strings.ToLower(key))
	for _, name := range []string{
		"store.databases", "store.memtable.bytes", "store.compression", "store.block.cache.bytes", "store.block.bytes",
		"store.bloom.false.positive", "store.levels",
	} {
		full := strings.ReplaceAll(name, ".", "")
		short := strings.TrimPrefix(full, "store")
		if plain == full || plain == short || plain+"bytes" == short {
			return name, true
		}
	}
	return "", false
}

func viewText[T ~string](name, typ, def string, at func(*views.View) *T, meaning string) ViewKey {
	return ViewKey{
		Name: name, Type: typ, Default: def, Meaning: meaning,
		set: func(v *views.View, s string) error { *at(v) = T(s); return nil },
	}
}

func viewDuration(name, def string, at func(*views.View) *time.Duration, meaning string) ViewKey {
	return ViewKey{
		Name: name, Type: "duration", Default: def, Meaning: meaning,
		set: func(v *views.View, s string) error {
			d, err := parseDuration(s)
			if err == nil && d == 0 && def != "0s" {
				err = errZero
			}
			*at(v) = d
			return err
		},
	}
}

func viewBool(name string, at func(*views.View) *bool, meaning string) ViewKey {
	return ViewKey{
		Name: name, Type: "boolean", Default: "false", Meaning: meaning,
		set: func(v *views.View, s string) (err error) { *at(v), err = parseBool(s); return err },
	}
}

func viewList(name string, at func(*views.View) *[]string, meaning string) ViewKey {
	return ViewKey{
		Name: name, Type: "list", Meaning: meaning,
		list: func(v *views.View, items []string) { *at(v) = items },
	}
}

func joinNames[T ~string](names []T) string {
	s := make([]string, len(names))
	for i, n := range names {
		s[i] = string(n)
	}
	return strings.Join(s, " | ")
}

// views reads the list. Where each part was found is kept under the path that views.Validate uses, so that its findings
// get a place too.
func (p *parser) views(n *yaml.Node) {
	if n.Kind != yaml.SequenceNode {
		p.bad(n, "views: want a list of views, not "+kindOf(n), "begin each view with \"- name: ...\"")
		return
	}
	for i, item := range n.Content {
		item = resolve(item)
		path := fmt.Sprintf("%s[%d]", viewsKey, i)
		p.places[path] = Problem{Origin: p.file, Line: item.Line, Column: item.Column}
		if item.Kind != yaml.MappingNode {
			p.bad(item, path+": want keys and values, not "+kindOf(item), "")
			continue
		}
		p.draft.cfg.Views = append(p.draft.cfg.Views, p.view(path, item))
	}
}

func (p *parser) view(path string, m *yaml.Node) views.View {
	var v views.View
	keys := ViewKeys()
	g := group{what: "a view", explain: engineHint}
	for _, k := range keys {
		g.names = append(g.names, k.Name)
	}
	g.read = func(at int, name string, key, value *yaml.Node) { p.viewKey(&v, keys[at], name, key, value) }
	p.walk(g, path, m)
	return v
}

func (p *parser) viewKey(v *views.View, k ViewKey, name string, key, value *yaml.Node) {
	if p.isNull(name, key, value) {
		return
	}
	if k.list != nil {
		if items, ok := p.items(name, value); ok {
			k.list(v, items)
		}
		return
	}
	if text, ok := p.scalar(name, k.Type, value); ok {
		if err := k.set(v, text); err != nil {
			p.bad(value, name+": "+err.Error(), "")
		}
	}
}

// engineHint explains options of the engine, which are the instance's.
func engineHint(name string) string {
	setting, ok := engineSetting(name)
	if !ok {
		return ""
	}
	return "all stores of an instance share its databases: set " + setting + " for the instance; in_memory is what a view can choose"
}
