package postgres

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/statemesh/statemesh/processor/expr"
	"github.com/statemesh/statemesh/sink"
)

// upsertArgs are the arguments of layout.upsert.
func (l *layout) upsertArgs(partition int32, rows []sink.Row) ([]any, error) {
	args := make([]any, 0, len(l.cols))
	if l.append {
		offsets := make([]int64, len(rows))
		for i, r := range rows {
			offsets[i] = r.Offset
		}
		args = append(args, partition, offsets)
	}
	first := len(args)
	keys := 0
	if len(rows) > 0 {
		keys = len(rows[0].Key)
	}
	for i, c := range l.cols[first:] {
		a, err := array(c.typ, rows, func(r *sink.Row) any {
			if i < keys {
				return r.Key[i]
			}
			return r.Values[i-keys]
		})
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", c.name, err)
		}
		args = append(args, a)
	}
	return args, nil
}

// removeArgs are the arguments of layout.remove.
func (l *layout) removeArgs(rows []sink.Row) ([]any, error) {
	var args []any
	for i, c := range l.cols[:l.keys] {
		a, err := array(c.typ, rows, func(r *sink.Row) any { return r.Key[i] })
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", c.name, err)
		}
		args = append(args, a)
	}
	return args, nil
}

// array makes one array of the values of a column.
func array(t expr.Type, rows []sink.Row, value func(*sink.Row) any) (any, error) {
	switch t {
	case expr.Int:
		return collect(rows, value, func(v int64) pgtype.Int8 { return pgtype.Int8{Int64: v, Valid: true} })
	case expr.Double:
		return collect(rows, value, func(v float64) pgtype.Float8 { return pgtype.Float8{Float64: v, Valid: true} })
	case expr.Bool:
		return collect(rows, value, func(v bool) pgtype.Bool { return pgtype.Bool{Bool: v, Valid: true} })
	case expr.Bytes:
		return collect(rows, value, func(v []byte) []byte {
			if v == nil {
				v = []byte{}
			}
			return v
		})
	case expr.Timestamp:
		return collect(rows, value, func(v time.Time) pgtype.Timestamptz { return pgtype.Timestamptz{Time: v, Valid: true} })
	case expr.Duration:
		return collect(rows, value, interval)
	case expr.JSON:
		return collect(rows, value, func(v json.RawMessage) pgtype.Text { return pgtype.Text{String: string(v), Valid: true} })
	default:
		return collect(rows, value, func(v string) pgtype.Text { return pgtype.Text{String: v, Valid: true} })
	}
}

// interval has microseconds and nothing else: months and days are no fixed time. What is finer is cut off.
func interval(d time.Duration) pgtype.Interval {
	return pgtype.Interval{Microseconds: d.Microseconds(), Valid: true}
}

// collect leaves the zero P, which is null, where there is no value.
func collect[V, P any](rows []sink.Row, value func(*sink.Row) any, of func(V) P) ([]P, error) {
	out := make([]P, len(rows))
	for i := range rows {
		switch v := value(&rows[i]).(type) {
		case nil:
		case V:
			out[i] = of(v)
		default:
			return nil, fmt.Errorf("offset %d: a %T where the column is no such type", rows[i].Offset, v)
		}
	}
	return out, nil
}
