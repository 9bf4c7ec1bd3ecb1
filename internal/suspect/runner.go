package suspect

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/statemesh/statemesh/internal/hostproc"
	"github.com/statemesh/statemesh/router"
)

// Peers are the other instances, as far as they are asked about others. Safe for concurrent use.
type Peers interface {
	// Suspect asks the instance at endpoint what it sees of s; by is who answered. With persist it waits for a connection.
	Suspect(ctx context.Context, endpoint string, s Subject, wait Wait) (seen Sighting, by string, err error)
	// Rejoin tells the instance at endpoint that s was removed from the group of the map's epoch.
	Rejoin(ctx context.Context, endpoint string, s Subject, epoch router.Epoch) error
}

// Wait says how long a question may wait for a connection.
type Wait uint8

// The two ways to ask.
const (
	// FailFast: not longer than an attempt that is under way.
	FailFast Wait = iota
	// ForConnection: as long as the context lasts. The endpoint was just seen open.
	ForConnection
)

// Config of a [Runner].
type Config struct {
	// Self is this incarnation of this instance. Required.
	Self Subject
	// Host is this process on its machine; zero: it proves nothing by processes.
	Host hostproc.ID
	// Table has the newest map. Required.
	Table *router.Table
	// Hosts tells which process an incarnation is, zero when that is not known. nil: it never is.
	Hosts func(Subject) hostproc.ID
	// Peers are asked. Required.
	Peers Peers
	// Dial tries a connection to a host:port; nil: TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Evict removes a subject from the group and returns how many members that were; nil: nobody is ever evicted. It must be
	// bounded in time.
	Evict func(ctx context.Context, s Subject, by Proof) (removed int, err error)
	// Epoch is the newest that this instance knows of, not older than that of the table. nil: that of the table.
	Epoch func() router.Epoch
	// Nudge makes this instance look for its new tasks, unless it knows of a newer map than that of the epoch. nil: it waits.
	Nudge func(epoch router.Epoch)
	// Logger, nil: discard. Registerer of metrics, nil: none.
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// How long the parts of a look may take.
const (
	dialTimeout   = time.Second
	answerTimeout = time.Second
	firstAnswer   = 100 * time.Millisecond
	// askTimeout is for a peer that looks itself before it answers.
	askTimeout  = dialTimeout + 2*answerTimeout + 500*time.Millisecond
	tellTimeout = time.Second
	// workers bounds what goes on at once.
	workers = 64
)

// Runner watches the instances of the map. Its methods are safe for concurrent use; Run is called once.
type Runner struct {
	cfg Config
	log *slog.Logger
	met *metrics

	poke  chan struct{}
	slots chan struct{}
	// doubted are the endpoints and ids of those that are.
	doubted atomic.Pointer[map[string]bool]

	mu      sync.Mutex
	machine *Machine
	todo    []Action
	flights map[Subject]*flight
}

// flight is a look that several wait for. glance is set before done is closed.
type flight struct {
	done   chan struct{}
	glance Glance
}

// NewRunner starts nothing.
func NewRunner(cfg Config) *Runner {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Dial == nil {
		cfg.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		}
	}
	if cfg.Hosts == nil {
		cfg.Hosts = func(Subject) hostproc.ID { return hostproc.ID{} }
	}
	r := &Runner{
		cfg: cfg, log: cfg.Logger, met: newMetrics(cfg.Registerer), poke: make(chan struct{}, 1),
		slots: make(chan struct{}, workers), machine: NewMachine(cfg.Self), flights: make(map[Subject]*flight),
	}
	r.doubted.Store(&map[string]bool{})
	if cfg.Evict != nil {
		r.machine.Arm()
	}
	return r
}

// Run watches until ctx ends, which is no error. Everything it started has ended when it returns.
func (r *Runner) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		snap, changed := r.cfg.Table.Watch()
		r.advance(func(m *Machine) []Action {
			now := time.Now()
			if snap != nil && snap.Epoch() > m.Epoch() {
				return m.Map(now, snap.Epoch(), instancesOf(snap))
			}
			return m.Tick(now)
		})
		actions, next := r.take()
		for _, a := range actions {
			r.do(ctx, &wg, a)
		}
		timer.Reset(next)
		select {
		case <-changed:
		case <-r.poke:
		case <-timer.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func instancesOf(s *router.Snapshot) []Instance {
	var list []Instance
	for _, in := range s.Instances() {
		list = append(list, Instance{Subject: Subject{Instance: in.ID, Incarnation: in.Incarnation}, Endpoint: in.Endpoint})
	}
	return list
}

// Broken takes in that a connection to an endpoint broke or could not be made. It does not block.
func (r *Runner) Broken(endpoint string) {
	r.step(func(m *Machine) []Action { return m.Broken(time.Now(), endpoint) })
}

// Doubts reports whether the instance of this id or endpoint did not answer when it was last asked.
func (r *Runner) Doubts(idOrEndpoint string) bool { return (*r.doubted.Load())[idOrEndpoint] }

// Suspect answers another instance that believes s to be dead: it looks at this moment, unless such a look is under way.
func (r *Runner) Suspect(ctx context.Context, s Subject) Sighting {
	if s.Instance == r.cfg.Self.Instance {
		return Sighting{Kind: Alive, Incarnation: r.cfg.Self.Incarnation}
	}
	r.mu.Lock()
	in, address, ok := r.machine.Find(s)
	if !ok || address == "" {
		r.mu.Unlock()
		return Sighting{Kind: Unknown}
	}
	f := r.flights[s]
	mine := f == nil
	if mine {
		f = &flight{done: make(chan struct{})}
		r.flights[s] = f
	}
	r.mu.Unlock()
	if mine {
		f.glance = r.look(ctx, Action{Instance: in, Address: address, Doubted: true})
		r.mu.Lock()
		delete(r.flights, s)
		r.mu.Unlock()
		close(f.done)
		if f.glance.Reach != Alive {
			r.Broken(in.Endpoint)
		}
	}
	select {
	case <-f.done:
		return f.glance.sighting(s)
	case <-ctx.Done():
		return Sighting{Kind: Unreachable}
	}
}

// Rejoin takes in that another instance has removed s from the group of the epoch, or that it is to place its tasks anew: then s is
// nobody.
func (r *Runner) Rejoin(ctx context.Context, s Subject, epoch router.Epoch) {
	if s == r.cfg.Self {
		r.log.WarnContext(ctx, "this instance was removed from the group by another that believes it dead")
		return
	}
	if s != (Subject{}) {
		r.step(func(m *Machine) []Action { m.Removed(s); return nil })
	}
	if r.cfg.Nudge != nil {
		r.cfg.Nudge(epoch)
	}
}

// step lets the machine take a step, keeps what it wants done for Run, and makes that look when the next step is due.
func (r *Runner) step(f func(*Machine) []Action) {
	r.advance(f)
	select {
	case r.poke <- struct{}{}:
	default:
	}
}

func (r *Runner) advance(f func(*Machine) []Action) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.todo = append(r.todo, f(r.machine)...)
	r.publish()
}

// publish shows who is doubted to those who do not want to wait. The mutex is held.
func (r *Runner) publish() {
	list, shown := r.machine.Doubted(), *r.doubted.Load()
	same := 2*len(list) == len(shown)
	for _, in := range list {
		same = same && shown[in.Subject.Instance] && shown[in.Endpoint]
	}
	if same {
		return
	}
	now := make(map[string]bool, 2*len(list))
	for _, in := range list {
		now[in.Subject.Instance], now[in.Endpoint] = true, true
	}
	r.doubted.Store(&now)
	r.met.doubted.Set(float64(len(list)))
}

// take returns what is to be done, and how long nothing else is.
func (r *Runner) take() ([]Action, time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	actions := r.todo
	r.todo = nil
	next := lastLook
	if at := r.machine.Next(); !at.IsZero() {
		next = max(0, min(next, time.Until(at)))
	}
	return actions, next
}

// do begins an action.
func (r *Runner) do(ctx context.Context, wg *sync.WaitGroup, a Action) {
	var work func()
	switch a.Do {
	case Report:
		r.report(ctx, a)
		return
	case Look:
		work = func() {
			g := r.look(ctx, a)
			r.step(func(m *Machine) []Action { return m.Looked(time.Now(), a.Subject, a.Round, g) })
		}
	case Ask:
		work = func() {
			v := r.ask(ctx, a)
			r.step(func(m *Machine) []Action { return m.Voted(time.Now(), a.Subject, a.Round, a.Peer.Subject.Instance, v) })
		}
	case Evict:
		work = func() {
			removed, err := r.evict(ctx, wg, a)
			r.step(func(m *Machine) []Action { return m.Evicted(time.Now(), a.Subject, removed, err) })
		}
	}
	wg.Go(func() {
		select {
		case r.slots <- struct{}{}:
			defer func() { <-r.slots }()
			work()
		case <-ctx.Done():
		}
	})
}

// evict removes a subject and tells the others.
func (r *Runner) evict(ctx context.Context, wg *sync.WaitGroup, a Action) (int, error) {
	epoch := r.epoch() // of before: who knows of a newer assignment has joined without it
	removed, err := r.cfg.Evict(ctx, a.Subject, a.Proof)
	if err != nil {
		r.log.WarnContext(ctx, "a dead instance was not evicted", "instance", a.Subject.Instance, "incarnation", a.Incarnation, "error", err)
	}
	if removed == 0 {
		return 0, err
	}
	r.mu.Lock()
	others := r.machine.Peers()
	r.mu.Unlock()
	for _, to := range others {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, tellTimeout)
			defer cancel()
			if err := r.cfg.Peers.Rejoin(ctx, to.Endpoint, a.Subject, epoch); err != nil {
				r.log.DebugContext(ctx, "not told of an eviction", "instance", to.Subject.Instance, "error", err)
			}
		})
	}
	return removed, err
}

func (r *Runner) epoch() router.Epoch {
	if r.cfg.Epoch != nil {
		return r.cfg.Epoch()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.machine.Epoch()
}

// report counts an outcome, and logs those that an operator wants to know of.
func (r *Runner) report(ctx context.Context, a Action) {
	r.met.outcomes.WithLabelValues(string(a.Outcome)).Inc()
	args := []any{"instance", a.Subject.Instance, "incarnation", a.Incarnation, "endpoint", a.Endpoint, "outcome", string(a.Outcome)}
	switch a.Outcome {
	case Suspected:
		r.log.InfoContext(ctx, "an instance does not answer", args...)
	case Cleared:
		r.log.InfoContext(ctx, "an instance answers again", args...)
	case Proven:
		r.log.WarnContext(ctx, "an instance is dead, removing it from the group", args...)
	case NeverSeen, AlreadyTried, SwitchedOff, WasGone:
		r.log.DebugContext(ctx, "an instance does not answer and will not be evicted", args...)
	case SeenAlive, NoMajority, Limited, NoMember, EvictionError:
		r.log.InfoContext(ctx, "an instance does not answer and is not evicted", args...)
	}
}
