package streams_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/statemesh/statemesh/processor/streams"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/processor/windows"
	"github.com/statemesh/statemesh/serde"
)

// event is a record of a model run; its value is the power of two of its number, so a sum tells which records are in it.
type event struct {
	key   string
	at    int64
	value int64
}

type windowOf struct {
	key        string
	start, end int64
}

// model says what there is in each window after some records, and from which stream time it is closed.
type model struct {
	windows map[windowOf]int64
	closes  func(windowOf) int64
	now     int64
	drops   int
}

func (m *model) reach(at int64) { m.now = max(m.now, at) }

// gridModel: each window of a record takes it unless it is closed.
func gridModel(w windows.Time, events []event) *model {
	m := &model{windows: make(map[windowOf]int64), closes: func(k windowOf) int64 { return k.end + w.Grace.Milliseconds() }}
	size, advance := w.Size.Milliseconds(), w.Advance.Milliseconds()
	for _, e := range events {
		m.reach(e.at)
		dropped := false
		for start := int64(0); start <= e.at; start += advance {
			k := windowOf{e.key, start, start + size}
			switch {
			case k.end <= e.at:
			case m.closes(k) <= m.now:
				dropped = true
			default:
				m.windows[k] += e.value
			}
		}
		if dropped {
			m.drops++
		}
	}
	return m
}

// slidingModel: with a grace that nothing exceeds, a window ends with each record and one begins behind it, and holds whatever lies in it.
func slidingModel(w windows.Sliding, events []event) *model {
	m := &model{windows: make(map[windowOf]int64), closes: func(k windowOf) int64 { return k.end + w.Grace.Milliseconds() + 1 }}
	d := w.Difference.Milliseconds()
	for _, e := range events {
		m.reach(e.at)
		for _, start := range []int64{max(0, e.at-d), e.at + 1} {
			k := windowOf{e.key, start, start + d}
			sum := int64(0)
			for _, o := range events {
				if o.key == k.key && k.start <= o.at && o.at <= k.end {
					sum += o.value
				}
			}
			if sum > 0 {
				m.windows[k] = sum
			}
		}
	}
	return m
}

// sessionModel: a record and all sessions within a gap become one, unless that is closed.
func sessionModel(w windows.Session, events []event) *model {
	gap := w.Gap.Milliseconds()
	m := &model{windows: make(map[windowOf]int64), closes: func(k windowOf) int64 { return k.end + gap + w.Grace.Milliseconds() + 1 }}
	for _, e := range events {
		m.reach(e.at)
		whole, sum := windowOf{e.key, e.at, e.at}, e.value
		var joined []windowOf
		for k, v := range m.windows { // those that are closed are as they are
			if k.key == e.key && m.closes(k) > m.now && k.end >= e.at-gap && k.start <= e.at+gap {
				joined = append(joined, k)
				whole.start, whole.end = min(whole.start, k.start), max(whole.end, k.end)
				sum += v
			}
		}
		if m.closes(whole) <= m.now {
			m.drops++
			continue
		}
		for _, k := range joined {
			delete(m.windows, k)
		}
		m.windows[whole] = sum
	}
	return m
}

// modelRun is one topology over the windows of a model.
type modelRun struct {
	name string
	// final: each window is told once, when it is closed.
	final bool
	cfg   streamstest.Config
	emit  streams.EmitStrategy
	opts  []streams.Option
	hold  bool // with Suppress
}

var modelRuns = []modelRun{
	{name: "uncached", opts: []streams.Option{streams.CachingDisabled()}},
	{name: "cached", cfg: streamstest.Config{CommitInterval: streamstest.Never}},
	{name: "small cache", cfg: streamstest.Config{CommitInterval: streamstest.Never, CacheMaxBytes: 400}},
	{name: "on close", emit: streams.OnWindowClose, final: true},
	{name: "suppress", opts: []streams.Option{streams.CachingDisabled()}, hold: true, final: true},
	{name: "cached suppress", cfg: streamstest.Config{CommitInterval: streamstest.Never}, hold: true, final: true},
	{name: "small cache suppress", cfg: streamstest.Config{CommitInterval: streamstest.Never, CacheMaxBytes: 400}, hold: true, final: true},
}

// TestWindowModels compares what windows are told in the end, and how often, with what simple loops find, for random records in random
// order, with restarts and commits in between.
func TestWindowModels(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for round := range uint64(6) {
		rnd := rand.New(rand.NewPCG(seed, round))
		grace := time.Duration(rnd.IntN(30)) * ms
		size := time.Duration(5+rnd.IntN(20)) * ms
		grid := windows.Hopping(size, time.Duration(1+rnd.IntN(int(size/ms)))*ms, grace)
		sliding := windows.Sliding{Difference: size, Grace: 10 * time.Second}
		session := windows.Session{Gap: size, Grace: grace}
		events := randomEvents(rnd)
		for _, k := range []struct {
			name  string
			w     func(streams.EmitStrategy) windowing
			model *model
		}{
			{"grid", func(e streams.EmitStrategy) windowing { return by(grid, e) }, gridModel(grid, events)},
			{"sliding", func(e streams.EmitStrategy) windowing { return by(sliding, e) }, slidingModel(sliding, events)},
			{"session", func(e streams.EmitStrategy) windowing { return bySessions(session, e) }, sessionModel(session, events)},
		} {
			for _, run := range modelRuns {
				t.Run(fmt.Sprintf("%d/%s/%s", round, k.name, run.name), func(t *testing.T) {
					t.Parallel()
					runModel(t, run, k.w(run.emit), k.model, events, rand.New(rand.NewPCG(seed, round+1)))
				})
			}
		}
	}
}

// randomEvents are at most 60, since each has a bit of a sum; two of them come last and close everything else.
func randomEvents(rnd *rand.Rand) []event {
	events := make([]event, 60)
	at := int64(0)
	for i := range events {
		at += int64(rnd.IntN(8))
		if i == len(events)-1 {
			at += 100_000
		}
		events[i] = event{key: string(rune('a' + rnd.IntN(3))), at: at, value: 1 << i}
		if i < len(events)-1 {
			events[i].at = max(0, at-int64(rnd.IntN(40)))
		}
	}
	return events
}

func runModel(
	t *testing.T, run modelRun, w windowing, m *model, events []event, rnd *rand.Rand,
) {
	d := drive(t, run.cfg, func(b *streams.Builder) {
		g := streams.GroupByKey(texts(b, "in"))
		add := func(a, v string) string { return strconv.FormatInt(number(a)+number(v), 10) }
		table := streams.ReduceWindows(w.on(g), "s", add, run.opts...)
		if run.hold {
			table = table.Suppress(streams.UntilWindowCloses(streams.Buffer{}), streams.Named("held"))
		}
		streams.ToStream(table).To("out")
	})
	in := streamstest.NewInput(d, "in", serde.String(), serde.String())
	for _, e := range events {
		in.Pipe(e.key, strconv.FormatInt(e.value, 10), e.at)
		switch rnd.IntN(12) {
		case 0:
			d.Commit()
		case 1:
			d.Commit() // what is not committed is done again, and counted as dropped again
			d.Restart()
		case 2:
			d.AdvanceWallClock(time.Second)
		}
	}
	d.Commit()
	told, times := make(map[string]string), make(map[string]int)
	for _, r := range streamstest.NewOutput(d, "out", w.keys, serde.String()).ReadAll() {
		key := windowText(r.Key)
		times[key]++
		if told[key] = r.Value; r.NullValue {
			delete(told, key)
		}
	}
	expect := make(map[string]string)
	for k, v := range m.windows {
		if !run.final || m.closes(k) <= m.now {
			expect[windowText(serde.Windowed[string]{Key: k.key, Start: k.start, End: k.end})] = strconv.FormatInt(v, 10)
		}
	}
	if !maps.Equal(told, expect) {
		for _, k := range slices.Sorted(maps.Keys(expect)) {
			if told[k] != expect[k] {
				t.Errorf("%s: have %q, want %q", k, told[k], expect[k])
			}
		}
		for _, k := range slices.Sorted(maps.Keys(told)) {
			if _, ok := expect[k]; !ok {
				t.Errorf("%s: have %q, want none", k, told[k])
			}
		}
	}
	for k, n := range times {
		if run.final && n != 1 {
			t.Errorf("%s: told %d times", k, n)
		}
	}
	drops := 0
	for _, n := range d.Dropped() {
		drops += n
	}
	if drops != m.drops {
		t.Errorf("%d records dropped, want %d", drops, m.drops)
	}
}
