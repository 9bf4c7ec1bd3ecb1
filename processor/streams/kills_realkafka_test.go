//go:build realkafka

package streams_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh"
	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/streams"
	"github.com/statemesh/statemesh/processor/windows"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

var (
	kills     = flag.Int("kills", 8, "how many instances TestRealKafkaKillsInTheDSL kills")
	killsSeed = flag.Uint64("kills.seed", 0, "seed of its schedule; 0 takes a new one")
)

// childEnv makes this test binary an instance instead of a test, so that one can be killed.
const childEnv = "STATEMESH_TEST_STREAMS_INSTANCE"

// childSpec is what a child is told.
type childSpec struct {
	Brokers []string
	Dir     string
}

func TestMain(m *testing.M) {
	text := os.Getenv(childEnv)
	if text == "" {
		m.Run()
		return
	}
	if err := runChild(text); err != nil {
		panic(err)
	}
}

func runChild(text string) error {
	var spec childSpec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return err
	}
	b := streams.NewBuilder()
	killedTopology(b)
	topology, err := b.Build()
	if err != nil {
		return err
	}
	in, err := statemesh.New(killedConfig(topology, spec.Brokers, spec.Dir))
	if err != nil {
		return err
	}
	return in.Run(context.Background())
}

const killedApp, killedPartitions = "killed", 3

func killedConfig(topology *processor.Topology, brokers []string, dir string) statemesh.Config {
	return statemesh.Config{
		Processor: processor.Config{
			ApplicationID: killedApp, Kafka: processor.KafkaConfig{Brokers: brokers}, NumStreamThreads: 2,
			SessionTimeout: 6 * time.Second, HeartbeatInterval: time.Second, TransactionTimeout: 4 * time.Second, RebalanceTimeout: 10 * time.Second,
		},
		Topology: topology, StateDir: dir, Listen: "127.0.0.1:0",
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	}
}

// killedTopology has joins of a stream with a table, of streams (left) and of tables, windows and sessions.
func killedTopology(b *streams.Builder) {
	clicks, users := texts(b, "clicks"), streams.TableFrom(b, "users", serde.String(), serde.String(), "users")
	streams.JoinTable(clicks, users, plus).To("named")

	byUser := streams.GroupByKey(clicks)
	minutes := streams.WindowedBy(byUser, windows.Tumbling(time.Minute, time.Hour)).Emit(streams.OnWindowClose)
	streams.ToStream(streams.CountWindows(minutes, "minutes", streams.Retention(24*time.Hour))).To("minutes")
	streams.CountWindows(streams.SessionsBy(byUser, windows.Session{Gap: time.Second, Grace: time.Hour}), "visits", streams.Retention(24*time.Hour))

	profiles := streams.TableFrom(b, "profiles", serde.String(), serde.String(), "profiles")
	streams.JoinTables(users, profiles, plus, streams.As("joined"))

	within := streams.JoinWindows{Before: time.Hour, After: time.Hour}
	streams.LeftJoinStreams(texts(b, "orders"), texts(b, "payments"), within, leftPlus, streams.As("paid")).To("paid")
}

// TestRealKafkaKillsInTheDSL kills instances, which are processes, with SIGKILL at any moment, and starts others on their disks or on empty
// ones. In the end all outputs, at read_committed, and all stores are what the input says. The input says it whatever the order is in which
// its topics are read: users are there before the first click; an order and its payment have a key of their own, and windows that
// all records of the test lie in; windows and the waiting of orders end with records that are written when all else is committed;
// clicks of a user go up in time, and of a profile the last one counts.
func TestRealKafkaKillsInTheDSL(t *testing.T) {
	seed := *killsSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("repeat with -kills=%d -kills.seed=%d", *kills, seed)
	topology := topologyOf(t, killedTopology)
	k := &killer{
		realKafka: newRealKafka(t, runKafka(t), killedApp, topology, killedPartitions), rng: rand.New(rand.NewPCG(seed, 0)),
		began: time.Now().Truncate(time.Hour).Add(-12 * time.Hour).UnixMilli(), counts: make(map[string]int), visits: make(map[string]*visit),
		profiles: make(map[string]string),
	}
	for i := range k.fleet {
		k.fleet[i] = k.spawn(t.TempDir())
	}
	var users []*kgo.Record
	for u := range killedUsers {
		users = append(users, k.record("users", user(u), "name"+strconv.Itoa(u), k.began))
	}
	k.produce(users...)
	k.settle(time.Minute)
	for range *kills {
		for range 1 + k.rng.IntN(8) { // it is killed while it works
			k.work()
			pause(time.Duration(k.rng.IntN(120)) * time.Millisecond)
		}
		k.kill()
	}
	k.settle(3 * time.Minute)
	k.close()
	k.settle(time.Minute)
	for _, c := range k.fleet {
		c.kill()
	}
	last := k.start(killedConfig(topology, k.brokers, k.fleet[0].dir))
	k.settle(time.Minute)
	k.judge(last)
	t.Logf("%d kills, %d clicks", *kills, k.n)
}

const killedUsers = 20

func user(i int) string { return "user" + strconv.Itoa(i) }

// visit is a session as it is so far.
type visit struct {
	rows       []string
	start, end int64
	count      int
}

func (v *visit) text(user string) string {
	return fmt.Sprintf("%s[%d,%d]=%d", user, v.start, v.end, v.count)
}

// killer keeps two processes alive by killing them, and knows what must come of the records that it writes.
type killer struct {
	*realKafka

	rng   *rand.Rand
	fleet [2]*process
	began int64
	n     int // of clicks, orders and profiles so far

	named, paid []string
	counts      map[string]int // clicks of a user in a minute
	visits      map[string]*visit
	profiles    map[string]string
}

// process is an instance in a process of its own.
type process struct {
	dir string
	cmd *exec.Cmd
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

func (k *killer) spawn(dir string) *process {
	k.t.Helper()
	text, err := json.Marshal(childSpec{Brokers: k.brokers, Dir: dir})
	if err != nil {
		k.t.Fatal(err)
	}
	p := &process{dir: dir, cmd: exec.CommandContext(context.WithoutCancel(k.t.Context()), os.Args[0])}
	p.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	p.cmd.Stderr = os.Stderr
	if err := p.cmd.Start(); err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(p.kill)
	return p
}

// kill ends one process and starts its successor.
func (k *killer) kill() {
	k.t.Helper()
	i := k.rng.IntN(len(k.fleet))
	k.fleet[i].kill()
	dir := k.fleet[i].dir
	if k.rng.IntN(3) == 0 {
		dir = k.t.TempDir()
	}
	k.fleet[i] = k.spawn(dir)
}

func (k *killer) record(topic, key, value string, at int64) *kgo.Record {
	return &kgo.Record{Topic: topic, Key: []byte(key), Value: []byte(value), Timestamp: time.UnixMilli(at)}
}

// work writes some records and notes what they must bring. Each is 100 ms after the one before: a minute has 600 of them, and a user who
// does not come for a second has begun another visit.
func (k *killer) work() {
	k.t.Helper()
	var records []*kgo.Record
	for range 20 + k.rng.IntN(100) {
		k.n++
		n, at, u := strconv.Itoa(k.n), k.began+int64(k.n)*100, user(k.rng.IntN(killedUsers))
		name := "name" + u[len("user"):]
		records = append(records, k.record("clicks", u, n, at), k.record("orders", "order"+n, n, at), k.record("profiles", u, n, at))
		k.named = append(k.named, u+"="+n+"+"+name)
		k.counts[fmt.Sprintf("%s[%d,%d]", u, at-at%60_000, at-at%60_000+60_000)]++
		k.profiles[u] = name + "+" + n
		if v := k.visits[u]; v == nil {
			k.visits[u] = &visit{start: at, end: at, count: 1}
		} else if at-v.end > 1000 {
			*v = visit{rows: append(v.rows, v.text(u)), start: at, end: at, count: 1}
		} else {
			v.end, v.count = at, v.count+1
		}
		if k.rng.IntN(2) == 0 {
			records = append(records, k.record("payments", "order"+n, "p"+n, at))
			k.paid = append(k.paid, "order"+n+"="+n+"+p"+n)
		} else {
			k.paid = append(k.paid, "order"+n+"="+n+"+null")
		}
	}
	k.produce(records...)
}

// close ends all windows in each partition, twice: what is told on close is told at most once in a second.
func (k *killer) close() {
	k.t.Helper()
	for i := range int64(2) {
		at := k.began + (3+i*3)*time.Hour.Milliseconds()
		for p := range store.Partition(killedPartitions) {
			key := "end0"
			for n := 1; router.PartitionFor([]byte(key), killedPartitions) != p; n++ {
				key = "end" + strconv.Itoa(n)
			}
			k.produce(k.record("clicks", key, "end", at), k.record("payments", key, "end", at))
			k.counts[fmt.Sprintf("%s[%d,%d]", key, at, at+60_000)]++
			if k.visits[key] == nil {
				k.visits[key] = &visit{}
			}
			v := k.visits[key]
			v.start, v.end, v.count = at, at, 1
			v.rows = append(v.rows, v.text(key))
		}
		k.settle(3 * time.Minute)
		pause(1100 * time.Millisecond)
	}
}

// judge compares all that there is with what there must be.
func (k *killer) judge(last *running) {
	k.t.Helper()
	out := k.committed(time.Minute)
	number := vector{out: format{value: number64}}
	text := func(topic string) (lines []string) {
		for _, r := range out[topic] {
			lines = append(lines, string(r.Key)+"="+string(r.Value))
		}
		return lines
	}
	k.same("named", text("named"), k.named)
	k.same("paid", text("paid"), k.paid)
	var minutes, told, kept, visits, joined []string
	for key, n := range k.counts {
		kept = append(kept, fmt.Sprintf("%s=%d", key, n))
		if key[:3] != "end" {
			told = append(told, fmt.Sprintf("%s=%d", key, n))
		}
	}
	w := inWindows(by(windows.Tumbling(time.Minute, 0)), number64)
	for _, r := range out["minutes"] {
		if string(r.Key[:3]) != "end" { // how many of those are closed by the other depends on when
			minutes = append(minutes, part(r.Key, "", w.key)+"="+part(r.Value, "-", w.value))
		}
	}
	k.same("minutes", minutes, told)
	for u, v := range k.visits {
		visits = append(visits, v.rows...)
		if u[:3] != "end" {
			visits = append(visits, v.text(u))
		}
	}
	for u, v := range k.profiles {
		joined = append(joined, u+"="+v)
	}
	k.same("store minutes", k.rows(last, number, "minutes"), kept)
	k.same("store visits", k.rows(last, number, "visits"), visits)
	k.same("store joined", k.rows(last, vector{}, "joined"), joined)
}

// rows of all partitions of a store, without their times.
func (k *killer) rows(last *running, v vector, name store.Name) (all []string) {
	k.t.Helper()
	for p := range store.Partition(killedPartitions) {
		r, err := last.Read(k.t.Context(), name, p, store.ReadOptions{OnlyActive: true})
		if err != nil {
			k.t.Fatal(err)
		}
		rows, err := v.all(k.t.Context(), r)
		r.Close()
		if err != nil {
			k.t.Fatal(err)
		}
		for _, row := range rows {
			for i := len(row) - 1; i > 0 && row[i] != '='; i-- {
				if row[i] == '@' {
					row = row[:i]
					break
				}
			}
			all = append(all, row)
		}
	}
	return all
}

func (k *killer) same(what string, have, want []string) {
	k.t.Helper()
	slices.Sort(have)
	if d := cmp.Diff(slices.Sorted(slices.Values(want)), have); d != "" {
		k.t.Errorf("%s: %d, want %d (-want +got)\n%.3000s", what, len(have), len(want), d)
	}
}
