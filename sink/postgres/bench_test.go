package postgres

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/statemesh/statemesh/processor/expr"
	"github.com/statemesh/statemesh/sink"
)

const benchRows = 1000

// benchBatch is a batch of rows of four columns; round n changes the same keys.
func benchBatch(n int64) []sink.Row {
	rows := make([]sink.Row, benchRows)
	for i := range rows {
		rows[i] = sink.Row{
			Offset: n*benchRows + int64(i), Key: []any{fmt.Sprintf("key-%06d", i)},
			Values: []any{n, "a name of some length", float64(i) / 7, i%2 == 0},
		}
	}
	return rows
}

var benchSchema = sink.Schema{Keys: oneKey, Columns: []sink.Column{
	{Name: "n", Type: expr.Int}, {Name: "name", Type: expr.String}, {Name: "x", Type: expr.Double}, {Name: "b", Type: expr.Bool},
}}

// BenchmarkUpsert is a transaction of 1000 rows, each of a key that is there: as it is done, and by COPY into a temporary table.
func BenchmarkUpsert(b *testing.B) {
	b.Run("unnest", func(b *testing.B) {
		target, _, _ := opened(b, benchSchema)
		var n int64
		b.ReportAllocs()
		for b.Loop() {
			if res, err := apply(b, target, n*benchRows, (n+1)*benchRows, sink.Fail, benchBatch(n)...); err != nil || res.Next != (n+1)*benchRows {
				b.Fatal(res, err)
			}
			n++
		}
		b.ReportMetric(float64(n*benchRows)/b.Elapsed().Seconds(), "rows/s")
	})
	b.Run("copy", func(b *testing.B) {
		target, db, name := opened(b, benchSchema)
		conn, err := db.Acquire(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Release()
		var n int64
		b.ReportAllocs()
		for b.Loop() {
			if err := copyBatch(b.Context(), conn.Conn(), target, name, n, benchBatch(n)); err != nil {
				b.Fatal(err)
			}
			n++
		}
		b.ReportMetric(float64(n*benchRows)/b.Elapsed().Seconds(), "rows/s")
	})
}

// copyBatch does what Apply does, the other way.
func copyBatch(ctx context.Context, conn *pgx.Conn, target *Target, schema string, n int64, rows []sink.Row) error {
	p := target.ready.Load()
	x := &transaction{prepared: p, conn: conn, batch: &sink.Batch{Place: testPlace, From: n * benchRows, Next: (n + 1) * benchRows}, idle: target.cfg.IdleTimeout}
	var begin pgx.Batch
	x.begin(&begin)
	begin.Queue("create temporary table if not exists arriving (like " + p.table + ") on commit delete rows")
	if err := conn.SendBatch(ctx, &begin).Close(); err != nil {
		return err
	}
	_, err := conn.CopyFrom(ctx, pgx.Identifier{"arriving"}, []string{"key", "n", "name", "x", "b"}, pgx.CopyFromSlice(len(rows), func(i int) ([]any, error) {
		return append([]any{rows[i].Key[0]}, rows[i].Values...), nil
	}))
	if err != nil {
		return err
	}
	var end pgx.Batch
	end.Queue("insert into " + schema + "." + testTable + " select * from arriving on conflict (key) do update set n = excluded.n, name = excluded.name, x = excluded.x, b = excluded.b")
	x.advance(&end)
	if err := conn.SendBatch(ctx, &end).Close(); err != nil {
		return err
	}
	return x.commit(ctx)
}

// BenchmarkInsert is a transaction of 1000 records of a stream.
func BenchmarkInsert(b *testing.B) {
	schema := benchSchema
	schema.Append = true
	target, _, _ := opened(b, schema)
	var n int64
	b.ReportAllocs()
	for b.Loop() {
		if res, err := apply(b, target, n*benchRows, (n+1)*benchRows, sink.Fail, benchBatch(n)...); err != nil || res.Next != (n+1)*benchRows {
			b.Fatal(res, err)
		}
		n++
	}
	b.ReportMetric(float64(n*benchRows)/b.Elapsed().Seconds(), "rows/s")
}
