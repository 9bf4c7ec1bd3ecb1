package processor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/statemesh/statemesh/store"
)

// levels counts lines of a log by their text.
type levels struct {
	slog.Handler

	mu    sync.Mutex
	lines map[string]int
}

func (l *levels) Enabled(context.Context, slog.Level) bool { return true }
func (l *levels) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *levels) WithGroup(string) slog.Handler            { return l }

func (l *levels) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lines == nil {
		l.lines = make(map[string]int)
	}
	l.lines[r.Message]++
	return nil
}

func (l *levels) said(line string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines[line]
}

// ownersMove lets tasks move to whoever is to have them, at once and with nothing: the new owner has to get a copy.
func ownersMove(c *Config) { c.AcceptableRecoveryLag = 1 << 40 }

// served reports why the tasks are not all served, or in has none of them.
func (in *instance) served(tasks int, others ...*instance) error {
	if err := allServe(tasks, append(others, in)...); err != nil {
		return err
	}
	return in.servesSome(1)
}

// TestSimSnapshotDiskRefuses: the disk of who takes a copy takes no writes any more in the middle of it, so that neither the rest can be
// written nor the half be dropped. When it does again the half goes first, and all is read from the changelog, by an owner as by a
// standby: nobody is asked for a copy by then.
func TestSimSnapshotDiskRefuses(t *testing.T) {
	for _, c := range []struct {
		name     string
		standbys int
		refuses  error
	}{
		{"owner, full", 0, errDiskFull},
		{"owner, broken", 0, errDiskBroken},
		{"standby", 1, errDiskBroken},
	} {
		t.Run(c.name, func(t *testing.T) {
			simulate(t, func(t *testing.T, rng *rand.Rand) {
				tasks := 2 - c.standbys
				f := newFleet(t, true, int32(tasks))
				f.withStandbys(c.standbys)
				n := newCopyNet(f)
				tr := truth{}
				a := n.start("a", ownersMove)
				n.grow(tr, rng)
				var b *instance
				begun := make(chan struct{})
				refused := make(chan struct{})
				n.see(after(int64(100+rng.IntN(100))<<10, func(string) {
					<-begun
					n.suspect("a")
					b.disk.becomes(0, c.refuses)
					close(refused)
				}))
				b = n.start("b", ownersMove)
				close(begun)
				select {
				case <-refused:
				case <-time.After(time.Minute):
					t.Fatal("nobody was asked for a copy")
				}
				for range 5 {
					f.produce(tr, rng, 20, 80)
					time.Sleep(time.Duration(rng.IntN(10)) * time.Second)
				}
				if k := b.asked("taken"); k > tasks-1 {
					t.Errorf("%d copies were taken of %d tasks: want one that was not", k, tasks)
				}
				b.disk.becomes(0, nil)
				f.eventually("b has what it is to have", 2*time.Minute, func() error {
					select {
					case <-b.done:
						return fmt.Errorf("it has ended: %w", b.err)
					default:
					}
					if c.standbys > 0 {
						return follows(tasks, c.standbys, a, b)
					}
					return b.served(tasks, a)
				})
				f.waitCaughtUp(2 * time.Minute)
				f.check(tr, a, b)
				if c.standbys > 0 {
					if err := a.stop(); err != nil {
						t.Fatal(err)
					}
					f.eventually("b has it all", time.Minute, func() error { return allServe(tasks, b) })
					f.check(tr, b)
				}
			})
		})
	}
}

// TestSimSnapshotOwnerWaitsForNobody: who has a task to run asks its peers once. When all are busy it reads the changelog at once, which
// is there.
func TestSimSnapshotOwnerWaitsForNobody(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		const tasks = 2
		f := newFleet(t, true, tasks)
		n := newCopyNet(f)
		tr := truth{}
		a := n.start("a", ownersMove)
		n.grow(tr, rng)
		n.set(true, "a")
		var mu sync.Mutex
		var took []time.Duration
		b := n.start("b", ownersMove, func(c *Config) {
			c.Listener.RestoreEnd = func(i RestoreInfo) {
				mu.Lock()
				defer mu.Unlock()
				took = append(took, i.Took)
			}
		})
		f.eventually("tasks are shared", time.Minute, func() error { return b.served(tasks, a) })
		f.waitCaughtUp(time.Minute)
		f.check(tr, a, b)
		mu.Lock()
		defer mu.Unlock()
		if busy := b.asked("busy"); busy == 0 || busy > len(took) || b.asked("taken") > 0 {
			t.Errorf("%d times busy in %d restores, %d copies taken: want to ask once in each at most", busy, len(took), b.asked("taken"))
		}
		for _, d := range took {
			if d > 5*time.Second {
				t.Errorf("a restore took %s of virtual time", d)
			}
		}
	})
}

// TestSeedPlaces: no owner waits for the places that standbys have taken, nor for those of other owners; a standby does, for a while.
func TestSeedPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newSeedManners(64 << 20)
		enter := func(m *seedManner) (leave func(), took time.Duration, err error) {
			began := time.Now()
			leave, err = m.enter(t.Context())
			return leave, time.Since(began), err
		}
		free, _, err := enter(&m.standby)
		if err != nil {
			t.Fatal(err)
		}
		if _, took, err := enter(&m.standby); !errors.Is(err, store.ErrOverloaded) || took != seedPatience {
			t.Errorf("a second standby: %v after %s", err, took)
		}
		for range 2 {
			if _, took, err := enter(&m.owner); err != nil || took != 0 {
				t.Errorf("an owner: %v after %s", err, took)
			}
		}
		if _, took, err := enter(&m.owner); !errors.Is(err, store.ErrOverloaded) || took != 0 {
			t.Errorf("a third owner: %v after %s", err, took)
		}
		time.AfterFunc(time.Second, free)
		if _, took, err := enter(&m.standby); err != nil || took != time.Second {
			t.Errorf("a standby after another: %v after %s", err, took)
		}
		if m := newSeedManners(1); cap(m.owner.places) != 1 || cap(m.standby.places) != 1 {
			t.Errorf("%d and %d places with little memory", cap(m.owner.places), cap(m.standby.places))
		}
	})
}

// TestWillHave: by what a peer says of itself, not by its words.
func TestWillHave(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]bool{
		&store.NotReadyError{Reason: reasonUnproven}:                         true,
		&store.NotReadyError{Reason: "restoring its good mood"}:              true,
		&store.NotReadyError{Reason: reasonCopying + "x", Building: true}:    false,
		&store.NotReadyError{Reason: "whatever a newer one", Building: true}: false,
		&store.MovedError{}: false,
		store.ErrNotReady:   false,
	} {
		if willHave(fmt.Errorf("asked: %w", err)) != want {
			t.Errorf("%v: want %t", err, want)
		}
	}
}

// TestOutlive: what is begun to be dropped may take as long as it takes while the task stays, and some seconds once it goes.
func TestOutlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, leave := context.WithCancel(t.Context())
		lasting, done := outlive(ctx, 10*time.Second)
		defer done()
		time.Sleep(time.Hour)
		if lasting.Err() != nil {
			t.Error("ended while the other one had not")
		}
		leave()
		time.Sleep(9 * time.Second)
		if lasting.Err() != nil {
			t.Error("ended too soon")
		}
		time.Sleep(2 * time.Second)
		if lasting.Err() == nil {
			t.Error("goes on")
		}
		gone, done := outlive(ctx, 10*time.Second)
		time.Sleep(9 * time.Second)
		if gone.Err() != nil {
			t.Error("one that begins after the end has no time")
		}
		done()
		if gone.Err() == nil {
			t.Error("not ended by its owner")
		}
	})
}
