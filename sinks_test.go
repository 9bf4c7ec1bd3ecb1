package statemesh

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/statemesh/statemesh/internal/membudget"
	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/declared"
	"github.com/statemesh/statemesh/processor/expr"
	"github.com/statemesh/statemesh/sink"
)

// TestLinksNoDatabase: who embeds an instance and writes to no database links no client of one.
func TestLinksNoDatabase(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(out), "statemesh/sink\n") {
		t.Error("the list is of something else")
	}
	for _, bad := range []string{"jackc", "statemesh/sink/postgres"} {
		if strings.Contains(string(out), bad) {
			t.Errorf("links %s", bad)
		}
	}
}

// paper is a database that is only looked at.
type paper struct {
	schema *sink.Schema
	err    error
}

func (p paper) Check(s sink.Schema) error {
	if p.schema != nil {
		*p.schema = s
	}
	return p.err
}

func (paper) Target(context.Context) (sink.Target, error) {
	return nil, errors.New("there is only paper")
}

// sinking is a configuration with relations of all sorts, and sinks.
func sinking(sinks ...Sink) Config {
	c := valid()
	csv := declared.Source{Layout: expr.Layout{Format: expr.CSV, KeyFormat: "string", Columns: []expr.Column{{Name: "a", Type: expr.String}, {Name: "b", Type: expr.Int}}}}
	old := csv
	old.History = time.Hour
	counts := &declared.Aggregate{Columns: []declared.AggregateColumn{{Name: "n", Function: declared.Count}, {Name: "s", Function: declared.Sum, Value: &expr.Source{Text: "b"}}}}
	hourly := *counts
	hourly.Window.Tumbling = time.Hour
	c.Views = nil
	c.Declared = &declared.Topology{Relations: []declared.Relation{
		{Name: "in", Kind: declared.Stream, Topic: "in", Source: csv},
		{Name: "everywhere", Kind: declared.GlobalTable, Topic: "all", Source: csv},
		{Name: "versions", Kind: declared.Table, Topic: "old", Source: old},
		{Name: "latest", Kind: declared.Table, From: "versions"},
		{Name: "large", Kind: declared.Stream, From: "in", Where: &expr.Source{Text: "b > 3"}},
		{Name: "out", Kind: declared.Stream, From: "large", Sink: &declared.Sink{Topic: "out"}},
		{Name: "counts", Kind: declared.Table, From: "in", Aggregate: counts},
		{Name: "hourly", Kind: declared.Table, From: "in", Aggregate: &hourly},
	}}
	c.Sinks = sinks
	return c
}

// TestSinksOfRelations: what a sink reads, and how, follows from its relation.
func TestSinksOfRelations(t *testing.T) {
	t.Parallel()
	c := sinking()
	for _, name := range []string{"in", "out", "counts", "hourly", "latest"} {
		c.Sinks = append(c.Sinks, Sink{Relation: name, Database: paper{}})
	}
	c.Sinks[2].Columns = []string{"s"}
	c.Sinks[3].Options = sink.Config{Name: "other", BatchBytes: 7, SessionTimeout: time.Hour}
	c.Processor.SessionTimeout, c.MemoryLimit = 3*time.Second, 1<<30
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	m, c, err := c.memory(membudget.Default{})
	if err != nil {
		t.Fatal(err)
	}
	c = c.withDefaults()
	contents, err := c.contents()
	if err != nil {
		t.Fatal(err)
	}
	var held int64
	for i, want := range []struct {
		topic   string
		source  bool // of the source's layout
		size    time.Duration
		columns string
	}{
		{"in", true, 0, "a b"},
		{"out", false, 0, "a b"},
		{"app-counts-changelog", false, 0, "s"},
		{"app-hourly-changelog", false, time.Hour, "n s"},
		{"app-latest-changelog", true, 0, "a b"},
	} {
		conf, err := c.sinkConfig(c.Sinks[i], contents)
		if err != nil {
			t.Fatal(err)
		}
		var columns []string
		for _, col := range conf.Content.Columns {
			columns = append(columns, col.Name)
		}
		if topic := strings.TrimPrefix(conf.WithDefaults().Topic, c.Processor.ApplicationID); topic != strings.TrimPrefix(want.topic, "app") ||
			(conf.Layout != nil) != want.source || conf.WindowSize != want.size || strings.Join(columns, " ") != want.columns {
			t.Errorf("%s reads %s with layout %v, windows of %s, columns %v", conf.Name, conf.WithDefaults().Topic, conf.Layout, conf.WindowSize, columns)
		}
		held += conf.Kafka.FetchBytes + conf.BufferBytes + conf.RowBytes
		if conf.StopTimeout != c.ShutdownTimeout || conf.BatchBytes == 0 || conf.BatchBytes > conf.BufferBytes {
			t.Errorf("%s: %+v", conf.Name, conf)
		}
		if i == 3 && (conf.Name != "other" || conf.BatchBytes != 7 || conf.SessionTimeout != time.Hour) || i != 3 && conf.SessionTimeout != 3*time.Second {
			t.Errorf("options of %s: %+v", conf.Name, conf)
		}
	}
	if share := m.Of("sinks"); held > share || held < share-100 {
		t.Errorf("sinks take %d, their share is %d", held, share)
	}
}

func TestSinksRefused(t *testing.T) {
	t.Parallel()
	one := func(s Sink) Config {
		if s.Database == nil {
			s.Database = paper{}
		}
		return sinking(s)
	}
	for want, c := range map[string]Config{
		"Database: required":                             sinking(Sink{Relation: "in"}),
		`"nothing" is not declared`:                      one(Sink{Relation: "nothing"}),
		"a global table is not written":                  one(Sink{Relation: "everywhere"}),
		"a table with a history is not written":          one(Sink{Relation: "versions"}),
		"give it one, with to":                           one(Sink{Relation: "large"}),
		"no column nn; did you mean n?":                  one(Sink{Relation: "counts", Columns: []string{"nn"}}),
		"the instance sets ApplicationID":                one(Sink{Relation: "in", Options: sink.Config{Registerer: prometheus.NewRegistry()}}),
		`OnError: "maybe"`:                               one(Sink{Relation: "in", Options: sink.Config{OnError: "maybe"}}),
		"BatchRecords: -1":                               one(Sink{Relation: "in", Options: sink.Config{BatchRecords: -1}}),
		"a stream has no changelog":                      one(Sink{Relation: "out", Options: sink.Config{Source: sink.FromChangelog}}),
		"the paper is full":                              one(Sink{Relation: "in", Database: paper{err: errors.Join(errors.New("the paper is full"))}}),
		"in is that of another sink":                     sinking(Sink{Relation: "in", Database: paper{}}, Sink{Relation: "in", Database: paper{}}),
		"Content.Columns: none given":                    one(Sink{Options: sink.Config{Name: "x"}}),
		"SinkBytes: 1048576: at least 4MiB, for 1 sinks": func() Config { c := one(Sink{Relation: "in"}); c.SinkBytes = 1 << 20; return c }(),
		"SinkBytes: there are no sinks":                  func() Config { c := sinking(); c.SinkBytes = 1 << 30; return c }(),
	} {
		err := c.Validate()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: nothing of %q", err, want)
		}
	}
	e, ok := errors.AsType[*SinkError](one(Sink{Relation: "everywhere"}).Validate())
	if !ok || e.Relation != "everywhere" || e.Name != "everywhere" || e.Index != 0 {
		t.Errorf("%+v", e)
	}
	// A topology of one's own says itself what its topics hold.
	c := sinking(Sink{Database: paper{}, Options: sink.Config{
		Name: "x", Topic: "t", Content: declared.Content{Kind: declared.Stream, KeyFormat: "string", Columns: []expr.Column{{Name: "n", Type: expr.Int}}},
	}})
	c.Declared, c.Topology = nil, processor.NewTopology().AddSource("in", processor.SourceOptions{}, "in")
	if err := c.Validate(); err != nil && strings.Contains(err.Error(), "Sinks") {
		t.Error(err)
	}
}

// TestSinkSchema: the database is shown the rows that it will be given.
func TestSinkSchema(t *testing.T) {
	t.Parallel()
	var s sink.Schema
	c := sinking(Sink{Relation: "hourly", Columns: []string{"n"}, Database: paper{schema: &s}})
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, k := range s.Keys {
		keys = append(keys, k.Name)
	}
	if !slices.Equal(keys, []string{"key", "window_start", "window_end"}) || fmt.Sprint(s.Columns) != fmt.Sprint([]sink.Column{{Name: "n", Type: expr.Int}}) ||
		s.Append || s.Sink != c.Processor.ApplicationID+"-sink-hourly" {
		t.Errorf("%+v", s)
	}
}
