package processor

import (
	"strings"
	"testing"
	"time"

	"github.com/statemesh/statemesh/store"
)

// source is a topology that is right, for the rows that add one mistake.
func source() *Topology {
	return NewTopology().AddSource("s", SourceOptions{}, "in").AddProcessor("p", newInert, "s")
}

func TestBuildErrors(t *testing.T) {
	one := &inert{}
	long := strings.Repeat("x", 250)
	for _, tt := range []struct {
		name string
		top  *Topology
		want string
	}{
		{"empty", NewTopology(), `topology: needs at least one source`},
		{"source without topic", source().AddSource("t", SourceOptions{}), `topology: source "t": needs at least one topic`},
		{"source without name", source().AddSource("", SourceOptions{}, "x"), `topology: source "": needs a name`},
		{"empty topic", source().AddSource("t", SourceOptions{}, ""), `topology: source "t": topic name is empty`},
		{
			"pattern", source().AddSource("t", SourceOptions{}, "flights-.*"),
			`topology: source "t": topic "flights-.*": topic patterns are not supported; name each topic`,
		},
		{
			"illegal topic", source().AddSource("t", SourceOptions{}, "a b"),
			`topology: source "t": topic "a b": ' ' is not one of a-z A-Z 0-9 . _ -`,
		},
		{"dots", source().AddSource("t", SourceOptions{}, ".."), `topology: source "t": topic "..": Kafka does not allow this name`},
		{"long topic", source().AddSource("t", SourceOptions{}, long), `topology: source "t": topic name of 250 bytes is above 249`},
		{
			"topic read twice", source().AddSource("t", SourceOptions{}, "in"),
			`topology: source "t": topic "in" is read by source "s" already`,
		},
		{
			"topic named twice", source().AddSource("t", SourceOptions{}, "x", "x"),
			`topology: source "t": topic "x" is named twice`,
		},
		{"unknown reset", source().AddSource("t", SourceOptions{OffsetReset: 9}, "x"), `topology: source "t": offset reset 9 is unknown`},
		{"no supplier", source().AddProcessor("q", nil, "s"), `topology: processor "q": has no supplier`},
		{
			"supplier of nil", source().AddProcessor("q", func() Processor { return nil }, "s"),
			`topology: processor "q": its supplier returned nil`,
		},
		{
			"supplier of a nil pointer", source().AddProcessor("q", func() Processor { return (*inert)(nil) }, "s"),
			`topology: processor "q": its supplier returned nil`,
		},
		{
			"supplier of one for all", source().AddProcessor("q", func() Processor { return one }, "s"),
			`topology: processor "q": its supplier must return a new processor at each call`,
		},
		{"name taken", source().AddProcessor("s", newInert, "p"), `topology: processor "s": the name is taken by a source`},
		{"no parent", source().AddProcessor("q", newInert), `topology: processor "q": needs at least one parent`},
		{"own parent", source().AddProcessor("q", newInert, "q"), `topology: processor "q": cannot be its own parent`},
		{
			"unknown parent", source().AddProcessor("q", newInert, "later"),
			`topology: processor "q": parent "later" is unknown; add parents first`,
		},
		{"parent twice", source().AddProcessor("q", newInert, "s", "s"), `topology: processor "q": parent "s" is named twice`},
		{
			"parent is a sink", source().AddSink("out", SinkOptions{}, "out", "p").AddProcessor("q", newInert, "out"),
			`topology: processor "q": parent "out" is a sink`,
		},
		{"sink without parent", source().AddSink("out", SinkOptions{}, "out"), `topology: sink "out": needs at least one parent`},
		{
			"sink to a pattern", source().AddSink("out", SinkOptions{}, "out*", "p"),
			`topology: sink "out": topic "out*": topic patterns are not supported; name each topic`,
		},
		{
			"repartition without parent", source().AddRepartition("r", RepartitionOptions{}),
			`topology: repartition "r": needs at least one parent`,
		},
		{
			"repartition of bad name", source().AddRepartition("r/1", RepartitionOptions{}, "p"),
			`topology: repartition "r/1": name "r/1": '/' is not one of a-z A-Z 0-9 . _ -`,
		},
		{
			"repartition into negative", source().AddRepartition("r", RepartitionOptions{Partitions: -2}, "p"),
			`topology: repartition "r": -2 partitions: want 0 for as many as its inputs have, or more`,
		},
		{
			"repartition topic read by hand", source().AddRepartition("r", RepartitionOptions{}, "p").
				AddSource("t", SourceOptions{}, "app-r-repartition"),
			`topology: repartition "r": its topic app-r-repartition is used by source "t"`,
		},
		{
			"changelog written by hand", source().AddStateStore(kv("a"), "p").AddSink("out", SinkOptions{}, "app-a-changelog", "p"),
			`topology: store "a": its topic app-a-changelog is used by sink "out"`,
		},
		{
			"changelog name too long", source().AddStateStore(kv(store.Name(long[:240])), "p"),
			`topology: store "` + long[:240] + `": its topic app-` + long[:240] + `-changelog has a name of 254 bytes, above 249`,
		},
		{"store without name", source().AddStateStore(kv(""), "p"), `topology: store "": needs a name`},
		{
			"store of bad name", source().AddStateStore(kv("a:b"), "p"),
			`topology: store "a:b": name "a:b": ':' is not one of a-z A-Z 0-9 . _ -`,
		},
		{"store of no kind", source().AddStateStore(store.Spec{Name: "a"}, "p"), `topology: store "a": kind 0 is unknown`},
		{
			"window that is kept for less than its size",
			source().AddStateStore(store.Spec{Name: "a", Kind: store.KindWindow, WindowSize: time.Hour, Retention: time.Minute}, "p"),
			`topology: store "a": retention 1m0s is below the window size 1h0m0s`,
		},
		{
			"versions without history", source().AddStateStore(store.Spec{Name: "a", Kind: store.KindVersioned}, "p"),
			`topology: store "a": a versioned store needs a retention of its history`,
		},
		{
			"versions behind a record cache", source().AddStateStore(store.Spec{Name: "a", Kind: store.KindVersioned, Retention: time.Hour, Caching: true}, "p"),
			`topology: store "a": a versioned store has no record cache: each put is a version of its own`,
		},
		{
			"duplicate versions", source().AddStateStore(store.Spec{Name: "a", Kind: store.KindVersioned, Retention: time.Hour, RetainDuplicates: true}, "p"),
			`topology: store "a": a versioned store keeps no duplicates`,
		},
		{
			"store of unknown format", source().AddStateStore(store.Spec{Name: "a", Kind: store.KindKeyValue, ValueFormat: "xml"}, "p"),
			`topology: store "a": value format "xml" is not one of bytes, string, bool, int16, int32, int64, float, double, uuid, time, json, ordered-int32, ordered-int64, ordered-double, avro, json-schema`,
		},
		{
			"settings for no changelog", source().AddStateStore(store.Spec{
				Name: "a", Kind: store.KindKeyValue, NoChangelog: true,
				ChangelogConfig: map[string]string{"retention.ms": "1"},
			}, "p"),
			`topology: store "a": has settings for a changelog that is switched off`,
		},
		{"store twice", source().AddStateStore(kv("a"), "p").AddStateStore(kv("a"), "p"), `topology: store "a": is declared twice`},
		{"store without processor", source().AddStateStore(kv("a")), `topology: store "a": is connected to no processor`},
		{"store of unknown processor", source().AddStateStore(kv("a"), "p", "nobody"), `topology: store "a": processor "nobody" is unknown`},
		{"store of a source", source().AddStateStore(kv("a"), "p", "s"), `topology: store "a": "s" is a source; only processors have stores`},
		{
			"connect to unknown store", source().ConnectProcessorAndStateStores("p", "nothing"),
			`topology: processor "p": store "nothing" is unknown`,
		},
		{"connect to nothing", source().ConnectProcessorAndStateStores("p"), `topology: processor "p": is connected to no store`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := tt.top.Build("app")
			if err == nil {
				t.Fatal("no error")
			}
			found := topologyErrors(err)
			if len(found) != 1 || found[0].Error() != tt.want {
				t.Errorf("got\n%v\nwant exactly\n%s", err, tt.want)
			}
		})
	}
}

func TestBuildReportsEverything(t *testing.T) {
	_, err := NewTopology().
		AddSource("s", SourceOptions{}, "a*").
		AddProcessor("p", nil, "s", "x").
		AddStateStore(kv("lost")).
		AddSink("out", SinkOptions{}, "", "p").
		Build("bad app")
	var kinds []string
	for _, e := range topologyErrors(err) {
		kinds = append(kinds, e.Kind+" "+e.Name)
	}
	want := "source s, processor p, processor p, sink out, topology , store lost"
	if got := strings.Join(kinds, ", "); got != want {
		t.Errorf("reported %s\nwant     %s\n%v", got, want, err)
	}
}

func TestPlanOfALoop(t *testing.T) {
	loop := func(partitions int32) *Built {
		top := NewTopology().AddSource("s", SourceOptions{}, "in").AddProcessor("p", newInert, "s").
			AddRepartition("r", RepartitionOptions{Partitions: partitions}, "p").
			AddProcessor("q", newInert, "r")
		// The store brings the writer and the reader of the repartition topic into one sub-topology.
		return mustBuild(t, top.AddStateStore(kv("a"), "p", "q"))
	}
	if p := mustPlan(t, loop(0), map[string]int32{"in": 3}); p.Repartitions[0].Partitions != 3 {
		t.Errorf("%d partitions, want those of the topic it meets: 3", p.Repartitions[0].Partitions)
	}
	_, err := loop(4).Plan(map[string]int32{"in": 3})
	if err == nil || !strings.Contains(err.Error(), "app-r-repartition (4 partitions) and in (3 partitions)") {
		t.Errorf("error %v", err)
	}
	// Here the topics do not meet, and nothing but the loop itself says how many partitions it has.
	apart := mustBuild(t, NewTopology().AddSource("s", SourceOptions{}, "in").AddProcessor("p", newInert, "s").
		AddRepartition("r", RepartitionOptions{}, "p").AddProcessor("both", newInert, "s", "r"))
	_, err = apart.Plan(map[string]int32{"in": 3})
	want := "topology: repartition topics app-r-repartition feed each other: state the partitions of one of them"
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestTimestampExtractors(t *testing.T) {
	for _, tt := range []struct {
		name              string
		extract           TimestampExtractor
		record, partition int64
		want              int64
		refused           bool
	}{
		{"fail: good", FailOnInvalidTimestamp, 5, 9, 5, false},
		{"fail: zero", FailOnInvalidTimestamp, 0, -1, 0, false},
		{"fail: negative", FailOnInvalidTimestamp, -1, 9, 0, true},
		{"skip: good", LogAndSkipOnInvalidTimestamp, 5, 9, 5, false},
		{"skip: negative", LogAndSkipOnInvalidTimestamp, -1, 9, -1, false},
		{"partition time: good", UsePartitionTimeOnInvalidTimestamp, 5, 9, 5, false},
		{"partition time: negative", UsePartitionTimeOnInvalidTimestamp, -1, 9, 9, false},
		{"partition time: negative first", UsePartitionTimeOnInvalidTimestamp, -1, -1, 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.extract(&Record{Timestamp: tt.record}, RecordMetadata{Topic: "t", Offset: 3}, tt.partition)
			if got != tt.want || (err != nil) != tt.refused {
				t.Errorf("%d, %v; want %d, refused %t", got, err, tt.want, tt.refused)
			}
		})
	}
}

func TestParseOffsetReset(t *testing.T) {
	for in, want := range map[string]OffsetReset{
		"": ResetDefault, "default": ResetDefault, "earliest": ResetEarliest,
		"latest": ResetLatest, "none": ResetNone,
	} {
		if got, err := ParseOffsetReset(in); err != nil || got != want {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
	if _, err := ParseOffsetReset("newest"); err == nil {
		t.Error("newest is taken")
	}
}
