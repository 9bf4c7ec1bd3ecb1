package sink

import (
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// RefusedError reports a record that cannot be a row, under [Fail]. Nothing of it is applied, and everything before it is or will be when the
// sink runs again. It holds nothing of the record.
type RefusedError struct {
	Topic     string
	Partition int32
	Refusal
	// Err is why it could not be decoded; nil when the database refused it.
	Err error
}

func (e *RefusedError) Error() string {
	why := "the database refuses it: " + e.Code
	if e.Err != nil {
		why = e.Err.Error()
	} else if e.Detail != "" {
		why += " (" + e.Detail + ")"
	}
	return fmt.Sprintf("record %s-%d offset %d is no row: %s; mend the table, or set on_error: skip to go on without it", e.Topic, e.Partition, e.Offset, why)
}

// Unwrap returns Err.
func (e *RefusedError) Unwrap() error { return e.Err }

// SchemaError reports a table that cannot take the rows.
type SchemaError struct {
	Table string
	// Problems are all there are, each with the SQL that mends it, or empty.
	Problems []SchemaProblem
}

// SchemaProblem is one thing that is wrong with a table.
type SchemaProblem struct{ Reason, SQL string }

func (e *SchemaError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "table %s does not take the rows:", e.Table)
	for _, p := range e.Problems {
		fmt.Fprintf(&b, " %s;", p.Reason)
		if p.SQL != "" {
			fmt.Fprintf(&b, " mend with: %s", p.SQL)
			if !strings.HasSuffix(p.SQL, ";") {
				b.WriteString(";")
			}
		}
	}
	return strings.TrimSuffix(b.String(), ";")
}

// resetHint is the way out of all that makes an offset worthless.
func resetHint(sink string) string {
	return fmt.Sprintf("reset the sink to read the topic from its beginning: delete the rows of %s from the offsets table and, for rows that are "+
		"gone since, those of the table, in one transaction", sink)
}

// RecreatedError reports a topic that is another one than the database's offset is of: it was deleted and made anew.
type RecreatedError struct {
	Sink, Topic string
	Partition   int32
	Have, Want  [16]byte
}

func (e *RecreatedError) Error() string {
	return fmt.Sprintf("topic %s-%d was made anew: its id is %s, the database's offset is of %s; %s", e.Topic, e.Partition,
		hex.EncodeToString(e.Have[:]), hex.EncodeToString(e.Want[:]), resetHint(e.Sink))
}

// GapError reports records that were deleted from the topic before they were read, and that no later one replaces.
type GapError struct {
	Sink, Topic string
	Partition   int32
	// Next is where the database stands, Start the first offset there is.
	Next, Start int64
}

func (e *GapError) Error() string {
	return fmt.Sprintf("topic %s-%d begins at offset %d, the database stands at %d: what lies between was deleted before it was read; "+
		"to go on without it set next_offset = %d in the offsets table for sink %s and this partition, or %s",
		e.Topic, e.Partition, e.Start, e.Next, e.Start, e.Sink, resetHint(e.Sink))
}

// TruncatedError reports a topic that ends before the database's offset: it lost records that are in the table.
type TruncatedError struct {
	Sink, Topic string
	Partition   int32
	Next, End   int64
	Err         error
}

func (e *TruncatedError) Error() string {
	return fmt.Sprintf("topic %s-%d lost records that are in the table: it agrees up to offset %d, the database stands at %d; %s",
		e.Topic, e.Partition, e.End, e.Next, resetHint(e.Sink))
}

// Unwrap returns Err.
func (e *TruncatedError) Unwrap() error { return e.Err }

// StaleError reports that the compacted topic may have forgotten deletions that the sink has not read: the table may hold rows that are gone.
type StaleError struct {
	Sink, Topic string
	Partition   int32
	// Age of what was read to the end last, and Retention of deletions (delete.retention.ms).
	Age, Retention time.Duration
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("topic %s-%d was read to its end %s ago, and keeps deletions for %s only: the table may hold rows that are gone; "+
		"raise delete.retention.ms if the sink cannot keep up, and %s", e.Topic, e.Partition, e.Age.Round(time.Second), e.Retention, resetHint(e.Sink))
}
