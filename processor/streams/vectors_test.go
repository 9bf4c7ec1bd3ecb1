package streams_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/statemesh/statemesh/processor/internal/jointables"
	"github.com/statemesh/statemesh/processor/streams"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// vector is records and what they bring. Each is run through the driver, and those of vectors_realkafka_test.go once more on a real broker.
type vector struct {
	name  string
	build func(s scope)
	steps []step
	// out is how what is in the topic "out" is written.
	out format
	// last takes the place of what the steps want: the last value that is told of each key.
	last map[string]string
	// once says that each key is told once.
	once  bool
	drops map[string]int
	// rows are all that is in a store in the end, and finds what is found there, by the name of the store.
	rows  map[string][]string
	finds map[string][]find
}

// step is records, or "restart", or "wait", in which a second of the wall clock passes; and what it is to bring. A record is either
// "side key value time" of a topic "left" (L) or "right" (R), of which key and value may be "-" for none; or there are any number of
// them, "key=value@time" of the topic "in".
type step struct {
	in   string
	want []string
}

// find is a search in a store of sessions.
type find struct {
	scan store.SessionScan
	want []string
}

// scope is where a vector builds its topology: the names of its topics and stores have a prefix, so that many can be one application.
type scope struct {
	*streams.Builder

	prefix string
}

func (s scope) of(name string) string { return s.prefix + name }

// kept is the name of a store.
func (s scope) kept(name string) store.Name { return store.Name(s.prefix + name) }

func (s scope) texts(topic string) *streams.Stream[string, string] {
	return streams.From(s.Builder, s.of(topic), serde.String(), serde.String())
}

// table reads a topic; one without a name has no store that can be asked.
func (s scope) table(topic, name string, opts ...streams.Option) *streams.Table[string, string] {
	if name != "" {
		name = s.of(name)
	}
	return streams.TableFrom(s.Builder, s.of(topic), serde.String(), serde.String(), store.Name(name), opts...)
}

// format is how bytes are written; text where there is none.
type format struct{ key, value func([]byte) (string, error) }

func decoding[T any](s serde.Serde[T], text func(T) string) func([]byte) (string, error) {
	return func(b []byte) (string, error) {
		v, err := s.Decode(b)
		return text(v), err
	}
}

var number64 = decoding(serde.Int64(), func(n int64) string { return fmt.Sprint(n) })

// inWindows is what has windows in its keys; value as in a format.
func inWindows(w windowing, value func([]byte) (string, error)) format {
	return format{decoding(w.keys, windowText), value}
}

// part is a key or value: none is "" for a key and "-" for a value.
func part(b []byte, none string, f func([]byte) (string, error)) string {
	if b == nil {
		return none
	}
	if f == nil {
		return string(b)
	}
	text, err := f(b)
	if err != nil {
		return err.Error()
	}
	return text
}

// told is a record of the topic "out".
type told struct {
	key, value []byte // nil for none
	at         int64
}

// trial is a run of a vector so far.
type trial struct {
	v    vector
	told []told
}

// step judges what came with a step.
func (tr *trial) step(t *testing.T, i int, came []told) {
	t.Helper()
	tr.told = append(tr.told, came...)
	if tr.v.last != nil {
		return
	}
	var have []string
	for _, r := range came {
		have = append(have, fmt.Sprintf("%s=%s@%d", part(r.key, "", tr.v.out.key), part(r.value, "-", tr.v.out.value), r.at))
	}
	if d := cmp.Diff(tr.v.steps[i].want, have); d != "" {
		t.Errorf("%s: step %d, %s (-want +got)\n%s", tr.v.name, i, tr.v.steps[i].in, d)
	}
}

// end judges what is left in the end.
func (tr *trial) end(t *testing.T, drops map[string]int) {
	t.Helper()
	want := tr.v.drops
	if want == nil {
		want = map[string]int{}
	}
	if d := cmp.Diff(want, drops); d != "" {
		t.Errorf("dropped (-want +got)\n%s", d)
	}
	last, times := make(map[string]string), make(map[string]int)
	for _, r := range tr.told {
		key := part(r.key, "", tr.v.out.key)
		if times[key]++; tr.v.once && times[key] > 1 {
			t.Errorf("%s is told %d times", key, times[key])
		}
		if last[key] = part(r.value, "-", tr.v.out.value); r.value == nil {
			delete(last, key)
		}
	}
	if d := cmp.Diff(tr.v.last, last); tr.v.last != nil && d != "" {
		t.Errorf("last values (-want +got)\n%s", d)
	}
}

// kept compares one store with what is to be there.
func (tr *trial) kept(ctx context.Context, name string, r store.Reading) error {
	if want, ok := tr.v.rows[name]; ok {
		have, err := tr.v.all(ctx, r)
		if err != nil {
			return err
		}
		if d := cmp.Diff(want, have); d != "" {
			return fmt.Errorf("store %s (-want +got)\n%s", name, d)
		}
	}
	for _, f := range tr.v.finds[name] {
		sessions, err := r.Sessions()
		if err != nil {
			return err
		}
		have, err := tr.v.entries(sessions.Scan(ctx, f.scan))
		if err != nil {
			return err
		}
		if d := cmp.Diff(f.want, have); d != "" {
			return fmt.Errorf("store %s, %+v (-want +got)\n%s", name, f.scan, d)
		}
	}
	return nil
}

// stores are the names of those that are compared.
func (v vector) stores() []string {
	return slices.Compact(slices.Sorted(func(yield func(string) bool) {
		maps.Keys(v.rows)(yield)
		maps.Keys(v.finds)(yield)
	}))
}

// all rows of a store of any kind but the versioned.
func (v vector) all(ctx context.Context, r store.Reading) ([]string, error) {
	if kv, err := r.KeyValue(); err == nil {
		return v.entries(kv.Scan(ctx, store.Scan{}))
	}
	if w, err := r.Windows(); err == nil {
		return v.entries(w.Scan(ctx, store.WindowScan{To: math.MaxInt64}))
	}
	s, err := r.Sessions()
	if err != nil {
		return nil, err
	}
	return v.entries(s.Scan(ctx, store.SessionScan{LatestEnd: math.MaxInt64, LatestStart: math.MaxInt64}))
}

func (v vector) entries(it store.Iterator, err error) (rows []string, _ error) {
	if err != nil {
		return nil, err
	}
	defer it.Close()
	for it.Next() {
		e := it.Entry()
		row := string(e.Key)
		if e.Start != 0 || e.End != 0 {
			row += fmt.Sprintf("[%d,%d]", e.Start, e.End)
		}
		row += "=" + part(e.Value.Data, "-", v.out.value)
		if e.Timestamp >= 0 {
			row += fmt.Sprintf("@%d", e.Timestamp)
		}
		rows = append(rows, row)
	}
	return rows, it.Err()
}

// record is one of a step.
type record struct {
	topic string
	streamstest.Record[string, string]
}

// records of a step, see there.
func (s step) records(t *testing.T) (all []record) {
	t.Helper()
	if side, rest, ok := strings.Cut(s.in, " "); ok && (side == "L" || side == "R") {
		r := record{topic: map[string]string{"L": "left", "R": "right"}[side]}
		if _, err := fmt.Sscan(rest, &r.Key, &r.Value, &r.Timestamp); err != nil {
			t.Fatalf("%s: %v", s.in, err)
		}
		if r.NullKey = r.Key == "-"; r.NullKey {
			r.Key = ""
		}
		if r.NullValue = r.Value == "-"; r.NullValue {
			r.Value = ""
		}
		return []record{r}
	}
	for text := range strings.FieldsSeq(s.in) {
		r := record{topic: "in"}
		text, at, _ := strings.Cut(text, "@")
		if _, err := fmt.Sscan(at, &r.Timestamp); err != nil {
			t.Fatalf("%s: %v", s.in, err)
		}
		var ok bool
		r.Key, r.Value, ok = strings.Cut(text, "=")
		r.NullValue = !ok
		all = append(all, r)
	}
	return all
}

// drive runs a vector through the driver.
func (v vector) drive(t *testing.T, cfg streamstest.Config) *streamstest.Driver {
	t.Helper()
	d := drive(t, cfg, func(b *streams.Builder) { v.build(scope{Builder: b}) })
	out := streamstest.NewOutput(d, "out", serde.Bytes(), serde.Bytes())
	tr := &trial{v: v}
	for i, s := range v.steps {
		switch s.in {
		case "restart":
			d.Restart()
		case "wait":
			d.AdvanceWallClock(time.Second)
		default:
			for _, r := range s.records(t) {
				streamstest.NewInput(d, r.topic, serde.String(), serde.String()).PipeRecord(r.Record)
			}
		}
		var came []told
		for _, r := range out.ReadAll() {
			came = append(came, told{r.Key, r.Value, r.Timestamp})
		}
		tr.step(t, i, came)
	}
	tr.end(t, d.Dropped())
	for _, name := range v.stores() {
		r, err := d.Read(store.Name(name), 0, store.ReadCommitted)
		if err != nil {
			t.Fatal(err)
		}
		if err := tr.kept(t.Context(), name, r); err != nil {
			t.Error(err)
		}
		r.Close()
	}
	return d
}

// driveAll runs vectors through the driver.
func driveAll(t *testing.T, vectors []vector) {
	t.Helper()
	for _, v := range vectors {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			v.drive(t, streamstest.Config{})
		})
	}
}

// withStore ends the name of a vector that is another one whose result has a store.
const withStore = ", with a store"

// tabled gives vectors of joins the table of results of their name.
func tabled(vectors []vector) []vector {
	for i := range vectors {
		v := &vectors[i]
		table, err := jointables.Named(strings.TrimSuffix(v.name, withStore))
		if err != nil {
			panic(err)
		}
		v.drops = table.Drops
		for _, s := range table.Steps {
			v.steps = append(v.steps, step{s.In, s.Want})
		}
	}
	return vectors
}

// withRestarts are vectors, and each of them with a restart after every step.
func withRestarts(vectors []vector) []vector {
	all := slices.Clone(vectors)
	for _, v := range vectors {
		v.name += ", restarted after each step"
		var steps []step
		for _, s := range v.steps {
			steps = append(steps, s, step{in: "restart"})
		}
		v.steps = steps
		all = append(all, v)
	}
	return all
}
