package topics

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Info is what the brokers say about a topic.
type Info struct {
	// ID tells a recreated topic from its predecessor of the same name; all zero when the brokers have no topic ids.
	ID         [16]byte
	Partitions int32
	// MaxMessageBytes is the topic's max.message.bytes: the largest batch it takes. 0 from Describe.
	MaxMessageBytes int64
	// DeleteRetention is the topic's delete.retention.ms: for how long after it was cleaned a compacted log still shows
	// a deletion. A copy that has not followed the log for longer may hold what was deleted since. 0 from Describe.
	DeleteRetention time.Duration
	// Cleanup is the topic's cleanup.policy: "delete", "compact", or both with a comma. Empty from Describe.
	Cleanup string
}

// DescribeLogs is Describe with the settings, for topics that stand in for a changelog: what a store is rebuilt from must
// keep the last record of each key. *MismatchError for each that deletes by time or by size.
func DescribeLogs(ctx context.Context, adm *kadm.Client, topics []string) (map[string]Info, error) {
	infos, err := Describe(ctx, adm, topics)
	if err != nil || len(topics) == 0 {
		return infos, err
	}
	configs, err := settings(ctx, adm, topics, infos)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, topic := range topics {
		if deletes := deletion(configs[topic]); deletes != "" {
			errs = append(errs, &MismatchError{
				Topic: topic, Setting: "cleanup.policy", Have: deletes, Want: "compact, or no limit of time and size",
				Fix: "a store whose changelog it is would lack, when it is rebuilt, what was deleted: set cleanup.policy=compact, or " +
					"retention.ms=-1 and retention.bytes=-1",
			})
		}
	}
	return infos, errors.Join(errs...)
}

// DescribeLimits is Describe with the settings, as far as the brokers tell them: who may write to a topic may be kept from reading its
// configuration.
func DescribeLimits(ctx context.Context, adm *kadm.Client, topics []string) (map[string]Info, error) {
	infos, err := Describe(ctx, adm, topics)
	if err != nil {
		return nil, err
	}
	if _, err := settings(ctx, adm, topics, infos); err != nil && !errors.Is(err, kerr.TopicAuthorizationFailed) {
		return nil, err
	}
	return infos, nil
}

// deletion is the setting by which a topic loses records that nothing has replaced; empty when it does not.
func deletion(config map[string]string) string {
	if !strings.Contains(config["cleanup.policy"], "delete") {
		return ""
	}
	for _, limit := range []string{"retention.ms", "retention.bytes"} {
		if n, err := strconv.ParseInt(config[limit], 10, 64); err == nil && n >= 0 {
			return config["cleanup.policy"] + " with " + limit + "=" + config[limit]
		}
	}
	return ""
}

// Describe returns what each topic is like. *MissingError names every one that does not exist, at once; *RequestError
// one that the brokers refuse to describe.
func Describe(ctx context.Context, adm *kadm.Client, topics []string) (map[string]Info, error) {
	infos, missing, err := describe(ctx, adm, topics)
	if err != nil {
		return nil, err
	}
	if len(missing) > 0 {
		return nil, &MissingError{Topics: missing}
	}
	return infos, nil
}

// describe separates the topics that exist from those that do not, both in the order given.
func describe(ctx context.Context, adm *kadm.Client, topics []string) (infos map[string]Info, missing []string, err error) {
	infos = make(map[string]Info, len(topics))
	if len(topics) == 0 {
		return infos, nil, nil
	}
	topics = slices.Clone(topics)
	slices.Sort(topics)
	topics = slices.Compact(topics)
	details, err := adm.ListTopics(uncached(ctx), topics...)
	if err != nil {
		return nil, nil, blame(ctx, "describe", topics, err, func(topic string) error {
			_, err := adm.ListTopics(uncached(ctx), topic)
			return err
		})
	}
	var errs []error
	for _, topic := range topics {
		d, ok := details[topic]
		switch {
		case !ok, errors.Is(d.Err, kerr.UnknownTopicOrPartition):
			missing = append(missing, topic)
		case d.Err != nil:
			errs = append(errs, &RequestError{Topic: topic, Operation: "describe", Err: d.Err})
		default:
			infos[topic] = Info{ID: d.ID, Partitions: int32(len(d.Partitions))}
		}
	}
	return infos, missing, errors.Join(errs...)
}

// uncached has metadata asked for anew: the client library otherwise repeats an answer for a while, and a topic that was
// deleted since would count as there. Asking for authorized operations is its way to say so.
func uncached(ctx context.Context) context.Context { return kadm.WithAuthorizedOps(ctx) }

// settings reads the configuration of topics and completes infos with it.
func settings(ctx context.Context, adm *kadm.Client, topics []string, infos map[string]Info) (map[string]map[string]string, error) {
	configs, err := adm.DescribeTopicConfigs(ctx, topics...)
	if err != nil {
		return nil, blame(ctx, "describe configuration", topics, err, func(topic string) error {
			_, err := adm.DescribeTopicConfigs(ctx, topic)
			return err
		})
	}
	all := make(map[string]map[string]string, len(configs))
	var errs []error
	for _, rc := range configs {
		if rc.Err != nil {
			errs = append(errs, &RequestError{Topic: rc.Name, Operation: "describe configuration", Err: rc.Err})
			continue
		}
		m := make(map[string]string, len(rc.Configs))
		for _, c := range rc.Configs {
			m[c.Key] = c.MaybeValue()
		}
		all[rc.Name] = m
		info := infos[rc.Name]
		info.MaxMessageBytes = number(m[maxMessageBytes])
		info.DeleteRetention = time.Duration(min(number(m[deleteRetention]), maxMillis)) * time.Millisecond
		info.Cleanup = m[cleanupPolicy]
		infos[rc.Name] = info
	}
	return all, errors.Join(errs...)
}

// blame finds out which topics a refusal is about: for many topics the client library reports it without their names.
func blame(ctx context.Context, operation string, topics []string, err error, ask func(topic string) error) error {
	if _, refused := errors.AsType[*kadm.AuthError](err); !refused || ctx.Err() != nil {
		return fmt.Errorf("%s %d topics: %w", operation, len(topics), err)
	}
	var errs []error
	for _, topic := range topics {
		if err := ask(topic); err != nil {
			errs = append(errs, &RequestError{Topic: topic, Operation: operation, Err: err})
		}
	}
	if len(errs) == 0 { // allowed meanwhile
		return fmt.Errorf("%s %d topics: %w", operation, len(topics), err)
	}
	return errors.Join(errs...)
}

// maxMillis is the largest count of milliseconds that a time.Duration holds.
const maxMillis = int64(1<<63-1) / int64(time.Millisecond)

// number is 0 for what is none: the setting is unknown to the broker.
func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
