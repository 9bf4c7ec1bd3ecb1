//go:build realkafka

package group

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/statemesh/statemesh/internal/kafkatest"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

func newRealWorld(t *testing.T, partitions int) *world {
	t.Helper()
	b := kafkatest.Run(t, nil)
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Brokers()...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	for topic, n := range map[string]int{"flights": partitions, "weather": partitions, "planes": (partitions + 1) / 2} {
		if _, err := adm.CreateTopic(t.Context(), int32(n), 1, nil, topic); err != nil {
			t.Fatal(err)
		}
	}
	var d net.Dialer
	return &world{
		t: t, brokers: b.Brokers(), dial: d.DialContext, shape: testShape(partitions),
		owners: map[store.TopicPartition]string{}, logs: &logBuffer{},
	}
}

// Joins, a leave, and a death in the middle of a rebalance: Kafka waits for the dead one's session, the others stay.
func TestRealKafkaMembersComeAndGo(t *testing.T) {
	w := newRealWorld(t, 6)
	a := w.start("a", 2)
	first := settled(t.Context(), t, a)
	s := &severable{dial: w.dial}
	b := w.start("b", 1, func(p *process) { p.dial, p.cut = s.Dial, s.Cut })
	if n := counts(settled(t.Context(), t, a, b)); n["a"] != 8 || n["b"] != 4 {
		t.Errorf("%v", n)
	}
	c := w.start("c", 1)
	await(t, a, func(s *router.Snapshot) bool { _, ok := s.Instance("c"); return ok })
	b.vanish() // most likely between the phases of c's arrival
	rest := settled(t.Context(), t, a, c)
	if n := counts(rest); n["a"] != 8 || n["c"] != 4 {
		t.Errorf("%v", n)
	}
	if rest.Epoch() <= first.Epoch() {
		t.Errorf("epoch %d after %d", rest.Epoch(), first.Epoch())
	}
	a.leave()
	if n := counts(settled(t.Context(), t, c)); n["c"] != 12 {
		t.Errorf("%v", n)
	}
	w.check()
}

// Above the limit the group works on, and says so. Above what the broker stores the leader refuses, by name, before
// the broker does; when the one too many goes, the group is whole again, and meanwhile the last map stays.
func TestRealKafkaGroupMetadataLimit(t *testing.T) {
	w := newRealWorld(t, 2)
	padded := func(n int) processOpt {
		return withCorrupt(func(m *kmsg.ConsumerMemberMetadata) {
			m.UserData = append(m.UserData, make([]byte, n)...)
			m.UserData[0] = version + 1 // a later version, that appends
		})
	}
	a := w.start("a", 1)
	settled(t.Context(), t, a)
	b := w.start("b", 1, padded(300<<10))
	c := w.start("c", 1, padded(300<<10))
	before := settled(t.Context(), t, a, b, c)
	w.logs.await(t, "group metadata near the broker's limit")
	d := w.start("d", 1, padded(450<<10))
	w.logs.await(t, "tasks not placed")
	w.logs.await(t, "the broker holds 1000000")
	if now := a.table.Load().Epoch(); now != before.Epoch() {
		t.Errorf("epoch %d published, though the group was refused", now)
	}
	d.leave()
	await(t, a, func(s *router.Snapshot) bool { return s.Epoch() > before.Epoch() })
	if n := counts(settled(t.Context(), t, a, b, c)); n["a"]+n["b"]+n["c"] != 4 {
		t.Errorf("%v", n)
	}
	w.check()
}

// What the check is for: past the broker's limit no generation ever completes.
func TestRealKafkaLosesGroupsTooBig(t *testing.T) {
	w := newRealWorld(t, 2)
	cl, err := kgo.NewClient(kgo.SeedBrokers(w.brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	join := kmsg.NewPtrJoinGroupRequest()
	join.Group, join.ProtocolType, join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = "big", "consumer", 6000, 6000
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name, p.Metadata = Protocol, make([]byte, 1<<20)
	join.Protocols = append(join.Protocols, p)
	var joined *kmsg.JoinGroupResponse
	for range 2 { // the first answer gives the member id
		if joined, err = join.RequestWith(t.Context(), cl); err != nil {
			t.Fatal(err)
		}
		join.MemberID = joined.MemberID
	}
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Group, sync.MemberID, sync.Generation = "big", joined.MemberID, joined.Generation
	sync.ProtocolType, sync.Protocol = &join.ProtocolType, &p.Name
	got, err := sync.RequestWith(t.Context(), cl)
	if err != nil {
		t.Fatal(err)
	}
	if err := kerr.ErrorForCode(got.ErrorCode); !errors.Is(err, kerr.UnknownServerError) {
		t.Errorf("sync of a group above the broker's limit: %v", err)
	}
}

// await waits until text was logged.
func (l *logBuffer) await(t *testing.T, text string) {
	t.Helper()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !strings.Contains(l.String(), text) {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatalf("not logged: %s\n%s", text, l.String())
		}
	}
}
