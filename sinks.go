package statemesh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/statemesh/statemesh/internal/joined"
	"github.com/statemesh/statemesh/internal/nearest"
	"github.com/statemesh/statemesh/processor/changes"
	"github.com/statemesh/statemesh/processor/declared"
	"github.com/statemesh/statemesh/processor/expr"
	"github.com/statemesh/statemesh/sink"
)

// Sink has the committed changes of a relation written into a database. It runs beside the processing and never inside of it: a database that
// is away delays nothing but itself. All instances of the application share the work.
type Sink struct {
	// Relation of Config.Declared: a table, or a stream that is read from a topic or written to one. What is read, and how, then follows from
	// it. Empty with a topology of one's own: Options says it.
	Relation string
	// Columns that are written, in this order. nil: all that the relation has.
	Columns []string
	// Database that rows are written to, such as a postgres.Config. Required.
	Database Database
	// Options are what else may be said. Name defaults to Relation; it stands for what the database has: with another one the topic is
	// read from its beginning. ApplicationID, Kafka, Target, Logger and Registerer are the instance's to set. StopTimeout defaults to
	// Config.ShutdownTimeout, SessionTimeout to Processor.SessionTimeout, and what is in bytes to a share of SinkBytes.
	Options sink.Config
}

// Database makes targets of sinks.
type Database interface {
	// Check reports everything that is wrong with writing rows of a schema to it, without asking it.
	Check(schema sink.Schema) error
	// Target makes what rows are written to. It does not wait for the database.
	Target(ctx context.Context) (sink.Target, error)
}

// SinkError is one thing that is wrong with a sink of a [Config].
type SinkError struct {
	// Index in Config.Sinks, Relation and Name of the sink.
	Index          int
	Relation, Name string
	// Err is a *sink.ConfigError, whose Field may also be one of Sink, a *changes.ConfigError, or what Database says.
	Err error
}

func (e *SinkError) Error() string {
	return fmt.Sprintf("config Sinks[%d] %s: %s", e.Index, e.Name, e.Err)
}

// Unwrap returns Err.
func (e *SinkError) Unwrap() error { return e.Err }

// name of the sink.
func (s Sink) name() string { return cmp.Or(s.Options.Name, s.Relation) }

// validateSinks reports everything that is wrong with the sinks, each as a *SinkError, unless the relations are wrong already.
func (c Config) validateSinks() (errs []error) {
	contents, err := c.contents()
	named := make(map[string]bool)
	for i, s := range c.Sinks {
		bad := func(err error) {
			errs = append(errs, &SinkError{Index: i, Relation: s.Relation, Name: s.name(), Err: err})
		}
		if named[s.name()] {
			bad(&sink.ConfigError{Field: "Name", Reason: s.name() + " is that of another sink, too"})
		}
		named[s.name()] = true
		if s.Relation != "" && err != nil {
			continue
		}
		for _, err := range c.validateSink(s, contents) {
			bad(err)
		}
	}
	return errs
}

func (c Config) validateSink(s Sink, contents map[string]declared.Content) (errs []error) {
	bad := func(field, format string, args ...any) {
		errs = append(errs, &sink.ConfigError{Field: field, Reason: fmt.Sprintf(format, args...)})
	}
	o := s.Options
	if o.ApplicationID != "" || len(o.Kafka.Brokers) > 0 || o.Target != nil || o.Logger != nil || o.Registerer != nil {
		bad("Options", "the instance sets ApplicationID, Kafka, Target, Logger and Registerer; leave them empty")
	}
	if s.Database == nil {
		bad("Database", "required")
	}
	if s.Relation != "" {
		content, ok := contents[s.Relation]
		if !ok {
			bad("Relation", "%q is not declared", s.Relation)
			return errs
		}
		if reason := refused(content); reason != "" {
			bad("Relation", "%s", reason)
			return errs
		}
	}
	conf, err := c.sinkConfig(s, contents)
	if err != nil {
		return append(errs, err)
	}
	conf.Target = unset{}
	if found := sinkFindings(conf.Validate()); len(found) > 0 {
		return append(errs, found...)
	}
	schema, err := conf.Schema()
	switch {
	case err != nil:
		errs = append(errs, err)
	case s.Database != nil:
		errs = append(errs, joined.Errors(s.Database.Check(schema))...)
	}
	return errs
}

// refused says why a relation cannot be written to a database; "": it can.
func refused(c declared.Content) string {
	switch {
	case c.Kind == declared.GlobalTable:
		return "a global table is not written to a database, since every instance has all of it; declare a table or a stream that is read from " + c.Topic + ", and write that"
	case c.Versioned:
		return "a table with a history is not written to a database: versions that come late would replace later ones; declare a table from it, and write that"
	case c.Kind == declared.Stream && c.Topic == "":
		return "a stream is written to a database from a topic; give it one, with to"
	default:
		return ""
	}
}

// contents is what the declared relations hold; an error when they are wrong.
func (c Config) contents() (map[string]declared.Content, error) {
	contents := make(map[string]declared.Content)
	if c.Declared == nil || len(c.Sinks) == 0 {
		return contents, nil
	}
	all, err := declared.Describe(*c.Declared)
	for _, content := range all {
		contents[content.Name] = content
	}
	return contents, err
}

// sinkConfig is a sink as it runs, but for what is opened with the instance. The memory is divided, or the sink's defaults stand.
func (c Config) sinkConfig(s Sink, contents map[string]declared.Content) (sink.Config, error) {
	o := s.Options
	o.Name = s.name()
	o.ApplicationID, o.Kafka = c.Processor.ApplicationID, c.Processor.Kafka
	o.StopTimeout = cmp.Or(o.StopTimeout, c.ShutdownTimeout)
	o.SessionTimeout = cmp.Or(o.SessionTimeout, c.Processor.SessionTimeout)
	if each := c.SinkBytes / int64(max(len(c.Sinks), 1)); each > 0 {
		const leastFetch, usualBatch = 1 << 20, 4 << 20
		o.Kafka.FetchBytes = max(each/4, leastFetch)
		o.BufferBytes = cmp.Or(o.BufferBytes, each/4)
		o.RowBytes = cmp.Or(o.RowBytes, each/2)
		o.BatchBytes = cmp.Or(o.BatchBytes, min(usualBatch, o.BufferBytes/4, o.RowBytes/8))
	}
	if s.Relation != "" {
		o.Content = contents[s.Relation]
		o.Layout, o.WindowSize = o.Content.Layout, o.Content.WindowSize
	}
	if s.Columns == nil {
		return o, nil
	}
	var columns []expr.Column
	for _, name := range s.Columns {
		at := slices.IndexFunc(o.Content.Columns, func(col expr.Column) bool { return col.Name == name })
		if at < 0 {
			return o, noColumn(name, o.Content.Columns)
		}
		columns = append(columns, o.Content.Columns[at])
	}
	o.Content.Columns = columns
	return o, nil
}

func noColumn(name string, columns []expr.Column) error {
	var names []string
	for _, col := range columns {
		names = append(names, col.Name)
	}
	hint := "columns are " + strings.Join(names, ", ")
	if near := nearest.Of(name, names); near != "" {
		hint = "did you mean " + near + "?"
	}
	return &sink.ConfigError{Field: "Columns[" + name + "]", Reason: "there is no column " + name + "; " + hint}
}

// unset is the target of a sink that is only checked.
type unset struct{ sink.Target }

// sinkFindings are those of a sink's own configuration; what is wrong with the brokers is said elsewhere.
func sinkFindings(err error) (all []error) {
	for _, err := range joined.Errors(err) {
		_, own := errors.AsType[*sink.ConfigError](err)
		_, reading := errors.AsType[*changes.ConfigError](err)
		if own || reading {
			all = append(all, err)
		}
	}
	return all
}

// keptSink is a sink that the instance runs.
type keptSink struct {
	*sink.Sink

	name, topic string
	target      sink.Target
}

// openSinks makes the sinks. Nothing asks a database yet.
func (i *Instance) openSinks(ctx context.Context, p *parts, reg prometheus.Registerer) error {
	contents, err := i.cfg.contents()
	if err != nil {
		return err
	}
	for _, s := range i.cfg.Sinks {
		conf, err := i.cfg.sinkConfig(s, contents)
		if err != nil {
			return err
		}
		conf.Logger, conf.Registerer = i.log, reg
		if conf.Target, err = s.Database.Target(ctx); err != nil {
			return fmt.Errorf("sink %s: %w", conf.Name, err)
		}
		k := &keptSink{name: conf.Name, topic: conf.WithDefaults().Topic, target: conf.Target}
		p.sinks = append(p.sinks, k)
		if k.Sink, err = sink.New(conf); err != nil {
			return fmt.Errorf("sink %s: %w", conf.Name, err)
		}
	}
	return nil
}

// keepSinks runs the sinks until ctx ends.
func (p *parts) keepSinks(ctx context.Context) {
	var sinks sync.WaitGroup
	for _, s := range p.sinks {
		sinks.Go(func() { s.Keep(ctx) })
	}
	sinks.Wait()
}
