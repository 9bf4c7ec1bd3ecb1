package streams_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/statemesh/statemesh/processor/streams"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/processor/windows"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// specOf is a store as a topology declares it.
func specOf(t *testing.T, b *streams.Builder, name store.Name) store.Spec {
	t.Helper()
	topology, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	built, err := topology.Build("app")
	if err != nil {
		t.Fatal(err)
	}
	for sub := range int32(len(built.Description().Subtopologies)) {
		for _, spec := range built.StoreSpecs(sub) {
			if spec.Name == name {
				return spec
			}
		}
	}
	t.Fatalf("no store %s in\n%s", name, built.Describe())
	return store.Spec{}
}

// TestOptionsOfStores: what is said of a store is what it is, and what is not said is upstream's default.
func TestOptionsOfStores(t *testing.T) {
	t.Parallel()
	log := map[string]string{"min.insync.replicas": "2"}
	plain := store.Spec{Name: "s", Kind: store.KindTimestampedKeyValue, Caching: true, KeyFormat: "string", ValueFormat: "int64"}
	windowed := store.Spec{
		Name: "s", Kind: store.KindTimestampedWindow, Caching: true, WindowSize: time.Second, Retention: time.Second, KeyFormat: "string", ValueFormat: "int64",
	}
	for name, c := range map[string]struct {
		opts []streams.Option
		want func(s *store.Spec)
	}{
		"nothing":         {nil, func(*store.Spec) {}},
		"CachingDisabled": {[]streams.Option{streams.CachingDisabled()}, func(s *store.Spec) { s.Caching = false }},
		"LoggingDisabled": {[]streams.Option{streams.LoggingDisabled()}, func(s *store.Spec) { s.NoChangelog = true }},
		"LoggingConfig":   {[]streams.Option{streams.LoggingConfig(log)}, func(s *store.Spec) { s.ChangelogConfig = log }},
		"InMemory":        {[]streams.Option{streams.InMemory()}, func(s *store.Spec) { s.InMemory = true }},
	} {
		b := streams.NewBuilder()
		streams.Count(streams.GroupByKey(texts(b, "in")), "s", c.opts...)
		want := plain
		c.want(&want)
		if d := cmp.Diff(want, specOf(t, b, "s")); d != "" {
			t.Errorf("%s (-want +got)\n%s", name, d)
		}
		b = streams.NewBuilder()
		counted(b, by(windows.Tumbling(time.Second, 0)), c.opts...)
		want = windowed
		c.want(&want)
		if d := cmp.Diff(want, specOf(t, b, "s")); d != "" {
			t.Errorf("%s, windows (-want +got)\n%s", name, d)
		}
	}
	b := streams.NewBuilder()
	counted(b, by(windows.Tumbling(time.Second, 0)), streams.Retention(time.Minute))
	if got := specOf(t, b, "s").Retention; got != time.Minute {
		t.Errorf("retention %s", got)
	}
}

// natural sends a value of a type that has a serde by itself.
func natural[T any](v T) func(t *testing.T) {
	return func(t *testing.T) {
		t.Helper()
		d := drive(t, streamstest.Config{}, func(b *streams.Builder) {
			streams.MapValues(texts(b, "in"), func(string) T { return v }).To("out")
		})
		pipe(streamstest.NewInput(d, "in", serde.String(), serde.String()), "k=x@1")
		if got := streamstest.NewOutput(d, "out", serde.String(), serde.Bytes()).ReadAll(); len(got) != 1 || got[0].NullValue {
			t.Errorf("%T: %v", v, got)
		}
	}
}

// TestNaturalSerdes: types that Kafka's own serializers know need none; another one is told to.
func TestNaturalSerdes(t *testing.T) {
	t.Parallel()
	for _, f := range []func(*testing.T){
		natural(true), natural(int16(1)), natural(int32(1)), natural(int64(1)), natural(float32(1)), natural(1.5), natural([]byte("x")),
		natural("x"), natural(uuid.UUID{1}), natural(time.Unix(1, 0)),
	} {
		f(t)
	}
	b := streams.NewBuilder()
	streams.MapValues(texts(b, "in"), func(string) struct{ N int } { return struct{ N int }{} }).To("out")
	if _, err := b.Build(); err == nil || !strings.Contains(err.Error(), "WithValues") {
		t.Errorf("%v, want an error that says what to do", err)
	}
}

// page is a key that has no serde by itself.
type page struct{ Path string }

func pages() serde.Serde[page] {
	return serde.Of("page", func(p page) ([]byte, error) { return []byte(p.Path), nil }, func(b []byte) (page, error) { return page{string(b)}, nil })
}

// TestSerdesSaidLater: groupings, tables and grouped tables are told how their keys and values are written where that is needed.
func TestSerdesSaidLater(t *testing.T) {
	t.Parallel()
	d := drive(t, streamstest.Config{}, func(b *streams.Builder) {
		in := texts(b, "in")
		perPage := streams.GroupBy(in, func(_, v string) page { return page{v} }, streams.Named("per-page")).WithKeys(pages())
		streams.ToStream(streams.Count(perPage, "counts")).To("out")
		users := streams.TableFrom(b, "users", serde.String(), serde.String(), "users")
		moved := streams.GroupTable(users, func(k, v string) (page, page) { return page{v}, page{k} }).WithKeys(pages()).WithValues(pages())
		streams.ToStream(streams.CountTable(moved, "users-per-page", streams.CachingDisabled())).To("rows")
		upper := streams.MapTableValues(users, func(_, v string) page { return page{strings.ToUpper(v)} }).WithKeys(serde.String()).WithValues(pages())
		streams.ToStream(upper).To("upper")
	})
	pipe(streamstest.NewInput(d, "in", serde.String(), serde.String()), "a=/x@1", "b=/x@2")
	pipe(streamstest.NewInput(d, "users", serde.String(), serde.String()), "u=/x@1", "u=/y@2")
	want(t, "out", read(d, serde.Int64())(), "/x=1@1", "/x=2@2")
	want(t, "rows", streamstest.NewOutput(d, "rows", serde.String(), serde.Int64()).ReadStrings(), "/x=1@1", "/x=0@2", "/y=1@2")
	want(t, "upper", streamstest.NewOutput(d, "upper", serde.String(), serde.String()).ReadStrings(), "u=/X@1", "u=/Y@2")
}

// TestNamesOfStores: a table tells the name of the store that it has.
func TestNamesOfStores(t *testing.T) {
	t.Parallel()
	b := streams.NewBuilder()
	users := streams.TableFrom(b, "users", serde.String(), serde.String(), "")
	if users.Store() != "" || users.Filter(func(_, _ string) bool { return true }).Store() != "" {
		t.Error("a store that nobody needs has a name")
	}
	streams.JoinTable(texts(b, "in"), users, plus).To("out")
	if got := users.Store(); got != "users-STATE-STORE-0000000000" {
		t.Errorf("called %q once a join needs it", got)
	}
	if got := streams.GlobalTableFrom(b, "names", serde.String(), serde.String(), "all-names").Store(); got != "all-names" {
		t.Errorf("the global one is called %q", got)
	}
	w := streams.CountWindows(by(windows.Tumbling(time.Second, 0)).on(streams.GroupByKey(texts(b, "clicks"))), "w")
	spec, ok := streams.StoreOfWindows(w.Filter(func(serde.Windowed[string], int64) bool { return true }))
	if !ok || w.Store() != "w" || spec.Name != "w" || spec.WindowSize != time.Second {
		t.Errorf("windows are in %+v, %t", spec, ok)
	}
	plain := streams.TableFrom(b, "plain", serde.TimeWindowed(serde.String(), time.Second), serde.Int64(), "plain")
	if spec, ok := streams.StoreOfWindows(plain); ok {
		t.Errorf("a table of a topic is made from windows that are in %+v", spec)
	}
}

// TestTimeOfTables: the time of a row may be in its value, also when a table is made again from its topic, and in global tables.
func TestTimeOfTables(t *testing.T) {
	t.Parallel()
	second := func(v string) time.Time {
		var at int64
		for _, c := range v {
			at = at*10 + int64(c-'0')
		}
		return time.UnixMilli(at)
	}
	d := drive(t, streamstest.Config{}, func(b *streams.Builder) {
		b.ReuseSourceTopics()
		rows := streams.TableFrom(b, "rows", serde.String(), serde.String(), "rows", streams.TimeOf(second))
		streams.ToStream(rows).To("out")
		streams.GlobalTableFrom(b, "global", serde.String(), serde.String(), "global", streams.TimeOf(second))
	})
	pipe(streamstest.NewInput(d, "rows", serde.String(), serde.String()), "a=5@1000", "a@1001", "b=70@1002")
	pipe(streamstest.NewInput(d, "global", serde.String(), serde.String()), "a=8@1000")
	want(t, "out", read(d, serde.String())(), "a=5@5", "a=null@1001", "b=70@70")
	look := func() {
		t.Helper()
		rows := streamstest.NewKeyValue(d, "rows", serde.String(), serde.String())
		if r, ok := rows.Row("b"); !ok || r.Timestamp != 70 {
			t.Errorf("b: %+v, %t", r, ok)
		}
		if r, ok := streamstest.NewKeyValue(d, "global", serde.String(), serde.String()).Row("a"); !ok || r.Timestamp != 8 {
			t.Errorf("global a: %+v, %t", r, ok)
		}
	}
	look()
	d.Restart()
	look()
}
