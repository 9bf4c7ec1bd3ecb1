package sink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/internal/fakekafka"
	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/declared"
	"github.com/statemesh/statemesh/processor/expr"
)

const runTopic = "app-t-changelog"

// memory is a target without a database.
type memory struct {
	mu      sync.Mutex
	at      map[int32]Offset
	rows    map[string]any
	batches int
	closed  bool
	// fail is asked before a batch is applied, and open before the target is.
	fail   func(b Batch) error
	open   func() error
	refuse func(r Row) bool
	// applying is called before.
	applying func(b Batch)
	change   chan struct{}
}

func newMemory() *memory {
	return &memory{at: map[int32]Offset{}, rows: map[string]any{}, change: make(chan struct{}, 1)}
}

func (m *memory) Open(context.Context, Schema) error {
	if m.open != nil {
		return m.open()
	}
	return nil
}

func (m *memory) Begin(_ context.Context, place Place, start int64) (Offset, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, ok := m.at[place.Partition]
	if !ok {
		at = Offset{TopicID: place.TopicID, Next: start, Epoch: -1}
		m.at[place.Partition] = at
	}
	return at, nil
}

func (m *memory) Apply(_ context.Context, b Batch) (Result, error) {
	if m.applying != nil {
		m.applying(b)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	defer func() {
		select {
		case m.change <- struct{}{}:
		default:
		}
	}()
	if m.fail != nil {
		if err := m.fail(b); err != nil {
			return Result{}, err
		}
	}
	at := m.at[b.Place.Partition]
	if at.Next != b.From {
		return Result{Next: at.Next}, nil
	}
	res := Result{Next: b.Next}
	for _, r := range b.Rows {
		if m.refuse != nil && m.refuse(r) {
			refusal := Refusal{Offset: r.Offset, Code: "23514", Detail: "constraint c"}
			if b.OnError == Fail {
				return Result{}, &RefusedError{Topic: b.Place.Topic, Partition: b.Place.Partition, Refusal: refusal}
			}
			res.Refused = append(res.Refused, refusal)
			continue
		}
		if r.Values == nil {
			res.Deletes++
			delete(m.rows, r.Key[0].(string))
			continue
		}
		res.Upserts++
		m.rows[r.Key[0].(string)] = r.Values[0]
	}
	m.batches++
	at.Next, at.Epoch = b.Next, b.Epoch
	if b.Caught {
		at.Age = b.Age
	}
	m.at[b.Place.Partition] = at
	return res, nil
}

func (m *memory) Close() { m.closed = true }

// until waits for what the target holds.
func (m *memory) until(t *testing.T, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		m.mu.Lock()
		ok := done()
		m.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-m.change:
		case <-ctx.Done():
			t.Fatalf("it does not come: %v", m.at)
		}
	}
}

// kafka is a fake broker with a compacted topic of one partition, and a client.
type kafka struct {
	t       *testing.T
	brokers []string
	client  *kgo.Client
	admin   *kadm.Client
}

func newKafka(t *testing.T, policy string) *kafka {
	t.Helper()
	cluster, err := fakekafka.New(kfake.NumBrokers(1), kfake.BrokerConfigs(map[string]string{"group.initial.rebalance.delay.ms": "0"}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ProducerLinger(0), kgo.DisableClientMetrics())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	k := &kafka{t: t, brokers: cluster.ListenAddrs(), client: client, admin: kadm.NewClient(client)}
	k.create(policy)
	return k
}

func (k *kafka) create(policy string) {
	k.t.Helper()
	if _, err := k.admin.CreateTopic(k.t.Context(), 1, 1, map[string]*string{"cleanup.policy": &policy}, runTopic); err != nil {
		k.t.Fatal(err)
	}
}

// write writes records "key=value"; without "=" a deletion.
func (k *kafka) write(records ...string) {
	k.t.Helper()
	for _, text := range records {
		key, value, ok := strings.Cut(text, "=")
		rec := &kgo.Record{Topic: runTopic, Key: []byte(key)}
		if ok {
			rec.Value = fmt.Appendf(nil, `{"n":%s}`, value)
		}
		if err := k.client.ProduceSync(k.t.Context(), rec).FirstErr(); err != nil {
			k.t.Fatal(err)
		}
	}
}

func (k *kafka) config(m *memory) Config {
	return Config{
		ApplicationID: "app", Name: "s", Kafka: processor.KafkaConfig{Brokers: k.brokers, MetadataMaxAge: time.Second}, Target: m,
		Content: declared.Content{Kind: declared.Table, KeyFormat: "string", Changelog: "t-changelog", Columns: []expr.Column{{Name: "n", Type: expr.Int}}},
		Linger:  time.Millisecond, Backoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond, Idle: 10 * time.Millisecond,
	}
}

// runs runs a sink; end ends it and returns what Run returned.
func runs(t *testing.T, cfg Config) (ended chan struct{}, end func() error) {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended = make(chan struct{})
	var out error
	go func() {
		defer close(ended)
		out = s.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return ended, func() error {
		cancel()
		<-ended
		return out
	}
}

// TestPolicies: a record that is no row ends the sink after those before it, or is passed over; so for one that is not decoded and one that
// the database refuses.
func TestPolicies(t *testing.T) {
	for _, how := range []string{"undecodable", "refused"} {
		for _, policy := range []Policy{Fail, Skip} {
			t.Run(how+"/"+string(policy), func(t *testing.T) {
				k, m := newKafka(t, "compact"), newMemory()
				bad := "c=true"
				reason := "wrong type"
				if how == "refused" {
					bad, reason = "c=-1", "23514"
					m.refuse = func(r Row) bool { return r.Values != nil && r.Values[0] == int64(-1) }
				}
				k.write("a=1", "b=2", "a=3", bad, "b", "d=4")
				cfg := k.config(m)
				cfg.OnError = policy
				var logged strings.Builder
				cfg.Logger = slog.New(slog.NewTextHandler(&logged, nil))
				reg := prometheus.NewPedanticRegistry()
				cfg.Registerer = reg
				ended, end := runs(t, cfg)
				if policy == Fail {
					<-ended
					err := end()
					refused, ok := errors.AsType[*RefusedError](err)
					if !ok || refused.Offset != 3 || refused.Code != reason {
						t.Errorf("%v, want offset 3, %s", err, reason)
					}
					if m.at[0].Next != 3 || !reflect.DeepEqual(m.rows, map[string]any{"a": int64(3), "b": int64(2)}) {
						t.Errorf("%v %v", m.at, m.rows)
					}
				} else {
					m.until(t, func() bool { return m.at[0].Next == 6 })
					if err := end(); err != nil {
						t.Error(err)
					}
					if !reflect.DeepEqual(m.rows, map[string]any{"a": int64(3), "d": int64(4)}) {
						t.Errorf("%v", m.rows)
					}
					if have := value(t, reg, "statemesh_sink_refused_total", "reason", reason); have != 1 {
						t.Errorf("%v refused, want 1", have)
					}
					if have := value(t, reg, "statemesh_sink_rows_total"); have != 4 {
						t.Errorf("%v rows, want 4", have)
					}
					if have := value(t, reg, "statemesh_sink_deletes_total"); have != 1 {
						t.Errorf("%v deletes, want 1", have)
					}
				}
				if !m.closed {
					t.Error("the target is not closed")
				}
				if strings.Contains(logged.String(), "true") || strings.Contains(logged.String(), "-1}") {
					t.Errorf("a record was logged:\n%s", &logged)
				}
			})
		}
	}
}

// value of a metric with the sink's label, and more labels.
func value(t *testing.T, reg *prometheus.Registry, name string, labels ...string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			has := func(k, v string) bool {
				return slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == k && l.GetValue() == v })
			}
			if has("sink", "s") && (len(labels) == 0 || has(labels[0], labels[1])) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("there is no %s %v", name, labels)
	return 0
}

// TestTriedAgain: a database that is away is asked again, for opening and for a batch whose answer was lost.
func TestTriedAgain(t *testing.T) {
	k, m := newKafka(t, "compact"), newMemory()
	away := errors.New("away")
	opens, tries := 0, 0
	m.open = func() error {
		if opens++; opens < 3 {
			return away
		}
		return nil
	}
	m.fail = func(b Batch) error {
		if tries++; tries == 2 { // done, and the answer is lost
			at := m.at[0]
			at.Next = b.Next
			m.at[0] = at
			m.rows["a"] = int64(1)
		}
		if tries < 3 {
			return away
		}
		return nil
	}
	k.write("a=1")
	cfg := k.config(m)
	reg := prometheus.NewPedanticRegistry()
	cfg.Registerer = reg
	_, end := runs(t, cfg)
	m.until(t, func() bool { return tries >= 3 })
	k.write("b=2")
	m.until(t, func() bool { return m.at[0].Next == 2 })
	if err := end(); err != nil {
		t.Error(err)
	}
	if !reflect.DeepEqual(m.rows, map[string]any{"a": int64(1), "b": int64(2)}) || opens != 3 {
		t.Errorf("%v, opened %d times", m.rows, opens)
	}
	if have := value(t, reg, "statemesh_sink_errors_total", "reason", "unreachable"); have != 4 {
		t.Errorf("%v errors, want 4", have)
	}
	if have := value(t, reg, "statemesh_sink_rows_total"); have != 2 {
		t.Errorf("%v rows, want 2", have)
	}
}

// TestStopWhileAway: a sink whose database is away ends when it is told to, from opening and from a batch.
func TestStopWhileAway(t *testing.T) {
	k := newKafka(t, "compact")
	k.write("a=1")
	for _, where := range []string{"open", "apply"} {
		m := newMemory()
		asked := make(chan struct{}, 1)
		away := func() error {
			select {
			case asked <- struct{}{}:
			default:
			}
			return errors.New("away")
		}
		if where == "open" {
			m.open = away
		} else {
			m.fail = func(Batch) error { return away() }
		}
		_, end := runs(t, k.config(m))
		<-asked
		if err := end(); err != nil {
			t.Errorf("%s: %v", where, err)
		}
	}
}

func TestSchemaErrorEnds(t *testing.T) {
	k, m := newKafka(t, "compact"), newMemory()
	m.open = func() error { return &SchemaError{Table: "t"} }
	ended, end := runs(t, k.config(m))
	<-ended
	if _, ok := errors.AsType[*SchemaError](end()); !ok {
		t.Error("a table that does not fit is tried again")
	}
}

// TestRecreatedTopic: a topic that is made anew ends the sink, while it runs and when it is begun again.
func TestRecreatedTopic(t *testing.T) {
	k, m := newKafka(t, "compact"), newMemory()
	k.write("a=1")
	ended, end := runs(t, k.config(m))
	m.until(t, func() bool { return m.at[0].Next == 1 })
	if _, err := k.admin.DeleteTopics(t.Context(), runTopic); err != nil {
		t.Fatal(err)
	}
	k.create("compact")
	<-ended
	if e, ok := errors.AsType[*RecreatedError](end()); !ok || e.Have == e.Want {
		t.Errorf("%v", end())
	}
	ended, end = runs(t, k.config(m))
	<-ended
	if _, ok := errors.AsType[*RecreatedError](end()); !ok {
		t.Errorf("%v", end())
	}
}

// TestGap: records that are gone before they were read are an error, unless later ones have replaced them.
func TestGap(t *testing.T) {
	for _, policy := range []string{"compact", "delete", "compact,delete"} {
		t.Run(policy, func(t *testing.T) {
			k, m := newKafka(t, policy), newMemory()
			k.write("a=1", "b=1", "a=2", "c=3")
			gone := make(kadm.Offsets)
			gone.AddOffset(runTopic, 0, 2, -1)
			if _, err := k.admin.DeleteRecords(t.Context(), gone); err != nil {
				t.Fatal(err)
			}
			m.at[0] = Offset{Next: 1, Epoch: -1}
			cfg := k.config(m)
			reg := prometheus.NewPedanticRegistry()
			cfg.Registerer = reg
			ended, end := runs(t, cfg)
			if policy == "compact" {
				m.until(t, func() bool { return m.at[0].Next == 4 })
				if err := end(); err != nil || !reflect.DeepEqual(m.rows, map[string]any{"a": int64(2), "c": int64(3)}) {
					t.Errorf("%v %v", err, m.rows)
				}
				if have := value(t, reg, "statemesh_sink_gaps_total"); have != 1 {
					t.Errorf("%v gaps, want 1", have)
				}
				return
			}
			<-ended
			if e, ok := errors.AsType[*GapError](end()); !ok || e.Next != 1 || e.Start != 2 {
				t.Errorf("%v", end())
			}
		})
	}
}

func TestTruncatedTopic(t *testing.T) {
	k, m := newKafka(t, "compact"), newMemory()
	k.write("a=1")
	m.at[0] = Offset{Next: 5, Epoch: -1}
	ended, end := runs(t, k.config(m))
	<-ended
	if e, ok := errors.AsType[*TruncatedError](end()); !ok || e.Next != 5 || e.End != 1 {
		t.Errorf("%v", end())
	}
}

// TestStale: who has been behind for longer than deletions are kept ends; who is at the end goes on, however old that is.
func TestStale(t *testing.T) {
	k, m := newKafka(t, "compact"), newMemory()
	k.write("a=1", "b=2")
	m.at[0] = Offset{Next: 2, Epoch: -1, Age: 48 * time.Hour}
	_, end := runs(t, k.config(m))
	m.until(t, func() bool { return m.at[0].Age < time.Hour })
	k.write("c=3")
	m.until(t, func() bool { return m.at[0].Next == 3 })
	if err := end(); err != nil {
		t.Error(err)
	}
	m.at[0] = Offset{Next: 2, Epoch: -1, Age: 48 * time.Hour}
	ended, end := runs(t, k.config(m))
	<-ended
	if e, ok := errors.AsType[*StaleError](end()); !ok || e.Retention != 24*time.Hour {
		t.Errorf("%v", end())
	}
}

// TestStaleWhileRunning: a partition that falls behind for too long while it runs ends as well.
func TestStaleWhileRunning(t *testing.T) {
	s := &Sink{reader: &reader{}}
	p := &part{caughtUp: time.Now().Add(-time.Hour)}
	p.log.Compacts, p.log.DeleteRetention = true, time.Minute
	if _, ok := errors.AsType[*StaleError](s.stale(p)); !ok {
		t.Error("deletions may be forgotten")
	}
	p.log.DeleteRetention = 2 * time.Hour
	if err := s.stale(p); err != nil {
		t.Error(err)
	}
	p.log.DeleteRetention, s.reader.schema.Append = time.Minute, true
	if err := s.stale(p); err != nil {
		t.Errorf("a stream deletes nothing: %v", err)
	}
}

// slow is a target whose transactions take until they are let go, or cut off.
type slow struct {
	*memory
	begun chan struct{}
	done  chan struct{} // nil: never
}

func (s slow) Apply(ctx context.Context, b Batch) (Result, error) {
	close(s.begun)
	select {
	case <-s.done:
		return s.memory.Apply(ctx, b)
	case <-ctx.Done():
		return Result{}, context.Cause(ctx)
	}
}

// TestStopWaits: the transaction in flight is waited for when a sink ends, and cut off when that takes too long.
func TestStopWaits(t *testing.T) {
	k := newKafka(t, "compact")
	k.write("a=1")
	for _, cutOff := range []bool{false, true} {
		target := slow{memory: newMemory(), begun: make(chan struct{})}
		cfg := k.config(target.memory)
		cfg.Idle = time.Hour
		if cutOff {
			cfg.StopTimeout = time.Millisecond
		} else {
			target.done = make(chan struct{})
		}
		cfg.Target = target
		ended, end := runs(t, cfg)
		<-target.begun
		stopped := make(chan error, 1)
		go func() { stopped <- end() }()
		if !cutOff {
			select {
			case <-ended:
				t.Error("ended before the transaction")
			default:
			}
			close(target.done)
		}
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		if have := len(target.rows) == 1; have == cutOff {
			t.Errorf("cut off %v: rows %v", cutOff, target.rows)
		}
	}
}
