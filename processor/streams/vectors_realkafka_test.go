//go:build realkafka

package streams_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh"
	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/streams"
	"github.com/statemesh/statemesh/store"
)

// TestRealKafkaVectors runs the vectors of the driver's tests on a real broker: outputs in their order as a consumer at read_committed has
// them, dropped records, rows of the stores, and nothing that comes afterwards. All vectors of a group are one application with one
// partition, without a record cache. Each step is fed to all of them at once, and the next one when it is committed, so that what
// comes first in a join is what the step says. Twice the instance is stopped and another one begins without its state.
func TestRealKafkaVectors(t *testing.T) {
	brokers := runKafka(t)
	for _, group := range []struct {
		name    string
		vectors []vector
	}{
		{"joins", slices.Concat(
			documentedJoins(), outerJoinsOfStreams(), []vector{lateJoin()}, globalJoins(), joinsAsOf(), tablesOutOfOrder(), derivedTables(), foreignJoins(),
		)},
		{"windows", slices.Concat(grids(), slidings(), sessions(), sessionFinds(), lateRecords(), []vector{sessionsOnClose()})},
		{"suppress", slices.Concat(suppressions(), finalResults(), suppressedBefore())},
	} {
		t.Run(group.name, func(t *testing.T) { runVectors(t, brokers, group.name, group.vectors) })
	}
}

// vectorsRun is a group of vectors on a broker.
type vectorsRun struct {
	*realKafka

	trials   []*trial
	topology *processor.Topology
	instance *running

	mu    sync.Mutex
	drops []map[string]int
}

// prefixOf what belongs to a vector of a group.
func prefixOf(app string, i int) string { return fmt.Sprintf("%s%02d-", app, i) }

func runVectors(t *testing.T, brokers []string, app string, vectors []vector) {
	v := &vectorsRun{topology: topologyOf(t, func(b *streams.Builder) {
		for i, v := range vectors {
			v.build(scope{Builder: b, prefix: prefixOf(app, i)})
		}
	})}
	rounds := 0
	for _, one := range vectors {
		one.steps = slices.DeleteFunc(slices.Clone(one.steps), func(s step) bool { return s.in == "restart" })
		rounds = max(rounds, len(one.steps))
		v.trials, v.drops = append(v.trials, &trial{v: one}), append(v.drops, make(map[string]int))
	}
	v.realKafka = newRealKafka(t, brokers, app, v.topology, 1)
	v.start()
	for i := range rounds {
		if i == 2 || i == 5 {
			v.instance.stop()
			v.start()
		}
		v.round(i)
	}
	pause(time.Second)
	v.settle(time.Minute)
	for topic, records := range v.committed(time.Minute) {
		t.Errorf("%s: %d records came in the end", topic, len(records))
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for i, tr := range v.trials {
		t.Run(tr.v.name, func(t *testing.T) {
			tr.end(t, v.drops[i])
			for _, name := range tr.v.stores() {
				v.t = t
				v.eventually(time.Minute, func() error {
					r, err := v.instance.Read(t.Context(), store.Name(prefixOf(v.app, i)+name), 0, store.ReadOptions{OnlyActive: true})
					if err != nil {
						return err
					}
					defer r.Close()
					return tr.kept(t.Context(), name, r)
				})
			}
		})
	}
}

// start runs an instance without state.
func (v *vectorsRun) start() {
	v.t.Helper()
	v.instance = v.realKafka.start(statemesh.Config{
		Processor: processor.Config{
			ApplicationID: v.app, Kafka: processor.KafkaConfig{Brokers: v.brokers}, NumStreamThreads: 2, CacheMaxBytes: -1,
			CommitInterval: 20 * time.Millisecond, Listener: processor.Listener{Dropped: v.dropped},
		},
		Topology: v.topology, StateDir: v.t.TempDir(), Listen: "127.0.0.1:0",
		Logger: slog.New(slog.NewTextHandler(v.t.Output(), &slog.HandlerOptions{Level: slog.LevelError})),
	})
}

func (v *vectorsRun) dropped(d processor.DroppedInfo) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := range v.drops {
		if strings.HasPrefix(d.Record.Topic, prefixOf(v.app, i)) {
			v.drops[i][d.Reason]++
			return
		}
	}
	v.t.Errorf("dropped, of no vector: %+v", d)
}

// round is one step of each vector that has so many.
func (v *vectorsRun) round(i int) {
	v.t.Helper()
	var records []*kgo.Record
	wait := false
	for n, tr := range v.trials {
		if i >= len(tr.v.steps) {
			continue
		}
		if tr.v.steps[i].in == "wait" {
			wait = true
			continue
		}
		for _, r := range tr.v.steps[i].records(v.t) {
			out := &kgo.Record{Topic: prefixOf(v.app, n) + r.topic, Timestamp: time.UnixMilli(r.Timestamp)}
			if !r.NullKey {
				out.Key = []byte(r.Key)
			}
			if !r.NullValue {
				out.Value = []byte(r.Value)
			}
			records = append(records, out)
		}
	}
	v.produce(records...)
	v.followed(records)
	if wait {
		pause(1100 * time.Millisecond)
	}
	v.settle(time.Minute)
	came := v.committed(time.Minute)
	for n, tr := range v.trials {
		var out []told
		for _, r := range came[prefixOf(v.app, n)+"out"] {
			out = append(out, told{r.Key, r.Value, r.Timestamp.UnixMilli()})
		}
		switch {
		case i < len(tr.v.steps):
			tr.step(v.t, i, out)
		case len(out) > 0:
			v.t.Errorf("%s: %d records came after its last step", tr.v.name, len(out))
		}
	}
}

// followed waits until what was written to global topics is in their stores, which belong to no task and are in no commit.
func (v *vectorsRun) followed(records []*kgo.Record) {
	v.t.Helper()
	for _, r := range records {
		prefix, topic, _ := strings.Cut(r.Topic, "-")
		if topic != "right" || slices.Contains(v.inputs, r.Topic) {
			continue
		}
		token := store.Token{Inputs: store.Position{}}
		token.Inputs.Set(r.Topic, store.Partition(r.Partition), store.Offset(r.Offset))
		rd, err := v.instance.Read(v.t.Context(), store.Name(prefix+"-everywhere"), 0, store.ReadOptions{AtLeast: token, Wait: time.Minute})
		if err != nil {
			v.t.Fatal(err)
		}
		rd.Close()
	}
}
