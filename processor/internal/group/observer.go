package group

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/statemesh/statemesh/router"
)

// How often the map is read.
const (
	// firstRetry and maxRetry bound the back-off while a generation settles: a phase of a cooperative rebalance takes
	// some 10 ms where nothing is slow, and 2 s is what a reader may lag behind where something is.
	firstRetry, maxRetry = 20 * time.Millisecond, 2 * time.Second
	// complainAfter is how long a map may be awaited before that is worth a warning.
	complainAfter = 30 * time.Second
	// defaultRefresh is a safety net: every generation reaches every member, so there should be nothing to find.
	defaultRefresh = time.Minute
	// callTimeout bounds one DescribeGroups.
	callTimeout = 10 * time.Second
)

// ObserverConfig configures an [Observer].
type ObserverConfig struct {
	// Application goes into the published metadata; Group is the consumer group, by habit the same.
	Application, Group string
	// Stores of the topology, as callers need to know them.
	Stores []router.StoreInfo
	// Table takes the metadata.
	Table *router.Table
	// Client sends DescribeGroups. Any client of the cluster will do; it needs DESCRIBE on the group.
	Client *kgo.Client
	// EpochFile keeps the highest epoch over restarts; its directory must exist. "" keeps it in memory only: after a
	// restart of all instances with a clock set back, epochs start below what clients have seen.
	EpochFile string
	// Refresh is how often the map is read although nothing was announced. Default 1m, since it should find nothing;
	// negative: never.
	Refresh time.Duration
	// Logger, nil: discard.
	Logger *slog.Logger
	// Registerer of metrics, nil: none.
	Registerer prometheus.Registerer
}

// Observer publishes the group's map to a router.Table, one per process. Balancers tell it of each generation; it reads
// the whole map back until it is settled, keeps the epoch, and publishes. A map that is older, partial or empty is never
// published: until a better one is there, the last stays. Methods are safe for concurrent use.
type Observer struct {
	cfg ObserverConfig
	log *slog.Logger
	met *metrics

	news chan struct{} // capacity 1: a higher epoch is expected

	mu sync.Mutex
	// Invariant: view.Epoch <= kept <= highest.
	highest, kept router.Epoch
	expected      router.Epoch // of the newest assignment of this process
	view          View         // newest whole map
	planned       View         // newest map that a balancer of this process made, not necessarily accepted
}

// NewObserver reads the epoch file. It starts nothing.
func NewObserver(cfg ObserverConfig) (*Observer, error) {
	switch {
	case cfg.Table == nil || cfg.Client == nil:
		return nil, errors.New("group: observer without table or client")
	case cfg.Group == "" || cfg.Application == "":
		return nil, errors.New("group: observer without application or group")
	}
	cfg.Refresh = cmp.Or(cfg.Refresh, defaultRefresh)
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	o := &Observer{
		cfg: cfg, log: cfg.Logger.With("group", cfg.Group), met: newMetrics(cfg.Registerer), news: make(chan struct{}, 1),
	}
	if cfg.EpochFile != "" {
		epoch, err := loadEpoch(filepath.Clean(cfg.EpochFile))
		if err != nil {
			return nil, err
		}
		o.highest, o.kept = epoch, epoch
	}
	return o, nil
}

// Run reads and publishes until ctx ends, which is not an error. Call it once.
func (o *Observer) Run(ctx context.Context) error {
	var refresh <-chan time.Time
	if o.cfg.Refresh > 0 {
		t := time.NewTicker(o.cfg.Refresh)
		defer t.Stop()
		refresh = t.C
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-o.news:
			o.settle(ctx)
		case <-refresh:
			if o.Highest() > 0 { // else this process has never been in the group
				_ = o.read(ctx) // counted and logged; the next generation or refresh tries again
			}
		}
	}
}

// Expect announces that a generation of the given epoch has begun: the map of that epoch or a later one is to be read.
// It does not block.
func (o *Observer) Expect(epoch router.Epoch) {
	o.mu.Lock()
	o.highest, o.expected = max(o.highest, epoch), max(o.expected, epoch)
	o.mu.Unlock()
	select {
	case o.news <- struct{}{}:
	default: // one is waiting already
	}
}

// Highest is the highest epoch this process has seen, over restarts too when there is an epoch file.
func (o *Observer) Highest() router.Epoch {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.highest
}

// Expected is the epoch of the newest assignment of this process, 0 before the first.
func (o *Observer) Expected() router.Epoch {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.expected
}

// View returns the newest whole map that was read, the zero View before the first. It must not be changed.
func (o *Observer) View() View {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.view
}

// next makes the epoch of a placement: above everything seen here or reported, and the time in milliseconds if that is
// more, so that it grows even where nobody remembers.
func (o *Observer) next(now time.Time, reported router.Epoch) router.Epoch {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.highest = max(router.Epoch(now.UnixMilli()), o.highest+1, reported+1)
	return o.highest
}

// plan remembers a placement for the owners in it, in case the group moves on before it could be read back.
func (o *Observer) plan(v View) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.planned = v
}

// known returns the maps in which owners may stand that have vanished since.
func (o *Observer) known() []View {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.planned.Epoch <= o.view.Epoch { // read back, or overtaken by the plan of another leader
		return []View{o.view}
	}
	return []View{o.planned, o.view}
}

// settle reads until the map of what is expected is there.
func (o *Observer) settle(ctx context.Context) {
	start := time.Now()
	complained := false
	for wait := firstRetry; ; wait = min(2*wait, maxRetry) {
		err := o.read(ctx)
		if err == nil {
			return
		}
		if took := time.Since(start); took > complainAfter && !complained && ctx.Err() == nil {
			complained = true
			o.log.WarnContext(ctx, "metadata is behind", "took", took, "error", err)
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-o.news: // a newer generation: it may settle sooner
			wait = firstRetry
			t.Stop()
		case <-t.C:
		}
	}
}

// read asks the group once and publishes what it finds. An error means that the expected map is not there yet.
func (o *Observer) read(ctx context.Context) error {
	v, err := o.describe(ctx)
	switch {
	case err == nil:
	case errors.Is(err, errNotStable), errors.Is(err, errMixed):
		o.met.reads.WithLabelValues("unsettled").Inc()
		return err
	case errors.Is(err, errHoles):
		o.met.reads.WithLabelValues("partial").Inc()
		return err
	default:
		o.met.reads.WithLabelValues("error").Inc()
		return err
	}
	o.met.reads.WithLabelValues("whole").Inc()
	o.mu.Lock()
	expected, have := o.expected, o.view.Epoch
	o.mu.Unlock()
	if v.Epoch < expected {
		return fmt.Errorf("group: map of epoch %d, want %d", v.Epoch, expected)
	}
	if v.Epoch <= have {
		return nil
	}
	return o.publish(ctx, v)
}

func (o *Observer) describe(ctx context.Context) (View, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = []string{o.cfg.Group}
	resp, err := req.RequestWith(ctx, o.cfg.Client)
	if err != nil {
		return View{}, err
	}
	if len(resp.Groups) != 1 {
		return View{}, fmt.Errorf("group: %d groups described, want 1", len(resp.Groups))
	}
	if err := kerr.ErrorForCode(resp.Groups[0].ErrorCode); err != nil {
		return View{}, fmt.Errorf("describe group %s: %w", o.cfg.Group, err)
	}
	return readView(&resp.Groups[0])
}

// publish keeps the epoch, then hands the map out: what nobody has seen need not be kept, what somebody has must be.
func (o *Observer) publish(ctx context.Context, v View) error {
	snap, err := router.NewSnapshot(v.data(o.cfg.Application, o.cfg.Stores))
	if err != nil {
		return err
	}
	if err := o.keep(v.Epoch); err != nil {
		o.log.ErrorContext(ctx, "epoch not kept", "epoch", v.Epoch, "error", err)
	}
	if err := o.show(v, snap); err != nil {
		return err
	}
	moving := 0
	for i := range v.Members {
		moving += len(v.Members[i].Assignment.Releasing)
	}
	o.met.epoch.Set(float64(v.Epoch))
	o.met.members.Set(float64(len(v.Members)))
	o.met.moving.Set(float64(moving))
	o.log.InfoContext(ctx, "metadata published", "epoch", v.Epoch, "members", len(v.Members), "moving", moving)
	return nil
}

// show publishes the map and remembers it, in one step: who has seen it in the table finds it in View.
func (o *Observer) show(v View, snap *router.Snapshot) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.cfg.Table.Publish(snap); err != nil && !errors.Is(err, router.ErrOldEpoch) {
		return err
	}
	o.view = v
	return nil
}

// keep makes epoch durable. A failure does not stop the map: the other members remember too.
func (o *Observer) keep(epoch router.Epoch) error {
	o.mu.Lock()
	o.highest = max(o.highest, epoch)
	have := o.kept
	o.mu.Unlock()
	if o.cfg.EpochFile == "" || epoch <= have {
		return nil
	}
	if err := saveEpoch(o.cfg.EpochFile, epoch); err != nil {
		return err
	}
	o.mu.Lock()
	o.kept = epoch
	o.mu.Unlock()
	return nil
}
