package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/statemesh/statemesh/sink"
)

// transaction applies one batch.
type transaction struct {
	*prepared
	conn   *pgx.Conn
	batch  *sink.Batch
	idle   time.Duration
	result sink.Result
}

// errMoved reports that the database's offset is not where the batch begins; the result says where it is.
var errMoved = errors.New("postgres: the offset is elsewhere")

// atOnce applies the batch in two round trips: everything, and the commit. Rows that are refused are an error.
func (x *transaction) atOnce(ctx context.Context) error {
	var b pgx.Batch
	x.begin(&b)
	upserts, deletes, err := x.write(&b, x.batch.Rows)
	if err != nil {
		return err
	}
	x.advance(&b)
	switch err := x.conn.SendBatch(ctx, &b).Close(); {
	case errors.Is(err, errMoved):
		return x.rollback(ctx)
	case err != nil:
		if _, refused := refusal(err); refused {
			return errors.Join(err, x.rollback(ctx))
		}
		return plain("write", err)
	}
	x.result.Upserts, x.result.Deletes = upserts, deletes
	return x.commit(ctx)
}

// oneByOne applies the batch after some of its rows were refused: halves it until each of them is known. Under Fail the first is the
// error, and nothing is applied.
func (x *transaction) oneByOne(ctx context.Context) error {
	var b pgx.Batch
	x.begin(&b)
	b.Queue("set constraints all immediate")
	switch err := x.conn.SendBatch(ctx, &b).Close(); {
	case errors.Is(err, errMoved):
		return x.rollback(ctx)
	case err != nil:
		return plain("lock the offset", err)
	}
	if err := x.halve(ctx, x.batch.Rows); err != nil {
		if _, refused := errors.AsType[*sink.RefusedError](err); refused {
			err = errors.Join(err, x.rollback(ctx))
		}
		return err
	}
	b = pgx.Batch{}
	x.advance(&b)
	if err := x.conn.SendBatch(ctx, &b).Close(); err != nil {
		return plain("move the offset", err)
	}
	return x.commit(ctx)
}

// halve writes rows in their order, as far as they are taken.
func (x *transaction) halve(ctx context.Context, rows []sink.Row) error {
	if len(rows) == 0 {
		return nil
	}
	var b pgx.Batch
	b.Queue("savepoint halve")
	upserts, deletes, err := x.write(&b, rows)
	if err != nil {
		return err
	}
	b.Queue("release savepoint halve")
	err = x.conn.SendBatch(ctx, &b).Close()
	if err == nil {
		x.result.Upserts, x.result.Deletes = x.result.Upserts+upserts, x.result.Deletes+deletes
		return nil
	}
	r, refused := refusal(err)
	if !refused {
		return plain("write", err)
	}
	if _, err := x.conn.Exec(ctx, "rollback to savepoint halve; release savepoint halve"); err != nil {
		return plain("roll back", err)
	}
	if len(rows) > 1 {
		if err := x.halve(ctx, rows[:len(rows)/2]); err != nil {
			return err
		}
		return x.halve(ctx, rows[len(rows)/2:])
	}
	r.Offset = rows[0].Offset
	if x.batch.OnError != sink.Skip {
		return &sink.RefusedError{Topic: x.batch.Place.Topic, Partition: x.batch.Place.Partition, Refusal: r}
	}
	x.result.Refused = append(x.result.Refused, r)
	return nil
}

// begin queues the beginning of the transaction: the offset, locked and compared.
func (x *transaction) begin(b *pgx.Batch) {
	place := x.batch.Place
	b.Queue("begin")
	b.Queue("select set_config('idle_in_transaction_session_timeout', $1, true)", fmt.Sprint(x.idle.Milliseconds()))
	b.Queue(x.lock, place.Sink, place.Topic, place.Partition).QueryRow(func(row pgx.Row) error {
		var id [16]byte
		err := row.Scan(&id, &x.result.Next)
		switch {
		case errors.Is(err, pgx.ErrNoRows), err == nil && id != place.TopicID && id != [16]byte{} && place.TopicID != [16]byte{}:
			x.result.Next = -1
			return errMoved
		case err == nil && x.result.Next != x.batch.From:
			return errMoved
		}
		return err
	})
}

// write queues the rows: of a table the last change of each key, deletions first.
func (x *transaction) write(b *pgx.Batch, rows []sink.Row) (upserts, deletes int, err error) {
	if x.append {
		return len(rows), 0, x.queue(b, x.upsert, rows)
	}
	var kept, gone []sink.Row
	for _, r := range sink.Last(rows) {
		if r.Values == nil {
			gone = append(gone, r)
		} else {
			kept = append(kept, r)
		}
	}
	if len(gone) > 0 {
		args, err := x.removeArgs(gone)
		if err != nil {
			return 0, 0, err
		}
		b.Queue(x.remove, args...)
	}
	return len(kept), len(gone), x.queue(b, x.upsert, kept)
}

func (x *transaction) queue(b *pgx.Batch, statement string, rows []sink.Row) error {
	if len(rows) == 0 {
		return nil
	}
	args, err := x.upsertArgs(x.batch.Place.Partition, rows)
	if err != nil {
		return err
	}
	b.Queue(statement, args...)
	return nil
}

// advance queues the new offset.
func (x *transaction) advance(b *pgx.Batch) {
	place := x.batch.Place
	b.Queue(x.prepared.advance, place.Sink, place.Topic, place.Partition, x.batch.Next, x.batch.Epoch, place.TopicID, x.batch.Caught, interval(x.batch.Age))
}

// commit ends the transaction. An error does not say that it did not commit, unless it is the database's.
func (x *transaction) commit(ctx context.Context) error {
	tag, err := x.conn.Exec(ctx, "commit")
	if err != nil {
		if _, refused := refusal(err); refused { // constraints that were deferred
			return err
		}
		return plain("commit", err)
	}
	if tag.String() != "COMMIT" {
		return fmt.Errorf("postgres: commit: the database answered %q", tag.String())
	}
	x.result.Next = x.batch.Next
	return nil
}

// rollback ends the transaction so that the connection can be used again.
func (x *transaction) rollback(ctx context.Context) error {
	if _, err := x.conn.Exec(ctx, "rollback"); err != nil {
		if _, ok := errors.AsType[*pgconn.PgError](err); !ok {
			return x.conn.Close(ctx) // the pool makes another
		}
		return plain("roll back", err)
	}
	return nil
}
