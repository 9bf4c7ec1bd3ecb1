package streamstest_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// kinds puts each record into a store of every kind.
func kinds() *processor.Topology {
	return processor.NewTopology().AddSource("in", processor.SourceOptions{}, "in").
		AddProcessor("p", supply(node{process: func(ctx *processor.Context, r *processor.Record) error {
			v := store.Value{Data: r.Value, Timestamp: r.Timestamp}
			windows, err := ctx.WindowStore("windows")
			if err != nil {
				return err
			}
			sessions, err := ctx.SessionStore("sessions")
			if err != nil {
				return err
			}
			versions, err := ctx.VersionedStore("versions")
			if err != nil {
				return err
			}
			plain, err := ctx.Store("plain")
			if err != nil {
				return err
			}
			_, err = versions.Put(r.Key, v)
			return errors.Join(err, windows.Put(r.Key, r.Timestamp/10*10, v), sessions.Put(r.Key, r.Timestamp, r.Timestamp+5, v), plain.Put(r.Key, v))
		}}), "in").
		AddStateStore(store.Spec{Name: "windows", Kind: store.KindTimestampedWindow, WindowSize: 10 * time.Millisecond, Retention: time.Minute}, "p").
		AddStateStore(store.Spec{Name: "sessions", Kind: store.KindSession, Retention: time.Minute}, "p").
		AddStateStore(store.Spec{Name: "versions", Kind: store.KindVersioned, Retention: time.Minute}, "p").
		AddStateStore(store.Spec{Name: "plain", Kind: store.KindKeyValue}, "p")
}

func texts[K, V any](rows []streamstest.Row[K, V]) []string {
	var out []string
	for _, r := range rows {
		out = append(out, r.String())
	}
	return out
}

func TestKinds(t *testing.T) {
	t.Parallel()
	d := streamstest.NewT(t, kinds(), streamstest.Config{Partitions: map[string]int32{"in": 3}})
	in := streamstest.NewInput(d, "in", serde.String(), serde.String())
	windows := streamstest.NewWindow(d, "windows", serde.String(), serde.String())
	sessions := streamstest.NewSession(d, "sessions", serde.String(), serde.String())
	versions := streamstest.NewVersioned(d, "versions", serde.String(), serde.String())
	plain := streamstest.NewKeyValue(d, "plain", serde.String(), serde.String())
	in.Pipe("a", "1", 11)
	in.Pipe("b", "2", 12)
	in.Pipe("a", "3", 25)
	in.Pipe("a", "4", 22)
	look := func() {
		t.Helper()
		want(t, "windows", texts(windows.Rows()), []string{"a[10,20]=1@11", "a[20,30]=4@22", "b[10,20]=2@12"})
		want(t, "sessions", texts(sessions.Rows()), []string{"a[11,16]=1@-1", "a[22,27]=4@-1", "a[25,30]=3@-1", "b[12,17]=2@-1"})
		want(t, "versions", texts(versions.Versions("a")), []string{"a[11,22]=1@11", "a[22,25]=4@22", "a[25,]=3@25"})
		want(t, "plain", texts(plain.Rows()), []string{"a=4@-1", "b=2@-1"})
		if v, ok := windows.Fetch("a", 20); v != "4" || !ok {
			t.Errorf("window: %q, %t", v, ok)
		}
		if _, ok := windows.Fetch("a", 30); ok {
			t.Error("a window that there is not")
		}
		if v, ok := sessions.Fetch("a", 25, 30); v != "3" || !ok {
			t.Errorf("session: %q, %t", v, ok)
		}
		if v, ok := versions.Get("a"); v != "3" || !ok {
			t.Errorf("version: %q, %t", v, ok)
		}
		if v, ok := versions.GetAsOf("a", 23); v != "4" || !ok {
			t.Errorf("version at 23: %q, %t", v, ok)
		}
	}
	look()
	before := d.Committed()
	d.Restart()
	look()
	if after := d.Committed(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("committed offsets %v, before the restart %v", after, before)
	}
	in.Pipe("b", "5", 13)
	if v, _ := plain.Get("b"); v != "5" {
		t.Errorf("after the restart: %q", v)
	}
}

// TestRestartUncommitted: what was not committed is done again, once.
func TestRestartUncommitted(t *testing.T) {
	t.Parallel()
	d := streamstest.NewT(t, words(), streamstest.Config{CommitInterval: streamstest.Never, Partitions: map[string]int32{"lines": 2}})
	in := streamstest.NewInput(d, "lines", serde.String(), serde.String())
	out := streamstest.NewOutput(d, "out", serde.String(), serde.Int64())
	counts := streamstest.NewKeyValue(d, "counts", serde.String(), serde.Int64())
	in.To(0).Pipe("", "a", 1)
	d.Commit()
	in.To(1).Pipe("", "a b", 2)
	d.Restart()
	d.Restart()
	d.Commit()
	want(t, "out", out.ReadStrings(), []string{"a=1@1", "a=2@2", "b=1@2"})
	want(t, "counts", texts(counts.Rows()), []string{"a=2@2", "b=1@2"})
	if at := d.StreamTime(store.TaskID{Subtopology: 1}); at < 1 {
		t.Errorf("stream time %d after a restart", at)
	}
}

// TestRestartTells: what the changelog does not have is missed: a store without one is empty, and one that was made of more than its source
// topic is found out.
func TestRestartTells(t *testing.T) {
	t.Parallel()
	total := 0
	topology := processor.NewTopology().AddSource("in", processor.SourceOptions{}, "in").
		AddProcessor("p", supply(node{process: func(ctx *processor.Context, r *processor.Record) error {
			kv, err := ctx.Store("table")
			if err != nil {
				return err
			}
			total++ // no record says so
			return kv.Put(r.Key, store.Value{Data: fmt.Append(nil, total), Timestamp: r.Timestamp})
		}}), "in").
		AddStateStore(store.Spec{Name: "table", Kind: store.KindTimestampedKeyValue}, "p").ReuseSourceTopic("table", "p")
	d := streamstest.NewT(t, topology, streamstest.Config{})
	in := streamstest.NewInput(d, "in", serde.String(), serde.String())
	in.Pipe("a", "x", 1)
	in.Pipe("b", "x", 2)
	err := d.Try(d.Restart)
	e, ok := errors.AsType[*processor.RestoreError](err)
	if !ok || e.Store != "table" || string(e.Key) != "a" {
		t.Fatalf("restart: %v", err)
	}

	none := processor.NewTopology().AddSource("in", processor.SourceOptions{}, "in").
		AddProcessor("count", supply(count("counts")), "in").
		AddStateStore(store.Spec{Name: "counts", Kind: store.KindKeyValue, NoChangelog: true}, "count")
	d = streamstest.NewT(t, none, streamstest.Config{})
	streamstest.NewInput(d, "in", serde.String(), serde.String()).Pipe("a", "", 1)
	counts := streamstest.NewKeyValue(d, "counts", serde.String(), serde.Int64())
	if n, _ := counts.Get("a"); n != 1 {
		t.Errorf("count %d", n)
	}
	d.Restart()
	if _, ok := counts.Get("a"); ok {
		t.Error("a store without a changelog was restored")
	}
}

// TestGlobalStore: every task reads all of it, and it is fed by its topic, also by what the topology itself writes there.
func TestGlobalStore(t *testing.T) {
	t.Parallel()
	topology := processor.NewTopology().
		AddGlobalStore(store.Spec{Name: "names", Kind: store.KindKeyValue}, "names-in", processor.SourceOptions{}, "names", "names-put",
			supply(node{process: func(ctx *processor.Context, r *processor.Record) error {
				kv, err := ctx.Store("names")
				if err != nil {
					return err
				}
				return kv.Put(r.Key, store.Value{Data: r.Value, Timestamp: r.Timestamp})
			}})).
		AddSource("in", processor.SourceOptions{}, "in").
		AddProcessor("join", supply(node{process: func(ctx *processor.Context, r *processor.Record) error {
			kv, err := ctx.Store("names")
			if err != nil {
				return err
			}
			v, err := kv.Get(r.Key)
			if errors.Is(err, store.ErrNotFound) {
				ctx.Drop("no name")
				return nil
			}
			if err != nil {
				return err
			}
			return ctx.ForwardTo("out", processor.Record{Key: r.Key, Value: append(v.Data, r.Value...), Timestamp: r.Timestamp})
		}}), "in").
		AddSink("out", processor.SinkOptions{}, "out", "join").
		AddSource("renames", processor.SourceOptions{}, "renames").
		AddSink("rename", processor.SinkOptions{}, "names", "renames")
	d := streamstest.NewT(t, topology, streamstest.Config{Partitions: map[string]int32{"names": 2, "in": 3}})
	names := streamstest.NewInput(d, "names", serde.String(), serde.String())
	in := streamstest.NewInput(d, "in", serde.String(), serde.String())
	out := streamstest.NewOutput(d, "out", serde.String(), serde.String())
	in.Pipe("a", "!", 1)
	names.Pipe("a", "ann", 2)
	names.Pipe("b", "bob", 3)
	in.Pipe("a", "!", 4)
	in.Pipe("b", "!", 5)
	streamstest.NewInput(d, "renames", serde.String(), serde.String()).Pipe("b", "ben", 6)
	in.Pipe("b", "?", 7)
	names.PipeTombstone("a", 8)
	in.Pipe("a", "?", 9)
	want(t, "out", out.ReadStrings(), []string{"a=ann!@4", "b=bob!@5", "b=ben?@7"})
	if n := d.Dropped()["no name"]; n != 2 {
		t.Errorf("%d dropped", n)
	}
	all := streamstest.NewKeyValue(d, "names", serde.String(), serde.String())
	want(t, "names", texts(all.Rows()), []string{"b=ben@-1"})
	d.Restart()
	want(t, "names after a restart", texts(all.Rows()), []string{"b=ben@-1"})
	if v, ok := all.Get("b"); v != "ben" || !ok {
		t.Errorf("b: %q, %t", v, ok)
	}
	rd, err := d.Read("names", 0, store.ReadCommitted)
	if err != nil {
		t.Fatal(err)
	}
	defer rd.Close()
	if cuts := rd.Facts().Token.Cuts; len(cuts) != 2 {
		t.Errorf("cuts %v: want one for each partition of the topic", cuts)
	}
}

// TestIdle: a task waits for its other input as long as it is told to, by the wall clock of the driver (max.task.idle.ms).
func TestIdle(t *testing.T) {
	t.Parallel()
	topology := processor.NewTopology().AddSource("x", processor.SourceOptions{}, "x").AddSource("y", processor.SourceOptions{}, "y").
		AddProcessor("p", supply(node{}), "x", "y").AddSink("out", processor.SinkOptions{}, "out", "p")
	d := streamstest.NewT(t, topology, streamstest.Config{MaxTaskIdle: time.Second})
	x := streamstest.NewInput(d, "x", serde.String(), serde.String())
	y := streamstest.NewInput(d, "y", serde.String(), serde.String())
	out := streamstest.NewOutput(d, "out", serde.String(), serde.String())
	x.Pipe("x", "", 10)
	want(t, "waits", out.ReadStrings(), nil)
	y.Pipe("y", "", 5)
	want(t, "the older first", out.ReadStrings(), []string{"y=@5"})
	d.AdvanceWallClock(time.Second)
	want(t, "waited enough", out.ReadStrings(), []string{"x=@10"})
}

// TestDeterministic: the same every time, down to the changelogs.
func TestDeterministic(t *testing.T) {
	t.Parallel()
	run := func() (lines []string) {
		d := streamstest.NewT(t, words(), streamstest.Config{Partitions: map[string]int32{"lines": 3}, CommitInterval: streamstest.Never})
		in := streamstest.NewInput(d, "lines", serde.String(), serde.String())
		for i := range 50 {
			in.PipeRecord(streamstest.Record[string, string]{NullKey: i%3 == 0, Key: fmt.Sprint(i), Value: fmt.Sprintf("a%d b%d c", i%7, i%5), Timestamp: int64(i)})
			if i%20 == 0 {
				d.Commit()
			}
		}
		d.Commit()
		for _, topic := range []string{"out", "streamstest-words-repartition", "streamstest-counts-changelog"} {
			for _, r := range streamstest.NewOutput(d, topic, serde.Bytes(), serde.Bytes()).ReadAll() {
				lines = append(lines, fmt.Sprintf("%s-%d@%d %s", r.Topic, r.Partition, r.Offset, r))
			}
		}
		return lines
	}
	first := run()
	if len(first) < 300 {
		t.Fatalf("%d records", len(first))
	}
	for range 3 {
		if again := run(); !slices.Equal(first, again) {
			t.Fatal("two runs differ")
		}
	}
}

func TestInputClock(t *testing.T) {
	t.Parallel()
	topology := processor.NewTopology().AddSource("in", processor.SourceOptions{}, "in").AddSink("out", processor.SinkOptions{}, "out", "in")
	d := streamstest.NewT(t, topology, streamstest.Config{Start: time.UnixMilli(7)})
	in := streamstest.NewInput(d, "in", serde.String(), serde.Nullable(serde.String()))
	in.PipeNext("a", nil)
	in.PipeNext("b", nil)
	in.Clock(100, time.Second)
	in.PipeNext("c", nil)
	in.AdvanceTime(time.Minute)
	in.PipeNext("d", nil)
	in.PipeValue(nil)
	out := streamstest.NewOutput(d, "out", serde.String(), serde.String())
	want(t, "times", out.ReadStrings(), []string{"a=null@7", "b=null@7", "c=null@100", "d=null@61100", "null=null@62100"})
}
