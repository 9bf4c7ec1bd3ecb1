package processor

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/store"
)

// session is a reader that passes its token along, whoever answers.
type session struct {
	f     *fleet
	token store.Token
	seen  map[string]uint64
	// answered counts its answers; backwards those of the same instances to a reader without a token that were older than
	// what the session had seen.
	answered, backwards int64
}

// read asks one instance for a key. What may not answer must not, and what answers must not be older than what was seen.
func (s *session) read(in *instance, key string, p store.Partition) {
	s.f.t.Helper()
	get := func(opts store.ReadOptions) (uint64, store.Facts, error) {
		opts.MaxAge = time.Hour // so that nothing but the token speaks against an owner of long ago
		r, err := in.rt.Read(s.f.t.Context(), testStore, p, opts)
		if err != nil {
			return 0, store.Facts{}, err
		}
		defer r.Close()
		n, err := readCount(keyValue(s.f.t, r).Get(s.f.t.Context(), []byte(key)))
		return n, r.Facts(), err
	}
	if n, _, err := get(store.ReadOptions{}); err == nil && n < s.seen[key] {
		s.backwards++
	}
	n, facts, err := get(store.ReadOptions{AtLeast: s.token, Wait: time.Duration(len(key)%2) * 300 * time.Millisecond})
	if err != nil {
		for _, e := range []error{store.ErrBehind, store.ErrMoved, store.ErrNotReady, store.ErrShuttingDown} {
			if errors.Is(err, e) {
				return
			}
		}
		s.f.t.Errorf("read of %s: %v", key, err)
		return
	}
	if n < s.seen[key] {
		s.f.t.Errorf("%s went back from %d to %d: token %s, answer %s", key, s.seen[key], n, s.token, facts.Token)
	}
	if facts.Token.Empty() {
		s.f.t.Errorf("an answer without a token: %+v", facts)
	}
	s.seen[key] = n
	s.token.Raise(facts.Token)
	s.answered++
	sums.checked(1, 0)
}

// TestSimSessionNeverGoesBack: a session that passes its token along sees nothing go back, over kills, zombies that come back,
// planned moves and restores on empty disks. A reader without a token does see it.
func TestSimSessionNeverGoesBack(t *testing.T) {
	var backwards atomic.Int64
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		const partitions, keys = 2, 8
		f := newFleet(t, true, partitions)
		f.options = func(c *Config) { c.SessionTimeout = 6 * time.Second }
		tr := truth{}
		s := &session{f: f, seen: map[string]uint64{}}
		home := make(map[string]store.Partition)
		var order []int
		for i := range keys {
			order = append(order, i)
			key := fmt.Sprintf("key-%03d", i)
			tr[key]++
			r := f.client.ProduceSync(t.Context(), &kgo.Record{Topic: testInput, Key: []byte(key), Value: []byte("v")})
			if r.FirstErr() != nil {
				t.Fatal(r.FirstErr())
			}
			home[key] = store.Partition(r[0].Record.Partition)
		}
		all := []*instance{f.start("a"), f.start("b")}
		ask := func(rounds int) {
			for range rounds {
				f.produce(tr, rng, 5, keys)
				rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
				for _, i := range order {
					key := fmt.Sprintf("key-%03d", i)
					for _, in := range all { // also one that is dead to the others
						s.read(in, key, home[key])
					}
				}
				time.Sleep(time.Duration(rng.IntN(400)) * time.Millisecond)
			}
		}
		ask(20)
		for i := range 3 {
			dead := all[len(all)-1]
			dead.kill(fmt.Sprintf("disk%d", i))
			ask(20)
			name := fmt.Sprintf("disk%d", i) // its disk, or an empty one
			if rng.IntN(2) == 0 {
				name = fmt.Sprintf("empty%d", i)
			}
			all = append(all, f.start(name))
			ask(30)
			dead.cut.mend()
			ask(10)
			if rng.IntN(2) == 0 { // a planned move
				if err := all[0].stop(); err != nil {
					t.Error(err)
				}
				ask(10)
				all[0] = f.start(fmt.Sprintf("next%d", i))
			}
			ask(10)
		}
		f.reap(all...) // some were killed in a join
		f.waitCaughtUp(2 * time.Minute)
		if s.answered < 100 {
			t.Errorf("only %d answers", s.answered)
		}
		backwards.Add(s.backwards)
	})
	if backwards.Load() == 0 && *simSeeds >= 10 { // one schedule may be lucky
		t.Error("no reader without a token went back: the faults prove nothing")
	}
}

// produceOne writes one record to partition 0 and returns where it is.
func (f *fleet) produceOne(key, value string) store.Token {
	f.t.Helper()
	r := f.client.ProduceSync(f.t.Context(), &kgo.Record{Topic: testInput, Key: []byte(key), Value: []byte(value)})
	if err := r.FirstErr(); err != nil {
		f.t.Fatal(err)
	}
	pos := store.Position{}
	pos.Set(testInput, store.Partition(r[0].Record.Partition), store.Offset(r[0].Record.Offset))
	return store.Token{Inputs: pos}
}

// TestSimReadYourWrites: the offset of a produce acknowledgement is a token. It is met as soon as the record is committed,
// also when the record cannot be read and is skipped, and the wait is woken by the commit.
func TestSimReadYourWrites(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 1)
		f.options = func(c *Config) { c.DeserializationHandler = Continue }
		in := f.start("a")
		in.waitRunning()
		want := uint64(0)
		for i := range 30 {
			value := "v"
			if rng.IntN(3) == 0 {
				value = "bad"
			} else {
				want++
			}
			token := f.produceOne("k", value)
			if i%2 == 0 {
				time.Sleep(time.Duration(rng.IntN(200)) * time.Millisecond)
			}
			began := time.Now()
			r, err := in.rt.Read(t.Context(), testStore, 0, store.ReadOptions{AtLeast: token, Wait: time.Minute})
			if err != nil {
				t.Fatalf("write %d (%s): %v", i, value, err)
			}
			if n, err := readCount(keyValue(t, r).Get(t.Context(), []byte("k"))); err != nil || n != want {
				t.Fatalf("write %d: have %d (%v), want %d", i, n, err, want)
			}
			r.Close()
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("write %d: waited %s for a commit every 100ms", i, took)
			}
		}
		// Nothing comes after it, so nothing but its own commit can wake the wait.
		ahead := store.Token{Inputs: store.Position{testInput: {0: 1 << 40}}}
		began := time.Now()
		_, err := in.rt.Read(t.Context(), testStore, 0, store.ReadOptions{AtLeast: ahead, Wait: 3 * time.Second})
		behind, ok := errors.AsType[*store.BehindError](err)
		if !ok || behind.Store != testStore || behind.Have.Inputs[testInput][0] != 29 || behind.Want.Inputs[testInput][0] != 1<<40 || behind.RetryAfter <= 0 {
			t.Fatalf("a position nobody has reached: %v, %+v", err, behind)
		}
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("waited %s, want 3s", took)
		}
		if _, err := in.rt.Read(t.Context(), testStore, 0, store.ReadOptions{AtLeast: ahead}); !errors.Is(err, store.ErrBehind) {
			t.Errorf("without waiting: %v", err)
		}
	})
}

// TestSimTokenRefused: what can never be met is refused by name at once, however long the caller would wait.
func TestSimTokenRefused(t *testing.T) {
	simulate(t, func(t *testing.T, _ *rand.Rand) {
		f := newFleet(t, true, 1)
		f.topo = func() *Topology {
			return countTopology().
				AddProcessor("idle", func() Processor { return &idler{} }, "source").
				AddStateStore(store.Spec{Name: "unlogged", Kind: store.KindKeyValue, NoChangelog: true}, "idle")
		}
		in := f.start("a")
		in.waitRunning()
		for name, tc := range map[string]struct {
			store store.Name
			token store.Token
			says  string
		}{
			"a changelog that was deleted": {
				testStore, store.Token{Cuts: map[store.Partition]store.Cut{0: {TopicID: [16]byte{1}, Next: 1}}}, "app-counts-changelog",
			},
			"a topic that does not lead here": {testStore, store.Token{Inputs: store.Position{"other": {0: 1}}}, "other"},
			"no changelog":                    {"unlogged", store.Token{Cuts: map[store.Partition]store.Cut{0: {Next: 1}}}, "no changelog"},
		} {
			began := time.Now()
			_, err := in.rt.Read(t.Context(), tc.store, 0, store.ReadOptions{AtLeast: tc.token, Wait: time.Hour})
			e, ok := errors.AsType[*store.InvalidRequestError](err)
			if !ok || e.Field != "at_least" || !strings.Contains(e.Reason, tc.says) {
				t.Errorf("%s: %v", name, err)
			}
			if took := time.Since(began); took != 0 {
				t.Errorf("%s: took %s", name, took)
			}
		}
		for name, token := range map[string]store.Token{
			"nothing":           {},
			"another partition": {Cuts: map[store.Partition]store.Cut{7: {TopicID: [16]byte{1}, Next: 1}}, Inputs: store.Position{"other": {7: 1}}},
		} {
			r, err := in.rt.Read(t.Context(), "unlogged", 0, store.ReadOptions{AtLeast: token})
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if have := r.Facts().Token; !have.Empty() {
				t.Errorf("%s: token %s of a store without a changelog", name, have)
			}
			r.Close()
		}
	})
}

type idler struct{}

func (idler) Init(*Context) error   { return nil }
func (idler) Process(*Record) error { return nil }
func (idler) Close() error          { return nil }

// TestSimOwnerMeetsAnyCut: a confirmed owner has everything that was ever committed, so it meets a cut beyond its own last
// record, as one who follows the log counts what an abort left behind. One that cannot be confirmed does not.
func TestSimOwnerMeetsAnyCut(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 1)
		in := f.start("a")
		in.waitRunning()
		f.produce(truth{}, rng, 20, 5)
		f.waitCaughtUp(time.Minute)
		r, err := in.rt.Read(t.Context(), testStore, 0, store.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		token := r.Facts().Token.Clone()
		r.Close()
		cut := token.Cuts[0]
		if cut.Next == 0 || cut.TopicID == [16]byte{} {
			t.Fatalf("token %+v after commits", token)
		}
		cut.Next += 3
		token.Cuts[0] = cut
		for range 5 {
			time.Sleep(time.Duration(rng.IntN(30)) * time.Second)
			r, err := in.rt.Read(t.Context(), testStore, 0, store.ReadOptions{AtLeast: token, Wait: 3 * probeInterval})
			if err != nil {
				t.Fatal(err)
			}
			r.Close()
		}
		in.cut.cut()
		time.Sleep(time.Second)
		began := time.Now()
		_, err = in.rt.Read(t.Context(), testStore, 0, store.ReadOptions{AtLeast: token, Wait: 5 * time.Second, MaxAge: time.Hour})
		behind, ok := errors.AsType[*store.BehindError](err)
		switch took := time.Since(began); {
		case errors.Is(err, store.ErrNotReady): // cut in a heartbeat, it has given its membership up
		case !ok || behind.Want.Cuts[0] != cut || behind.Have.Cuts[0].Next != cut.Next-3:
			t.Errorf("cut off: %v", err)
		case took != 5*time.Second:
			t.Errorf("cut off: waited %s, want 5s", took)
		}
		in.cut.mend()
	})
}

// TestSimWaitEndsWithTheStay: whoever waits at an owner that the task leaves is told at once, not when its time is over
// (GN-15); and one who waits at an owner that restores is answered when the restore is done.
func TestSimWaitEndsWithTheStay(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 2)
		tr := truth{}
		f.produce(tr, rng, 200, 20)
		a := f.start("a")
		a.waitRunning()
		f.waitCaughtUp(time.Minute)
		type outcome struct {
			err error
			at  time.Time
		}
		wait := func(in *instance, p store.Partition) <-chan outcome {
			c := make(chan outcome, 1)
			go func() {
				r, err := in.rt.Read(t.Context(), testStore, p, store.ReadOptions{
					AtLeast: store.Token{Inputs: store.Position{testInput: {p: 1 << 40}}}, Wait: 24 * time.Hour,
				})
				if r != nil {
					r.Close()
				}
				c <- outcome{err, time.Now()}
			}()
			return c
		}
		waits := []<-chan outcome{wait(a, 0), wait(a, 1)}
		b := f.start("b")
		f.eventually("one each", time.Minute, func() error { return errors.Join(allServe(1, a), allServe(1, b)) })
		moved := time.Now()
		gone := 0
		for p := range waits {
			if info := b.rt.Tasks(); len(info) == 1 && int(info[0].ID.Partition) == p {
				o := <-waits[p]
				if !errors.Is(o.err, store.ErrMoved) && !errors.Is(o.err, store.ErrNotReady) || o.at.After(moved) {
					t.Errorf("partition %d: %v at %s, moved before %s", p, o.err, o.at, moved)
				}
				gone++
				waits[p] = wait(b, store.Partition(p))
			}
		}
		if gone != 1 {
			t.Fatalf("%d waits ended with the move", gone)
		}
		stopped := time.Now()
		if err := errors.Join(a.stop(), b.stop()); err != nil {
			t.Fatal(err)
		}
		for p := range waits {
			o := <-waits[p]
			if o.err == nil || o.at.Sub(stopped) > 30*time.Second {
				t.Errorf("partition %d: %v, %s after the stop", p, o.err, o.at.Sub(stopped))
			}
		}
	})
}
