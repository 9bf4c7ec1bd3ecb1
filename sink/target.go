package sink

import (
	"context"
	"encoding/json"
	"math"
	"strconv"
	"time"

	"github.com/statemesh/statemesh/processor/expr"
)

// Target is a database that keeps the offset of each partition beside the rows. Its methods are called by any number of goroutines, but
// never twice at a time for one partition.
//
// Errors that are a [*SchemaError] or a [*RefusedError] stay. Any other says that the database is away for the moment: what was asked
// is asked again, and again. It may have happened: that is what offsets are compared for.
type Target interface {
	// Open looks whether the database takes rows of this schema, and makes what is missing if it may.
	Open(ctx context.Context, schema Schema) error
	// Begin returns the offset of a partition, which it makes if there is none: the first is start.
	Begin(ctx context.Context, place Place, start int64) (Offset, error)
	// Apply applies a batch in one transaction, if the offset is where the batch begins.
	Apply(ctx context.Context, batch Batch) (Result, error)
	// Close ends the connections. It may be called again.
	Close()
}

// Schema of the rows.
type Schema struct {
	// Sink is [Config.ID]: a table that is not there although offsets of it are was dropped.
	Sink string
	// Keys of a row: "key", and of a windowed table "window_start" and "window_end". Those of a table tell its rows apart.
	Keys []Column
	// Columns of its value.
	Columns []Column
	// Append says that each record is a row, told apart by partition and offset: a stream.
	Append bool
}

// Column of a row.
type Column struct {
	Name string
	// Type of its values: string, int64, float64, bool, []byte, time.Time, time.Duration or, of type json, json.RawMessage.
	Type expr.Type
}

// Place is a partition of a topic, as a sink reads it.
type Place struct {
	// Sink is [Config.ID].
	Sink  string
	Topic string
	// TopicID is all zero when the brokers have no topic ids.
	TopicID   [16]byte
	Partition int32
}

// Offset is what the database says of a partition.
type Offset struct {
	// TopicID that it is of.
	TopicID [16]byte
	// Next offset to apply.
	Next int64
	// Epoch is the leader epoch of what lies before Next; -1 when it is not known.
	Epoch int32
	// Age: everything that was committed so long ago is applied, or, at first, the rows had been begun.
	Age time.Duration
}

// Batch is what one transaction applies.
type Batch struct {
	Place Place
	// From is the offset that the database must have, Next the one that it has afterwards, with its Epoch.
	From, Next int64
	Epoch      int32
	// Caught says that Age is known, in the sense of [Offset].
	Caught bool
	Age    time.Duration
	// Rows in the order of the log. A key may be in it several times: see [Last].
	Rows []Row
	// OnError decides about rows that the database refuses.
	OnError Policy
}

// Row is a change of a row.
type Row struct {
	// Offset of its record.
	Offset int64
	// Key has a value for each of Schema.Keys. Only a stream's may be nil.
	Key []any
	// Values has one for each of Schema.Columns; nil is null. The whole is nil where the row is deleted.
	Values []any
}

// Refusal is a row that the database does not take.
type Refusal struct {
	Offset int64
	// Code is the database's word for why, such as SQLSTATE 23505; a metric label.
	Code string
	// Detail names constraint or column, and holds nothing of the row.
	Detail string
}

// Result of a batch.
type Result struct {
	// Next is the offset that the database has now. When it is not the batch's, somebody else has moved it, and nothing was applied; -1 when
	// there is none any more.
	Next int64
	// Upserts, inserts among them, and Deletes that were applied.
	Upserts, Deletes int
	// Refused rows that were passed over.
	Refused []Refusal
}

// Last keeps the last change of each key, in the order of the log. The rows are not changed.
func Last(rows []Row) []Row {
	last := make(map[string]int, len(rows))
	var id []byte
	for i, r := range rows {
		id = id[:0]
		for _, v := range r.Key {
			id = appendIdentity(id, v)
		}
		last[string(id)] = i
	}
	if len(last) == len(rows) {
		return rows
	}
	kept := make([]Row, 0, len(last))
	for i, r := range rows {
		id = id[:0]
		for _, v := range r.Key {
			id = appendIdentity(id, v)
		}
		if last[string(id)] == i {
			kept = append(kept, r)
		}
	}
	return kept
}

// appendIdentity appends what two values of a key have in common when a database takes them for one.
func appendIdentity(b []byte, v any) []byte {
	switch v := v.(type) {
	case string:
		b = append(strconv.AppendInt(b, int64(len(v)), 10), ':')
		return append(b, v...)
	case []byte:
		b = append(strconv.AppendInt(b, int64(len(v)), 10), ':')
		return append(b, v...)
	case json.RawMessage:
		b = append(strconv.AppendInt(b, int64(len(v)), 10), ':')
		return append(b, v...)
	case int64:
		b = strconv.AppendInt(b, v, 10)
	case float64:
		if math.IsNaN(v) {
			v = math.NaN()
		}
		b = strconv.AppendFloat(b, v+0, 'g', -1, 64) // -0 is 0
	case bool:
		b = strconv.AppendBool(b, v)
	case time.Time:
		b = strconv.AppendInt(b, v.UnixMicro(), 10)
	case time.Duration:
		b = strconv.AppendInt(b, int64(v), 10)
	}
	return append(b, ';')
}
