package streams_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/statemesh/statemesh/processor/streams"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// asked runs ask on a store of a processor, once, and returns what it says.
func asked[H any](t *testing.T, st *streams.Store[H], ask func(h H) (string, error)) string {
	t.Helper()
	d := drive(t, streamstest.Config{}, func(b *streams.Builder) {
		streams.Process(texts(b, "in"), func() streams.Processor[string, string, string, string] {
			var h H
			return &fn{
				init: func(ctx *textContext) (err error) { h, err = st.Open(ctx); return err },
				process: func(ctx *textContext, r *textRecord) error {
					said, err := ask(h)
					if err != nil {
						return err
					}
					return ctx.Forward(textRecord{Key: r.Key, Value: said, Timestamp: r.Timestamp})
				},
			}
		}, streams.Uses(st)).To("out")
	})
	pipe(streamstest.NewInput(d, "in", serde.String(), serde.String()), "k=x@100")
	return strings.Join(read(d, serde.String())(), " ")
}

// TestKeyValueHandle: a value is put where none is, told when it is taken away, and counted.
func TestKeyValueHandle(t *testing.T) {
	t.Parallel()
	st := streams.KeyValueStore("kv", serde.String(), serde.Int64())
	have := asked(t, st, func(h *streams.KeyValue[string, int64]) (string, error) {
		_, first, err := h.PutIfAbsent("a", 1)
		if err != nil {
			return "", err
		}
		old, second, err := h.PutIfAbsent("a", 2)
		if err != nil {
			return "", err
		}
		n, err := h.ApproximateCount()
		if err != nil {
			return "", err
		}
		gone, was, err := h.Delete("a")
		return fmt.Sprint(first, second, old, n, gone, was), err
	})
	want(t, "kv", []string{have}, "k=false true 1 1 1 true@100")
	if st.Name() != "kv" {
		t.Errorf("called %q", st.Name())
	}
}

// TestTimestampedHandle: values come with the times that they were put with.
func TestTimestampedHandle(t *testing.T) {
	t.Parallel()
	st := streams.TimestampedKeyValueStore("kv", serde.String(), serde.Int64())
	have := asked(t, st, func(h *streams.TimestampedKeyValue[string, int64]) (string, error) {
		if err := h.Put("a", 1, 7); err != nil {
			return "", err
		}
		got, ok, err := h.Get("a")
		if err != nil {
			return "", err
		}
		old, was, err := h.Delete("a")
		if err != nil {
			return "", err
		}
		_, again, err := h.Get("a")
		return fmt.Sprint(got, ok, old, was, again), err
	})
	want(t, "kv", []string{have}, "k={1 7} true {1 7} true false@100")
}

// TestSessionHandle: a session that is removed is found no more, neither by its key nor by a scan.
func TestSessionHandle(t *testing.T) {
	t.Parallel()
	st := streams.SessionStore("sessions", time.Second, serde.String(), serde.Int64())
	have := asked(t, st, func(h *streams.Session[string, int64]) (string, error) {
		for i := range int64(3) {
			if err := h.Put("a", i*10, i*10+5, i); err != nil {
				return "", err
			}
		}
		if err := h.Remove("a", 10, 15); err != nil {
			return "", err
		}
		_, ok, err := h.Fetch("a", 10, 15)
		if err != nil || ok {
			return "", fmt.Errorf("a removed session: %t, %w", ok, err)
		}
		return rowsOf(h.Scan(store.SessionScan{Key: []byte("a"), LatestEnd: 20, LatestStart: 20})), nil
	})
	want(t, "sessions", []string{have}, "k= a[0,5]=0@-1@100")
}

// TestVersionedHandle: a tombstone at a time ends what was valid then, and tells it.
func TestVersionedHandle(t *testing.T) {
	t.Parallel()
	st := streams.VersionedStore("versions", time.Second, serde.String(), serde.Int64())
	have := asked(t, st, func(h *streams.Versioned[string, int64]) (string, error) {
		if _, err := h.Put("a", 1, 10); err != nil {
			return "", err
		}
		latest, ok, err := h.Get("a")
		if err != nil {
			return "", err
		}
		old, was, err := h.Delete("a", 20)
		if err != nil {
			return "", err
		}
		_, again, err := h.Get("a")
		if err != nil {
			return "", err
		}
		return fmt.Sprint(latest, ok, old, was, again, rowsOf(h.Versions("a", 0, 100))), nil
	})
	want(t, "versions", []string{have}, "k={{1 10} -1} true {{1 10} -1} true false a[10,20]=1@10@100")
}

// TestStoppedScan: who has seen enough stops, and the store can be written again.
func TestStoppedScan(t *testing.T) {
	t.Parallel()
	st := streams.KeyValueStore("kv", serde.String(), serde.Int64())
	have := asked(t, st, func(h *streams.KeyValue[string, int64]) (string, error) {
		for i, key := range []string{"a", "b", "c"} {
			if err := h.Put(key, int64(i)); err != nil {
				return "", err
			}
		}
		for r, err := range h.All() {
			if err != nil {
				return "", err
			}
			return r.Key, h.Put(r.Key, 9)
		}
		return "nothing", nil
	})
	want(t, "kv", []string{have}, "k=a@100")
}
