package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/statemesh/statemesh/sink"
)

// Target is a table of a database. It is made with New, and opened by the sink.
type Target struct {
	cfg  Config
	pool *pgxpool.Pool
	// ready is what Open has found; it never changes.
	ready atomic.Pointer[prepared]
}

// prepared is a table with the statements for it.
type prepared struct {
	*layout
	schema         sink.Schema
	offsets        string // quoted
	upsert, remove string
	begin          [2]string // insert, select
	lock, advance  string
}

var _ sink.Target = (*Target)(nil)

// New checks the configuration and makes a pool, which connects when it is asked to. Whoever does not run a sink with it calls Close.
func New(ctx context.Context, cfg Config) (*Target, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	pc, err := pgxpool.ParseConfig(cfg.URL)
	if err != nil {
		return nil, &ConfigError{Field: "URL", Reason: err.Error()}
	}
	return newTarget(ctx, cfg, pc)
}

func newTarget(ctx context.Context, cfg Config, pc *pgxpool.Config) (*Target, error) {
	pc.MaxConns = cfg.MaxConns
	if pc.ConnConfig.RuntimeParams["application_name"] == "" {
		pc.ConnConfig.RuntimeParams["application_name"] = "statemesh"
	}
	pc.BeforeConnect = cfg.password
	pool, err := pgxpool.NewWithConfig(ctx, pc)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	return &Target{cfg: cfg, pool: pool}, nil
}

// Close implements [sink.Target]. It waits for connections in use.
func (t *Target) Close() { t.pool.Close() }

// Open implements [sink.Target].
func (t *Target) Open(ctx context.Context, schema sink.Schema) error {
	l, err := newLayout(t.cfg, schema)
	if err != nil {
		return err
	}
	offsets := pgx.Identifier{t.cfg.Schema, t.cfg.OffsetsTable}.Sanitize()
	if err := t.settle(ctx, l, offsets, schema.Sink); err != nil {
		if hasCode(err, readOnly) {
			t.pool.Reset()
		}
		return err
	}
	const where = " where sink = $1 and topic = $2 and partition = $3"
	t.ready.Store(&prepared{
		layout: l, schema: schema, offsets: offsets, upsert: l.upsert(), remove: l.remove(),
		begin: [2]string{
			"insert into " + offsets + " (sink, topic, partition, topic_id, next_offset) values ($1, $2, $3, $4, $5) on conflict do nothing",
			"select topic_id, next_offset, leader_epoch, extract(epoch from now() - caught_up_at)::double precision from " + offsets + where,
		},
		lock: "select topic_id, next_offset from " + offsets + where + " for update",
		advance: "update " + offsets + " set next_offset = $4, leader_epoch = $5, updated_at = now(), " +
			"topic_id = case when $6::uuid = '00000000-0000-0000-0000-000000000000' then topic_id else $6::uuid end, " +
			"caught_up_at = case when $7::boolean then now() - $8::interval else caught_up_at end" + where,
	})
	return nil
}

var errNotOpen = errors.New("postgres: the target is not open")

// Begin implements [sink.Target].
func (t *Target) Begin(ctx context.Context, place sink.Place, start int64) (at sink.Offset, err error) {
	p := t.ready.Load()
	if p == nil {
		return at, errNotOpen
	}
	var b pgx.Batch
	b.Queue(p.begin[0], place.Sink, place.Topic, place.Partition, place.TopicID, start)
	b.Queue(p.begin[1], place.Sink, place.Topic, place.Partition).QueryRow(func(row pgx.Row) error {
		var age float64
		err := row.Scan(&at.TopicID, &at.Next, &at.Epoch, &age)
		at.Age = time.Duration(max(age, 0) * float64(time.Second))
		return err
	})
	if err := t.pool.SendBatch(ctx, &b).Close(); err != nil {
		if hasCode(err, readOnly) {
			t.pool.Reset() // so that the primary is looked for
		}
		return at, t.look(ctx, p, plain("read the offset", err))
	}
	return at, nil
}

// Apply implements [sink.Target].
func (t *Target) Apply(ctx context.Context, b sink.Batch) (sink.Result, error) {
	p := t.ready.Load()
	if p == nil {
		return sink.Result{}, errNotOpen
	}
	res, err := t.apply(ctx, p, b)
	return res, t.look(ctx, p, err)
}

func (t *Target) apply(ctx context.Context, p *prepared, b sink.Batch) (sink.Result, error) {
	conn, err := t.pool.Acquire(ctx)
	if err != nil {
		return sink.Result{}, plain("connect", err)
	}
	defer conn.Release() // which closes a connection with a transaction that has not ended
	x := &transaction{prepared: p, conn: conn.Conn(), batch: &b, idle: t.cfg.IdleTimeout}
	err = x.atOnce(ctx)
	if _, refused := refusal(err); refused {
		x = &transaction{prepared: p, conn: conn.Conn(), batch: &b, idle: t.cfg.IdleTimeout}
		err = x.oneByOne(ctx)
	}
	return x.result, err
}

// look looks at the tables again when err says that they are not what they were: a [*sink.SchemaError] then says what is wrong with them. Else it
// returns err.
func (t *Target) look(ctx context.Context, p *prepared, err error) error {
	if !otherTables(err) {
		return err
	}
	if found, ok := errors.AsType[*sink.SchemaError](t.Open(ctx, p.schema)); ok {
		return found
	}
	return err
}
