package sink

import (
	"github.com/statemesh/statemesh/processor/changes"
)

// judge says whether a partition may be read on from the database's offset. It reads nothing but its arguments. gap: records before the
// log's start were never read, and need not be. An offset behind the log's end is not judged: it may have been moved since (changes.CutError).
func judge(id string, at Offset, log changes.Log, stream bool) (gap bool, err error) {
	switch {
	case at.TopicID != log.ID && at.TopicID != [16]byte{} && log.ID != [16]byte{}:
		return false, &RecreatedError{Sink: id, Topic: log.Topic, Partition: log.Partition, Have: log.ID, Want: at.TopicID}
	case at.Next < log.Start && (stream || !log.Compacts || log.Deletes):
		return false, &GapError{Sink: id, Topic: log.Topic, Partition: log.Partition, Next: at.Next, Start: log.Start}
	case !stream && log.Compacts && log.DeleteRetention > 0 && at.Age > log.DeleteRetention && at.Next < log.End:
		return false, &StaleError{Sink: id, Topic: log.Topic, Partition: log.Partition, Age: at.Age, Retention: log.DeleteRetention}
	}
	return at.Next < log.Start, nil
}
