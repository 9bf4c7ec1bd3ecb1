package streams_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/statemesh/statemesh/processor/streams"
	"github.com/statemesh/statemesh/processor/streamstest"
	"github.com/statemesh/statemesh/serde"
)

// rounds is how many random inputs each model is compared for.
const rounds = 40

// random is a source of choices whose seed a failing test names.
func random(t *testing.T, seed uint64) *rand.Rand {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 6))
}

// arrival is a record of one side of a join of streams.
type arrival struct {
	left       bool
	key, value string
	at         int64
	// met says that it has had a result with another one, or one without.
	done bool
}

// streamModel computes a join of streams by looking at all pairs.
type streamModel struct {
	before, after, grace  int64
	leftOuter, rightOuter bool
	came                  []*arrival
	// kept are the records in the store of each side, and newest the greatest time in it.
	kept    map[bool][]*arrival
	newest  map[bool]int64
	time    int64
	results []string
}

func (m *streamModel) outer(left bool) bool { return left && m.leftOuter || !left && m.rightOuter }

// wait is for how long one of the other side may come.
func (m *streamModel) wait(left bool) int64 {
	if left {
		return m.after + m.grace
	}
	return m.before + m.grace
}

func (m *streamModel) alone(a *arrival) {
	a.done = true
	l, r := a.value, "null"
	if !a.left {
		l, r = r, l
	}
	m.results = append(m.results, fmt.Sprintf("%s=%s+%s@%d", a.key, l, r, a.at))
}

func (m *streamModel) meet(a, b *arrival) bool {
	l, r := a, b
	if !a.left {
		l, r = b, a
	}
	if a.left == b.left || a.key != b.key || r.at < l.at-m.before || r.at > l.at+m.after {
		return false
	}
	m.results = append(m.results, fmt.Sprintf("%s=%s+%s@%d", a.key, l.value, r.value, max(l.at, r.at)))
	return true
}

func (m *streamModel) arrive(a *arrival) {
	retention := m.before + m.after + m.grace
	if a.at > m.time {
		m.time = a.at
	}
	if a.at == m.time {
		for _, x := range m.came {
			if m.outer(x.left) && !x.done && x.at+m.wait(x.left) < m.time {
				m.alone(x)
			}
		}
	}
	for _, x := range m.kept[!a.left] {
		if x.at > m.newest[!a.left]-retention && m.meet(a, x) {
			a.done, x.done = true, true
		}
	}
	if m.outer(a.left) && !a.done && a.at+m.wait(a.left) < m.time {
		m.alone(a)
	}
	m.came = append(m.came, a)
	if a.at > m.newest[a.left]-retention {
		m.kept[a.left] = append(m.kept[a.left], a)
		m.newest[a.left] = max(m.newest[a.left], a.at)
	}
}

// TestJoinStreamsModel: joins of streams of any order and lateness, with restarts, give what a naive computation gives.
func TestJoinStreamsModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(rounds) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			r := random(t, seed)
			m := &streamModel{
				before: r.Int64N(20), after: 1 + r.Int64N(20), grace: r.Int64N(3) * r.Int64N(15), leftOuter: seed%3 > 0, rightOuter: seed%3 > 1,
				kept: map[bool][]*arrival{}, newest: map[bool]int64{true: -1, false: -1}, time: -1,
			}
			w := streams.JoinWindows{
				Before: time.Duration(m.before) * time.Millisecond, After: time.Duration(m.after) * time.Millisecond,
				Grace: time.Duration(m.grace) * time.Millisecond,
			}
			b := newJoinBench(t, streamstest.Config{}, func(b *streams.Builder) {
				left, right := sources(b)
				switch {
				case m.rightOuter:
					streams.OuterJoinStreams(left, right, w, outerPlus, streams.As("j")).To("out")
				case m.leftOuter:
					streams.LeftJoinStreams(left, right, w, leftPlus, streams.As("j")).To("out")
				default:
					streams.JoinStreams(left, right, w, plus, streams.As("j")).To("out")
				}
			})
			var now int64
			for i := range 150 {
				now += r.Int64N(6)
				a := &arrival{left: r.IntN(2) == 0, key: string(rune('a' + r.IntN(3))), value: strconv.Itoa(i), at: max(0, now-r.Int64N(2)*r.Int64N(60))}
				if i == 149 {
					a.key, a.at = "z", now+1000 // which ends all windows
				}
				m.arrive(a)
				in := b.right
				if a.left {
					in = b.left
				}
				in.Pipe(a.key, a.value, a.at)
				if r.IntN(30) == 0 {
					b.d.Restart()
				}
			}
			have := b.out.ReadStrings()
			slices.Sort(have)
			slices.Sort(m.results)
			if d := cmp.Diff(m.results, have); d != "" || len(have) < 5 {
				t.Errorf("%d results for %+v (-want +got)\n%s", len(have), w, d)
			}
		})
	}
}

// tableModel drives two tables with random changes, restarts and commits, and compares what a join has come to with a naive one.
func tableModel(t *testing.T, seed uint64, key func(r *rand.Rand) string, value func(r *rand.Rand, left bool) string,
	build func(b *streams.Builder, opts ...streams.Option) *streams.Table[string, string], join func(l, r map[string]string) map[string]string,
) {
	t.Helper()
	r := random(t, seed)
	cfg := streamstest.Config{Partitions: map[string]int32{"left": 2, "right": 2}, CacheMaxBytes: 1 << r.IntN(12)}
	if r.IntN(2) == 0 {
		cfg.CommitInterval = streamstest.Never
	}
	var opts []streams.Option
	if r.IntN(2) == 0 {
		opts = append(opts, streams.As("joined"))
	}
	b := newJoinBench(t, cfg, func(b *streams.Builder) {
		if r.IntN(2) == 0 {
			b.ReuseSourceTopics()
		}
		streams.ToStream(build(b, opts...)).To("out")
	})
	lefts, rights := map[string]string{}, map[string]string{}
	for i := range 200 {
		rows, in := lefts, b.left
		if r.IntN(2) == 0 {
			rows, in = rights, b.right
		}
		k, v := key(r), value(r, in == b.left)
		if r.IntN(4) == 0 {
			delete(rows, k)
			in.PipeTombstone(k, int64(i))
		} else {
			rows[k] = v
			in.Pipe(k, v, int64(i))
		}
		switch r.IntN(25) {
		case 0:
			b.d.Restart()
		case 1:
			b.d.Commit()
		}
	}
	b.d.Commit()
	want := join(lefts, rights)
	if d := cmp.Diff(want, streamstest.ReadMap(b.out)); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if len(opts) > 0 {
		joined := streamstest.NewKeyValue(b.d, "joined", serde.String(), serde.String())
		if d := cmp.Diff(want, streamstest.Map(joined)); d != "" {
			t.Errorf("store (-want +got)\n%s", d)
		}
	}
}

// TestJoinTablesModel: whatever comes in whatever order, joined tables are in the end the join of what the tables are.
func TestJoinTablesModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(rounds) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			long := func(_, v string) bool { return len(v) > 1 }
			loud := func(_, v string) string { return v + "!" }
			tableModel(t, seed,
				func(r *rand.Rand) string { return strconv.Itoa(r.IntN(6)) },
				func(r *rand.Rand, _ bool) string { return strconv.Itoa(r.IntN(30)) },
				func(b *streams.Builder, opts ...streams.Option) *streams.Table[string, string] {
					l, r := tables(b)
					r = streams.MapTableValues(r.Filter(long), loud)
					switch seed % 3 {
					case 0:
						return streams.JoinTables(l, r, plus, opts...)
					case 1:
						return streams.LeftJoinTables(l, r, leftPlus, opts...)
					default:
						return streams.OuterJoinTables(l, r, outerPlus, opts...)
					}
				},
				func(l, r map[string]string) map[string]string {
					want := map[string]string{}
					for i := range 6 {
						k := strconv.Itoa(i)
						var left, right streams.Maybe[string]
						left.Value, left.OK = l[k]
						if v, ok := r[k]; ok && long(k, v) {
							right = streams.Maybe[string]{Value: loud(k, v), OK: true}
						}
						if left.OK && right.OK || left.OK && seed%3 > 0 || right.OK && seed%3 > 1 {
							want[k] = outerPlus(k, left, right)
						}
					}
					return want
				})
		})
	}
}

// TestJoinForeignModel: whatever comes in whatever order, a join on a foreign key is in the end that of what the tables are.
func TestJoinForeignModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(rounds) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			tableModel(t, seed,
				func(r *rand.Rand) string { return strconv.Itoa(r.IntN(6)) },
				func(r *rand.Rand, left bool) string {
					if left && r.IntN(5) > 0 {
						return fmt.Sprintf("%d:%d", r.IntN(6), r.IntN(3))
					}
					return strconv.Itoa(r.IntN(10))
				},
				func(b *streams.Builder, opts ...streams.Option) *streams.Table[string, string] {
					l, r := tables(b)
					if seed%2 == 0 {
						return streams.JoinForeign(l, r, foreignKey, plus, opts...)
					}
					return streams.LeftJoinForeign(l, r, foreignKey, leftPlus, opts...)
				},
				func(l, r map[string]string) map[string]string {
					want := map[string]string{}
					for k, v := range l {
						var right streams.Maybe[string]
						if f, ok := foreignKey(k, v); ok {
							right.Value, right.OK = r[f]
						}
						if right.OK || seed%2 == 1 {
							want[k] = leftPlus(k, v, right)
						}
					}
					return want
				})
		})
	}
}
