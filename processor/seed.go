package processor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/statemesh/statemesh/processor/internal/restore"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/layered"
)

const (
	// seedPatience is how long a standby waits for peers that are all busy with others, and seedPause how long from one question to the
	// next.
	seedPatience, seedPause = 15 * time.Second, 500 * time.Millisecond
	// mapPatience is how long a standby waits for the first map of the application, which tells who the peers are, and mapPatienceOwner
	// how long an owner does.
	mapPatience, mapPatienceOwner = 10 * time.Second, 2 * time.Second
	// seedResumes is how often a peer is asked to go on without having sent anything in between, once if it has not begun;
	// seedResumeWait is the first wait.
	seedResumes, seedResumeWait = 3, 200 * time.Millisecond
	tellInterval                = time.Second
	// seedBytes is what a copy takes of the memory of restores while it comes: what is collected for the engine, and what flow
	// control lets in.
	seedBytes = 8 << 20
)

// seedManner is how a copy is sought: the changelog can be read at any time, so it depends on who waits for it.
type seedManner struct {
	// owner: nobody processes the task, and nobody may have a fresh answer, until it is there.
	owner bool
	// places of copies on their way in.
	places chan struct{}
	// patience is how long places and peers are waited for that are taken by others, 0: they are asked once. mapPatience is how long
	// the first map is.
	patience, mapPatience time.Duration
}

// seedManners are those of owners and of standbys. Each have places of their own, as the readers of changelogs have buffers of their own:
// no owner waits for a standby.
type seedManners struct{ owner, standby seedManner }

func newSeedManners(restoreBytes int64) seedManners {
	places := func(bytes int64) chan struct{} { return make(chan struct{}, max(1, bytes/seedBytes)) }
	return seedManners{
		owner:   seedManner{owner: true, places: places(restoreBytes / 4), mapPatience: mapPatienceOwner},
		standby: seedManner{places: places(restoreBytes / 8), patience: seedPatience, mapPatience: mapPatience},
	}
}

// enter takes one of the places.
func (m *seedManner) enter(ctx context.Context) (leave func(), err error) {
	leave = func() { <-m.places }
	select {
	case m.places <- struct{}{}:
		return leave, nil
	default:
	}
	timer := time.NewTimer(m.patience)
	defer timer.Stop()
	select {
	case m.places <- struct{}{}:
		return leave, nil
	case <-timer.C:
		return nil, &store.OverloadedError{Limit: "RestoreMaxBytes", RetryAfter: seedPause}
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// reasonCopying begins the reason of a NotReadyError of a task that is taken from another instance; rows are counted then.
const reasonCopying = "restoring from instance "

// errSlower reports a copy that would take longer than what it spares to read.
var errSlower = errors.New("the changelogs are faster")

// seed brings a task from the nearest peer that has it, when that is faster than to read its changelogs; nil when this instance asks
// nobody. Whatever goes wrong is logged and counted, the next peer is asked, and in the end the changelogs are read. An error is what
// keeps the copy that was begun from being dropped.
// tell is told, about once a second, from whom rows come and how many of about how many there are.
func (r *Runtime) seed(id store.TaskID, state *layered.Task, manner *seedManner, tell func(from string, rows, total int64)) restore.Seed {
	if _, none := r.cfg.Peers.(noPeers); none || r.cfg.NoSnapshots {
		return nil
	}
	return func(ctx context.Context, need restore.Need) (bool, error) {
		if need.Offsets < r.cfg.SnapshotMinOffsets {
			return false, nil
		}
		s := &seeding{rt: r, id: id, state: state, manner: manner, need: need, tell: tell, ended: make(map[string]int)}
		tried, err := s.run(ctx)
		s.report(ctx)
		return tried, err
	}
}

// seeding is one attempt to seed a task. It belongs to the writer of the task.
type seeding struct {
	rt     *Runtime
	id     store.TaskID
	state  *layered.Task
	manner *seedManner
	need   restore.Need
	tell   func(from string, rows, total int64)
	told   time.Time
	// dropped: the local copy is not what it was.
	dropped bool
	// ended counts how the questions ended, by outcome; last is the last error.
	ended map[string]int
	last  error

	// What is being taken, from whom, since when. load is nil until a header was accepted.
	from   router.Replica
	asked  time.Time
	load   *layered.Load
	header store.CopyHeader
	mark   *store.CopyMark
}

var _ store.CopyTaker = (*seeding)(nil)

// Begin decides by the header whether the copy is worth taking, and makes room for it.
func (s *seeding) Begin(ctx context.Context, id string, h store.CopyHeader) error {
	if s.load != nil { // gone on with
		return nil
	}
	if h.Age < 0 {
		return &store.CopyRefusedError{Task: s.id, Reason: "nobody knows how old it is"}
	}
	left, err := s.need.Fits(ctx, h.Checkpoint, h.Age+elapsed(s.asked, s.rt.now()))
	if err != nil {
		return err
	}
	if spared := s.need.Offsets - left; spared/int64(s.rt.cfg.SnapshotOffsetsPerRow) < h.Rows { // as many as a peer may claim
		return fmt.Errorf("%w: %d rows spare %d offsets", errSlower, h.Rows, spared)
	}
	if err := s.state.Accepts(h); err != nil {
		return err
	}
	offsets := s.need.Offsets
	s.need.Offsets = s.need.Dropping() // for whoever is asked next, if it must be
	s.dropped = true
	s.rt.tasks.seeding(s.id, s.from.Instance)
	if s.load, err = s.state.Load(ctx, h, s.asked); err != nil {
		return err
	}
	s.header, s.mark = h, &store.CopyMark{ID: id}
	s.rt.tasks.copied(s.id, 0, h.Rows, 0, 0)
	s.rt.cfg.Logger.InfoContext(ctx, "restoring from the copy of a peer", "task", s.id, "from", s.from.Instance, "rows", h.Rows, "bytes", h.Bytes,
		"age", h.Age, "offsets", offsets, "left", left)
	return nil
}

// Take adds rows to the load and notes the mark behind them, from which a copy that is cut off is gone on with.
func (s *seeding) Take(ctx context.Context, rows []store.CopyRow, to store.CopyMark) error {
	if err := s.load.Add(ctx, rows); err != nil {
		return err
	}
	s.mark = &to
	s.rt.metrics.copyRows.Add(float64(len(rows)))
	now, total := s.rt.now(), max(s.header.Rows, to.Rows)
	_, bytes := s.load.Loaded()
	s.rt.tasks.copied(s.id, to.Rows, total, bytes, estimate(to.Rows, total, now.Sub(s.asked)))
	if now.Sub(s.told) >= tellInterval {
		s.told = now
		s.tell(s.from.Instance, to.Rows, total)
	}
	return nil
}

func (s *seeding) run(ctx context.Context) (tried bool, err error) {
	began := s.rt.now()
	leave, err := s.manner.enter(ctx)
	if err != nil {
		s.count(ctx, err)
		return false, context.Cause(ctx)
	}
	defer leave()
	defer s.rt.tasks.seeded(s.id)
	failed := make(map[string]bool)
	for {
		busy := false
		for _, peer := range s.peers(ctx) {
			if failed[peer.Instance] {
				continue
			}
			err := s.take(ctx, peer)
			s.count(ctx, err)
			switch {
			case err == nil:
				return true, nil
			case ctx.Err() != nil:
				return s.dropped, context.Cause(ctx)
			case s.state.Unfinished(): // what was begun could not be given up
				return true, err
			case errors.Is(err, errSlower): // and so will be any other
				return s.dropped, nil
			case errors.Is(err, store.ErrOverloaded), willHave(err):
				busy = true
			default:
				failed[peer.Instance] = true
			}
		}
		if !busy || s.rt.now().Sub(began) >= s.manner.patience {
			return s.dropped, nil
		}
		if err := sleep(ctx, seedPause); err != nil {
			return s.dropped, err
		}
	}
}

// willHave reports whether a peer that has no copy to give now will soon have one: the task is on its way, or its age is to be proven.
func willHave(err error) bool {
	e, ok := errors.AsType[*store.NotReadyError](err)
	return ok && !e.Building
}

// take takes the task from one peer.
func (s *seeding) take(ctx context.Context, peer router.Replica) error {
	s.from, s.asked, s.mark = peer, s.rt.now(), nil
	wait := seedResumeWait
	for left := 1; ; left-- {
		before := s.mark
		err := s.rt.cfg.Peers.CopyTask(ctx, peer.Endpoint, store.CopyRequest{Task: s.id, ForOwner: s.manner.owner, After: s.mark}, s)
		switch {
		case err == nil && s.load == nil:
			return fmt.Errorf("copy from instance %s: nothing came", peer.Instance)
		case err == nil:
			return s.finish(ctx)
		case s.mark != before:
			left, wait = seedResumes, seedResumeWait
		}
		if !s.mayGoOn(err) || left == 0 || ctx.Err() != nil || s.rt.cfg.Peers.Suspected(peer) {
			return s.abandon(ctx, err)
		}
		s.rt.cfg.Logger.InfoContext(ctx, "copy cut off, going on with it", "task", s.id, "from", peer.Instance, "begun", s.mark != nil, "error", err)
		if s.mark != nil {
			s.rt.metrics.copyResumes.Inc()
		}
		if err := sleep(ctx, wait); err != nil {
			return s.abandon(ctx, err)
		}
		wait *= 2
	}
}

// mayGoOn reports whether a copy that ended so may be gone on with: it was cut off, or its sender still has the former connection of it
// among those that it may have.
func (s *seeding) mayGoOn(err error) bool {
	return errors.Is(err, store.ErrCopyCut) || s.mark != nil && errors.Is(err, store.ErrOverloaded)
}

// estimate is how long the rest takes at the rate so far.
func estimate(done, total int64, took time.Duration) time.Duration {
	if done <= 0 || took <= 0 {
		return 0
	}
	return time.Duration(float64(took) / float64(done) * float64(total-done))
}

func (s *seeding) finish(ctx context.Context) error {
	err := s.load.Finish(ctx)
	if err != nil {
		return s.abandon(ctx, err)
	}
	rows, bytes := s.load.Loaded()
	s.load = nil
	s.rt.cfg.Logger.InfoContext(ctx, "copy of a peer taken", "task", s.id, "from", s.from.Instance, "rows", rows, "bytes", bytes,
		"took", s.rt.now().Sub(s.asked))
	return nil
}

// abandonTimeout bounds what it takes to drop a copy that did not become whole, once the task is on its way out.
const abandonTimeout = 10 * time.Second

// abandon gives up what was begun: the copy is an empty one then.
func (s *seeding) abandon(ctx context.Context, why error) error {
	if s.state.Unfinished() { // whatever became of the load
		ctx, cancel := outlive(ctx, abandonTimeout)
		defer cancel()
		if err := s.state.Wipe(ctx); err != nil {
			return errors.Join(why, fmt.Errorf("drop what was loaded: %w", err))
		}
	}
	s.load, s.mark = nil, nil
	return why
}

// outlive is a context that ends some time after another one.
func outlive(ctx context.Context, by time.Duration) (context.Context, context.CancelFunc) {
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		_ = sleep(lasting, by)
		cancel()
	})
	return lasting, func() {
		stop()
		cancel()
	}
}

// count counts how a question ended. Whoever is busy is asked over and over, and says nothing that is of interest each time; what came
// and is no copy is.
func (s *seeding) count(ctx context.Context, err error) {
	outcome := "failed"
	switch {
	case err == nil:
		outcome = "taken"
	case ctx.Err() != nil:
		outcome = "interrupted"
	case errors.Is(err, store.ErrOverloaded):
		outcome = "busy"
	case errors.Is(err, errSlower):
		outcome = "slower"
	case errors.Is(err, store.ErrCopyRefused):
		outcome = "refused"
	case errors.Is(err, store.ErrCopyBroken):
		outcome = "broken"
	case errors.Is(err, store.ErrCopyCut):
		outcome = "cut"
	case errors.Is(err, store.ErrClosed): // after too long
		outcome = "expired"
	case errors.Is(err, store.ErrMoved), errors.Is(err, store.ErrNotReady), errors.Is(err, store.ErrShuttingDown):
		outcome = "unavailable"
	}
	s.rt.metrics.copies.WithLabelValues(outcome).Inc()
	s.ended[outcome]++
	s.last = err
	if outcome == "failed" || outcome == "broken" {
		s.rt.cfg.Logger.WarnContext(ctx, "no copy from a peer", "task", s.id, "from", s.from.Instance, "reason", outcome, "error", err)
	}
}

// report says once what became of the questions, unless a copy was taken.
func (s *seeding) report(ctx context.Context) {
	if s.last == nil || ctx.Err() != nil {
		return
	}
	var asked []string
	for _, outcome := range slices.Sorted(maps.Keys(s.ended)) {
		asked = append(asked, fmt.Sprintf("%s %d", outcome, s.ended[outcome]))
	}
	s.rt.cfg.Logger.InfoContext(ctx, "no peer has given a copy, reading the changelogs", "task", s.id, "asked", strings.Join(asked, ", "),
		"offsets", s.need.Offsets, "last_error", s.last)
}

// seeding notes that the copy of another instance is being taken, seeded that none is any more.
func (g *registry) seeding(id store.TaskID, from string) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if e := g.entries[id]; e != nil {
		e.read.set(0, 0, 0)
		e.read.bytes.Store(0)
		e.read.from.Store(&from)
	}
}

func (g *registry) seeded(id store.TaskID) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if e := g.entries[id]; e != nil && e.read.from.Swap(nil) != nil {
		e.read.set(0, 0, 0)
	}
}
