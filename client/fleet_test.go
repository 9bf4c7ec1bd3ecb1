package client_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/statemesh/statemesh/client"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/router/remotecache"
	"github.com/statemesh/statemesh/server"
	"github.com/statemesh/statemesh/store"
)

const (
	partitions        = 12
	flights           = store.Name("flights-per-carrier")
	application       = "flights"
	timestamp   int64 = 1388534400000
)

// fleet is a number of real servers on loopback, over one map of rows in place of processors.
type fleet struct {
	mu    sync.Mutex
	epoch router.Epoch
	owner map[store.Partition]string
	rows  map[store.Partition]map[string][]byte
	nodes map[string]*node
	timed map[store.Name]*timedStore
	// next is how far the changelogs of the partitions are.
	next map[store.Partition]store.Offset
}

type node struct {
	f        *fleet
	id       string
	endpoint string
	table    *router.Table
	pool     *client.Pool
	stop     func()
}

// startFleet starts a server per id. It panics when it cannot: examples have nobody to tell.
func startFleet(ids ...string) *fleet { return startFleetWith(server.Config{}, ids...) }

// startFleetWith is startFleet with some limits of the servers.
func startFleetWith(limits server.Config, ids ...string) *fleet {
	f := &fleet{
		epoch: 1, owner: map[store.Partition]string{}, rows: map[store.Partition]map[string][]byte{}, nodes: map[string]*node{},
		timed: map[store.Name]*timedStore{}, next: map[store.Partition]store.Offset{},
	}
	for p := range store.Partition(partitions) {
		f.owner[p] = ids[int(p)%len(ids)]
		f.rows[p] = map[string][]byte{}
	}
	for _, id := range ids {
		lis, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		n := &node{f: f, id: id, endpoint: lis.Addr().String(), table: router.NewTable(), pool: client.NewPool(client.PoolConfig{})}
		cache := remotecache.New(remotecache.Default(), n.table)
		srv, err := server.New(
			server.Config{
				Application: application, Instance: id, Endpoint: n.endpoint, Listener: lis,
				DefaultMaxStaleness: server.DefaultMaxStaleness, GracePeriod: time.Second,
				MaxScanRows: limits.MaxScanRows, ScanChunkBytes: limits.ScanChunkBytes,
			},
			server.Deps{Stores: n, Peers: n.pool, Table: n.table, Cache: cache})
		if err != nil {
			panic(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := srv.Run(ctx); err != nil {
				panic(err)
			}
		})
		wg.Go(func() { _ = cache.Run(ctx) })
		wg.Go(func() { _ = n.pool.Follow(ctx, n.table) })
		n.stop = sync.OnceFunc(func() { cancel(); wg.Wait(); _ = n.pool.Close() })
		f.nodes[id] = n
	}
	f.publish(ids...)
	return f
}

func (f *fleet) close() {
	for _, n := range f.nodes {
		n.stop()
	}
}

func (f *fleet) seeds() []string {
	var out []string
	for _, id := range slices.Sorted(maps.Keys(f.nodes)) {
		out = append(out, f.nodes[id].endpoint)
	}
	return out
}

// put stores a count.
func (f *fleet) put(key string, n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rows[router.PartitionFor([]byte(key), partitions)][key] = binary.BigEndian.AppendUint64(nil, uint64(n))
}

// publish gives everybody the map of the present epoch, with the instances named.
func (f *fleet) publish(ids ...string) {
	f.mu.Lock()
	d := router.Data{
		Application: application, Epoch: f.epoch,
		Stores: []router.StoreInfo{{
			Name: flights, Kind: store.KindTimestampedKeyValue, Partitions: partitions,
			KeyFormat: "string", ValueFormat: "int64", SourceTopic: "flights",
		}},
	}
	for name, ts := range f.timed {
		d.Stores = append(d.Stores, router.StoreInfo{
			Name: name, Kind: ts.kind, Partitions: partitions, KeyFormat: "string", ValueFormat: "int64", SourceTopic: "flights",
			WindowSize: time.Hour,
		})
	}
	for _, id := range ids {
		in := router.Instance{ID: id, Incarnation: "1", Endpoint: f.nodes[id].endpoint}
		for p, o := range f.owner {
			if o == id {
				in.Active = append(in.Active, store.TaskID{Partition: p})
			}
		}
		d.Instances = append(d.Instances, in)
	}
	f.mu.Unlock()
	s, err := router.NewSnapshot(d)
	if err != nil {
		panic(err)
	}
	for _, id := range ids {
		if err := f.nodes[id].table.Publish(s); err != nil {
			panic(err)
		}
	}
}

// move gives partitions to an instance under a new epoch, without telling anybody the map.
func (f *fleet) move(to string, parts ...store.Partition) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range parts {
		f.owner[p] = to
	}
	f.epoch++
}

func (f *fleet) owned(id string) []store.Partition {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []store.Partition
	for p, o := range f.owner {
		if o == id {
			out = append(out, p)
		}
	}
	return out
}

// Read makes a node the stores of its server.
func (n *node) Read(_ context.Context, name store.Name, p store.Partition, o store.ReadOptions) (store.Reading, error) {
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	ts := n.f.timed[name]
	if name != flights && ts == nil {
		return nil, &store.UnknownStoreError{Store: name, Known: []store.Name{flights}}
	}
	if o := n.f.owner[p]; o != n.id {
		return nil, &store.MovedError{Store: name, Partition: p, Instance: o, Endpoint: n.f.nodes[o].endpoint, Epoch: int64(n.f.epoch)}
	}
	tok := store.Token{Cuts: map[store.Partition]store.Cut{p: {TopicID: [16]byte{1}, Next: n.f.next[p]}}}
	if want := o.AtLeast.Cuts[p].Next; want > n.f.next[p] {
		return nil, &store.BehindError{Store: name, Partition: p, Have: tok, Want: o.AtLeast, RetryAfter: time.Millisecond}
	}
	if ts != nil {
		return ts.reading(p, tok), nil
	}
	return &reading{rows: maps.Clone(n.f.rows[p]), token: tok}, nil
}

// reading is a partition at one moment.
type reading struct {
	store.NoReads

	rows  map[string][]byte
	token store.Token
}

// KeyValue is the one kind it has.
func (r *reading) KeyValue() (store.KeyValueReader, error) { return r, nil }

func (r *reading) Get(_ context.Context, key []byte) (store.Value, error) {
	v, ok := r.rows[string(key)]
	if !ok {
		return store.Value{}, store.ErrNotFound
	}
	return store.Value{Data: bytes.Clone(v), Timestamp: timestamp}, nil
}

func (r *reading) GetMany(ctx context.Context, keys [][]byte) (values []store.Value, found []bool, err error) {
	for _, k := range keys {
		v, err := r.Get(ctx, k)
		values, found = append(values, v), append(found, err == nil)
	}
	return values, found, nil
}

func (r *reading) Scan(_ context.Context, s store.Scan) (store.Iterator, error) {
	it := &rowsIterator{at: -1}
	for _, k := range slices.Sorted(maps.Keys(r.rows)) {
		key := []byte(k)
		after := s.After == nil || (bytes.Compare(key, s.After) > 0) != s.Reverse && !bytes.Equal(key, s.After)
		if after && (s.From == nil || bytes.Compare(key, s.From) >= 0) && (s.To == nil || bytes.Compare(key, s.To) <= 0) &&
			bytes.HasPrefix(key, s.Prefix) {
			it.rows = append(it.rows, store.Entry{Key: key, Value: store.Value{Data: r.rows[k], Timestamp: timestamp}})
		}
	}
	if s.Reverse {
		slices.Reverse(it.rows)
	}
	return it, nil
}

func (r *reading) ApproximateCount(context.Context) (int64, error) { return int64(len(r.rows)), nil }

func (r *reading) Facts() store.Facts {
	return store.Facts{Role: store.RoleActive, Sequence: 1, Position: store.Position{}, Token: r.token}
}

func (r *reading) Close() {}

type rowsIterator struct {
	rows []store.Entry
	at   int
}

func (it *rowsIterator) Next() bool         { it.at++; return it.at < len(it.rows) }
func (it *rowsIterator) Entry() store.Entry { return it.rows[it.at] }
func (it *rowsIterator) Err() error         { return nil }
func (it *rowsIterator) Close()             {}
