package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/internal/fakekafka"
	"github.com/statemesh/statemesh/internal/postgrestest"
	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/declared"
	"github.com/statemesh/statemesh/processor/expr"
	"github.com/statemesh/statemesh/sink"
)

// shared is the server of all tests but those that kill one; nil when none is installed, which errShared says.
var (
	shared    *postgrestest.Server
	errShared error
)

func TestMain(m *testing.M) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if shared, errShared = postgrestest.Start(ctx); errShared == nil {
		defer func() { _ = shared.Close() }()
	}
	m.Run()
}

// server is the shared one, or the end of the test.
func server(tb testing.TB) *postgrestest.Server {
	tb.Helper()
	postgrestest.Need(tb, errShared)
	return shared
}

var schemas struct {
	sync.Mutex
	n int
}

// newSchema makes a schema that nobody else uses.
func newSchema(tb testing.TB, db *pgxpool.Pool) string {
	tb.Helper()
	schemas.Lock()
	schemas.n++
	name := fmt.Sprintf("test_%d", schemas.n)
	schemas.Unlock()
	run(tb, db, "create schema "+name)
	return name
}

// connect is the test's own connection.
func connect(tb testing.TB, s *postgrestest.Server) *pgxpool.Pool {
	tb.Helper()
	db, err := pgxpool.New(tb.Context(), s.URL())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(db.Close)
	return db
}

func run(tb testing.TB, db *pgxpool.Pool, sql string, args ...any) {
	tb.Helper()
	if _, err := db.Exec(tb.Context(), sql, args...); err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
}

// ask returns rows as text, columns joined by |.
func ask(tb testing.TB, db *pgxpool.Pool, sql string, args ...any) []string {
	tb.Helper()
	rows, err := db.Query(tb.Context(), sql, args...)
	if err == nil {
		var out []string
		out, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
			values, err := row.Values()
			parts := make([]string, len(values))
			for i, v := range values {
				parts[i] = fmt.Sprint(v)
			}
			return strings.Join(parts, "|"), err
		})
		if err == nil {
			return out
		}
	}
	tb.Fatalf("%s: %v", sql, err)
	return nil
}

const (
	testTopic = "app-prices-changelog"
	testTable = "prices"
)

// content is what the topic of a world has.
func content(kind declared.Kind) declared.Content {
	return declared.Content{
		Name: "prices", Kind: kind, KeyFormat: "string", KeyType: expr.String, Changelog: "prices-changelog", Topic: testTopic,
		Columns: []expr.Column{{Name: "n", Type: expr.Int}, {Name: "name", Type: expr.String}, {Name: "x", Type: expr.Double}},
	}
}

// world is a topic that somebody writes to in transactions, and what was committed of it.
type world struct {
	tb      testing.TB
	brokers []string
	client  *kgo.Client // transactional
	admin   *kadm.Client
	parts   int32

	mu   sync.Mutex
	rng  *rand.Rand
	n    int
	rows map[string]string // of the table, by key
	log  map[string]string // of the stream, by partition and offset
}

// newFake starts a broker that is none.
func newFake(tb testing.TB, partitions int32) []string {
	tb.Helper()
	cluster, err := fakekafka.New(kfake.NumBrokers(1), kfake.SeedTopics(partitions, testTopic),
		kfake.BrokerConfigs(map[string]string{"group.initial.rebalance.delay.ms": "0"}))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(cluster.Close)
	return cluster.ListenAddrs()
}

func newWorld(tb testing.TB, brokers []string, partitions int32, seed uint64) *world {
	tb.Helper()
	tb.Logf("seed %d", seed)
	w := &world{tb: tb, brokers: brokers, parts: partitions, rng: rand.New(rand.NewPCG(seed, 1)), rows: map[string]string{}, log: map[string]string{}}
	var err error
	w.client, err = kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.TransactionalID("writer"), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0), kgo.DisableClientMetrics())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(w.client.Close)
	w.admin = kadm.NewClient(w.client)
	return w
}

// write makes transactions, and aborts a third of them.
func (w *world) write(ctx context.Context, transactions int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for range transactions {
		if err := w.client.BeginTransaction(); err != nil {
			return err
		}
		var recs []*kgo.Record
		for range 1 + w.rng.IntN(8) {
			w.n++
			key := w.rng.IntN(40)
			rec := &kgo.Record{Topic: testTopic, Partition: int32(key) % w.parts, Key: fmt.Appendf(nil, "k%02d", key)}
			if w.rng.IntN(5) > 0 {
				rec.Value = fmt.Appendf(nil, `{"n":%d,"name":"name %d","x":%d.5}`, w.n, w.n%7, w.n%11)
				if w.rng.IntN(4) == 0 {
					rec.Value = fmt.Appendf(nil, `{"n":%d}`, w.n)
				}
			}
			recs = append(recs, rec)
		}
		if err := w.client.ProduceSync(ctx, recs...).FirstErr(); err != nil {
			return err
		}
		commit := kgo.TransactionEndTry(w.rng.IntN(3) > 0)
		if err := w.client.EndTransaction(ctx, commit); err != nil {
			return err
		}
		if commit {
			w.note(recs)
		}
	}
	return nil
}

// note takes committed records into what must be there.
func (w *world) note(recs []*kgo.Record) {
	for _, rec := range recs {
		text := "<nil>|<nil>|<nil>"
		if rec.Value != nil {
			var v struct {
				N    int
				Name *string
				X    *float64
			}
			if err := json.Unmarshal(rec.Value, &v); err != nil {
				w.tb.Error(err)
			}
			text = fmt.Sprint(v.N)
			for _, p := range []any{v.Name, v.X} {
				switch p := p.(type) {
				case *string:
					if p != nil {
						text += "|" + *p
						continue
					}
				case *float64:
					if p != nil {
						text += "|" + fmt.Sprint(*p)
						continue
					}
				}
				text += "|<nil>"
			}
		}
		w.log[fmt.Sprintf("%d|%d", rec.Partition, rec.Offset)] = string(rec.Key) + "|" + text
		if rec.Value == nil {
			delete(w.rows, string(rec.Key))
		} else {
			w.rows[string(rec.Key)] = text
		}
	}
}

// lines is what a table must hold, sorted.
func (w *world) lines(kind declared.Kind) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	want := w.rows
	if kind == declared.Stream {
		want = w.log
	}
	var out []string
	for _, k := range slices.Sorted(maps.Keys(want)) {
		out = append(out, k+"|"+want[k])
	}
	slices.Sort(out)
	return out
}

// holds compares a table with what was committed.
func (w *world) holds(kind declared.Kind, db *pgxpool.Pool, schema string) {
	w.tb.Helper()
	columns := "key, n, name, x"
	if kind == declared.Stream {
		columns = "topic_partition, topic_offset, key, n, name, x"
	}
	have := ask(w.tb, db, "select "+columns+" from "+schema+"."+testTable)
	slices.Sort(have)
	if d := cmp.Diff(w.lines(kind), have); d != "" {
		w.tb.Errorf("the table is not what was committed (-want +have):\n%s", d)
	}
}

// reached waits until the database stands at the ends of all partitions.
func (w *world) reached(db *pgxpool.Pool, schema, id string) {
	w.tb.Helper()
	ctx, cancel := context.WithTimeout(w.tb.Context(), time.Minute)
	defer cancel()
	if err := w.waitReached(ctx, db, schema, id); err != nil {
		w.tb.Fatal(err)
	}
}

func (w *world) waitReached(ctx context.Context, db *pgxpool.Pool, schema, id string) error {
	ends, err := w.admin.ListCommittedOffsets(ctx, testTopic)
	if err != nil {
		return err
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		left := 0
		ends.Each(func(o kadm.ListedOffset) {
			var next int64
			err := db.QueryRow(ctx, "select next_offset from "+schema+".statemesh_offsets where sink = $1 and partition = $2", id, o.Partition).Scan(&next)
			if err != nil || next < o.Offset {
				left++
			}
		})
		if left == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%d partitions do not come to their ends: %w", left, context.Cause(ctx))
		}
	}
}

// config of a sink that is in a hurry.
func (w *world) config(kind declared.Kind, t sink.Target) sink.Config {
	log := slog.New(slog.DiscardHandler)
	if os.Getenv("STATEMESH_TEST_LOG") != "" {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	source := sink.FromChangelog
	if kind == declared.Stream {
		source = sink.FromTopic
	}
	return sink.Config{
		ApplicationID: "app", Name: "prices", Kafka: processor.KafkaConfig{Brokers: w.brokers}, Content: content(kind), Source: source, Target: t,
		BatchRecords: 20, Linger: time.Millisecond, Backoff: time.Millisecond, MaxBackoff: 20 * time.Millisecond, Idle: 20 * time.Millisecond,
		Logger: log,
	}
}

// running is a sink that runs.
type running struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

// start runs a sink; the test waits for it at its end, whatever it is.
func start(tb testing.TB, cfg sink.Config) *running {
	tb.Helper()
	s, err := sink.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	r := &running{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = s.Run(ctx)
	}()
	tb.Cleanup(func() { cancel(); <-r.done })
	return r
}

// stop ends the sink and returns what Run returned.
func (r *running) stop() error {
	r.cancel()
	<-r.done
	return r.err
}

// newTestTarget is a target of a schema of its own, whose connections the dialler makes.
func newTestTarget(tb testing.TB, s *postgrestest.Server, schema string, dial func(ctx context.Context, network, addr string) (connection, error), change ...func(*Config)) *Target {
	tb.Helper()
	cfg := Config{URL: s.URL(), Schema: schema, Table: testTable, IdleTimeout: 5 * time.Second}
	for _, c := range change {
		c(&cfg)
	}
	cfg = cfg.withDefaults()
	pc, err := pgxpool.ParseConfig(cfg.URL)
	if err != nil {
		tb.Fatal(err)
	}
	if dial != nil {
		pc.ConnConfig.DialFunc = dial
	}
	t, err := newTarget(context.WithoutCancel(tb.Context()), cfg, pc)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(t.Close)
	return t
}
