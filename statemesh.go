package statemesh

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"github.com/statemesh/statemesh/client"
	"github.com/statemesh/statemesh/internal/certs"
	"github.com/statemesh/statemesh/internal/suspect"
	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/router/remotecache"
	"github.com/statemesh/statemesh/server"
	"github.com/statemesh/statemesh/store/layered"
)

// The parts fit: server declares what it needs, and this is where both are visible.
var (
	_ server.Stores  = (*processor.Runtime)(nil)
	_ server.Peers   = (*client.Pool)(nil)
	_ server.Drainer = (*processor.Runtime)(nil)
	_ server.Copies  = (*processor.Runtime)(nil)
	_ server.Threads = (*Instance)(nil)
)

// Instance is one process of an application. Make one with [New] and start it with [Instance.Run], once. All other
// methods are safe for concurrent use at any time.
type Instance struct {
	cfg      Config // with the memory divided
	asked    Config // as it was given
	memory   Memory
	topology *processor.Topology
	log      *slog.Logger
	table    *router.Table
	state    *stateBox
	started  atomic.Bool
	commits  atomic.Int64
	parts    atomic.Pointer[parts] // nil until Run has opened them

	hurry   sync.Once
	hurried chan struct{} // closed by Hurry
}

// parts are what Run has opened. They are made once, before the state is Rebalancing, and never change.
type parts struct {
	processID, incarnation, endpoint string
	predecessors                     []processor.MemberInfo // that are certain to be gone
	note                             *note

	stores  *layered.Stores
	runtime *processor.Runtime
	door    *door
	pool    *client.Pool
	suspect *suspect.Runner
	cache   *remotecache.Cache
	server  *server.Server
	client  *client.Client // asks by way of this instance's own server
	memory  *memoryMetrics
	sinks   []*keptSink

	divided                  []MemoryPart // as the limit was
	fetchBytes, produceBytes int64        // that each stream thread may take
}

// New checks the configuration, all problems at once, and builds the topology. It opens nothing and starts nothing.
func New(cfg Config) (*Instance, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	asked := cfg
	memory, cfg, err := cfg.memory(machineLimit())
	if err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	topology, err := cfg.topology()
	if err != nil {
		return nil, err
	}
	if _, err := topology.Build(cfg.Processor.ApplicationID); err != nil {
		return nil, fmt.Errorf("topology: %w", err)
	}
	return &Instance{
		cfg: cfg, asked: asked, memory: memory, topology: topology, table: router.NewTable(), state: newStateBox(),
		log: cfg.Logger.With("app", cfg.Processor.ApplicationID), hurried: make(chan struct{}),
	}, nil
}

// Run is the instance: it opens the state directory and the listener, joins the group and answers queries until ctx
// ends. Then it gives its tasks to other instances, for up to Config.DrainTimeout ([Instance.Hurry] ends that), ends the reads,
// commits, leaves the group, closes the stores, and returns nil. Any other end is an error that names the culprit. Every goroutine it started has ended when it returns.
func (i *Instance) Run(ctx context.Context) error {
	if !i.started.CompareAndSwap(false, true) {
		return errors.New("instance: Run was called before")
	}
	i.become(ctx, Starting)
	err := i.run(ctx)
	if err != nil {
		i.become(ctx, Failed)
		return err
	}
	i.become(ctx, Stopped)
	return nil
}

// run opens the parts, runs them, and closes them in the order in which they lean on each other.
func (i *Instance) run(ctx context.Context) (err error) {
	p, err := i.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, i.close(ctx, p)) }()
	i.parts.Store(p)
	i.become(ctx, Rebalancing)
	adapt, restore := i.limitMemory(ctx)
	defer restore()

	// What others lean on ends after them: the servants when the runtime has left the group and the server has stopped,
	// the runtime when the server has stopped, the server when ctx has ended and others have taken over. A failure of any of
	// them ends the others in the same order: a runtime that fails ends ctx first, so that the server stops before its listener
	// closes under it.
	asked := ctx // ends when a stop is asked for
	g, ctx := errgroup.WithContext(ctx)
	var users sync.WaitGroup // of the servants and of the listener
	users.Add(2)
	work, leave := context.WithCancel(context.WithoutCancel(ctx))
	serve, rest := context.WithCancel(context.WithoutCancel(ctx))
	open, shut := context.WithCancel(context.WithoutCancel(ctx))
	runs, ended := context.WithCancel(work)
	g.Go(func() error { // 0: give the tasks away
		defer shut()
		<-ctx.Done()
		if asked.Err() != nil {
			i.giveAway(runs, p)
		}
		return nil
	})
	g.Go(func() error { // 1: end the reads
		defer users.Done()
		defer leave()
		defer i.become(work, Leaving)
		defer context.AfterFunc(open, func() { i.become(work, Closing) })()
		return p.server.Run(open)
	})
	g.Go(func() error { // 2: leave the group
		defer users.Done()
		defer ended()
		return p.runtime.Run(work)
	})
	g.Go(func() error { p.keepSinks(open); return nil }) // beside: they lean on nothing, and nothing leans on them
	g.Go(func() error { return p.suspect.Run(work) })
	g.Go(func() error { users.Wait(); rest(); return nil })
	g.Go(func() error { return p.stores.Run(serve) }) // 3: nobody writes any more
	g.Go(func() error { return p.cache.Run(serve) })
	g.Go(func() error { return p.pool.Follow(serve, i.table) })
	g.Go(func() error { i.watchMap(serve); return nil })
	g.Go(func() error { i.rest(serve, p, adapt); return nil })
	g.Go(func() error { // callers that come after that learn at once to go elsewhere
		<-work.Done()
		p.door.turnAway()
		return nil
	})
	g.Go(func() error { // the listener closes after the group is left
		<-serve.Done()
		return p.door.Listener.Close()
	})
	if err := g.Wait(); err != nil {
		return err
	}
	if !p.runtime.HasLeft() {
		return nil // a successor evicts what is left of this incarnation, and others do who prove it dead
	}
	return p.note.resign()
}

// open makes the parts, in the order in which they lean on each other. What it opened is closed again on an error.
func (i *Instance) open(ctx context.Context) (p *parts, err error) {
	c := i.cfg
	dir := filepath.Join(c.StateDir, c.Processor.ApplicationID)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	reg, gatherer := registry(c.Registerer)
	p = &parts{
		incarnation: uuid.NewString(), divided: i.memory.Parts, fetchBytes: c.Processor.Kafka.FetchBytes, produceBytes: c.Processor.Kafka.ProduceBytes,
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, i.close(ctx, p))
		}
	}()
	conf := layered.Config{
		Dir: dir, MoveBytes: c.MoveBytes, MoveInterval: c.MoveInterval, IteratorMaxAge: c.IteratorMaxAge, Registerer: reg, Logger: i.log,
	}
	conf.MaxRecordBytes = recordLimit(c.Processor.Kafka)
	conf.RecentBytes, conf.Databases = c.RecentBytes, c.Engine.Databases
	conf.MemTableBytes, conf.Engine = c.Engine.MemtableBytes, c.Engine.options()
	if p.stores, err = layered.Open(ctx, conf); err != nil {
		return p, err
	}
	if p.processID, err = processID(dir); err != nil {
		return p, err
	}
	if p.note, p.predecessors, err = succeed(dir); err != nil {
		return p, err
	}
	lis, err := new(net.ListenConfig).Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return p, fmt.Errorf("listen: %w", err)
	}
	p.door = &door{Listener: lis}
	if p.endpoint, err = advertised(c.Listen, c.Advertise, lis.Addr()); err != nil {
		return p, err
	}
	dial, err := i.clientTLS()
	if err != nil {
		return p, err
	}
	p.pool = client.NewPool(client.PoolConfig{
		TLS: dial, AllowInsecure: c.TLS.AllowPlaintext, Broken: func(endpoint string, _ error) { p.suspect.Broken(endpoint) },
	})
	if p.runtime, err = processor.New(i.processorConfig(p, dir, reg), i.topology, p.stores, i.table); err != nil {
		return p, err
	}
	if err := i.openQueries(p, dial, reg, gatherer); err != nil {
		return p, err
	}
	if p.memory, err = newMemoryMetrics(reg, p); err != nil {
		return p, err
	}
	return p, i.openSinks(ctx, p, reg)
}

func (i *Instance) processorConfig(p *parts, dir string, reg prometheus.Registerer) processor.Config {
	c := i.cfg.Processor
	c.ProcessID, c.Incarnation, c.Endpoint = p.processID, p.incarnation, p.endpoint
	c.Predecessors = p.predecessors
	c.Peers = &peers{
		table: i.table, mesh: p.pool.Mesh(c.ApplicationID, p.processID), log: i.log, suspected: p.suspected,
		self: suspect.Subject{Instance: p.processID, Incarnation: p.incarnation},
	}
	c.EpochFile = filepath.Join(dir, epochFile)
	c.Logger, c.Registerer = i.log, reg
	committed := c.Listener.Commit
	c.Listener.Commit = func(info processor.CommitInfo) {
		i.commits.Add(1)
		if committed != nil {
			committed(info)
		}
	}
	joined := c.Listener.Member
	c.Listener.Member = func(m processor.MemberInfo) {
		if err := p.note.add(m); err != nil { // then a crash costs a session timeout
			i.log.Warn("member not noted for a successor", "error", err)
		}
		if joined != nil {
			joined(m)
		}
	}
	told := c.Listener.StateChange
	c.Listener.StateChange = func(from, to processor.State) {
		if to == processor.Rebalancing || to == processor.Running {
			i.observe(to)
		}
		if told != nil {
			told(from, to)
		}
	}
	return c
}

// openQueries makes what answers and asks.
func (i *Instance) openQueries(p *parts, dial *tls.Config, reg prometheus.Registerer, gatherer prometheus.Gatherer) (err error) {
	c := i.cfg
	p.suspect = i.suspicion(p, reg)
	p.cache = remotecache.New(remotecache.Config{
		TTL: c.CacheTTL, NegativeTTL: c.CacheNegativeTTL, MaxBytes: c.CacheBytes, Registerer: reg,
	}, i.table)
	conf := server.Config{
		Application: c.Processor.ApplicationID, Instance: p.processID, Endpoint: p.endpoint,
		Listener: p.door, AdminListen: c.AdminListen, AllowInsecure: c.TLS.AllowPlaintext,
		MaxBytes: c.Limits.Bytes, MaxRequests: c.Limits.Requests, MaxScans: c.Limits.Scans, MaxBatchKeys: c.Limits.BatchKeys,
		MaxCopies: c.Limits.Copies, CopyBytesPerSecond: c.Limits.CopyBytesPerSecond,
		DefaultDeadline: c.Limits.Deadline, DefaultMaxStaleness: max(c.DefaultMaxStaleness, 0), GracePeriod: c.ShutdownTimeout,
		Logger: i.log, Registerer: reg, Gatherer: gatherer,
	}
	if c.TLS.enabled() {
		conf.TLS = &server.TLS{
			CertFile: c.TLS.CertFile, KeyFile: c.TLS.KeyFile, ClientCAFile: c.TLS.CAFile, MeshNames: c.TLS.MeshNames,
			OptionalClientCert: c.TLS.OptionalClientCert,
		}
	}
	deps := server.Deps{Stores: p.runtime, Peers: p.pool, Table: i.table, Cache: p.cache, Ready: i.ready, Status: i.status}
	deps.Mesh = p.suspect
	deps.Holdings = p.runtime.Holdings
	deps.Drainer = p.runtime
	deps.Threads, deps.Topology = i, p.runtime.Topology
	deps.Suspected = p.suspected
	if !c.Processor.NoSnapshots {
		deps.Copies = p.runtime
	}
	if p.server, err = server.New(conf, deps); err != nil {
		return err
	}
	own := p.door.Addr()
	p.client, err = client.New(client.Config{
		Seeds: []string{p.endpoint}, Application: c.Processor.ApplicationID, TLS: dial, Logger: i.log,
		// Whatever name this instance goes by outside, its own listener is the way in.
		Dial: func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, own.Network(), reachable(own))
		},
	})
	return err
}

// clientTLS is how this instance connects to its peers, nil for plain text.
func (i *Instance) clientTLS() (*tls.Config, error) {
	t := i.cfg.TLS
	if !t.enabled() {
		return nil, nil //nolint:nilnil // plain text has no configuration
	}
	src, err := certs.Load(certs.Files{CertFile: t.CertFile, KeyFile: t.KeyFile, CAFile: t.CAFile}, i.log)
	if err != nil {
		return nil, err
	}
	return src.Client(""), nil
}

// close closes what open has opened, the last first.
func (i *Instance) close(ctx context.Context, p *parts) error {
	begin := time.Now()
	var errs []error
	if p.memory != nil {
		p.memory.unregister()
	}
	for _, s := range p.sinks {
		s.target.Close()
	}
	if p.client != nil {
		errs = append(errs, p.client.Close())
	}
	if p.pool != nil {
		errs = append(errs, p.pool.Close())
	}
	if p.door != nil {
		if err := p.door.Listener.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if p.note != nil {
		errs = append(errs, p.note.close())
	}
	if p.stores != nil {
		errs = append(errs, p.stores.Close())
		i.log.DebugContext(ctx, "stores closed", "took", time.Since(begin))
	}
	return errors.Join(errs...)
}

// recordLimit is the largest record of a logged store: what may be produced, less the header of its batch.
func recordLimit(k processor.KafkaConfig) int64 {
	const overhead, usual = 64, 1_000_000
	if k.MaxRecordBytes == 0 {
		return usual // of Kafka's default
	}
	return int64(k.MaxRecordBytes) - overhead
}

// registry returns where metrics go and, if that can be asked, what shows them.
func registry(given prometheus.Registerer) (prometheus.Registerer, prometheus.Gatherer) {
	if given != nil {
		g, _ := given.(prometheus.Gatherer)
		return given, g
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return reg, reg
}

// reachable is an address that a listener can be dialled at from within its machine.
func reachable(a net.Addr) string {
	tcp, ok := a.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return a.String()
	}
	host := "127.0.0.1"
	if tcp.IP.To4() == nil {
		host = "::1"
	}
	_, port, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return net.JoinHostPort(host, port)
}
