package feed

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/cmd/statemesh/internal/trialbroker"
	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

func TestRows(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		format Format
		input  string
		want   string // key|value|milliseconds per row, or the error
	}{
		"csv":               {Format{Input: "csv", Key: []string{"b"}}, "a,b\n1,x\n2,y\n", "x|1,x|-; y|2,y|-"},
		"byte order mark":   {Format{Input: "csv", Key: []string{"a"}}, "\ufeffa,b\n1,x\n", "1|1,x|-"},
		"quotes survive":    {Format{Input: "csv"}, "a,b\n\"1,5\",\"say \"\"x\"\"\"\n", `nil|"1,5","say ""x"""|-`},
		"no key":            {Format{Input: "csv", Key: []string{"a"}}, "a,b\n,x\n", "nil|,x|-"},
		"several key parts": {Format{Input: "csv", Key: []string{"b", "a"}, KeySeparator: "/"}, "a,b\n1,x\n,z\n,\n", "x/1|1,x|-; z/|,z|-; nil|,|-"},
		"columns given":     {Format{Input: "csv", Columns: []string{"a", "b"}, Key: []string{"a"}}, "1,x\n", "1|1,x|-"},
		"tabs":              {Format{Input: "csv", Comma: '\t', Key: []string{"b"}}, "a\tb\n1\tx\n", "x|1\tx|-"},
		"csv as json":       {Format{Input: "csv", Value: "json", Key: []string{"a"}}, "a,b\n1,x\n", `1|{"a":1,"b":"x"}|-`},
		"numbers as json":   {Format{Input: "csv", Value: "json"}, "a\n-1.50\n1E5\n12345678901234567890\n007\n+1\n1 \n-\ntrue\nnull\n", `nil|{"a":-1.50}|-; nil|{"a":1E5}|-; nil|{"a":12345678901234567890}|-; nil|{"a":"007"}|-; nil|{"a":"+1"}|-; nil|{"a":"1 "}|-; nil|{"a":"-"}|-; nil|{"a":"true"}|-; nil|{"a":"null"}|-`},
		"no cell no member": {Format{Input: "csv", Value: "json"}, "a,b\n,x\n", `nil|{"b":"x"}|-`},
		"times":             {Format{Input: "csv", Timestamp: "a"}, "a\n1500\n1970-01-01T00:00:02Z\n", "nil|1500|1500; nil|1970-01-01T00:00:02Z|2000"},
		"json":              {Format{Input: "json", Key: []string{"k"}}, "{\"k\":\"x\"}\n\n{\"k\":7}\n{\"k\":null}\n{}\n", `x|{"k":"x"}|-; 7|{"k":7}|-; nil|{"k":null}|-; nil|{}|-`},
		"json time":         {Format{Input: "json", Timestamp: "t"}, `{"t":1500}`, `nil|{"t":1500}|1500`},

		"empty input":     {Format{Input: "csv"}, "", "line 1: empty input, want a header line with the names of the columns"},
		"unknown key":     {Format{Input: "csv", Key: []string{"c"}}, "a,b\n", `key "c": no such column; there are a, b`},
		"short row":       {Format{Input: "csv"}, "a,b\n1\n", "record on line 2: wrong number of fields"},
		"bad time":        {Format{Input: "csv", Timestamp: "a"}, "a\nnoon\n", `line 2: column a: "noon" is neither Unix milliseconds nor RFC 3339`},
		"no object":       {Format{Input: "json"}, "{}\n[1]\n", "line 2: no JSON object: json: cannot unmarshal array into Go value of type map[string]json.RawMessage"},
		"key is an array": {Format{Input: "json", Key: []string{"k"}}, `{"k":[1]}`, `line 1: key "k": want a string, number or boolean, not an object or array`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for r, err := range Rows(strings.NewReader(c.input), c.format) {
				if err != nil {
					got = []string{err.Error()}
					break
				}
				key, at := "nil", "-"
				if r.Key != nil {
					key = string(r.Key)
				}
				if !r.Timestamp.IsZero() {
					at = fmt.Sprint(r.Timestamp.UnixMilli())
				}
				got = append(got, key+"|"+string(r.Value)+"|"+at)
			}
			if diff := cmp.Diff(c.want, strings.Join(got, "; ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFormatValidate(t *testing.T) {
	t.Parallel()
	for _, f := range []Format{{}, {Input: "xml"}, {Input: "csv", Value: "xml"}, {Input: "json", Value: "csv"}, {Input: "json", Columns: []string{"a"}}} {
		if f.Validate() == nil {
			t.Errorf("%+v passes", f)
		}
	}
	if err := (Format{Input: "csv", Value: "json", Columns: []string{"a"}}).Validate(); err != nil {
		t.Error(err)
	}
}

func broker(t *testing.T) processor.KafkaConfig {
	t.Helper()
	b, err := trialbroker.Start(t.Context(), trialbroker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return processor.KafkaConfig{Brokers: []string{b.Addr()}, RetryTimeout: 500 * time.Millisecond}
}

// Each record goes to the partition where a reader of its key looks (MR-03), old event times included: the client's own
// delivery limit would count from them.
func TestProduce(t *testing.T) {
	t.Parallel()
	k := broker(t)
	for i, wantCreated := range []bool{true, false} {
		created, err := CreateTopic(t.Context(), k, NewTopic{Name: "in", Partitions: 5, ReplicationFactor: 1})
		if err != nil || created != wantCreated {
			t.Fatalf("create %d: %t, %v", i, created, err)
		}
	}
	if _, err := CreateTopic(t.Context(), k, NewTopic{Name: "in", Partitions: 6, ReplicationFactor: 1}); err == nil || !strings.Contains(err.Error(), "5 partitions, not 6") {
		t.Errorf("another partition count: %v", err)
	}
	const n = 100
	stats, err := Produce(t.Context(), Target{Kafka: k, Topic: "in"}, func(yield func(Row, error) bool) {
		for i := range n {
			r := Row{Line: i, Value: []byte("v"), Timestamp: time.UnixMilli(1357035300000)}
			if i > 0 {
				r.Key = fmt.Appendf(nil, "key-%d", i)
			}
			if !yield(r, nil) {
				return
			}
		}
	})
	if err != nil || stats.Records != n || stats.WithoutKey != 1 {
		t.Fatalf("%+v, %v", stats, err)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.Brokers...), kgo.ConsumeTopics("in"))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for got := 0; got < n; {
		for _, r := range cl.PollFetches(t.Context()).Records() {
			got++
			if want := router.PartitionFor(r.Key, 5); r.Key != nil && store.Partition(r.Partition) != want {
				t.Errorf("%s is in partition %d, want %d", r.Key, r.Partition, want)
			}
			if r.Timestamp.UnixMilli() != 1357035300000 {
				t.Errorf("timestamp %s", r.Timestamp)
			}
		}
	}
}

func TestProduceEndsWithTheFirstError(t *testing.T) {
	t.Parallel()
	k := broker(t)
	if _, err := CreateTopic(t.Context(), k, NewTopic{Name: "in", Partitions: 1, ReplicationFactor: 1}); err != nil {
		t.Fatal(err)
	}
	bad := errors.New("line 3: bad")
	stats, err := Produce(t.Context(), Target{Kafka: k, Topic: "in"}, func(yield func(Row, error) bool) {
		for yield(Row{Line: 2}, nil) {
			yield(Row{}, bad)
			return
		}
	})
	if !errors.Is(err, bad) || stats.Records > 1 {
		t.Errorf("%+v, %v", stats, err)
	}
	one := func(yield func(Row, error) bool) { yield(Row{Line: 1}, nil) }
	if _, err := Produce(t.Context(), Target{Kafka: k, Topic: "nope"}, one); err == nil || !strings.Contains(err.Error(), "nope") {
		t.Errorf("a topic that is not there: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Produce(ctx, Target{Kafka: k, Topic: "in"}, one); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// Retention counts from the records' timestamps: what bears old ones must be told to stay.
func TestTopicConfig(t *testing.T) {
	t.Parallel()
	k := broker(t)
	if _, err := CreateTopic(t.Context(), k, NewTopic{Name: "old", Partitions: 1, ReplicationFactor: 1, Config: KeepOld()}); err != nil {
		t.Fatal(err)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.Brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	configs, err := kadm.NewClient(cl).DescribeTopicConfigs(t.Context(), "old")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range configs[0].Configs {
		if c.Key == "retention.ms" && c.MaybeValue() == "-1" {
			return
		}
	}
	t.Errorf("retention.ms is not -1 in %+v", configs[0].Configs)
}

func TestRemove(t *testing.T) {
	t.Parallel()
	k := broker(t)
	for _, name := range []string{"app-in", "app-out", "other"} {
		if _, err := CreateTopic(t.Context(), k, NewTopic{Name: name, Partitions: 1, ReplicationFactor: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if err := Remove(t.Context(), k, "app-", "app"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"app-in": true, "app-out": true, "other": false} {
		if created, err := CreateTopic(t.Context(), k, NewTopic{Name: name, Partitions: 1, ReplicationFactor: 1}); err != nil || created != want {
			t.Errorf("%s: created again %t, %v", name, created, err)
		}
	}
}
