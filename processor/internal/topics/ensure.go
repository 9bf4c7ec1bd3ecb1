package topics

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Kind says what an internal topic is for, and so how it must be set up.
type Kind uint8

// The kinds of internal topic.
const (
	// Changelog holds the changes of a key-value store; it is compacted.
	Changelog Kind = 1
	// Repartition carries records between sub-topologies. Nothing is deleted by time: consumed records are purged.
	Repartition Kind = 2
)

// String is lower case, for messages.
func (k Kind) String() string {
	switch k {
	case Changelog:
		return "changelog"
	case Repartition:
		return "repartition"
	default:
		return "kind-" + strconv.Itoa(int(k))
	}
}

// Names of topic settings.
const (
	cleanupPolicy    = "cleanup.policy"
	timestampType    = "message.timestamp.type"
	minCompactionLag = "min.compaction.lag.ms"
	segmentBytes     = "segment.bytes"
	retentionMillis  = "retention.ms"
	maxMessageBytes  = "max.message.bytes"
	deleteRetention  = "delete.retention.ms"
)

// DefaultConfig returns what a topic of the kind is created with: upstream's settings (InternalTopicManager and the
// *ChangelogTopicConfig and RepartitionTopicConfig classes), and for changelogs a compaction lag, so that a reader that
// is minutes behind seldom meets gaps.
func DefaultConfig(kind Kind) map[string]string {
	if kind == Repartition {
		return map[string]string{
			cleanupPolicy: "delete", timestampType: "CreateTime", segmentBytes: "52428800", retentionMillis: "-1",
		}
	}
	return map[string]string{cleanupPolicy: "compact", timestampType: "CreateTime", minCompactionLag: "600000"}
}

// verified are the settings that decide about correctness, by kind. A topic that differs is refused; what merely costs
// space or time is the operator's to choose.
var verified = map[Kind][]string{
	Changelog:   {cleanupPolicy, timestampType},
	Repartition: {cleanupPolicy, timestampType, retentionMillis},
}

// Internal is a topic that the application owns.
type Internal struct {
	Topic      string
	Kind       Kind
	Partitions int32
	// ReplicationFactor at creation; 0 and -1 mean the broker's default.
	ReplicationFactor int16
	// Config overrides [DefaultConfig] at creation. Overrides of verified settings are what is verified, too.
	Config map[string]string
	// Retention of a changelog of windows or sessions: how long the store keeps them. The broker keeps records for that and
	// [AdditionalRetention], and deletes them then (upstream's WindowedChangelogTopicConfig); a topic that deletes earlier than
	// the store does is refused. 0: a changelog keeps every key.
	Retention time.Duration
	// History of the changelog of a versioned store: how far it goes back. Compaction leaves records alone for that and
	// [AdditionalRetention] (upstream's VersionedChangelogTopicConfig), or a restore would find the latest version of a key
	// and no other; a topic that compacts earlier than the history reaches is refused. 0: the latest value is all there is.
	History time.Duration
	// MustExist, if not empty, is the proof that the topic has existed ("group app has committed offsets"): a missing
	// topic is then *LostError and not created.
	MustExist string
}

// AdditionalRetention is how much longer the broker keeps windows and versions than their store: it goes by the wall clock, the store by
// the time of records (upstream's default of windowstore.changelog.additional.retention.ms).
const AdditionalRetention = 24 * time.Hour

func (i Internal) config() map[string]string {
	c := DefaultConfig(i.Kind)
	if i.Retention > 0 {
		c[cleanupPolicy] = "compact,delete"
		c[retentionMillis] = strconv.FormatInt(keptFor(i.Retention), 10)
	}
	if i.History > 0 {
		c[minCompactionLag] = strconv.FormatInt(keptFor(i.History), 10)
	}
	maps.Copy(c, i.Config)
	return c
}

// keptFor is for how long the changelog of a store that keeps windows or history for d has all of it, in milliseconds.
func keptFor(d time.Duration) int64 {
	if ms := d.Milliseconds(); ms < math.MaxInt64-AdditionalRetention.Milliseconds() {
		return ms + AdditionalRetention.Milliseconds()
	}
	return math.MaxInt64
}

// Ensure creates the topics that are missing and verifies those that exist, and returns what they are like. Several
// instances may do so at a time. Every problem is reported at once: *MismatchError, *LostError, *RequestError. When a
// topic is lost nothing is created.
func Ensure(ctx context.Context, adm *kadm.Client, want []Internal) (map[string]Info, error) {
	const asks, pause = 5, 200 * time.Millisecond
	for ask := 1; ; ask++ {
		infos, err := ensure(ctx, adm, want)
		// Brokers learn of topics one after another: the one that is asked for settings may not know yet, or not any
		// more, what another one has listed.
		if !errors.Is(err, kerr.UnknownTopicOrPartition) || ask == asks {
			return infos, err
		}
		if err := sleep(ctx, pause); err != nil {
			return nil, err
		}
	}
}

func ensure(ctx context.Context, adm *kadm.Client, want []Internal) (map[string]Info, error) {
	names := make([]string, len(want))
	for i, w := range want {
		names[i] = w.Topic
	}
	infos, missing, err := describe(ctx, adm, names)
	if err != nil {
		return nil, err
	}
	if missing, err = confirmLost(ctx, adm, want, missing); err != nil {
		return nil, err
	}
	if len(missing) > 0 {
		if err := create(ctx, adm, want, missing); err != nil {
			return nil, err
		}
	}
	if infos, err = await(ctx, adm, names, infos); err != nil {
		return nil, err
	}
	configs, err := settings(ctx, adm, slices.Sorted(maps.Keys(infos)), infos)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, w := range want {
		errs = append(errs, verify(w, infos[w.Topic], configs[w.Topic])...)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return infos, nil
}

// confirmLost asks a few times before it calls a topic lost: a broker that has just started may not have heard of
// every topic yet. It returns what is still missing and may be created.
func confirmLost(ctx context.Context, adm *kadm.Client, want []Internal, missing []string) ([]string, error) {
	const asks, pause = 5, 200 * time.Millisecond
	for ask := 0; ; ask++ {
		var lost []error
		for _, w := range want {
			if w.MustExist != "" && slices.Contains(missing, w.Topic) {
				lost = append(lost, &LostError{Topic: w.Topic, Reason: w.MustExist})
			}
		}
		if len(lost) == 0 {
			return missing, nil
		}
		if ask == asks {
			return nil, errors.Join(lost...)
		}
		if err := sleep(ctx, pause); err != nil {
			return nil, err
		}
		var err error
		if _, missing, err = describe(ctx, adm, missing); err != nil {
			return nil, err
		}
	}
}

// create makes the missing topics, those with equal settings in one request.
func create(ctx context.Context, adm *kadm.Client, want []Internal, missing []string) error {
	type group struct {
		Internal
		topics []string
	}
	groups := map[string]*group{}
	for _, w := range want {
		if !slices.Contains(missing, w.Topic) {
			continue
		}
		if w.ReplicationFactor == 0 {
			w.ReplicationFactor = -1
		}
		key := fmt.Sprint(w.Partitions, w.ReplicationFactor, w.config()) // fmt prints maps in order
		if groups[key] == nil {
			groups[key] = &group{Internal: w}
		}
		groups[key].topics = append(groups[key].topics, w.Topic)
	}
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		g := groups[key]
		configs := map[string]*string{}
		for k, v := range g.config() {
			configs[k] = &v
		}
		created, err := adm.CreateTopics(ctx, g.Partitions, g.ReplicationFactor, configs, g.topics...)
		if err != nil {
			return fmt.Errorf("create %s: %w", strings.Join(g.topics, ", "), err)
		}
		for _, r := range created.Sorted() {
			if r.Err == nil || errors.Is(r.Err, kerr.TopicAlreadyExists) {
				continue // another instance was faster; it is verified like any other
			}
			err := r.Err
			if r.ErrMessage != "" {
				err = fmt.Errorf("%w (%s)", err, r.ErrMessage)
			}
			errs = append(errs, &RequestError{Topic: r.Topic, Operation: "create", Err: err})
		}
	}
	return errors.Join(errs...)
}

// await returns when every topic is known to the broker that is asked, with a leader for each partition: producing
// earlier would only wait. It gives up after 30 seconds.
func await(ctx context.Context, adm *kadm.Client, names []string, infos map[string]Info) (map[string]Info, error) {
	const limit = 30 * time.Second
	for waited, pause := time.Duration(0), 20*time.Millisecond; ; pause = min(2*pause, time.Second) {
		var missing []string
		for _, n := range names {
			if _, ok := infos[n]; !ok {
				missing = append(missing, n)
			}
		}
		if len(missing) == 0 {
			return infos, nil
		}
		if waited >= limit {
			return nil, &MissingError{Topics: missing}
		}
		if err := sleep(ctx, pause); err != nil {
			return nil, err
		}
		waited += pause
		details, err := adm.ListTopics(uncached(ctx), missing...)
		if err != nil {
			return nil, fmt.Errorf("describe %d topics: %w", len(missing), err)
		}
		for name, d := range details {
			led := d.Err == nil && len(d.Partitions) > 0
			for _, p := range d.Partitions {
				led = led && p.Leader >= 0 && p.Err == nil
			}
			if led {
				infos[name] = Info{ID: d.ID, Partitions: int32(len(d.Partitions))}
			}
		}
	}
}

// verify compares one topic with what the application needs.
func verify(want Internal, info Info, have map[string]string) (errs []error) {
	if info.Partitions != want.Partitions {
		errs = append(errs, &MismatchError{
			Topic: want.Topic, Setting: "partitions",
			Have: strconv.Itoa(int(info.Partitions)), Want: strconv.Itoa(int(want.Partitions)),
			Fix: "keys of an existing topic cannot be spread over another number of partitions: give the inputs the number they had, " +
				"or reset the application (delete its internal topics, its group's offsets and its state directories) and process the inputs again",
		})
	}
	config := want.config()
	for _, setting := range verified[want.Kind] {
		w, h := config[setting], have[setting]
		if sameSetting(w, h) {
			continue
		}
		if h == "" {
			h = "unknown"
		}
		errs = append(errs, &MismatchError{
			Topic: want.Topic, Setting: setting, Have: h, Want: w,
			Fix: fmt.Sprintf("%s; kafka-configs.sh --alter --entity-type topics --entity-name %s --add-config %s=%s sets it",
				why(want.Kind, setting), want.Topic, setting, bracketed(w)),
		})
	}
	for _, least := range []struct {
		setting string
		kept    time.Duration
		why     string
	}{
		{retentionMillis, want.Retention, "the broker deletes windows that the store keeps, and a restore lacks them"},
		{minCompactionLag, want.History, "compaction takes versions away that the store keeps, and a restore lacks them"},
	} {
		ms, err := strconv.ParseInt(have[least.setting], 10, 64)
		if least.kept == 0 || err != nil || ms < 0 || ms >= least.kept.Milliseconds() {
			continue
		}
		errs = append(errs, &MismatchError{
			Topic: want.Topic, Setting: least.setting, Have: have[least.setting],
			Want: "at least " + strconv.FormatInt(least.kept.Milliseconds(), 10),
			Fix: fmt.Sprintf("%s; kafka-configs.sh --alter --entity-type topics --entity-name %s --add-config %s=%s sets it",
				least.why, want.Topic, least.setting, config[least.setting]),
		})
	}
	return errs
}

// sameSetting compares values as Kafka reads them: lists in any order.
func sameSetting(a, b string) bool {
	list := func(s string) []string {
		parts := strings.Split(s, ",")
		for i := range parts {
			parts[i] = strings.TrimSpace(parts[i])
		}
		slices.Sort(parts)
		return parts
	}
	return slices.Equal(list(a), list(b))
}

// bracketed is how kafka-configs.sh takes a list.
func bracketed(v string) string {
	if strings.Contains(v, ",") {
		return "[" + v + "]"
	}
	return v
}

func why(kind Kind, setting string) string {
	switch {
	case setting == timestampType:
		return "with another type the broker replaces the timestamps that processing depends on"
	case kind == Changelog:
		return "with another policy the broker deletes state that is not restored afterwards"
	default:
		return "with another setting the broker deletes records before they are processed, or keeps only one per key"
	}
}

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
