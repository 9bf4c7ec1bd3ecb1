package declared

import (
	"cmp"
	"errors"

	"github.com/statemesh/statemesh/processor/expr"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// Describe says what each relation holds, in the order of the declaration. Errors are those of [Validate].
func Describe(t Topology) ([]Content, error) {
	m := understand(t)
	if len(m.errs) > 0 {
		return nil, errors.Join(m.errs...)
	}
	all := make([]Content, 0, len(t.Relations))
	for _, d := range t.Relations {
		r := m.byName[d.Name]
		format := cmp.Or(r.layout.KeyFormat, serde.FormatBytes)
		c := Content{
			Name: r.Name, Kind: r.Kind, Columns: r.schema.Columns(), KeyFormat: format, Windowed: r.windowed, Session: r.session, Topic: r.Topic,
		}
		c.KeyType, _ = expr.FormatType(format)
		c.Versioned = r.Source.History != 0
		if r.windowed {
			w := r.Aggregate.Window
			c.WindowSize = cmp.Or(w.Tumbling, w.Hopping, w.Sliding)
		}
		if !r.own {
			l := r.layout
			c.Layout = &l
		}
		if r.Sink != nil {
			c.Topic = r.Sink.Topic
		}
		if r.Kind != Stream {
			c.Store = store.Name(r.Name)
		}
		if r.Kind == Table && r.Topic == "" {
			c.Changelog = r.Name + "-changelog"
		}
		all = append(all, c)
	}
	return all, nil
}
