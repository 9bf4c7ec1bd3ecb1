package statemesh_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh"
	"github.com/statemesh/statemesh/client"
	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/store"
)

// keeper keeps each record in a store of every kind: in the window of its hour, as a session of its own minute, as a
// version.
type keeper struct {
	windows  store.Window
	sessions store.Session
	versions store.Versioned
}

func (k *keeper) Init(ctx *processor.Context) error {
	var err1, err2, err3 error
	k.windows, err1 = ctx.WindowStore("windows")
	k.sessions, err2 = ctx.SessionStore("sessions")
	k.versions, err3 = ctx.VersionedStore("versions")
	return errors.Join(err1, err2, err3)
}

func (k *keeper) Process(r *processor.Record) error {
	hour, minute := time.Hour.Milliseconds(), time.Minute.Milliseconds()
	v := store.Value{Data: r.Value, Timestamp: r.Timestamp}
	_, err := k.versions.Put(r.Key, v)
	return errors.Join(err,
		k.windows.Put(r.Key, r.Timestamp-r.Timestamp%hour, v),
		k.sessions.Put(r.Key, r.Timestamp, r.Timestamp+minute, v))
}

func (k *keeper) Close() error { return nil }

func kindsTopology() *processor.Topology {
	const kept = 24 * time.Hour
	return processor.NewTopology().
		AddSource("in", processor.SourceOptions{}, "in").
		AddProcessor("keep", func() processor.Processor { return &keeper{} }, "in").
		AddStateStore(store.Spec{Name: "windows", Kind: store.KindTimestampedWindow, WindowSize: time.Hour, Retention: kept}, "keep").
		AddStateStore(store.Spec{Name: "sessions", Kind: store.KindSession, Retention: kept}, "keep").
		AddStateStore(store.Spec{Name: "versions", Kind: store.KindVersioned, Retention: kept}, "keep")
}

// Every kind of store, from the log to the answer: two instances, asked at either for keys of both, by a session that was
// told only what the producer was told. So nothing here has to be asked twice.
func TestKindsReadYourWrites(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "in", 4)
	config := func() statemesh.Config {
		cfg := b.config(t)
		cfg.Views, cfg.Topology = nil, kindsTopology()
		return cfg
	}
	fleet := []*node{startNode(t, config()), startNode(t, config())}
	names := []store.Name{"windows", "sessions", "versions"}
	at := func(h int) time.Time { return time.Date(2013, 1, 1, h, 30, 0, 0, time.UTC) }
	s := client.NewReadSession()
	insist := []client.Option{client.InReadSession(s), client.Wait(time.Minute), client.NoCache()}
	var keys []string
	for i := range 12 {
		keys = append(keys, fmt.Sprintf("key-%02d", i))
	}
	for h := 5; h < 8; h++ {
		for _, key := range keys {
			res := b.cl.ProduceSync(t.Context(), &kgo.Record{
				Topic: "in", Key: []byte(key), Value: fmt.Appendf(nil, "%s at %d", key, h), Timestamp: at(h),
			})
			r, err := res.First()
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				s.Wrote(name, "in", store.Partition(r.Partition), store.Offset(r.Offset))
			}
		}
	}
	for i, n := range fleet {
		for _, key := range keys {
			k, want := []byte(key), fmt.Sprintf("%s at 6", key)
			w, err := n.FetchWindow(t.Context(), "windows", k, at(6).Truncate(time.Hour), insist...)
			if err != nil || string(w.Value.Data) != want || w.Span.End != at(6).Truncate(time.Hour).Add(time.Hour) {
				t.Fatalf("window of %s by %d: %+v, %v", key, i, w, err)
			}
			se, err := n.FetchSession(t.Context(), "sessions", k, at(6), at(6).Add(time.Minute), insist...)
			if err != nil || string(se.Value.Data) != want {
				t.Fatalf("session of %s by %d: %+v, %v", key, i, se, err)
			}
			v, err := n.GetAsOf(t.Context(), "versions", k, at(7).Add(-time.Millisecond), insist...)
			if err != nil || string(v.Value.Data) != want || v.Span != (client.Span{Start: at(6), End: at(7)}) {
				t.Fatalf("version of %s by %d: %+v, %v", key, i, v, err)
			}
			if latest, err := n.Get(t.Context(), "versions", k, insist...); err != nil || !latest.Span.End.IsZero() || latest.Span.Start != at(7) {
				t.Fatalf("latest version of %s by %d: %+v, %v", key, i, latest, err)
			}
		}
		rows := map[string]int{}
		for scan, seq := range map[string]func(func(client.Row, error) bool){
			"windows":  n.ScanWindows(t.Context(), "windows", client.WindowQuery{From: at(6)}, insist...),
			"sessions": n.ScanSessions(t.Context(), "sessions", client.SessionQuery{Page: client.Page{Reverse: true}}, insist...),
			"versions": n.ScanVersions(t.Context(), "versions", client.VersionQuery{Key: []byte(keys[0])}, insist...),
		} {
			var got []string
			for r, err := range seq {
				if err != nil {
					t.Fatal(scan, err)
				}
				got = append(got, string(r.Key))
			}
			rows[scan] = len(got)
			if sorted := slices.IsSorted(got); sorted == (scan == "sessions") {
				t.Errorf("%s by %d: %v", scan, i, got)
			}
		}
		if rows["windows"] != len(keys) || rows["sessions"] != 3*len(keys) || rows["versions"] != 3 {
			t.Errorf("by %d: %v rows", i, rows)
		}
		points := []client.Point{client.InWindow([]byte(keys[0]), at(5).Truncate(time.Hour)), client.InWindow([]byte(keys[1]), at(5))}
		found, err := n.BatchFetch(t.Context(), "windows", points, insist...)
		if err != nil || !found[0].Found || found[1].Found {
			t.Errorf("batch by %d: %+v, %v", i, found, err)
		}
		exact, err := n.CountExact(t.Context(), "windows", insist...)
		if err != nil || exact.Approximate != int64(3*len(keys)) {
			t.Errorf("count by %d: %+v, %v", i, exact, err)
		}
		if about, err := n.Count(t.Context(), "versions", insist...); err != nil || about.Approximate != int64(len(keys)) {
			t.Errorf("keys by %d: %+v, %v", i, about, err)
		}
	}
	// Beyond what was written nobody has come: said at once, or when the wait is over.
	s.Wrote("windows", "in", 0, 1<<40)
	for _, n := range fleet {
		_, err := n.CountExact(t.Context(), "windows", client.InReadSession(s), client.Wait(50*time.Millisecond))
		if e, ok := errors.AsType[*store.BehindError](err); !ok || e.Partition != 0 || e.Want.Inputs["in"][0] != 1<<40 {
			t.Errorf("behind: %v", err)
		}
	}
}
