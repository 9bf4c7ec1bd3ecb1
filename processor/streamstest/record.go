package streamstest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/serde"
)

// Record of a topic, with a decoded key and value.
type Record[K, V any] struct {
	Key   K
	Value V
	// NullKey and NullValue say that there is none: a null value is a tombstone. Key and Value are their types' zero then, and are not
	// looked at when the record is piped. A serde that has a value for null, such as serde.Bytes or serde.Nullable, has it there too.
	NullKey, NullValue bool
	// Timestamp in Unix milliseconds.
	Timestamp int64
	Headers   []processor.Header

	// Where the record is; not looked at when it is piped.
	Topic     string
	Partition int32
	Offset    int64
}

// String is "key=value@timestamp", short enough to compare tests' expectations with. Null is "null".
func (r Record[K, V]) String() string {
	var b strings.Builder
	text := func(v any, null bool) {
		if raw, ok := v.([]byte); ok && !null {
			fmt.Fprintf(&b, "%s", raw)
		} else if null {
			b.WriteString("null")
		} else {
			fmt.Fprintf(&b, "%v", v)
		}
	}
	text(r.Key, r.NullKey)
	b.WriteByte('=')
	text(r.Value, r.NullValue)
	fmt.Fprintf(&b, "@%d", r.Timestamp)
	return b.String()
}

// Header returns the value of the last header with this key.
func (r Record[K, V]) Header(key string) ([]byte, bool) {
	for _, h := range slices.Backward(r.Headers) {
		if h.Key == key {
			return h.Value, true
		}
	}
	return nil, false
}

// encode returns the record for a topic.
func encode[K, V any](r Record[K, V], topic string, keys serde.Serde[K], values serde.Serde[V]) (*kgo.Record, error) {
	out := &kgo.Record{Topic: topic, Timestamp: time.UnixMilli(r.Timestamp)}
	var err error
	if !r.NullKey {
		if out.Key, err = keys.Encode(r.Key); err != nil {
			return nil, fmt.Errorf("topic %s: key: %w", topic, err)
		}
	}
	if !r.NullValue {
		if out.Value, err = values.Encode(r.Value); err != nil {
			return nil, fmt.Errorf("topic %s: value: %w", topic, err)
		}
	}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, kgo.RecordHeader{Key: h.Key, Value: bytes.Clone(h.Value)})
	}
	return out, nil
}

// decode reads a record of a topic.
func decode[K, V any](r *kgo.Record, keys serde.Serde[K], values serde.Serde[V]) (Record[K, V], error) {
	out := Record[K, V]{
		NullKey: r.Key == nil, NullValue: r.Value == nil, Timestamp: r.Timestamp.UnixMilli(), Headers: headers(r),
		Topic: r.Topic, Partition: r.Partition, Offset: r.Offset,
	}
	var err error
	if out.Key, err = decodeOne(r.Key, keys); err != nil {
		return out, fmt.Errorf("%s-%d offset %d: key: %w", r.Topic, r.Partition, r.Offset, err)
	}
	if out.Value, err = decodeOne(r.Value, values); err != nil {
		return out, fmt.Errorf("%s-%d offset %d: value: %w", r.Topic, r.Partition, r.Offset, err)
	}
	return out, nil
}

// decodeOne leaves null to a serde that has a value for it.
func decodeOne[T any](b []byte, s serde.Serde[T]) (T, error) {
	v, err := s.Decode(bytes.Clone(b))
	if err != nil && b == nil {
		var zero T
		return zero, s.Err()
	}
	return v, err
}

func headers(r *kgo.Record) []processor.Header {
	var hs []processor.Header
	for _, h := range r.Headers {
		hs = append(hs, processor.Header{Key: h.Key, Value: bytes.Clone(h.Value)})
	}
	return hs
}

// all are records as they are.
func all(records []*kgo.Record) []Record[[]byte, []byte] {
	out := make([]Record[[]byte, []byte], 0, len(records))
	for _, r := range records {
		out = append(out, Record[[]byte, []byte]{
			Key: bytes.Clone(r.Key), Value: bytes.Clone(r.Value), NullKey: r.Key == nil, NullValue: r.Value == nil,
			Timestamp: r.Timestamp.UnixMilli(), Headers: headers(r), Topic: r.Topic, Partition: r.Partition, Offset: r.Offset,
		})
	}
	return out
}
