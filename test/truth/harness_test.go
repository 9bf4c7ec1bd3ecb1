package truth

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh"
	"github.com/statemesh/statemesh/client"
	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/views"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// always is longer than any of the data: no window closes, none is forgotten, however records arrive.
const always = 20 * 365 * 24 * time.Hour

// record is one row of a data set as it goes into its topic.
type record struct {
	key, value []byte
	timestamp  time.Time
}

// fleet is two instances that keep views of one topic, and a client that asks over the network.
type fleet struct {
	t     *testing.T
	kafka *kgo.Client
	topic string
	app   string
	views []views.View
	*client.Client
}

// run loads a topic and lets a fleet keep the views of it, until everything that is there is in them.
func run(t *testing.T, brokers []string, topic string, partitions int32, rows iter.Seq2[record, error], keep []views.View) *fleet {
	t.Helper()
	f := &fleet{t: t, topic: topic, app: "truth-" + topic, views: keep}
	var err error
	f.kafka, err = kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)), kgo.DefaultProduceTopic(topic))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.kafka.Close)
	forever := "-1" // a broker would delete what bears a time so long ago
	if _, err := kadm.NewClient(f.kafka).CreateTopic(t.Context(), partitions, 1, map[string]*string{"retention.ms": &forever}, topic); err != nil {
		t.Fatal(err)
	}
	f.load(rows)
	seeds := make([]string, 2)
	for i := range seeds {
		seeds[i] = f.start(brokers)
	}
	if f.Client, err = client.New(client.Config{Seeds: seeds, Timeout: time.Minute}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	f.waitCaughtUp()
	return f
}

func (f *fleet) load(rows iter.Seq2[record, error]) {
	f.t.Helper()
	var failed error
	var once sync.Once
	for r, err := range rows {
		if err != nil {
			f.t.Fatal(err)
		}
		f.kafka.Produce(f.t.Context(), &kgo.Record{Key: r.key, Value: r.value, Timestamp: r.timestamp}, func(_ *kgo.Record, err error) {
			if err != nil {
				once.Do(func() { failed = err })
			}
		})
	}
	if err := f.kafka.Flush(f.t.Context()); err != nil || failed != nil {
		f.t.Fatal(err, failed)
	}
}

// start runs an instance for the time of the test and returns where it answers.
func (f *fleet) start(brokers []string) string {
	f.t.Helper()
	inst, err := statemesh.New(statemesh.Config{
		Processor: processor.Config{
			ApplicationID: f.app, Kafka: processor.KafkaConfig{Brokers: brokers}, NumStreamThreads: 1, OffsetReset: processor.ResetEarliest,
			CommitInterval: 500 * time.Millisecond,
		},
		Views: f.views, StateDir: f.t.TempDir(), Listen: "127.0.0.1:0",
		Logger: slog.New(slog.NewTextHandler(f.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(f.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- inst.Run(ctx) }()
	f.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			f.t.Errorf("instance: %v", err)
		}
	})
	if err := inst.WaitState(f.t.Context(), statemesh.Serving); err != nil {
		f.t.Fatal(err)
	}
	return inst.Endpoint()
}

// fresh is the age of the answers that are compared: Kafka has a commit a little before the instance shows it.
const fresh = 500 * time.Millisecond

// waitCaughtUp returns when everything in the topics that the application reads is committed. How long that takes is the
// machine's affair: the limit is that of the whole test.
func (f *fleet) waitCaughtUp() {
	f.t.Helper()
	for {
		left, err := f.lag()
		if err == nil && left == 0 {
			<-time.After(2 * fresh) // an answer that is fresh now has what was committed then
			return
		}
		select {
		case <-f.t.Context().Done():
			f.t.Fatal(err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (f *fleet) lag() (int64, error) {
	admin := kadm.NewClient(f.kafka)
	topics, err := admin.ListTopics(f.t.Context())
	if err != nil {
		return 0, err
	}
	committed, err := admin.FetchOffsets(f.t.Context(), f.app)
	if err != nil {
		return 0, err
	}
	names := []string{f.topic} // before its first commit too: all else may be empty then
	for _, name := range topics.Names() {
		if strings.HasPrefix(name, f.app+"-") && !strings.HasSuffix(name, "-changelog") {
			names = append(names, name)
		}
	}
	ends, err := admin.ListEndOffsets(f.t.Context(), names...)
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

// counts reads a view of counts as "key,count", the parts of the key apart.
func (f *fleet) counts(view string, parts int) []string {
	f.t.Helper()
	return collect(f, client.NewView(f.Client, store.Name(view), serde.String(), serde.Int64()).Scan(f.t.Context(), client.ScanQuery{}, client.MaxStaleness(fresh)),
		func(it client.Item[string, int64]) string {
			key, err := views.DecodeKey(it.Key, parts)
			if err != nil {
				f.t.Fatal(err)
			}
			return line(append(key, strconv.FormatInt(it.Value, 10))...)
		})
}

// windows reads a view of counts per window as "key,start,count".
func (f *fleet) windows(view string) []string {
	f.t.Helper()
	return collect(f, client.NewWindowView(f.Client, store.Name(view), serde.String(), serde.Int64()).Scan(f.t.Context(), client.WindowQuery{}, client.MaxStaleness(fresh)),
		func(it client.Item[string, int64]) string {
			return line(it.Key, strconv.FormatInt(it.Span.Start.UnixMilli(), 10), strconv.FormatInt(it.Value, 10))
		})
}

// session is one session of a key.
type session struct {
	key               string
	start, end, count int64
}

func (f *fleet) sessions(view string) []session {
	f.t.Helper()
	var all []session
	for it, err := range client.NewSessionView(f.Client, store.Name(view), serde.String(), serde.Int64()).Scan(f.t.Context(), client.SessionQuery{}, client.MaxStaleness(fresh)) {
		if err != nil {
			f.t.Fatalf("%s: %v", view, err)
		}
		all = append(all, session{it.Key, it.Span.Start.UnixMilli(), it.Span.End.UnixMilli(), it.Value})
	}
	return all
}

// perKey is "key,sessions,count" of sessions.
func perKey(all []session) []string {
	n, sum := make(map[string]int64), make(map[string]int64)
	for _, s := range all {
		n[s.key]++
		sum[s.key] += s.count
	}
	var rows []string
	for k := range n {
		rows = append(rows, line(k, strconv.FormatInt(n[k], 10), strconv.FormatInt(sum[k], 10)))
	}
	return rows
}

func (s session) line() string {
	return line(s.key, strconv.FormatInt(s.start, 10), strconv.FormatInt(s.end, 10), strconv.FormatInt(s.count, 10))
}

func collect[V any](f *fleet, rows iter.Seq2[client.Item[string, V], error], format func(client.Item[string, V]) string) []string {
	f.t.Helper()
	var all []string
	for it, err := range rows {
		if err != nil {
			f.t.Fatal(err)
		}
		all = append(all, format(it))
	}
	return all
}

// line is a row of an answer: fields that need quotes are quoted, which only pages do.
func line(fields ...string) string {
	quoted := make([]string, len(fields))
	for i, s := range fields {
		if strings.ContainsAny(s, ",\"") {
			s = `"` + strings.ReplaceAll(s, `"`, `""`) + `"`
		}
		quoted[i] = s
	}
	return strings.Join(quoted, ",")
}

// truth reads an answer without its header.
func truth(t *testing.T, name string) []string {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", name+".csv.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for in := bufio.NewScanner(unpacked); in.Scan(); {
		rows = append(rows, in.Text())
	}
	return rows[1:]
}

// total is a number of totals.csv.
func total(t *testing.T, name string) int64 {
	t.Helper()
	for _, row := range truth(t, "totals") {
		if key, value, _ := strings.Cut(row, ","); key == name {
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no total %s", name)
	return 0
}

// same compares an answer with the truth, row by row, in any order.
func same(t *testing.T, name string, got, want []string) {
	t.Helper()
	slices.Sort(got)
	want = slices.Sorted(slices.Values(want))
	if slices.Equal(got, want) {
		return
	}
	var diff []string
	for i, j := 0, 0; (i < len(got) || j < len(want)) && len(diff) < 10; {
		switch {
		case j == len(want) || i < len(got) && got[i] < want[j]:
			diff = append(diff, "got  "+got[i])
			i++
		case i == len(got) || want[j] < got[i]:
			diff = append(diff, "want "+want[j])
			j++
		default:
			i, j = i+1, j+1
		}
	}
	t.Errorf("%s: %d rows, want %d; the first that differ:\n%s", name, len(got), len(want), strings.Join(diff, "\n"))
}

func wantTotal(t *testing.T, name string, got int64) {
	t.Helper()
	if want := total(t, name); got != want {
		t.Errorf("%s: %d, want %d", name, got, want)
	}
}
