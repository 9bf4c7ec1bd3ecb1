package restore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/store"
)

// RoundsConfig of a [Rounds]. The zero value of a field means its default.
type RoundsConfig struct {
	// Client sends the requests: one of the direct role (kafka.Config.Direct). Required. The caller closes it after Run has
	// returned.
	Client *kgo.Client
	// Group whose committed offsets say where the inputs stand. Required.
	Group string
	// Interval from one round to the next while anything is watched. Default 200ms.
	Interval time.Duration
	// Now is the clock of Proof.At. Default time.Now.
	Now    func() time.Time
	Logger *slog.Logger
	// Registerer of the metrics; nil: no metrics.
	Registerer prometheus.Registerer
}

// Rounds ask the brokers, again and again, where the group's offsets and the ends of the changelogs are. When a copy has come
// to an end that was told, it has everything that was committed before that was asked. Safe for concurrent use.
//
// A round is one OffsetFetch (require stable) and then one ListOffsets (READ_UNCOMMITTED: the high watermark) to each broker,
// for all that is watched. A broker or coordinator that does not answer holds nobody else back: it is left out of the rounds
// until it has answered.
type Rounds struct {
	cfg     RoundsConfig
	ask     asker
	metrics roundMetrics
	poke    chan struct{}
	running sync.WaitGroup // the requests on their way; of Run

	mu      sync.Mutex
	watched map[*Watched]struct{}
	asked   bool           // for a round soon
	leaders map[logKey]led // newest known
	unknown bool           // a leader is missing, or has proven wrong
	// busy brokers have still to answer; offsets and metadata are asked for under numbers that no broker has.
	busy map[int32]bool
}

const (
	askingOffsets  int32 = -1
	askingMetadata int32 = -2
)

// logKey names a changelog partition; led is who leads it.
type logKey struct {
	topic     string
	partition int32
}

type led struct {
	id            [16]byte
	leader, epoch int32
}

// How old what is known of leaders may become, and how long any answer is waited for, at least.
const (
	leadersInterval = 5 * time.Second
	roundTimeout    = 2 * time.Second
)

// NewRounds starts nothing; Run does.
func NewRounds(cfg RoundsConfig) (*Rounds, error) {
	if cfg.Client == nil || cfg.Group == "" {
		return nil, errors.New("rounds: Client and Group are required")
	}
	return newRounds(cfg, &broker{client: cfg.Client, group: cfg.Group})
}

func newRounds(cfg RoundsConfig, ask asker) (*Rounds, error) {
	cfg.Interval = cmp.Or(cfg.Interval, 200*time.Millisecond)
	if cfg.Interval < 10*time.Millisecond {
		return nil, fmt.Errorf("rounds: Interval %s, want at least 10ms", cfg.Interval)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	r := &Rounds{
		cfg: cfg, ask: ask, metrics: newRoundMetrics(), poke: make(chan struct{}, 1), watched: make(map[*Watched]struct{}),
		leaders: make(map[logKey]led), busy: make(map[int32]bool),
	}
	return r, r.metrics.register(cfg.Registerer)
}

// Run sends rounds until ctx ends. It is called once. Nothing that brokers say ends it: a broker that fails only lets its
// partitions age.
func (r *Rounds) Run(ctx context.Context) error {
	defer r.running.Wait()
	var last, metadata time.Time
	for {
		if err := r.pause(ctx, last); err != nil {
			return err
		}
		last = time.Now()
		if r.stale(metadata) {
			metadata = time.Now()
			r.send(ctx, askingMetadata, r.lead)
		}
		r.round(ctx)
	}
}

// Ask lets the next round begin at once, or as soon as a tenth of the interval has passed since the last began: for a query
// whose bound is tighter than the interval, or a copy that has just changed its role.
func (r *Rounds) Ask() {
	r.mu.Lock()
	r.asked = true
	r.mu.Unlock()
	signal(r.poke)
}

// Watch begins to watch the changelogs and inputs of a task. Close ends it. A task may be watched more than once. A changelog
// with a Replay is not asked for its end: the committed offset of the input takes its place.
func (r *Rounds) Watch(task store.TaskID, inputs []store.TopicPartition, changelogs map[store.Name]Changelog) *Watched {
	w := &Watched{r: r, task: task, inputs: slices.Clone(inputs), logs: make(map[store.Name]*watchedLog, len(changelogs))}
	for name, c := range changelogs {
		w.logs[name] = &watchedLog{topic: c.Topic, id: c.ID, partition: int32(task.Partition), source: c.Replay != nil}
		if in := (store.TopicPartition{Topic: c.Topic, Partition: task.Partition}); c.Replay != nil && !slices.Contains(w.inputs, in) {
			w.inputs = append(w.inputs, in)
		}
	}
	slices.SortFunc(w.inputs, compareInputs)
	r.mu.Lock()
	r.watched[w] = struct{}{}
	r.mu.Unlock()
	r.Ask()
	return w
}

// pause waits for the next round: an interval, or what is left of a tenth of it when somebody asks, and for something to
// watch.
func (r *Rounds) pause(ctx context.Context, last time.Time) error {
	for {
		r.mu.Lock()
		wait := r.cfg.Interval
		if r.asked {
			wait /= 10
		}
		idle := len(r.watched) == 0
		r.mu.Unlock()
		left := time.Until(last.Add(wait))
		if !idle && left <= 0 {
			break
		}
		var timer <-chan time.Time
		if !idle {
			timer = time.After(left)
		}
		select {
		case <-timer:
		case <-r.poke:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = false
	return nil
}

func (r *Rounds) forget(w *Watched) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.watched, w)
	if len(r.watched) == 0 {
		clear(r.leaders)
	}
}

// send does something beside the rounds, unless it is still being done.
func (r *Rounds) send(ctx context.Context, to int32, do func(context.Context)) (sent bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.busy[to] {
		return false
	}
	r.busy[to] = true
	r.running.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, max(roundTimeout, 2*r.cfg.Interval))
		defer cancel()
		do(ctx)
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.busy, to)
	})
	return true
}

// round asks for the offsets, and for the ends once they are there: the inputs must be known from before. A coordinator that
// is slow does not hold the ends back, since what it said before is from before as well.
func (r *Rounds) round(ctx context.Context) {
	r.metrics.rounds.Inc()
	all := r.list()
	answered := make(chan struct{})
	if r.send(ctx, askingOffsets, func(ctx context.Context) {
		defer close(answered)
		r.offsets(ctx, all)
	}) {
		select {
		case <-answered:
		case <-time.After(r.cfg.Interval):
		case <-ctx.Done():
			return
		}
	}
	for broker, logs := range r.byLeader(all) {
		r.send(ctx, broker, func(ctx context.Context) { r.ends(ctx, broker, logs) })
	}
}

func (r *Rounds) list() []*Watched {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]*Watched, 0, len(r.watched))
	for w := range r.watched {
		all = append(all, w)
	}
	return all
}

// offsets asks where the group stands.
func (r *Rounds) offsets(ctx context.Context, all []*Watched) {
	var inputs []store.TopicPartition
	for _, w := range all {
		inputs = append(inputs, w.inputs...)
	}
	slices.SortFunc(inputs, compareInputs)
	inputs = slices.Compact(inputs)
	asked := r.cfg.Now()
	have := make(map[store.TopicPartition]Committed, len(inputs))
	if len(inputs) > 0 {
		if err := r.ask.offsets(ctx, inputs, have); err != nil {
			r.failed(ctx, "offsets", err)
			return
		}
	}
	for _, w := range all {
		w.stood(asked, have)
	}
}

// endOf is what a broker is asked for: one changelog.
type endOf struct {
	key   logKey
	epoch int32 // the newest known
	w     *Watched
	log   *watchedLog
	stand *standing // where the inputs stood before
}

// byLeader sorts the changelogs by who leads them.
func (r *Rounds) byLeader(all []*Watched) map[int32][]endOf {
	r.mu.Lock()
	defer r.mu.Unlock()
	logs := make(map[int32][]endOf)
	for _, w := range all {
		stand := w.standing()
		for _, l := range w.logs {
			if l.source {
				continue
			}
			key := logKey{topic: l.topic, partition: l.partition}
			led, ok := r.leaders[key]
			switch {
			case !ok:
				r.unknown = true
			case known(l.id) && known(led.id) && l.id != led.id:
				// The topic was made anew: its end says nothing about the log that is followed.
			default:
				logs[led.leader] = append(logs[led.leader], endOf{key: key, epoch: led.epoch, w: w, log: l, stand: stand})
			}
		}
	}
	return logs
}

// ends asks a broker where the changelogs end that it leads.
func (r *Rounds) ends(ctx context.Context, broker int32, logs []endOf) {
	asked := r.cfg.Now()
	ends, err := r.ask.ends(ctx, broker, logs)
	if err != nil {
		r.failed(ctx, "ends", err)
		r.misled()
		return
	}
	for _, o := range logs {
		end, ok := ends[o.key]
		if ok {
			ok = o.w.ended(o.log, watchedEnd{asked: asked, end: end, epoch: o.epoch, stand: o.stand})
		}
		if !ok {
			r.misled()
		}
	}
}

// failed notes a request that brought nothing.
func (r *Rounds) failed(ctx context.Context, what string, err error) {
	r.metrics.failed(what)
	if ctx.Err() == nil || !errors.Is(context.Cause(ctx), context.Canceled) {
		r.cfg.Logger.DebugContext(ctx, "round failed, copies age", "asked_for", what, "error", err)
	}
}

// misled has the leaders looked for.
func (r *Rounds) misled() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unknown = true
}

// stale reports whether the leaders should be asked for again.
func (r *Rounds) stale(last time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	age := time.Since(last)
	return age >= leadersInterval || r.unknown && age >= r.cfg.Interval || len(r.leaders) == 0
}

// lead learns who leads the changelogs. Which epoch is newer decides, and not who says it: a broker may be behind.
func (r *Rounds) lead(ctx context.Context) {
	keys := make(map[logKey]struct{})
	var names []string
	for _, w := range r.list() {
		for _, l := range w.logs {
			if !l.source {
				keys[logKey{topic: l.topic, partition: l.partition}] = struct{}{}
				names = append(names, l.topic)
			}
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) == 0 {
		return
	}
	r.mu.Lock()
	r.unknown = false
	r.mu.Unlock()
	now, err := r.ask.leaders(ctx, names)
	if err != nil {
		r.failed(ctx, "leaders", err)
		r.misled()
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	fresh := false
	for key := range keys {
		is, ok := now[key]
		was, had := r.leaders[key]
		switch {
		case !ok:
			r.unknown = true
		case !had || is.id != was.id || is.epoch >= was.epoch:
			r.leaders[key], fresh = is, fresh || !had
		}
	}
	if fresh { // what is newly watched waits for it
		r.asked = true
		signal(r.poke)
	}
}

// roundMetrics of all rounds.
type roundMetrics struct {
	rounds   prometheus.Counter
	failures *prometheus.CounterVec
}

func newRoundMetrics() roundMetrics {
	return roundMetrics{
		rounds: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "statemesh_standby_rounds_total", Help: "Rounds that ask how far the logs are that copies follow.",
		}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "statemesh_standby_round_failures_total", Help: "Requests of rounds that failed, by what was asked for: copies age until the next.",
		}, []string{"asked_for"}),
	}
}

func (m *roundMetrics) failed(what string) { m.failures.WithLabelValues(what).Inc() }

func (m *roundMetrics) register(reg prometheus.Registerer) error {
	if reg == nil {
		return nil
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.rounds, m.failures} {
		if err := reg.Register(c); err != nil {
			errs = append(errs, fmt.Errorf("round metrics: %w", err))
		}
	}
	return errors.Join(errs...)
}
