package restore

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/statemesh/statemesh/store"
)

// asker sends the requests of rounds.
type asker interface {
	// offsets puts into have where the group stands, as far as that is decided.
	offsets(ctx context.Context, inputs []store.TopicPartition, have map[store.TopicPartition]Committed) error
	// ends asks one broker for the high watermarks of what it leads. What it does not tell is left out.
	ends(ctx context.Context, broker int32, logs []endOf) (map[logKey]store.Offset, error)
	// leaders asks for the leaders of all partitions of topics.
	leaders(ctx context.Context, topics []string) (map[logKey]led, error)
}

// broker is the asker there is.
type broker struct {
	client *kgo.Client
	group  string
}

func (b *broker) offsets(ctx context.Context, inputs []store.TopicPartition, have map[store.TopicPartition]Committed) error {
	_, err := fetchOffsets(ctx, b.client, b.group, inputs, have)
	return err
}

func (b *broker) ends(ctx context.Context, id int32, logs []endOf) (map[logKey]store.Offset, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID, req.IsolationLevel = -1, 0
	topics := make(map[string]int)
	asked := make(map[logKey]struct{}, len(logs))
	for _, o := range logs {
		if _, ok := asked[o.key]; ok { // a task may be watched twice, and no partition may be asked for twice
			continue
		}
		asked[o.key] = struct{}{}
		i, ok := topics[o.key.topic]
		if !ok {
			i = len(req.Topics)
			topics[o.key.topic] = i
			t := kmsg.NewListOffsetsRequestTopic()
			t.Topic = o.key.topic
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp, p.CurrentLeaderEpoch = o.key.partition, latest, o.epoch
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, p)
	}
	kresp, err := b.client.Broker(int(id)).Request(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("list offsets of broker %d: %w", id, err)
	}
	ends := make(map[logKey]store.Offset, len(asked))
	for _, t := range kresp.(*kmsg.ListOffsetsResponse).Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode == 0 && p.Offset >= 0 {
				ends[logKey{topic: t.Topic, partition: p.Partition}] = store.Offset(p.Offset)
			}
		}
	}
	return ends, nil
}

func (b *broker) leaders(ctx context.Context, topics []string) (map[logKey]led, error) {
	meta, err := metadata(ctx, b.client, topics)
	if err != nil {
		return nil, err
	}
	all := make(map[logKey]led)
	for name, t := range meta {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil && !errors.Is(err, kerr.LeaderNotAvailable) {
			continue
		}
		for _, p := range t.Partitions {
			if p.Leader >= 0 {
				all[logKey{topic: name, partition: p.Partition}] = led{id: t.TopicID, leader: p.Leader, epoch: p.LeaderEpoch}
			}
		}
	}
	return all, nil
}
