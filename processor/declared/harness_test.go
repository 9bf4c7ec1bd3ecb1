package declared

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/statemesh/statemesh/processor/expr"
	"github.com/statemesh/statemesh/processor/streams"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// src is an expression.
func src(text string) expr.Source { return expr.Source{File: "t.yaml", Line: 1, Column: 1, Text: text} }

func ref(text string) *expr.Source {
	s := src(text)
	return &s
}

func sel(pairs ...string) []Column {
	var out []Column
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, Column{Name: pairs[i], Value: src(pairs[i+1])})
	}
	return out
}

// flights are CSV, keyed by text.
var flights = Source{Layout: expr.Layout{Format: expr.CSV, KeyFormat: serde.FormatString, KeyOptional: true, Columns: []expr.Column{
	{Name: "origin", Type: expr.String}, {Name: "carrier", Type: expr.String}, {Name: "delay", Type: expr.Int, Optional: true},
}}}

// people are JSON, keyed by text.
var people = Source{Layout: expr.Layout{Format: expr.JSONObject, KeyFormat: serde.FormatString, Columns: []expr.Column{
	{Name: "name", Type: expr.String}, {Name: "boss", Type: expr.String, Optional: true},
}}}

func stream(name, topic string) Relation {
	return Relation{Name: name, Kind: Stream, Topic: topic, Source: flights}
}

func table(name, topic string) Relation {
	return Relation{Name: name, Kind: Table, Topic: topic, Source: people}
}

func sink(topic string) *Sink { return &Sink{Topic: topic} }

// running is a topology that runs.
type running struct {
	t *testing.T
	d *streamstest.Driver
}

func start(t *testing.T, c streamstest.Config, relations ...Relation) *running {
	t.Helper()
	m := understand(Topology{Relations: relations})
	if len(m.errs) > 0 {
		t.Fatal(m.errs)
	}
	b := &builder{model: m, b: streams.NewBuilder(), made: make(map[*relation]*made)}
	for _, r := range m.order {
		b.relation(r)
	}
	topology, err := b.b.Build()
	if err != nil {
		t.Fatal(err)
	}
	if w := b.b.Warnings(); len(w) > 0 {
		t.Errorf("named by position: %v", w)
	}
	return &running{t, streamstest.NewT(t, topology, c)}
}

func (r *running) pipe(topic, key, value string, at int64) {
	r.t.Helper()
	streamstest.NewInput(r.d, topic, serde.String(), serde.String()).Pipe(key, value, at)
}

func (r *running) tombstone(topic, key string, at int64) {
	r.t.Helper()
	streamstest.NewInput(r.d, topic, serde.String(), serde.String()).PipeTombstone(key, at)
}

// wrote checks everything that was written to a topic so far.
func (r *running) wrote(topic string, want ...string) {
	r.t.Helper()
	have := streamstest.NewOutput(r.d, topic, serde.String(), serde.String()).ReadStrings()
	if d := cmp.Diff(want, have); d != "" {
		r.t.Errorf("%s (-want +have)\n%s", topic, d)
	}
}

func (r *running) row(name, key, want string) {
	r.t.Helper()
	have, ok := streamstest.NewKeyValue(r.d, store.Name(name), serde.String(), serde.String()).Get(key)
	if !ok {
		have = "nothing"
	}
	if have != want {
		r.t.Errorf("%s[%s] = %s, want %s", name, key, have, want)
	}
}

const second = time.Second
