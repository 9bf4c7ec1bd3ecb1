package declared

import (
	"time"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/expr"
	"github.com/statemesh/statemesh/store"
)

// Topology is what is declared.
type Topology struct {
	Relations []Relation
}

// Place is where something stands in a file, counted from 1; the zero value: in none.
type Place struct {
	File         string
	Line, Column int
}

// Kind of a relation.
type Kind string

// The kinds.
const (
	// Stream is a sequence of records.
	Stream Kind = "stream"
	// Table has one row per key, and may be asked under its name.
	Table Kind = "table"
	// GlobalTable is a table that every instance holds whole. It is read from a topic.
	GlobalTable Kind = "global_table"
)

// Relation is a stream or a table. Exactly one of Topic and From is given.
type Relation struct {
	// Name in From and Join of others, of its store, and of the nodes and internal topics that belong to it.
	Name  string
	Kind  Kind
	Place Place

	// Topic it is read from, with how its records are written.
	Topic  string
	Source Source

	// From names the relation that it is made of. What follows is done in this order: Joins, Each, Where, and then either Select and Key, or
	// Aggregate. A table that is made of a stream has the last record of each key, after Where.
	From string
	// Joins with other relations, one after the other. Columns of what is joined are "<as>.<column>" from then on, and "<as>.key" is its key.
	Joins []Join
	// Each makes a record of each item of a list: Value is the list, and Name a column that is the item. nil: records stay as they are. Not of the
	// rows of a table.
	Each *Column
	// Where keeps the records for which it is true; type bool.
	Where *expr.Source
	// Select are the columns of the relation, in this order. Empty: all there are.
	Select []Column
	// Key is the new key, of the format KeyFormat. nil: it stays. What is made of a table keeps its key, but for Aggregate.
	Key       *expr.Source
	KeyFormat string

	// Aggregate makes a table of groups.
	Aggregate *Aggregate

	// Suppress holds changes of a table back. Not of one that is read from a topic.
	Suppress *Suppress
	// Store says how the store of a table is kept.
	Store StoreOptions
	// Sink is the topic that it is written to. Not of a relation that is read from one.
	Sink *Sink
}

// Source says how the records of a topic are read.
type Source struct {
	// Layout of the values, and the format of keys.
	Layout expr.Layout
	// Timestamp is the time of a record, of type timestamp. nil: the record's own. A record without one cannot be decoded.
	Timestamp *expr.Source
	// OffsetReset is where to start in a topic that the application has not read before.
	OffsetReset processor.OffsetReset
	// History keeps versions of a table's rows (KIP-889).
	History time.Duration
}

// Column is a computed column.
type Column struct {
	Name  string
	Value expr.Source
	Place Place
}

// JoinKind says what becomes of a record that has no partner.
type JoinKind string

// The kinds of join.
const (
	Inner JoinKind = "inner"
	// Left keeps records of the left side; columns of the other are null.
	Left JoinKind = "left"
	// Outer keeps those of both. Between two streams, or two tables by their keys.
	Outer JoinKind = "outer"
)

// Join with another relation.
type Join struct {
	// With names the other relation.
	With string
	// As is the prefix of its columns. Default: its name.
	As   string
	Kind JoinKind // Default: Inner
	// On is what must equal the key of the other side, an expression over this side. nil: the key. With a table on both sides it is a
	// foreign key (KIP-213).
	On *expr.Source
	// OtherOn is what of the other side On must equal instead of its key. Only between streams.
	OtherOn *expr.Source
	// Before and After are how much earlier and later than this side's the other side's records may be. Only between streams, where one
	// of them must be above zero.
	Before, After time.Duration
	// Grace is how long records may come late: between streams, and with a table that has a History (KIP-923).
	Grace time.Duration
	Place Place
}

// Aggregate makes one row per group, or per group and window.
type Aggregate struct {
	// By is the group: the key of the result, of the format KeyFormat. nil: the key.
	By        *expr.Source
	KeyFormat string
	// Window splits groups by time. Of a table there are none.
	Window Window
	// Columns of the result, in this order; at least one.
	Columns []AggregateColumn
	// OnClose gives a result once per window, when it is closed (KIP-825), instead of with each change.
	OnClose bool
	// Partitions of the repartition topic. 0: as many as the topics it is made of.
	Partitions int32
}

// Window says how groups are split by time. At most one of the first five is set; none: they are not.
type Window struct {
	Tumbling time.Duration
	// Hopping windows have this size; one begins every Advance.
	Hopping, Advance time.Duration
	Sliding          time.Duration
	Session          time.Duration
	Grace            time.Duration
}

// Function of an aggregate.
type Function string

// The functions. Null is not counted, summed, compared or kept by any of them. Those of tables, whose rows go away again, are
// Count, Sum and Avg.
const (
	// Count counts records; with a value: those in which it is not null.
	Count Function = "count"
	// Sum of int or double; the type is the value's. Beyond 64 bits: an error of the record.
	Sum Function = "sum"
	// Min and Max of int, double, string, timestamp, duration.
	Min Function = "min"
	Max Function = "max"
	// Avg is the mean of int or double, as a double.
	Avg Function = "avg"
	// First is the value with the least timestamp, of equal ones the one that came first.
	First Function = "first"
	// Latest is the value with the greatest timestamp, of equal ones the one that came last.
	Latest Function = "latest"
	// TopK is a list of the K values with the greatest By, the greatest first, as objects {"value":..., "by":...}. A value is in it once, with
	// the By it had last. Ties: the lesser value, in the order of bytes, first. Exact as long as no value's By falls.
	TopK Function = "top_k"
	// Distinct is about how many different values there were: HyperLogLog, standard error 0.8 %, exact for few.
	Distinct Function = "distinct"
	// Quantile Q of int or double, as a double; off by 1 % of itself at most (DDSketch).
	Quantile Function = "quantile"
)

// AggregateColumn is a column of a result.
type AggregateColumn struct {
	Name     string
	Function Function
	// Value that the function is about. Only Count may have none.
	Value *expr.Source
	// By orders TopK; int, double, timestamp or duration.
	By *expr.Source
	// K of TopK, 1 to 1000.
	K int
	// Q of Quantile, 0 to 1.
	Q     float64
	Place Place
}

// Suppress holds changes of a table back (upstream's Suppressed). Exactly one of the first two is set.
type Suppress struct {
	// UntilClose gives only the last result of a window.
	UntilClose bool
	// Until gives at most one change of a key in so much time.
	Until time.Duration
	// MaxRecords and MaxBytes bound what is held; 0: no bound.
	MaxRecords int
	MaxBytes   int64
	// ShutDown ends the task when the bound is reached, instead of giving the oldest early, which needs a bound.
	ShutDown bool
}

// StoreOptions of a table.
type StoreOptions struct {
	InMemory bool
	// NoCache tells every change downstream, instead of the last of each commit.
	NoCache bool
	// Retention of windows. 0: as long as they may change.
	Retention time.Duration
	// Changelog sets properties of the changelog topic.
	Changelog map[string]string
}

// Sink is a topic that a relation is written to: values as JSON objects of its columns, deletions of a table as records without a value.
type Sink struct {
	Topic string
	// Partitioned by the bytes of the key, as any producer does it.
	Place Place
}

// Error is one thing that is wrong with a declaration.
type Error struct {
	// Path such as "topology.by_page.aggregate.users".
	Path   string
	Place  Place
	Reason string
	// Hint says what to write instead; may be empty.
	Hint string
}

// Content is what a relation holds, once it is validated.
type Content struct {
	Name string
	Kind Kind
	// Columns of its values.
	Columns []expr.Column
	// KeyFormat of its keys, serde's name. Of a windowed table: of what is in the windows.
	KeyFormat string
	KeyType   expr.Type
	// Windowed says that a row is of a key and a window; Session that the windows are sessions.
	Windowed, Session bool
	// WindowSize of windows of one size; keys say only where those begin. Of sliding windows it is how far apart their records are at most.
	WindowSize time.Duration
	// Versioned says that it is a table with a history: its topic may hold versions that come late.
	Versioned bool
	// Layout says how its values are written where they are still those of the topic that they were read from; nil: they are JSON objects
	// of Columns, whatever Field says.
	Layout *expr.Layout
	// Store and Changelog of a table that has one: a committed reader of the changelog has every change of it. Changelog is without
	// the application's prefix: "<application>-<Changelog>".
	Store     store.Name
	Changelog string
	// Topic that it is written to, or read from.
	Topic string
}
