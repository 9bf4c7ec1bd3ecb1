package restore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/statemesh/statemesh/store"
)

// logFacts is what the brokers say about one changelog partition at the time of a restore.
type logFacts struct {
	id          [16]byte
	leader      int32
	leaderEpoch int32
	begin, end  store.Offset
}

// missingAsks is how often brokers must deny a topic before it counts as gone.
const missingAsks = 5

// facts asks for ids, leaders and bounds of the partition of each topic. The bound is the high watermark, not the last
// stable offset: an open transaction of a dead writer would hide what was committed behind it (CR-03).
func (r *Restorer) facts(ctx context.Context, changelogs map[store.Name]Changelog, partition store.Partition) (map[string]logFacts, error) {
	topics := make([]string, 0, len(changelogs))
	want := make(map[string][16]byte, len(changelogs))
	for _, c := range changelogs {
		topics = append(topics, c.Topic)
		want[c.Topic] = c.ID
	}
	start := time.Now()
	wait := newBackoff(50 * time.Millisecond)
	for ask := 1; ; ask++ {
		facts, err := r.askFacts(ctx, topics, want, int32(partition))
		switch {
		case err == nil:
			return facts, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		}
		gone, changed := errors.AsType[*TopicChangedError](err)
		if changed && !known(gone.Have) && ask < missingAsks {
			changed = false // a broker that has just started may not have heard of the topic yet
		}
		if changed || refused(err) || time.Since(start) >= r.cfg.StallTimeout {
			return nil, err
		}
		if err := wait.sleep(ctx); err != nil {
			return nil, err
		}
	}
}

func (r *Restorer) askFacts(ctx context.Context, topics []string, want map[string][16]byte, partition int32) (map[string]logFacts, error) {
	meta, err := metadata(ctx, r.cfg.Client, topics)
	if err != nil {
		return nil, err
	}
	all := make(map[string]logFacts, len(topics))
	for _, topic := range topics {
		f, err := meta.partition(topic, want[topic], partition)
		if err != nil {
			return nil, err
		}
		all[topic] = f
	}
	// The end comes last, so that it is a bound of all that was committed before this call.
	for _, which := range []int64{earliest, latest} {
		offsets, err := r.listOffsets(ctx, topics, partition, which)
		if err != nil {
			return nil, err
		}
		for topic, f := range all {
			if which == earliest {
				f.begin = offsets[topic]
			} else {
				f.end = offsets[topic]
			}
			all[topic] = f
		}
	}
	return all, nil
}

// The two timestamps of ListOffsets that are none.
const (
	latest   = -1
	earliest = -2
)

func (r *Restorer) listOffsets(ctx context.Context, topics []string, partition int32, timestamp int64) (map[string]store.Offset, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.IsolationLevel = 0 // the high watermark
	for _, topic := range topics {
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic = topic
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp = partition, timestamp
		t.Partitions = append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
	}
	offsets := make(map[string]store.Offset, len(topics))
	for _, shard := range r.cfg.Client.RequestSharded(ctx, req) {
		if shard.Err != nil {
			return nil, fmt.Errorf("list changelog offsets: %w", shard.Err)
		}
		for _, t := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					return nil, fmt.Errorf("changelog %s-%d: list offsets: %w", t.Topic, p.Partition, err)
				}
				offsets[t.Topic] = store.Offset(p.Offset)
			}
		}
	}
	for _, topic := range topics {
		if _, ok := offsets[topic]; !ok {
			return nil, fmt.Errorf("changelog %s-%d: list offsets: not in the answer", topic, partition)
		}
	}
	return offsets, nil
}

// epochEnd asks the leader where the log of an older leader epoch ends; -1 when it does not know. A copy that has read
// beyond has read what was truncated since.
func (r *Restorer) epochEnd(ctx context.Context, topic string, partition, epoch int32) (store.Offset, error) {
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	t := kmsg.NewOffsetForLeaderEpochRequestTopic()
	t.Topic = topic
	p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	p.Partition, p.LeaderEpoch = partition, epoch
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	for _, shard := range r.cfg.Client.RequestSharded(ctx, req) {
		if shard.Err != nil {
			return -1, fmt.Errorf("changelog %s-%d: end of leader epoch %d: %w", topic, partition, epoch, shard.Err)
		}
		for _, t := range shard.Resp.(*kmsg.OffsetForLeaderEpochResponse).Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					return -1, fmt.Errorf("changelog %s-%d: end of leader epoch %d: %w", topic, partition, epoch, err)
				}
				return store.Offset(p.EndOffset), nil
			}
		}
	}
	return -1, nil
}

// topicMetadata is the answer to a metadata request, by topic name.
type topicMetadata map[string]kmsg.MetadataResponseTopic

func metadata(ctx context.Context, client *kgo.Client, topics []string) (topicMetadata, error) {
	req := kmsg.NewPtrMetadataRequest()
	for _, topic := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = new(topic)
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("changelog metadata: %w", err)
	}
	m := make(topicMetadata, len(resp.Topics))
	for _, t := range resp.Topics {
		if t.Topic != nil {
			m[*t.Topic] = t
		}
	}
	return m, nil
}

// partition returns id and leader of one partition. A topic of another id, or none, is *TopicChangedError.
func (m topicMetadata) partition(topic string, want [16]byte, partition int32) (logFacts, error) {
	t, ok := m[topic]
	err := kerr.ErrorForCode(t.ErrorCode)
	switch {
	case !ok, errors.Is(err, kerr.UnknownTopicOrPartition):
		return logFacts{}, &TopicChangedError{Topic: topic, Want: want}
	case err != nil:
		return logFacts{}, fmt.Errorf("changelog %s: describe: %w", topic, err)
	case known(want) && known(t.TopicID) && t.TopicID != want:
		return logFacts{}, &TopicChangedError{Topic: topic, Have: t.TopicID, Want: want}
	}
	for _, p := range t.Partitions {
		if p.Partition != partition {
			continue
		}
		if p.Leader < 0 {
			return logFacts{}, fmt.Errorf("changelog %s-%d: %w", topic, partition, kerr.LeaderNotAvailable)
		}
		return logFacts{id: t.TopicID, leader: p.Leader, leaderEpoch: p.LeaderEpoch}, nil
	}
	return logFacts{}, &RefusedError{
		Topic: topic, Partition: store.Partition(partition),
		Reason: fmt.Sprintf("the topic has %d partitions", len(t.Partitions)),
	}
}
