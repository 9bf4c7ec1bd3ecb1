package demo

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/statemesh/statemesh"
	"github.com/statemesh/statemesh/client"
	"github.com/statemesh/statemesh/cmd/statemesh/internal/feed"
	"github.com/statemesh/statemesh/cmd/statemesh/internal/trialbroker"
	"github.com/statemesh/statemesh/examples/flights"
	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/views"
)

// A verification that cannot fail is worth nothing: an instance that has seen too little, too much, or the right things
// under a wrong key is found out, key by key.
func TestVerifyFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	b, err := trialbroker.Start(t.Context(), trialbroker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	kafka := processor.KafkaConfig{Brokers: []string{b.Addr()}}
	if _, err := feed.CreateTopic(t.Context(), kafka, feed.NewTopic{Name: "in", Partitions: 2, ReplicationFactor: 1}); err != nil {
		t.Fatal(err)
	}
	inst, err := statemesh.New(statemesh.Config{
		Processor: processor.Config{ApplicationID: "app", Kafka: kafka, NumStreamThreads: 1},
		Views:     []views.View{{Name: "v", Topic: "in", Format: views.String, Type: views.Count}},
		StateDir:  t.TempDir(), Listen: "127.0.0.1:0",
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- inst.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	if err := inst.WaitState(ctx, statemesh.Serving); err != nil {
		t.Fatal(err)
	}
	// "once" and "twice" as often as they say, and a key that the truth does not know.
	rows := func(yield func(feed.Row, error) bool) {
		for _, key := range []string{"once", "twice", "twice", absent} {
			if !yield(feed.Row{Key: []byte(key), Value: []byte("x")}, nil) {
				return
			}
		}
	}
	if _, err := feed.Produce(ctx, feed.Target{Kafka: kafka, Topic: "in"}, rows); err != nil {
		t.Fatal(err)
	}
	cl, err := client.New(client.Config{Seeds: []string{inst.Endpoint()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cl.Close() })
	whole := []view{counts("v", map[string]int64{"once": 1, "twice": 2, absent: 1})}
	for limit := time.After(30 * time.Second); ; {
		if ok, err := holds(ctx, cl, whole); ok {
			break
		} else if err != nil {
			t.Log(err)
		}
		select {
		case <-limit:
			t.Fatal("the view does not fill")
		case <-time.After(10 * time.Millisecond):
		}
	}

	if ok, _ := holds(ctx, cl, []view{counts("v", map[string]int64{"once": 1, "twice": 2})}); ok {
		t.Error("holds takes a view with a row too many for right")
	}
	for _, how := range passes() {
		wrong := []view{counts("v", map[string]int64{"once": 1, "twice": 3, "never": 1})}
		v := verify(ctx, cl, wrong, []string{inst.Endpoint()}, how)
		asked, found := 4, 3 // twice is 2, never is missing, and the absent key is there
		if how.cache {
			asked, found = 8, 6 // everything twice
		}
		if v.Asked != asked || v.Wrong != found {
			t.Errorf("cache %t: %d asked, %d wrong, want %d and %d: %v", how.cache, v.Asked, v.Wrong, asked, found, v.Mistakes)
		}
		for _, want := range []string{"twice: got 2, want 3", "never: ", absent + ": got"} {
			if !slices.ContainsFunc(v.Mistakes, func(m Mistake) bool { return strings.HasPrefix(m.Key+": "+m.Problem, want) }) {
				t.Errorf("cache %t: no mistake %q in %v", how.cache, want, v.Mistakes)
			}
		}
	}
	// Nobody there: every answer is missing, and that is not passed over.
	gone, stop := context.WithTimeout(ctx, 5*time.Second)
	defer stop()
	if v := verify(gone, cl, whole, []string{"127.0.0.1:1"}, passes()[0]); v.Wrong != v.Asked || v.Asked == 0 {
		t.Errorf("an instance that is not there: %d wrong of %d", v.Wrong, v.Asked)
	}
}

func TestTruthsJudge(t *testing.T) {
	t.Parallel()
	a, err := flights.Compute(first(flights.Rows(), 500))
	if err != nil {
		t.Fatal(err)
	}
	all := truths(a)
	if len(all) != 4 {
		t.Fatalf("%d views, want 4", len(all))
	}
	for _, v := range all {
		if len(v.keys) == 0 || !slices.IsSorted(v.keys) || slices.Contains(v.keys, absent) {
			t.Errorf("%s: keys %v", v.name, v.keys)
		}
		for _, bad := range [][]byte{nil, []byte("x"), []byte("{}"), make([]byte, 8)} {
			if v.check(v.keys[0], bad) == "" {
				t.Errorf("%s takes %q for the value of %s", v.name, bad, v.keys[0])
			}
		}
	}
	carrier := all[2].keys[0]
	d := a.DelayByCarrier[carrier]
	right := fmt.Sprintf(`{"count":%d,"sum":%d,"min":%d,"max":%d,"avg":%v}`, d.Count, d.Sum, d.Min, d.Max, d.Mean())
	if p := all[2].check(carrier, []byte(right)); p != "" {
		t.Errorf("the right value is refused: %s", p)
	}
	if all[2].check(carrier, []byte(strings.Replace(right, `"max":`, `"max":1`, 1))) == "" {
		t.Error("a wrong maximum passes")
	}
}

func TestParts(t *testing.T) {
	t.Parallel()
	n, last := 0, 0
	for r, err := range after(flights.Rows(), 3, 7) {
		if err != nil {
			t.Fatal(err)
		}
		n, last = n+1, r.Number
	}
	if n != 4 || last != 7 {
		t.Errorf("after 3 up to 7: %d rows, the last is %d", n, last)
	}
}

func TestQuantile(t *testing.T) {
	t.Parallel()
	var ds []time.Duration
	for i := range 100 {
		ds = append(ds, time.Duration(i+1)*time.Millisecond)
	}
	if p50, p99 := quantile(ds, 0.5), quantile(ds, 0.99); p50 != 51 || p99 != 100 {
		t.Errorf("p50 %v, p99 %v", p50, p99)
	}
	if got := quantile(ds[:1], 0.99); got != 1 {
		t.Errorf("of one: %v", got)
	}
}
