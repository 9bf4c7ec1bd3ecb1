package processor

import "fmt"

// TimestampExtractor gives a record its time in Unix milliseconds (upstream's TimestampExtractor). The record carries
// the timestamp that its producer, or the broker, gave it; partitionTime is the greatest time that was extracted from
// its partition so far, -1 before the first. A negative result drops the record and counts it; an error is one of
// deserialization.
// Record and metadata must not be kept. All tasks share the function: it must be safe for concurrent use.
type TimestampExtractor func(r *Record, m RecordMetadata, partitionTime int64) (int64, error)

// Timer is what the processor of a source may be besides: it finds the time of a record itself, and [SourceOptions.Timestamp] is not
// asked, but for records that a store is made again from. So a source that finds the time in the value decodes it once. The time of
// a record is asked before it is processed, in its turn for each partition; the rules are those of a [TimestampExtractor]. What the
// record refers to stays as it is until it was processed, but for its headers.
type Timer interface {
	Time(r *Record, m RecordMetadata, partitionTime int64) (int64, error)
}

// FailOnInvalidTimestamp takes the record's timestamp; a negative one is an error (upstream's default).
func FailOnInvalidTimestamp(r *Record, m RecordMetadata, _ int64) (int64, error) {
	if r.Timestamp < 0 {
		return 0, &DeserializationError{
			Reason: "negative timestamp",
			Err:    fmt.Errorf("%s-%d offset %d: timestamp %d", m.Topic, m.Partition, m.Offset, r.Timestamp),
		}
	}
	return r.Timestamp, nil
}

// LogAndSkipOnInvalidTimestamp takes the record's timestamp; a record with a negative one is dropped, counted and
// logged by the runtime.
func LogAndSkipOnInvalidTimestamp(r *Record, _ RecordMetadata, _ int64) (int64, error) {
	return r.Timestamp, nil
}

// UsePartitionTimeOnInvalidTimestamp takes the record's timestamp, or the partition's time when it is negative. The
// first record of a partition must have a valid one.
func UsePartitionTimeOnInvalidTimestamp(r *Record, m RecordMetadata, partitionTime int64) (int64, error) {
	if r.Timestamp >= 0 {
		return r.Timestamp, nil
	}
	if partitionTime < 0 {
		return 0, &DeserializationError{
			Reason: "negative timestamp",
			Err: fmt.Errorf("%s-%d offset %d: timestamp %d, and the partition has no time yet",
				m.Topic, m.Partition, m.Offset, r.Timestamp),
		}
	}
	return partitionTime, nil
}
