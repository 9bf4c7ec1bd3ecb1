package views_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/examples/flights"
	"github.com/statemesh/statemesh/internal/fakekafka"
	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/views"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

// mesh is one instance that fills views, with a broker of its own.
type mesh struct {
	t        *testing.T
	client   *kgo.Client
	rt       *processor.Runtime
	metrics  *prometheus.Registry
	stop     context.CancelFunc
	ended    chan error
	finished bool
}

const app = "views"

func startMesh(t *testing.T, partitions int32, topic string, all []views.View, change func(*processor.Config)) *mesh {
	t.Helper()
	return startMeshOf(t, partitions, []string{topic}, all, change)
}

// startMeshOf is startMesh with several topics; records go to the first unless they name another. The others are compacted.
func startMeshOf(t *testing.T, partitions int32, topics []string, all []views.View, change func(*processor.Config)) *mesh {
	t.Helper()
	cluster, err := fakekafka.New(kfake.NumBrokers(1), kfake.SeedTopics(partitions, topics[0]),
		kfake.BrokerConfigs(map[string]string{"group.initial.rebalance.delay.ms": "0"}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	m := &mesh{t: t, metrics: prometheus.NewRegistry(), ended: make(chan error, 1)}
	m.client, err = kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.DefaultProduceTopic(topics[0]),
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.client.Close)
	if tables := topics[1:]; len(tables) > 0 {
		compact := "compact"
		if _, err := kadm.NewClient(m.client).CreateTopics(t.Context(), partitions, 1, map[string]*string{"cleanup.policy": &compact}, tables...); err != nil {
			t.Fatal(err)
		}
	}
	top, err := views.Topology(all)
	if err != nil {
		t.Fatal(err)
	}
	stores, err := layered.Open(t.Context(), layered.Config{Dir: t.TempDir(), MinFreeBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	cfg := processor.Config{
		ApplicationID: app, ProcessID: "one", Incarnation: "1", Endpoint: "one:1", NumStreamThreads: 2,
		OffsetReset: processor.ResetEarliest, Registerer: m.metrics, Kafka: processor.KafkaConfig{Brokers: cluster.ListenAddrs()},
	}
	if change != nil {
		change(&cfg)
	}
	if m.rt, err = processor.New(cfg, top, stores, router.NewTable()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	m.stop = stop
	go func() {
		moving, still := context.WithCancel(ctx)
		moved := make(chan error, 1)
		go func() { moved <- stores.Run(moving) }()
		err := m.rt.Run(ctx)
		still()
		if e := <-moved; !errors.Is(e, context.Canceled) {
			err = errors.Join(err, e)
		}
		m.ended <- errors.Join(err, stores.Close())
	}()
	t.Cleanup(func() {
		if err := m.end(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// end stops the instance and returns what it ended with.
func (m *mesh) end() error {
	m.stop()
	if m.finished {
		return nil
	}
	m.finished = true
	return <-m.ended
}

func (m *mesh) produce(records []*kgo.Record) {
	m.t.Helper()
	if err := m.client.ProduceSync(m.t.Context(), records...).FirstErr(); err != nil {
		m.t.Fatal(err)
	}
}

// waitCaughtUp returns when the application has committed everything in the topics it reads. How long that takes is the
// machine's affair: the limit is that of the whole test.
func (m *mesh) waitCaughtUp() {
	m.t.Helper()
	for {
		left, err := m.lag()
		if err == nil && left == 0 {
			return
		}
		select {
		case err := <-m.ended:
			m.finished = true
			m.t.Fatalf("the instance ended: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// lag counts what the application has not committed of its topics, those it made included.
func (m *mesh) lag() (int64, error) {
	admin := kadm.NewClient(m.client)
	topics, err := admin.ListTopics(m.t.Context())
	if err != nil {
		return 0, err
	}
	names := slices.DeleteFunc(topics.Names(), func(t string) bool { return strings.HasSuffix(t, "-changelog") })
	// The offsets first: a commit in between writes to repartition topics, too.
	committed, err := admin.FetchOffsets(m.t.Context(), app)
	if err != nil {
		return 0, err
	}
	ends, err := admin.ListEndOffsets(m.t.Context(), names...)
	if err != nil {
		return 0, err
	}
	var left int64
	ends.Each(func(end kadm.ListedOffset) {
		at := int64(0)
		if o, ok := committed.Lookup(end.Topic, end.Partition); ok {
			at = max(at, o.At)
		}
		left += end.Offset - at
	})
	return left, errors.Join(ends.Error(), committed.Error())
}

// read waits while the partition is on its way from one thread to the other.
func (m *mesh) read(view store.Name, p store.Partition) store.Reading {
	m.t.Helper()
	for {
		r, err := m.rt.Read(m.t.Context(), view, p, store.ReadOptions{})
		if err == nil {
			return r
		}
		notReady, ok := errors.AsType[*store.NotReadyError](err)
		if !ok {
			m.t.Fatal(err)
		}
		<-time.After(notReady.RetryAfter)
	}
}

// dump reads all partitions of a view.
func (m *mesh) dump(view string, partitions int32) map[string]store.Value {
	m.t.Helper()
	rows := make(map[string]store.Value)
	for p := range store.Partition(partitions) {
		r := m.read(store.Name(view), p)
		kv, err := r.KeyValue()
		if err != nil {
			m.t.Fatal(err)
		}
		it, err := kv.Scan(m.t.Context(), store.Scan{})
		if err != nil {
			m.t.Fatal(err)
		}
		for it.Next() {
			e := it.Entry()
			if _, twice := rows[string(e.Key)]; twice {
				m.t.Errorf("%s: a key is in two partitions", view)
			}
			if want := router.PartitionFor(e.Key, partitions); want != p {
				m.t.Errorf("%s: a key is in partition %d, readers look in %d", view, p, want)
			}
			rows[string(e.Key)] = e.Value
		}
		if err := it.Err(); err != nil {
			m.t.Fatal(err)
		}
		it.Close()
		r.Close()
	}
	return rows
}

// dropped is the number of dropped records by reason.
func (m *mesh) dropped() map[string]float64 {
	m.t.Helper()
	families, err := m.metrics.Gather()
	if err != nil {
		m.t.Fatal(err)
	}
	counts := make(map[string]float64)
	for _, f := range families {
		if f.GetName() != "statemesh_dropped_records_total" {
			continue
		}
		for _, metric := range f.GetMetric() {
			for _, l := range metric.GetLabel() {
				if l.GetName() == "reason" {
					counts[l.GetValue()] += metric.GetCounter().GetValue()
				}
			}
		}
	}
	return counts
}

func firstFlights(n int) iter.Seq2[flights.Row, error] {
	return func(yield func(flights.Row, error) bool) {
		for r, err := range flights.Rows() {
			if err == nil && r.Number > n || !yield(r, err) {
				return
			}
		}
	}
}

// The views of the demo, through a broker, repartition topics and stores, hold what one plain pass computes, each key in the
// partition where a reader looks for it (MR-03).
func TestFlights(t *testing.T) {
	const partitions, rows = 4, 5_000
	of := func(name string, typ views.Type, field string, key ...string) views.View {
		return views.View{Name: name, Topic: "flights", Format: views.CSV, Columns: flights.Columns(), Key: key, Type: typ, Field: field}
	}
	m := startMesh(t, partitions, "flights", []views.View{
		of("by_dest", views.Count, "", "dest"),
		of("by_carrier", views.Count, "", "carrier"),
		of("by_route", views.Count, "", "origin", "dest"),
		of("delays", views.StatsOf, "dep_delay", "carrier"),
		of("latest", views.Latest, ""),
		of("latest_by_field", views.Latest, "", "tailnum"),
	}, nil)
	want, err := flights.Compute(firstFlights(rows))
	if err != nil {
		t.Fatal(err)
	}
	routes := make(map[string]int64)
	var records []*kgo.Record
	for r, err := range firstFlights(rows) {
		if err != nil {
			t.Fatal(err)
		}
		rec := &kgo.Record{Value: r.Value(), Timestamp: time.UnixMilli(r.EventTime)}
		if r.Tailnum != "" {
			rec.Key = []byte(r.Tailnum)
		}
		records = append(records, rec)
		routes[views.EncodeKey(r.Origin, r.Dest)]++
	}
	m.produce(records)
	m.waitCaughtUp()

	counts := func(view string) map[string]int64 {
		n := make(map[string]int64)
		for k, v := range m.dump(view, partitions) {
			n[k] = int64(binary.BigEndian.Uint64(v.Data))
		}
		return n
	}
	for view, want := range map[string]map[string]int64{"by_dest": want.ByDest, "by_carrier": want.ByCarrier, "by_route": routes} {
		if diff := cmp.Diff(want, counts(view)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", view, diff)
		}
	}
	delays := make(map[string]flights.Delays)
	for k, v := range m.dump("delays", partitions) {
		var s views.Statistics
		if err := json.Unmarshal(v.Data, &s); err != nil {
			t.Fatal(err)
		}
		delays[k] = flights.Delays{Count: s.Count, Sum: int64(s.Sum), Min: int64(s.Min), Max: int64(s.Max)}
		if s.Avg != delays[k].Mean() {
			t.Errorf("%s: average %v, want %v", k, s.Avg, delays[k].Mean())
		}
	}
	if diff := cmp.Diff(want.DelayByCarrier, delays); diff != "" {
		t.Errorf("delays (-want +got):\n%s", diff)
	}
	for _, view := range []string{"latest", "latest_by_field"} {
		got := m.dump(view, partitions)
		if !slices.Equal(slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want.LatestByTailnum))) {
			t.Errorf("%s: %d aircraft, want %d", view, len(got), len(want.LatestByTailnum))
		}
		for k, v := range got {
			var object map[string]string
			if err := json.Unmarshal(v.Data, &object); err != nil {
				t.Fatalf("%s: %s: %v", view, v.Data, err)
			}
			row := want.LatestByTailnum[k]
			if diff := cmp.Diff(row.Object(), object); diff != "" || v.Timestamp != row.EventTime {
				t.Errorf("%s: %s at %d, want %d (-want +got):\n%s", view, k, v.Timestamp, row.EventTime, diff)
			}
		}
	}
	var noTailnum, noDelay float64
	for r, err := range firstFlights(rows) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Tailnum == "" {
			noTailnum++
		}
		if r.DepDelay == "" {
			noDelay++
		}
	}
	if got := m.dropped(); got["null key"] != 2*noTailnum || got["missing field"] != noDelay || got["older than the latest"] > 0 {
		t.Errorf("dropped %v, want null key %g and missing field %g", got, 2*noTailnum, noDelay)
	}
	if err := m.end(); err != nil {
		t.Error(err)
	}
}

// PL-13: records that cannot be decoded, skipped by setting, at the end of a partition too, are passed for good and
// counted once each; no view of the topic has half of one.
func TestUndecodableRecordsAreSkipped(t *testing.T) {
	view := func(name string, typ views.Type, field string) views.View {
		return views.View{Name: name, Topic: "in", Format: views.JSON, Key: []string{"k"}, Type: typ, Field: field}
	}
	m := startMesh(t, 1, "in", []views.View{view("count", views.Count, ""), view("sum", views.Sum, "n")},
		func(c *processor.Config) { c.DeserializationHandler = processor.Continue })
	var records []*kgo.Record
	for i := range 50 {
		records = append(records, &kgo.Record{Value: fmt.Appendf(nil, `{"k":"a","n":%d}`, i)})
	}
	for i := range 100 {
		records = append(records, &kgo.Record{Value: fmt.Appendf(nil, `{"k":"a","n":"%d"}`, i)})
	}
	records = append(records, &kgo.Record{Value: []byte(`{"k":`)})
	m.produce(records)
	m.waitCaughtUp()
	rows := m.dump("count", 1)
	if n := binary.BigEndian.Uint64(rows["a"].Data); len(rows) != 1 || n != 50 {
		t.Errorf("%d keys, count %d, want 50", len(rows), n)
	}
	got := m.dropped()
	if want := map[string]float64{"not a number": 100, "invalid json": 1}; !maps.Equal(got, want) {
		t.Errorf("dropped %v, want %v", got, want)
	}
}

// A global table is whole on the instance, and a versioned one knows what was; both from one configuration.
func TestGlobalAndVersionedTables(t *testing.T) {
	const partitions = 3
	m := startMeshOf(t, partitions, []string{"weather", "airlines"}, []views.View{
		{Name: "weather", Topic: "weather", Format: views.JSON, Type: views.Table, History: time.Hour, Timestamp: "at"},
		{Name: "airlines", Topic: "airlines", Format: views.CSV, Columns: []string{"name"}, Type: views.Table, Global: true},
	}, nil)
	var records []*kgo.Record
	for i := range 20 {
		records = append(records, &kgo.Record{Topic: "airlines", Key: fmt.Appendf(nil, "A%d", i), Value: fmt.Appendf(nil, "Airline %d", i)})
	}
	for i, at := range []int64{1000, 3000, 2000} {
		records = append(records, &kgo.Record{Key: []byte("EWR"), Value: fmt.Appendf(nil, `{"at":%d,"n":%d}`, at, i)})
	}
	m.produce(records)
	for {
		r := m.read("airlines", 0)
		kv, err := r.KeyValue()
		if err != nil {
			t.Fatal(err)
		}
		n, err := kv.ApproximateCount(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		v, missing := kv.Get(t.Context(), []byte("A19"))
		r.Close()
		if n == 20 && missing == nil {
			if string(v.Data) != `{"name":"Airline 19"}` {
				t.Errorf("%s", v.Data)
			}
			break
		}
		<-time.After(20 * time.Millisecond)
	}
	for p := router.PartitionFor([]byte("EWR"), partitions); ; <-time.After(20 * time.Millisecond) {
		r := m.read("weather", p)
		versions, err := r.Versions()
		if err != nil {
			t.Fatal(err)
		}
		late, err := versions.GetAsOf(t.Context(), []byte("EWR"), 2500)
		latest, err2 := versions.Get(t.Context(), []byte("EWR"))
		r.Close()
		if err != nil || err2 != nil || string(late.Data) != `{"at":2000,"n":2}` {
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				t.Fatal(err)
			}
			continue // not all has arrived
		}
		if string(latest.Data) != `{"at":3000,"n":1}` || late.ValidTo != 3000 || latest.ValidTo != store.NoEnd {
			t.Errorf("%s until %d, then %s until %d", late.Data, late.ValidTo, latest.Data, latest.ValidTo)
		}
		return
	}
}
