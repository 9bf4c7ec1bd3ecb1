package restore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/statemesh/statemesh/store"
)

// fakeBrokers answer the questions of rounds as a test wants it.
type fakeBrokers struct {
	mu sync.Mutex
	// delays and errs by whom is asked.
	delay    map[int32]time.Duration
	err      map[int32]error
	asked    []int32
	epochs   []int32
	offset   store.Offset
	unstable bool
	end      map[logKey]store.Offset
	lead     map[logKey]led
}

func newFakeBrokers() *fakeBrokers {
	return &fakeBrokers{
		delay: map[int32]time.Duration{}, err: map[int32]error{},
		end: map[logKey]store.Offset{{"x", 0}: 5, {"y", 0}: 5}, lead: map[logKey]led{{"x", 0}: {leader: 1, epoch: 3}, {"y", 0}: {leader: 2, epoch: 3}},
	}
}

func (f *fakeBrokers) wait(ctx context.Context, who int32) error {
	f.mu.Lock()
	f.asked = append(f.asked, who)
	delay, err := f.delay[who], f.err[who]
	f.mu.Unlock()
	if delay == 0 {
		return err
	}
	select {
	case <-time.After(delay):
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *fakeBrokers) offsets(ctx context.Context, inputs []store.TopicPartition, have map[store.TopicPartition]Committed) error {
	if err := f.wait(ctx, askingOffsets); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, tp := range inputs {
		if !f.unstable {
			have[tp] = Committed{Next: f.offset, Exists: true}
		}
	}
	return nil
}

func (f *fakeBrokers) ends(ctx context.Context, broker int32, logs []endOf) (map[logKey]store.Offset, error) {
	if err := f.wait(ctx, broker); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	ends := map[logKey]store.Offset{}
	for _, o := range logs {
		f.epochs = append(f.epochs, o.epoch)
		if f.lead[o.key].leader == broker {
			ends[o.key] = f.end[o.key]
		}
	}
	return ends, nil
}

func (f *fakeBrokers) leaders(ctx context.Context, topics []string) (map[logKey]led, error) {
	if err := f.wait(ctx, askingMetadata); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	lead := map[logKey]led{}
	for key, l := range f.lead {
		if slices.Contains(topics, key.topic) {
			lead[key] = l
		}
	}
	return lead, nil
}

func (f *fakeBrokers) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// count is how often somebody was asked since the last call.
func (f *fakeBrokers) count(who int32) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.asked {
		if a == who {
			n++
		}
	}
	f.asked = nil
	return n
}

// simulate runs rounds over fake brokers in a bubble, which has one task with two changelogs, led by two brokers.
func simulate(t *testing.T, use func(f *fakeBrokers, r *Rounds, x, y *Watched)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeBrokers()
		r, err := newRounds(RoundsConfig{}, f)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		in := []store.TopicPartition{{Topic: "in"}}
		x := r.Watch(store.TaskID{}, in, map[store.Name]Changelog{"s": {Topic: "x"}})
		y := r.Watch(store.TaskID{}, in, map[store.Name]Changelog{"s": {Topic: "y"}})
		use(f, r, x, y)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("rounds ended: %v", err)
		}
	})
}

func ageOf(w *Watched) time.Duration {
	p, ok := w.Proof(map[store.Name]store.LogPosition{"s": {Next: 5}})
	if !ok {
		return -1
	}
	return time.Since(p.At)
}

const young = 250 * time.Millisecond

// TestRoundsGoOn: each second has its rounds; nothing watched, no requests.
func TestRoundsGoOn(t *testing.T) {
	simulate(t, func(f *fakeBrokers, r *Rounds, x, y *Watched) {
		time.Sleep(50 * time.Millisecond)
		if a := ageOf(x); a < 0 || a > 50*time.Millisecond {
			t.Errorf("first proof: %s", a)
		}
		time.Sleep(time.Second)
		f.count(0)
		time.Sleep(time.Minute)
		if n := f.count(askingOffsets); n < 295 || n > 301 {
			t.Errorf("%d rounds a minute, want 300", n)
		}
		x.Close()
		y.Close()
		time.Sleep(time.Second)
		f.count(0)
		time.Sleep(time.Minute)
		if f.set(func() {}); len(f.asked) != 0 {
			t.Errorf("%d requests for nobody", len(f.asked))
		}
	})
}

// TestOneBrokerOnlyAgesItsOwn: a broker that answers late, or not, or refuses, holds nobody else back.
func TestOneBrokerOnlyAgesItsOwn(t *testing.T) {
	for name, fail := range map[string]func(f *fakeBrokers, who int32){
		"silent":  func(f *fakeBrokers, who int32) { f.delay[who] = time.Hour },
		"refuses": func(f *fakeBrokers, who int32) { f.err[who] = kerr.NotLeaderForPartition },
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(f *fakeBrokers, _ *Rounds, x, y *Watched) {
				time.Sleep(time.Second)
				f.set(func() { fail(f, 2) })
				time.Sleep(time.Minute)
				if a := ageOf(x); a > young {
					t.Errorf("x is %s old", a)
				}
				if a := ageOf(y); a < time.Minute-young {
					t.Errorf("y is %s old, and its broker says nothing", a)
				}
				f.set(func() { f.delay, f.err = map[int32]time.Duration{}, map[int32]error{} })
				time.Sleep(3 * time.Second)
				if a := ageOf(y); a > young {
					t.Errorf("y is %s old after its broker has come back", a)
				}
			})
		})
	}
}

// TestCoordinatorAway: where the inputs stand is what was last known, and the copies stay young. A store that is made of an
// input ages.
func TestCoordinatorAway(t *testing.T) {
	for name, fail := range map[string]func(f *fakeBrokers){
		"silent":   func(f *fakeBrokers) { f.delay[askingOffsets] = time.Hour },
		"moved":    func(f *fakeBrokers) { f.err[askingOffsets] = kerr.NotCoordinator },
		"unstable": func(f *fakeBrokers) { f.unstable = true },
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(f *fakeBrokers, r *Rounds, x, _ *Watched) {
				src := r.Watch(store.TaskID{}, nil, map[store.Name]Changelog{"s": {Topic: "in", Replay: func([]Record) error { return nil }}})
				f.set(func() { f.offset = 4 })
				time.Sleep(time.Second)
				f.set(func() { f.offset = 9; fail(f) })
				time.Sleep(time.Minute)
				p, ok := x.Proof(map[store.Name]store.LogPosition{"s": {Next: 5}})
				if !ok || time.Since(p.At) > 2*young || p.Inputs[store.TopicPartition{Topic: "in"}] != 4 {
					t.Errorf("%+v %t, %s old", p, ok, time.Since(p.At))
				}
				if a := ageOf(src); a < time.Minute-young {
					t.Errorf("the store of the input is %s old", a)
				}
			})
		})
	}
}

// TestRoundsFollowTheLeader: the newest leader epoch that was heard of is sent, and a broker that is behind with it is not
// believed; a topic that was made anew proves nothing about the old one.
func TestRoundsFollowTheLeader(t *testing.T) {
	simulate(t, func(f *fakeBrokers, r *Rounds, x, _ *Watched) {
		time.Sleep(time.Second)
		f.set(func() { f.lead[logKey{"x", 0}] = led{leader: 2, epoch: 4} })
		time.Sleep(2 * time.Second)
		if a := ageOf(x); a > young {
			t.Errorf("%s old after the leader has moved", a)
		}
		f.set(func() {
			f.lead[logKey{"x", 0}] = led{leader: 1, epoch: 3}
			f.epochs = nil
		})
		time.Sleep(10 * time.Second)
		f.set(func() {
			if !slices.Contains(f.epochs, 4) {
				t.Error("the newest epoch is not sent any more")
			}
		})
		if l := r.leaders[logKey{"x", 0}]; l.epoch != 4 {
			t.Errorf("leader %+v by old news", l)
		}
		f.set(func() { f.lead[logKey{"x", 0}] = led{leader: 2, epoch: 4, id: [16]byte{2}} })
		w := r.Watch(store.TaskID{}, nil, map[store.Name]Changelog{"s": {Topic: "x", ID: [16]byte{1}}})
		time.Sleep(10 * time.Second)
		if a := ageOf(w); a > 0 && a < 2*time.Second {
			t.Errorf("%s old by the end of another topic", a)
		}
	})
}

// TestAsk: a round is sent at once when somebody asks, and not more often than ten times as often however many ask.
func TestAsk(t *testing.T) {
	simulate(t, func(f *fakeBrokers, _ *Rounds, x, _ *Watched) {
		time.Sleep(1100 * time.Millisecond)
		changed := x.Changed()
		asked := time.Now()
		x.Ask()
		<-changed
		if took := time.Since(asked); took > 25*time.Millisecond {
			t.Errorf("a round that was asked for took %s", took)
		}
		f.count(0)
		for range 10_000 {
			x.Ask()
			time.Sleep(100 * time.Microsecond)
		}
		if n := f.count(askingOffsets); n < 40 || n > 51 {
			t.Errorf("%d rounds in a second of asking, want 50", n)
		}
	})
}

// TestOffsetsComeFirst: the ends of a round are asked for after the offsets have come.
func TestOffsetsComeFirst(t *testing.T) {
	simulate(t, func(f *fakeBrokers, _ *Rounds, x, _ *Watched) {
		time.Sleep(time.Second)
		f.set(func() { f.delay[askingOffsets] = 50 * time.Millisecond })
		time.Sleep(time.Second)
		// The offset moves right after it was told, and the end with it: the position must not claim what was not there.
		f.set(func() { f.asked = nil })
		time.Sleep(time.Second)
		f.mu.Lock()
		defer f.mu.Unlock()
		last := int32(0)
		for i, who := range f.asked {
			if who == askingOffsets && last == askingOffsets {
				t.Errorf("request %d: %v", i, f.asked)
			}
			if who != askingMetadata {
				last = who
			}
		}
		if len(f.asked) < 9 {
			t.Errorf("%d requests", len(f.asked))
		}
	})
}
