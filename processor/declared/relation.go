package declared

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/statemesh/statemesh/internal/nearest"
	"github.com/statemesh/statemesh/processor/expr"
	"github.com/statemesh/statemesh/serde"
)

// relation is a declared one, understood: what it is made of, what it holds, and the programs in between.
type relation struct {
	*Relation

	path string
	from *relation
	// layout and schema of its values, as who reads it sees them. own: they are JSON objects that this package has written.
	layout expr.Layout
	schema *expr.Schema
	own    bool
	// windowed, session: its keys have windows.
	windowed, session bool

	joins  []*join
	first  *step // before the first join
	last   *step // before the end, or the aggregate
	timing *program
	groups *grouping
}

// join is a join, understood.
type join struct {
	*Join

	with  *relation
	side  *side // of what is joined
	other *step // of the other side of two streams, where OtherOn is given
	next  *step // behind it
}

// model understands a topology.
type model struct {
	findings

	byName map[string]*relation
	order  []*relation
	// heard are the relations whose changes something is done with: others are made of them, or they are written, or held back.
	heard map[*relation]bool
}

// understand resolves names and compiles what is declared, each relation after those it is made of.
func understand(t Topology) *model {
	m := &model{byName: make(map[string]*relation), heard: make(map[*relation]bool)}
	var all []*relation
	for i := range t.Relations {
		r := &relation{Relation: &t.Relations[i], path: "topology." + t.Relations[i].Name}
		all = append(all, r)
		if r.Name == "" {
			m.bad(r, "", r.Place, "", "a relation needs a name")
		}
		if _, twice := m.byName[r.Name]; twice {
			m.bad(r, "", r.Place, "", "is declared twice")
			continue
		}
		m.byName[r.Name] = r
	}
	if len(all) == 0 {
		m.errs = append(m.errs, &Error{Path: "topology", Reason: "nothing is declared", Hint: "declare at least one stream or table"})
	}
	visited := make(map[*relation]int) // 1: on the way, 2: done
	var visit func(r *relation)
	visit = func(r *relation) {
		switch visited[r] {
		case 1:
			m.bad(r, "from", r.Place, "", "is made of itself")
			return
		case 2:
			return
		}
		visited[r] = 1
		m.heard[r] = m.heard[r] || r.Sink != nil || r.Suppress != nil
		for _, name := range r.sources() {
			if of := m.byName[name]; of != nil {
				m.heard[of] = true
				visit(of)
			}
		}
		visited[r] = 2
		m.order = append(m.order, r)
	}
	for _, r := range all {
		visit(r)
	}
	for _, r := range m.order {
		m.relation(r)
	}
	m.names()
	return m
}

// sources are the names of what a relation is made of.
func (r *Relation) sources() []string {
	var names []string
	if r.From != "" {
		names = append(names, r.From)
	}
	for _, j := range r.Joins {
		names = append(names, j.With)
	}
	return names
}

// find is the relation of a name.
func (m *model) find(r *relation, part string, at Place, name string) *relation {
	if of := m.byName[name]; of != nil {
		return of
	}
	hint := "declared are " + strings.Join(m.declared(), ", ")
	if near := nearest.Of(name, m.declared()); near != "" {
		hint = "did you mean " + near + "?"
	}
	m.bad(r, part, at, hint, "%q is not declared", name)
	return nil
}

func (m *model) declared() []string {
	names := make([]string, 0, len(m.byName))
	for name := range m.byName {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// names finds stores of one name: those that come with a relation may be those of another.
func (m *model) names() {
	owner := make(map[string]*relation)
	for _, r := range m.order {
		for _, name := range r.stores() {
			if other := owner[name]; other != nil && other != r {
				m.bad(r, "", r.Place, "rename one of them", "its store %s is one of %s, too", name, other.Name)
			}
			owner[name] = r
		}
	}
}

// stores are the names of a relation's stores.
func (r *relation) stores() []string {
	var names []string
	if r.Kind != Stream {
		names = append(names, r.Name)
	}
	if r.groups != nil {
		if r.groups.separate {
			names = append(names, r.Name+stateSuffix)
		}
		if r.from.Kind == Table {
			names = append(names, r.Name+rowsSuffix)
		}
		if r.Aggregate.OnClose {
			names = append(names, r.Name+"-closing")
		}
	}
	if r.Suppress != nil {
		names = append(names, r.Name+suppressSuffix+"-store")
	}
	for i, j := range r.joins {
		if r.foreign(j) {
			names = append(names, joinName(r, i)+leftSuffix)
		}
		if r.keptFor(i) {
			names = append(names, joinName(r, i)+joinedSuffix)
		}
	}
	return names
}

// keptFor tells whether what join i gives is kept for the next one: it comes late, by a foreign key, and is read by the key.
func (r *relation) keptFor(i int) bool {
	return r.foreign(r.joins[i]) && i+1 < len(r.joins) && !r.foreign(r.joins[i+1])
}

// foreign tells a join of tables by a foreign key.
func (r *relation) foreign(j *join) bool {
	return j.with.Kind == Table && j.On != nil && r.from.Kind == Table
}

// Suffixes of stores and topics that come with a relation.
const (
	stateSuffix    = "-state"
	rowsSuffix     = "-rows"
	leftSuffix     = "-left"
	joinedSuffix   = "-joined"
	suppressSuffix = "-suppress"
)

// joinName names a join. An aggregate has the name of the relation itself.
func joinName(r *relation, i int) string {
	name := r.Name
	if r.Aggregate != nil {
		name += "-join"
	}
	if i == 0 {
		return name
	}
	return fmt.Sprintf("%s-%d", name, i+1)
}

// formatOf is how values of a type are written as a key where nobody says it.
func formatOf(t expr.Type) string {
	switch t {
	case expr.Int:
		return serde.FormatInt64
	case expr.Double:
		return serde.FormatDouble
	case expr.Bool:
		return serde.FormatBool
	case expr.Bytes:
		return serde.FormatBytes
	case expr.Timestamp:
		return serde.FormatTime
	default:
		return serde.FormatString
	}
}

// keys is how the keys of a relation are written.
func (r *relation) keys() serde.Serde[[]byte] {
	return serde.Bytes().As(cmp.Or(r.layout.KeyFormat, serde.FormatBytes))
}
