package streams_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/streams"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/processor/windows"
	"github.com/statemesh/statemesh/serde"
)

// drive runs what build adds to a topology.
func drive(tb testing.TB, cfg streamstest.Config, build func(b *streams.Builder)) *streamstest.Driver {
	tb.Helper()
	b := streams.NewBuilder()
	build(b)
	topology, err := b.Build()
	if err != nil {
		tb.Fatal(err)
	}
	return streamstest.NewT(tb, topology, cfg)
}

// texts is a source of text.
func texts(b *streams.Builder, topic string) *streams.Stream[string, string] {
	return streams.From(b, topic, serde.String(), serde.String())
}

// pipe writes records "key=value@timestamp"; "key@timestamp" is a tombstone.
func pipe(in *streamstest.Input[string, string], records ...string) {
	for _, r := range records {
		var at int64
		text, time, _ := strings.Cut(r, "@")
		if _, err := fmt.Sscan(time, &at); err != nil {
			panic(err)
		}
		if key, value, ok := strings.Cut(text, "="); ok {
			in.Pipe(key, value, at)
		} else {
			in.PipeTombstone(text, at)
		}
	}
}

// read returns what is new in a topic whose keys are text.
func read[V any](d *streamstest.Driver, values serde.Serde[V]) func() []string {
	return streamstest.NewOutput(d, "out", serde.String(), values).ReadStrings
}

// windowing is windows that streams are split by, and how their keys are written.
type windowing struct {
	on   func(g *streams.Grouped[string, string]) streams.Windowing[string, string]
	keys serde.Serde[serde.Windowed[string]]
}

func by[W windows.Time | windows.Sliding | windows.Unlimited](w W, emit ...streams.EmitStrategy) windowing {
	var size time.Duration
	switch w := any(w).(type) {
	case windows.Time:
		size = w.Size
	case windows.Sliding:
		size = w.Difference
	default:
		size = windows.Forever
	}
	on := func(g *streams.Grouped[string, string]) streams.Windowing[string, string] {
		windowed := streams.WindowedBy(g, w)
		for _, e := range emit {
			windowed = windowed.Emit(e)
		}
		return windowed
	}
	return windowing{on: on, keys: serde.TimeWindowed(serde.String(), size)}
}

func bySessions(w windows.Session, emit ...streams.EmitStrategy) windowing {
	on := func(g *streams.Grouped[string, string]) streams.Windowing[string, string] {
		windowed := streams.SessionsBy(g, w)
		for _, e := range emit {
			windowed = windowed.Emit(e)
		}
		return windowed
	}
	return windowing{on: on, keys: serde.SessionWindowed(serde.String())}
}

// readWindows returns what is new in a topic whose keys have windows: "a[0,10]=1@5".
func readWindows[V any](d *streamstest.Driver, w windowing, values serde.Serde[V]) func() []string {
	out := streamstest.NewOutput(d, "out", w.keys, values)
	return func() (lines []string) {
		for _, r := range out.ReadAll() {
			text := streamstest.Record[string, V]{Key: windowText(r.Key), Value: r.Value, NullValue: r.NullValue, Timestamp: r.Timestamp}
			lines = append(lines, text.String())
		}
		return lines
	}
}

func windowText(w serde.Windowed[string]) string {
	return fmt.Sprintf("%s[%d,%d]", w.Key, w.Start, w.End)
}

func want(t *testing.T, what string, have []string, want ...string) {
	t.Helper()
	if d := cmp.Diff(want, have); d != "" {
		t.Errorf("%s (-want +got)\n%s", what, d)
	}
}

func header(key, value string) processor.Header {
	return processor.Header{Key: key, Value: []byte(value)}
}
