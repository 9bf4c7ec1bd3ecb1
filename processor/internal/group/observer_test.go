package group

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/statemesh/statemesh/internal/fakekafka"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// described is a member of a group's description.
type described struct {
	process    string
	assignment Assignment
}

// description is what the broker says of a stable group.
func description(epoch router.Epoch, tasks int, members ...described) kmsg.DescribeGroupsResponseGroup {
	g := kmsg.NewDescribeGroupsResponseGroup()
	g.Group, g.State, g.ProtocolType, g.Protocol = testGroup, "Stable", "consumer", Protocol
	for _, d := range members {
		m := kmsg.NewDescribeGroupsResponseGroupMember()
		m.MemberID = d.process
		user := Member{ProcessID: d.process, Endpoint: d.process + ":1", Incarnation: "i"}
		meta := kmsg.NewConsumerMemberMetadata()
		meta.Version, meta.UserData = 3, user.AppendTo(nil)
		m.ProtocolMetadata = meta.AppendTo(nil)
		a := d.assignment
		if a.Epoch == 0 {
			a.Epoch = epoch
		}
		if a.Tasks == 0 {
			a.Tasks = tasks
		}
		wire := kmsg.NewConsumerMemberAssignment()
		wire.UserData = a.AppendTo(nil)
		m.MemberAssignment = wire.AppendTo(nil)
		g.Members = append(g.Members, m)
	}
	return g
}

func actives(ids ...store.TaskID) Assignment { return Assignment{Active: ids} }

func TestReadView(t *testing.T) {
	t.Parallel()
	both := func() []described {
		return []described{{"a", actives(task(0, 0))}, {"b", actives(task(0, 1))}}
	}
	for name, c := range map[string]struct {
		group func() kmsg.DescribeGroupsResponseGroup
		want  error
	}{
		"whole": {func() kmsg.DescribeGroupsResponseGroup { return description(7, 2, both()...) }, nil},
		"rebalancing": {func() kmsg.DescribeGroupsResponseGroup {
			g := description(7, 2, both()...)
			g.State = "PreparingRebalance"
			return g
		}, errNotStable},
		"two epochs": {func() kmsg.DescribeGroupsResponseGroup {
			d := both()
			d[1].assignment.Epoch = 8
			return description(7, 2, d...)
		}, errMixed},
		"no assignment yet": {func() kmsg.DescribeGroupsResponseGroup {
			g := description(7, 2, both()...)
			g.Members[1].MemberAssignment = nil
			return g
		}, errMixed},
		"assignment of the future": {func() kmsg.DescribeGroupsResponseGroup {
			g := description(7, 2, both()...)
			wire := kmsg.NewConsumerMemberAssignment()
			wire.UserData = []byte{version + 1, version + 1}
			g.Members[1].MemberAssignment = wire.AppendTo(nil)
			return g
		}, ErrNewer},
		"empty": {func() kmsg.DescribeGroupsResponseGroup { return description(7, 2) }, errHoles},
		// KAFKA-9651: no active although there are partitions.
		"no active": {func() kmsg.DescribeGroupsResponseGroup {
			return description(7, 2, described{"a", Assignment{}}, described{"b", Assignment{}})
		}, errHoles},
		"a hole": {func() kmsg.DescribeGroupsResponseGroup {
			return description(7, 3, both()...)
		}, errHoles},
		"no tasks at all": {func() kmsg.DescribeGroupsResponseGroup { return description(7, 0, described{"a", Assignment{}}) }, errHoles},
		"two owners": {func() kmsg.DescribeGroupsResponseGroup {
			return description(7, 2, described{"a", actives(task(0, 0), task(0, 1))}, described{"b", actives(task(0, 1))})
		}, errHoles},
		"owner unreadable": {func() kmsg.DescribeGroupsResponseGroup {
			g := description(7, 2, both()...)
			g.Members[0].ProtocolMetadata = []byte("noise")
			return g
		}, errHoles},
		"another protocol": {func() kmsg.DescribeGroupsResponseGroup {
			g := description(7, 2, both()...)
			g.Protocol = "range"
			return g
		}, errHoles},
		"no epoch": {func() kmsg.DescribeGroupsResponseGroup { return description(0, 2, both()...) }, errHoles},
	} {
		g := c.group()
		v, err := readView(&g)
		if !errors.Is(err, c.want) || c.want == nil && (err != nil || v.Epoch != 7) {
			t.Errorf("%s: %v, epoch %d", name, err, v.Epoch)
		}
	}
}

// script is a broker that describes the group as told.
type script struct {
	mu    sync.Mutex
	next  []func() (kmsg.DescribeGroupsResponseGroup, error)
	asked chan struct{} // one value for each answer given
}

// Answers beyond the script repeat the last one.
func newScript(t *testing.T) (*script, *kgo.Client) {
	t.Helper()
	c, err := fakekafka.New(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	s := &script{asked: make(chan struct{}, 1000)}
	c.ControlKey(int16(kmsg.DescribeGroups), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		s.mu.Lock()
		defer s.mu.Unlock()
		resp := req.ResponseKind().(*kmsg.DescribeGroupsResponse)
		g, err := s.next[0]()
		if len(s.next) > 1 {
			s.next = s.next[1:]
		}
		if err != nil {
			g.ErrorCode = kerr.GroupAuthorizationFailed.Code
		}
		resp.Groups = append(resp.Groups, g)
		s.asked <- struct{}{}
		return resp, nil, true
	})
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return s, cl
}

func (s *script) say(groups ...kmsg.DescribeGroupsResponseGroup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next = nil
	for _, g := range groups {
		s.next = append(s.next, func() (kmsg.DescribeGroupsResponseGroup, error) { return g, nil })
	}
}

func runObserver(t *testing.T, cl *kgo.Client, path string) (*Observer, *router.Table, *prometheus.Registry) {
	t.Helper()
	table, reg := router.NewTable(), prometheus.NewRegistry()
	o, err := NewObserver(ObserverConfig{
		Application: "app", Group: testGroup, Table: table, Client: cl, EpochFile: path,
		Refresh: -1, Registerer: reg, Stores: []router.StoreInfo{{Name: "s", Kind: store.KindKeyValue, Partitions: 2}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = o.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return o, table, reg
}

// published waits for a map of the epoch.
func published(t *testing.T, table *router.Table, epoch router.Epoch) *router.Snapshot {
	t.Helper()
	for {
		s, changed := table.Watch()
		if s != nil && s.Epoch() >= epoch {
			if s.Epoch() != epoch {
				t.Fatalf("epoch %d, want %d", s.Epoch(), epoch)
			}
			return s
		}
		select {
		case <-changed:
		case <-t.Context().Done():
			t.Fatalf("no map of epoch %d", epoch)
		}
	}
}

// MR-04, KAFKA-9651, invariant 13: while the group is unsettled or its map has holes, and when an older map comes back,
// the last good one stays; a newer one replaces it, with who left gone.
func TestObserverKeepsTheLast(t *testing.T) {
	t.Parallel()
	s, cl := newScript(t)
	path := filepath.Join(t.TempDir(), "epoch")
	o, table, reg := runObserver(t, cl, path)
	a, b := described{"a", actives(task(0, 0))}, described{"b", actives(task(0, 1))}
	rebalancing := description(20, 2, a, b)
	rebalancing.State = "CompletingRebalance"
	s.say(rebalancing, description(10, 2, a, described{"b", Assignment{Epoch: 9, Active: []store.TaskID{task(0, 1)}}}), description(10, 2, a, b))
	o.Expect(10)
	if got := published(t, table, 10); len(got.Instances()) != 2 || len(got.Missing()) > 0 {
		t.Errorf("%s", describe(got))
	}
	s.say(
		description(9, 2, a, b),                                             // older
		description(30, 2, described{"a", Assignment{}}),                    // no active
		description(30, 2, a),                                               // a hole
		description(20, 2, described{"a", actives(task(0, 0), task(0, 1))}), // not what is expected yet
		description(30, 2, described{"a", actives(task(0, 0), task(0, 1))}),
	)
	o.Expect(30)
	if got := published(t, table, 30); len(got.Instances()) != 1 {
		t.Errorf("%s", describe(got))
	}
	if o.Highest() != 30 || o.View().Epoch != 30 {
		t.Errorf("highest %d, view %d", o.Highest(), o.View().Epoch)
	}
	if kept, err := loadEpoch(path); err != nil || kept != 30 {
		t.Errorf("kept %d, %v", kept, err)
	}
	// An announcement that comes late changes nothing.
	for len(s.asked) > 0 {
		<-s.asked
	}
	s.say(description(30, 2, described{"a", actives(task(0, 0), task(0, 1))}))
	o.Expect(10)
	<-s.asked
	if table.Load().Epoch() != 30 {
		t.Errorf("back at %d", table.Load().Epoch())
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "statemesh_group_epoch" && f.GetMetric()[0].GetGauge().GetValue() != 30 {
			t.Errorf("%v", f)
		}
	}
	if len(families) != 5 {
		t.Errorf("%d families of metrics", len(families))
	}
}

// A broker that refuses for a while is asked again.
func TestObserverGoesOn(t *testing.T) {
	t.Parallel()
	s, cl := newScript(t)
	o, table, _ := runObserver(t, cl, "")
	a := described{"a", actives(task(0, 0), task(0, 1))}
	s.say(description(5, 2, a), description(5, 2, a), description(5, 2, a))
	good := s.next[2]
	refused := func() (kmsg.DescribeGroupsResponseGroup, error) {
		g, _ := good()
		return g, errors.New("no")
	}
	s.next[0], s.next[1] = refused, refused
	o.Expect(5)
	published(t, table, 5)
}

// Threads of one process are one instance; a task between two of them does not move; one that is refused is not listed.
func TestViewByProcess(t *testing.T) {
	t.Parallel()
	v := View{Epoch: 3, Members: []ViewMember{
		{
			ID: "1", Member: Member{ProcessID: "a", Endpoint: "a:1", Incarnation: "x", Rack: "r"},
			Assignment: Assignment{Active: []store.TaskID{task(0, 2)}, Releasing: []Release{{Task: task(0, 0), To: "a"}, {Task: task(0, 1), To: "b"}}},
		},
		{ID: "2", Member: Member{ProcessID: "a", Endpoint: "a:1", Incarnation: "x", Rack: "r"}, Assignment: Assignment{Active: []store.TaskID{task(0, 3)}, Incoming: []store.TaskID{task(0, 0)}}},
		{ID: "3", Member: Member{ProcessID: "b", Endpoint: "b:1"}, Assignment: Assignment{Standby: []store.TaskID{task(0, 3), task(0, 3)}}},
		{ID: "4", Member: Member{ProcessID: "c", Endpoint: ""}, Assignment: Assignment{Problems: []Problem{{Kind: BadEndpoint}}}},
		{ID: "5"},
		{ID: "6", Member: Member{ProcessID: "b", Endpoint: "b:2", Incarnation: "copy"}, Assignment: Assignment{Problems: []Problem{{Kind: DuplicateProcess}}, Releasing: []Release{{Task: task(0, 4), To: "a"}}}},
	}}
	s, err := router.NewSnapshot(v.data("app", nil))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := describe(s), "epoch 3 moving map[0_1:b 0_4:a]; a [0_0 0_1 0_2 0_3]; b [0_4]"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if b, _ := s.Instance("b"); b.Endpoint != "b:1" || len(b.Standby) != 1 {
		t.Errorf("%+v", b)
	}
}

func TestEpochFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "epoch")
	if e, err := loadEpoch(path); e != 0 || err != nil {
		t.Errorf("no file: %d, %v", e, err)
	}
	for _, want := range []router.Epoch{1, 1 << 40} {
		if err := saveEpoch(path, want); err != nil {
			t.Fatal(err)
		}
		if e, err := loadEpoch(path); e != want || err != nil {
			t.Errorf("%d, %v, want %d", e, err, want)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	for _, text := range []string{"", "x", "-1", "9223372036854775807"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := loadEpoch(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if err := saveEpoch(filepath.Join(dir, "missing", "epoch"), 1); err == nil {
		t.Error("saved where there is no directory")
	}
}

func TestObserverConfig(t *testing.T) {
	t.Parallel()
	cl, err := kgo.NewClient(kgo.SeedBrokers("127.0.0.1:1"))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	path := filepath.Join(t.TempDir(), "epoch")
	if err := os.WriteFile(path, []byte("not a number"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, cfg := range map[string]ObserverConfig{
		"nothing":        {},
		"no group":       {Table: router.NewTable(), Client: cl, Application: "a"},
		"bad epoch file": {Table: router.NewTable(), Client: cl, Application: "a", Group: "g", EpochFile: path},
	} {
		if _, err := NewObserver(cfg); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := NewBalancer(t.Context(), BalancerConfig{}); err == nil {
		t.Error("an empty balancer was accepted")
	}
}

// A leader remembers its own plan only while that may be newer than the map: later it would fence who is long gone.
func TestKnownOwners(t *testing.T) {
	t.Parallel()
	o := &Observer{}
	o.view, o.planned = View{Epoch: 5}, View{Epoch: 6}
	if k := o.known(); len(k) != 2 || k[0].Epoch != 6 || k[1].Epoch != 5 {
		t.Errorf("%v", k)
	}
	o.view = View{Epoch: 7}
	if k := o.known(); len(k) != 1 || k[0].Epoch != 7 {
		t.Errorf("%v", k)
	}
}
