package views

import (
	"time"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// View is one store, filled from one topic without code.
type View struct {
	// Name of the store, and of what belongs to it: <application>-<name>-changelog, <application>-<name>-repartition.
	Name string
	// Topic to read. Views may share one.
	Topic string
	// Format of the values of the topic.
	Format Format
	// Columns of a CSV record, in order. Every record must have exactly these.
	Columns []string
	// Key names the fields whose values make up the key of the view, see [EncodeKey]. Empty: the key of the record is
	// the key of the view, and no repartition topic is needed.
	Key []string
	// Type is what the view keeps per key.
	Type Type
	// Field is the number that sum, min, max, avg and stats are about.
	Field string

	// Window splits the records of a key by time. Only for count, sum, min, max, avg and stats.
	Window Window
	// Timestamp names the field that holds the time of a record: Unix milliseconds, or a text as RFC 3339 has it. Empty: the
	// record's own timestamp. Views of one topic must agree. A record without a time cannot be decoded; one without a
	// value has its own.
	Timestamp string

	// History keeps the versions of each key for so long, by the time of records, so that one can ask for what was valid at a
	// moment (KIP-889). Only for a table. A version begins at its record's timestamp, whatever the order of arrival; what is older
	// than the history is dropped.
	History time.Duration
	// Global keeps the whole table on every instance (upstream's globalTable): a query is answered by whoever is asked. Only
	// for a table by the record's key, whose topic no other view reads. There is no changelog: the topic is it.
	Global bool

	// Partitions of the repartition topic. Default 0: as many as the topic has. Only with a Key.
	Partitions int32
	// OffsetReset is where to start in a topic the application has not read before. Views of one topic must agree.
	OffsetReset processor.OffsetReset
	// InMemory keeps the store in memory: it is rebuilt from its changelog at every start.
	InMemory bool
	// KeyFormat tells people and generic clients what the key of the record is, by the name of a serde.Format: "string" is the
	// default, but "bytes" when the format is bytes. Only without a Key; the key made of fields is a string.
	KeyFormat string
}

// Format is how the values of a topic are written.
type Format string

// The formats of a topic.
const (
	// JSON is one value per record, UTF-8. A field is a member of the object, and "a.b" is member b of the object a;
	// a member that is absent or null is missing. Of a repeated name the last one counts.
	JSON Format = "json"
	// CSV is one record per record, as RFC 4180 has it, UTF-8, without a header line. A field is a column; an empty one
	// is missing.
	CSV Format = "csv"
	// String is a text, UTF-8. Its only field is "value", the whole of it.
	String Format = "string"
	// Bytes is anything. It has no fields.
	Bytes Format = "bytes"
)

// Formats lists them all.
func Formats() []Format { return []Format{JSON, CSV, String, Bytes} }

// Type is what a view keeps per key.
type Type string

// The types of view. See the package documentation for the encodings of their values.
const (
	// Table keeps the value of the last record in the order of the topic's offsets; a null value deletes.
	Table Type = "table"
	// Latest keeps the value of the record with the greatest timestamp, of equal ones that with the last offset; a null
	// value deletes.
	Latest Type = "latest"
	// Count counts records.
	Count Type = "count"
	// Sum adds up a field.
	Sum Type = "sum"
	// Min keeps the smallest value of a field.
	Min Type = "min"
	// Max keeps the greatest value of a field.
	Max Type = "max"
	// Avg keeps count, sum and average of a field.
	Avg Type = "avg"
	// StatsOf keeps count, sum, smallest, greatest and average of a field.
	StatsOf Type = "stats"
)

// Types lists them all.
func Types() []Type { return []Type{Table, Latest, Count, Sum, Min, Max, Avg, StatsOf} }

// ofField reports whether the type is about a field.
func (t Type) ofField() bool {
	switch t {
	case Sum, Min, Max, Avg, StatsOf:
		return true
	default:
		return false
	}
}

// keepsValue reports whether the type keeps the value of a record.
func (t Type) keepsValue() bool { return t == Table || t == Latest }

// Spec declares the store of the view.
func (v View) Spec() store.Spec {
	s := store.Spec{
		Name:        store.Name(v.Name),
		Kind:        store.KindTimestampedKeyValue,
		InMemory:    v.InMemory,
		KeyFormat:   v.keyFormat(),
		ValueFormat: v.valueFormat(),
	}
	switch {
	case v.Window != (Window{}):
		v.Window.spec(&s)
	case v.History != 0:
		s.Kind, s.Retention = store.KindVersioned, v.History
	}
	return s
}

func (v View) keyFormat() string {
	switch {
	case len(v.Key) > 0:
		return serde.FormatString
	case v.KeyFormat != "":
		return v.KeyFormat
	case v.Format == Bytes:
		return serde.FormatBytes
	default:
		return serde.FormatString
	}
}

func (v View) valueFormat() string {
	switch v.Type {
	case Count:
		return serde.FormatInt64
	case Sum, Min, Max:
		return serde.FormatDouble
	case Avg, StatsOf:
		return serde.FormatJSON
	default: // keeps the record's value
	}
	switch v.Format {
	case JSON, CSV:
		return serde.FormatJSON
	case String:
		return serde.FormatString
	default:
		return serde.FormatBytes
	}
}
