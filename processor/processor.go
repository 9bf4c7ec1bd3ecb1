package processor

import "github.com/statemesh/statemesh/router"

// Header is a record header. Order and duplicates are kept.
type Header struct {
	Key   string
	Value []byte
}

// Record is what flows through a topology (upstream's api.Record, with serialized key and value).
type Record struct {
	// Key is nil for no key; an empty key is a key.
	Key []byte
	// Value is nil for no value (a tombstone); an empty value is a value.
	Value []byte
	// Timestamp in Unix milliseconds.
	Timestamp int64
	Headers   []Header

	// to is one more than the partition it shall go to; 0: nobody said.
	to int32
}

// ToPartition says which partition of a topic the record goes to, for a sink whose Partitioner is [AsTold].
func (r *Record) ToPartition(p int32) { r.to = p + 1 }

// AsTold is a Partitioner for records that know where they go: see [Record.ToPartition]. Others go where Kafka's default sends
// them by their key.
func AsTold(_ string, r *Record, partitions int32) int32 {
	if r.to > 0 {
		return r.to - 1
	}
	return int32(router.PartitionFor(r.Key, partitions))
}

// Processor handles the records of one node of one task (upstream's api.Processor). One goroutine, the task's stream
// thread, makes all calls. An error from Init, Process or a punctuation is fatal for the task unless the processing
// exception handler says otherwise.
type Processor interface {
	// Init is called once, before the first record, when the task's state is restored.
	Init(ctx *Context) error
	// Process handles one record. The record and its slices belong to the processor until it returns; what it keeps it
	// must copy. Forward may pass them on.
	Process(r *Record) error
	// Close is called once, also after a failed Init.
	Close() error
}

// Supplier makes one processor per task (upstream's ProcessorSupplier). It must return a new one at each call.
type Supplier func() Processor

// PunctuationType chooses the clock of a punctuation (upstream's PunctuationType).
type PunctuationType uint8

// The two clocks.
const (
	// StreamTime advances with the greatest record timestamp of the task, and only with records.
	StreamTime PunctuationType = iota
	// WallClockTime advances with the machine's clock.
	WallClockTime
)

// RecordMetadata says where the record in hand came from (upstream's RecordMetadata).
type RecordMetadata struct {
	Topic     string
	Partition int32
	Offset    int64
}
