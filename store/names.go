package store

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Name is the name of a state store, unique in an application.
type Name string

// Partition is a partition of a topic; the partitions of a store are those of its changelog.
type Partition int32

// Offset is an offset in one partition of a topic. Fields say whether they mean the highest record applied or the next
// one to read; -1 means that nothing was applied.
type Offset int64

// Sequence numbers the commits of a task, from 1. 0 means that the task never committed.
type Sequence int64

// TopicPartition names one partition of a topic.
type TopicPartition struct {
	Topic     string
	Partition Partition
}

// String is "topic-partition", as Kafka's tools print it.
func (tp TopicPartition) String() string { return tp.Topic + "-" + strconv.Itoa(int(tp.Partition)) }

// TaskID names a task: one partition of one sub-topology (upstream's TaskId).
type TaskID struct {
	Subtopology int32
	Partition   Partition
}

// String is upstream's form, "<subtopology>_<partition>".
func (t TaskID) String() string {
	return strconv.Itoa(int(t.Subtopology)) + "_" + strconv.Itoa(int(t.Partition))
}

// Compare orders tasks by sub-topology, then partition.
func (t TaskID) Compare(o TaskID) int {
	if c := cmp.Compare(t.Subtopology, o.Subtopology); c != 0 {
		return c
	}
	return cmp.Compare(t.Partition, o.Partition)
}

// ParseTaskID reads what [TaskID.String] writes.
func ParseTaskID(s string) (TaskID, error) {
	sub, part, ok := strings.Cut(s, "_")
	if !ok {
		return TaskID{}, fmt.Errorf("store: task id %q: want <subtopology>_<partition>", s)
	}
	a, err := strconv.ParseInt(sub, 10, 32)
	if err != nil || a < 0 {
		return TaskID{}, fmt.Errorf("store: task id %q: sub-topology %q is no number >= 0", s, sub)
	}
	b, err := strconv.ParseInt(part, 10, 32)
	if err != nil || b < 0 {
		return TaskID{}, fmt.Errorf("store: task id %q: partition %q is no number >= 0", s, part)
	}
	return TaskID{Subtopology: int32(a), Partition: Partition(b)}, nil
}

// Kind is the layout and the set of queries of a store.
type Kind uint8

// The kinds of store. Values are stored on disk and must not change.
const (
	// KindKeyValue maps keys to values.
	KindKeyValue Kind = 1
	// KindTimestampedKeyValue also keeps the timestamp of each value (upstream's TimestampedKeyValueStore).
	KindTimestampedKeyValue Kind = 2
	// KindWindow maps a key and a window start to a value (upstream's WindowStore).
	KindWindow Kind = 3
	// KindTimestampedWindow also keeps the timestamp of each value (upstream's TimestampedWindowStore).
	KindTimestampedWindow Kind = 4
	// KindSession maps a key and a session to a value (upstream's SessionStore).
	KindSession Kind = 5
	// KindVersioned keeps the versions of each key (upstream's VersionedKeyValueStore, KIP-889).
	KindVersioned Kind = 6
)

// String is the kind's name as users write it.
func (k Kind) String() string {
	switch k {
	case KindKeyValue:
		return "key-value"
	case KindTimestampedKeyValue:
		return "timestamped-key-value"
	case KindWindow:
		return "window"
	case KindTimestampedWindow:
		return "timestamped-window"
	case KindSession:
		return "session"
	case KindVersioned:
		return "versioned"
	default:
		return "kind-" + strconv.Itoa(int(k))
	}
}

// Spec declares one store of a task.
type Spec struct {
	Name Name
	Kind Kind
	// InMemory keeps the store in the in-memory engine: it is rebuilt from its changelog at every start.
	InMemory bool
	// NoChangelog switches the changelog off (upstream's withLoggingDisabled): such a store is lost with its owner.
	NoChangelog bool
	// Retention says how long rows of a window or session store are kept, and for how long the history of a versioned one
	// goes back, by stream time. At least 1 ms; key-value stores have none.
	Retention time.Duration
	// WindowSize of a window store; at most Retention.
	WindowSize time.Duration
	// SegmentInterval is the span of time that expires as a whole. 0: upstream's default, for window and session stores the
	// greater of Retention/2 and a minute, for versioned ones between a third and a 24th of Retention, at least 2 s.
	// Changing it drops the local copy, which is restored.
	SegmentInterval time.Duration
	// RetainDuplicates keeps every value that was put into a window of a key.
	RetainDuplicates bool
	// Caching puts the record cache before the store: changes go downstream when the cache is flushed, at a commit or under
	// pressure, and only the last of each key does (upstream's withCachingEnabled). To the changelog goes the last of each
	// commit, with a cache or without. Not for versioned stores, nor where duplicates are kept.
	Caching bool
	// ChangelogConfig overrides settings of the changelog topic at creation.
	ChangelogConfig map[string]string
	// KeyFormat and ValueFormat name the serde.Format of keys and values, for people and generic clients: "string", "int64",
	// "double", "json", ...; empty is "bytes". They change nothing about what is stored.
	KeyFormat, ValueFormat string
}

// Role says which kind of copy answered.
type Role uint8

// The roles. RoleCache is an answer out of a remote cache.
const (
	RoleUnknown Role = iota
	RoleActive
	RoleStandby
	RoleCache
)

// String is upper case, as on the wire.
func (r Role) String() string {
	switch r {
	case RoleActive:
		return "ACTIVE"
	case RoleStandby:
		return "STANDBY"
	case RoleCache:
		return "CACHE"
	default:
		return "UNKNOWN"
	}
}
