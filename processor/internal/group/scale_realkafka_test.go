//go:build realkafka

package group

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/statemesh/statemesh/internal/kafkatest"
)

// rawMember is a member of a real group without topics: 500 consumers would be more than the test needs.
type rawMember struct {
	g  *scaled
	i  int
	cl *kgo.Client

	id  string
	gen int32
}

const rawGroup = "orders-view"

// once joins and syncs; it reports whether the generation is complete for this member.
func (r *rawMember) once(ctx context.Context) (bool, error) {
	j := &r.g.members[r.i]
	j.id = r.id
	join := kmsg.NewPtrJoinGroupRequest()
	join.Group, join.ProtocolType, join.MemberID = rawGroup, "consumer", r.id
	join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = 300_000, 300_000
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name, p.Metadata = Protocol, j.response(r.g.b.ix).ProtocolMetadata
	join.Protocols = append(join.Protocols, p)
	joined, err := join.RequestWith(ctx, r.cl)
	if err != nil {
		return false, err
	}
	switch err := kerr.ErrorForCode(joined.ErrorCode); {
	case errors.Is(err, kerr.MemberIDRequired), errors.Is(err, kerr.RebalanceInProgress):
		r.id = joined.MemberID
		return false, nil
	case err != nil:
		return false, fmt.Errorf("join: %w", err)
	}
	r.id, r.gen = joined.MemberID, joined.Generation
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Group, sync.MemberID, sync.Generation = rawGroup, r.id, r.gen
	sync.ProtocolType, sync.Protocol = &join.ProtocolType, &p.Name
	if joined.LeaderID == r.id {
		mb, _, err := r.g.b.MemberBalancer(joined.Members)
		if err != nil {
			return false, err
		}
		plan, err := mb.(kgo.GroupMemberBalancerOrError).BalanceOrError(nil)
		if err != nil {
			return false, err
		}
		sync.GroupAssignment = plan.IntoSyncAssignment()
	}
	got, err := sync.RequestWith(ctx, r.cl)
	if err != nil {
		return false, err
	}
	switch err := kerr.ErrorForCode(got.ErrorCode); {
	case errors.Is(err, kerr.RebalanceInProgress):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("sync: %w", err)
	}
	var wire kmsg.ConsumerMemberAssignment
	if err := wire.ReadFrom(got.MemberAssignment); err != nil {
		return false, err
	}
	a, err := DecodeAssignment(wire.UserData)
	if err == nil {
		r.g.out[r.i] = a
	}
	return err == nil, err
}

// each runs once for all members at the same time, until it is done for each. Those that have an id are waited for by the
// broker, so all come into one generation.
func (g *scaled) each(members []*rawMember, once func(*rawMember) (bool, error)) error {
	errs := make([]error, len(members))
	var wg sync.WaitGroup
	for i, r := range members {
		wg.Go(func() {
			for done := false; !done && errs[i] == nil; {
				done, errs[i] = once(r)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// The broker stores the metadata of a group of 10,000 tasks and 500 members with a standby each: what TestScale measures is
// what its record takes.
func TestRealKafkaScale(t *testing.T) {
	broker := kafkatest.Run(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
	defer cancel()
	g := newScaled(t, 10_000, 500, Options{Standbys: 1, MaxWarmups: 2, AcceptableLag: 10_000})
	g.out = make([]Assignment, len(g.members))
	members := make([]*rawMember, len(g.members))
	for i := range members {
		cl, err := kgo.NewClient(kgo.SeedBrokers(broker.Brokers()...), kgo.ClientID(rawGroup))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		members[i] = &rawMember{g: g, i: i, cl: cl}
	}
	if err := g.each(members, func(r *rawMember) (bool, error) { // the first answer gives the member id
		_, err := r.once(ctx)
		return r.id != "", err
	}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := g.each(members, func(r *rawMember) (bool, error) { return r.once(ctx) }); err != nil {
			t.Fatal(err)
		}
		g.carryOn()
	}
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = []string{rawGroup}
	resp, err := req.RequestWith(ctx, members[0].cl)
	if err != nil {
		t.Fatal(err)
	}
	v, err := readView(&resp.Groups[0])
	if err != nil {
		t.Fatal(err)
	}
	standbys := 0
	for i := range v.Members {
		standbys += len(v.Members[i].Assignment.Standby)
	}
	stored := storedBytes(ctx, t, broker.Brokers())
	t.Logf("%d members, %d standbys: the broker's record has %d bytes", len(v.Members), standbys, stored)
	if len(v.Members) != 500 || standbys != 7_500 || stored > 640<<10 || stored < 300<<10 {
		t.Errorf("%d members, %d standbys, %d bytes", len(v.Members), standbys, stored)
	}
}

// storedBytes is the size of the newest record of the group's metadata on the broker.
func storedBytes(ctx context.Context, t *testing.T, brokers []string) int {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics("__consumer_offsets"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	size := 0
	for size == 0 || ctx.Err() == nil {
		poll, cancel := context.WithTimeout(ctx, 3*time.Second)
		fetches := cl.PollFetches(poll)
		cancel()
		n := 0
		fetches.EachRecord(func(r *kgo.Record) {
			n++
			if len(r.Key) > 2 && r.Key[1] == 2 && strings.Contains(string(r.Key), rawGroup) && len(r.Value) > 0 {
				size = len(r.Value)
			}
		})
		if n == 0 && size > 0 || ctx.Err() != nil {
			break
		}
	}
	return size
}
