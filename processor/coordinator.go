package processor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/statemesh/statemesh/processor/internal/commitmeta"
	"github.com/statemesh/statemesh/store"
)

// coordinator speaks to the group's coordinator about offsets and membership, with requests of our own: what a commit
// says, and what an answer means, is decided here and not in the client library. Safe for concurrent use.
type coordinator struct {
	client *kgo.Client
	group  string
	// node is the coordinator's broker id, -1 when it must be asked for.
	node atomic.Int32
	// implicitAdd: the cluster runs transactions of version 2 (KIP-890), where a TxnOffsetCommit adds the group to the
	// transaction by itself.
	implicitAdd bool
}

// offsetVersions caps the requests whose later versions name topics by id: a topic that is created again is found out
// by the fetcher, and a commit must reach the offsets of its name.
func offsetVersions() *kversion.Versions {
	v := kversion.Stable()
	for key, most := range map[kmsg.Key]int16{kmsg.OffsetCommit: 9, kmsg.OffsetFetch: 9, kmsg.TxnOffsetCommit: 5} {
		if have, ok := v.LookupMaxKeyVersion(int16(key)); ok && have > most {
			v.SetMaxKeyVersion(int16(key), most)
		}
	}
	return v
}

func newCoordinator(ctx context.Context, client *kgo.Client, group string) (*coordinator, error) {
	c := &coordinator{client: client, group: group}
	c.node.Store(-1)
	resp, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("ask the brokers for their versions: %w", err)
	}
	for _, f := range resp.FinalizedFeatures {
		if f.Name == "transaction.version" {
			c.implicitAdd = f.MaxVersionLevel >= 2
		}
	}
	return c, nil
}

// errUnsent marks a request that certainly did not reach the broker: it may be repeated.
var errUnsent = errors.New("request was not sent")

// ask sends a request to the coordinator once. The client library would repeat a request whose connection broke, and
// the first copy might still be waiting somewhere: it could take effect after later commits.
func (c *coordinator) ask(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	node := c.node.Load()
	if node < 0 {
		find := kmsg.NewPtrFindCoordinatorRequest()
		find.CoordinatorKey, find.CoordinatorKeys = c.group, []string{c.group}
		resp, err := find.RequestWith(ctx, c.client)
		if err != nil {
			return nil, errors.Join(errUnsent, err)
		}
		code, id := resp.ErrorCode, resp.NodeID
		if len(resp.Coordinators) == 1 {
			code, id = resp.Coordinators[0].ErrorCode, resp.Coordinators[0].NodeID
		}
		if err := kerr.ErrorForCode(code); err != nil {
			return nil, errors.Join(errUnsent, err)
		}
		node = id
		c.node.Store(node)
	}
	resp, err := c.client.Broker(int(node)).Request(ctx, req)
	if err != nil {
		c.node.Store(-1)
		if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
			return nil, errors.Join(errUnsent, err)
		}
		return nil, err
	}
	return resp, nil
}

// moved forgets the coordinator when the answer says that it is another broker.
func (c *coordinator) moved(err error) {
	if errors.Is(err, kerr.NotCoordinator) || errors.Is(err, kerr.CoordinatorNotAvailable) {
		c.node.Store(-1)
	}
}

// offsetToCommit is one input of a commit.
type offsetToCommit struct {
	tp          store.TopicPartition
	next        store.Offset
	leaderEpoch int32
	meta        string
}

// identity is under whose name a commit is made.
type identity struct {
	member     string
	generation int32
	// of the transaction; unused under at_least_once
	transactionalID string
	producer        int64
	epoch           int16
}

// addGroup makes the group part of the transaction where the broker does not do that by itself.
func (c *coordinator) addGroup(ctx context.Context, id identity) error {
	if c.implicitAdd {
		return nil
	}
	req := kmsg.NewPtrAddOffsetsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = id.transactionalID, id.producer, id.epoch, c.group
	resp, err := req.RequestWith(ctx, c.client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.ErrorCode)
}

// commitInTransaction makes offsets part of the transaction, under member id and generation: the broker refuses it from
// a member that the group has given up. The result is the first error of any partition.
func (c *coordinator) commitInTransaction(ctx context.Context, id identity, offsets []offsetToCommit) error {
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.Group = id.transactionalID, c.group
	req.ProducerID, req.ProducerEpoch = id.producer, id.epoch
	req.MemberID, req.Generation = id.member, id.generation
	for i := range offsets {
		o := &offsets[i]
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != o.tp.Topic {
			t := kmsg.NewTxnOffsetCommitRequestTopic()
			t.Topic = o.tp.Topic
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = int32(o.tp.Partition), int64(o.next), o.leaderEpoch, &o.meta
		t := &req.Topics[len(req.Topics)-1]
		t.Partitions = append(t.Partitions, p)
	}
	resp, err := c.ask(ctx, req)
	if err != nil {
		return err
	}
	answer := resp.(*kmsg.TxnOffsetCommitResponse)
	for _, t := range answer.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				c.moved(err)
				return fmt.Errorf("commit %s-%d: %w", t.Topic, p.Partition, err)
			}
		}
	}
	return nil
}

// commit commits offsets outside of any transaction, under member id and generation. All of a request is one record
// batch at the broker, or none of it.
func (c *coordinator) commit(ctx context.Context, id identity, offsets []offsetToCommit) error {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.MemberID, req.Generation = c.group, id.member, id.generation
	for i := range offsets {
		o := &offsets[i]
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != o.tp.Topic {
			t := kmsg.NewOffsetCommitRequestTopic()
			t.Topic = o.tp.Topic
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = int32(o.tp.Partition), int64(o.next), o.leaderEpoch, &o.meta
		t := &req.Topics[len(req.Topics)-1]
		t.Partitions = append(t.Partitions, p)
	}
	resp, err := c.ask(ctx, req)
	if err != nil {
		return err
	}
	answer := resp.(*kmsg.OffsetCommitResponse)
	for _, t := range answer.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				c.moved(err)
				return fmt.Errorf("commit %s-%d: %w", t.Topic, p.Partition, err)
			}
		}
	}
	return nil
}

// heartbeat asks whether the member is still one. errNotMember: it is not.
func (c *coordinator) heartbeat(ctx context.Context, id identity) error {
	if id.member == "" {
		return errNotMember
	}
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.Generation = c.group, id.member, id.generation
	resp, err := c.ask(ctx, req)
	if err != nil {
		return err
	}
	err = kerr.ErrorForCode(resp.(*kmsg.HeartbeatResponse).ErrorCode)
	switch {
	case err == nil, errors.Is(err, kerr.RebalanceInProgress):
		return nil
	case errors.Is(err, kerr.UnknownMemberID), errors.Is(err, kerr.FencedInstanceID):
		return errNotMember
	}
	c.moved(err)
	return err
}

// committedOffset is an offset as the group has it.
type committedOffset struct {
	next store.Offset // -1: none
	meta commitmeta.Meta
}

// certainty of offsets.
type certainty bool

const (
	// decided: offsets with an open transaction on them are waited for.
	decided certainty = true
	// lastKnown: of those, what was committed before.
	lastKnown certainty = false
)

// committed reads the group's offsets, again until ctx ends; then the error tells the last answer, too.
func (c *coordinator) committed(ctx context.Context, tps []store.TopicPartition, want certainty) (map[store.TopicPartition]committedOffset, error) {
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		all, err := c.fetchOffsets(ctx, tps, want)
		if err == nil {
			return all, nil
		}
		if !retriable(err) {
			return nil, err
		}
		if ended := sleep(ctx, wait); ended != nil {
			return nil, fmt.Errorf("%w; last answer: %w", ended, err)
		}
	}
}

func (c *coordinator) fetchOffsets(ctx context.Context, tps []store.TopicPartition, want certainty) (map[store.TopicPartition]committedOffset, error) {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Group, req.RequireStable = c.group, bool(want)
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = c.group
	for _, tp := range tps {
		t := kmsg.NewOffsetFetchRequestTopic()
		t.Topic, t.Partitions = tp.Topic, []int32{int32(tp.Partition)}
		req.Topics = append(req.Topics, t)
		gt := kmsg.NewOffsetFetchRequestGroupTopic()
		gt.Topic, gt.Partitions = t.Topic, t.Partitions
		g.Topics = append(g.Topics, gt)
	}
	req.Groups = append(req.Groups, g)
	kresp, err := c.ask(ctx, req)
	if err != nil {
		return nil, err
	}
	resp := kresp.(*kmsg.OffsetFetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		c.moved(err)
		return nil, err
	}
	all := make(map[store.TopicPartition]committedOffset, len(tps))
	add := func(topic string, partition int32, offset int64, meta *string, code int16) error {
		if err := kerr.ErrorForCode(code); err != nil {
			return fmt.Errorf("committed offset of %s-%d: %w", topic, partition, err)
		}
		o := committedOffset{next: store.Offset(offset), meta: commitmeta.Meta{StreamTime: -1}}
		if meta != nil {
			o.meta, _ = commitmeta.Decode(*meta)
		}
		all[store.TopicPartition{Topic: topic, Partition: store.Partition(partition)}] = o
		return nil
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := add(t.Topic, p.Partition, p.Offset, p.Metadata, p.ErrorCode); err != nil {
				return nil, err
			}
		}
	}
	for _, rg := range resp.Groups {
		if err := kerr.ErrorForCode(rg.ErrorCode); err != nil {
			c.moved(err)
			return nil, err
		}
		for _, t := range rg.Topics {
			for _, p := range t.Partitions {
				if err := add(t.Topic, p.Partition, p.Offset, p.Metadata, p.ErrorCode); err != nil {
					return nil, err
				}
			}
		}
	}
	for _, tp := range tps {
		if _, ok := all[tp]; !ok {
			return nil, fmt.Errorf("committed offset of %s: not in the answer", tp)
		}
	}
	return all, nil
}

// retriable reports whether the same question may get a better answer later: the broker is away, or says "not now".
func retriable(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, kgo.ErrClientClosed) {
		return false
	}
	if ke, ok := errors.AsType[*kerr.Error](err); ok {
		return ke.Retriable
	}
	return true // not an answer of Kafka: a connection
}

// sleep waits for d, or returns why ctx ended.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
