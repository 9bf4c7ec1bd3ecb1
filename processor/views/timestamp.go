package views

import (
	"sync"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/internal/decode"
)

// eventTime takes the time of a topic's records out of the field that v names. Tasks share it, decoders are a task's: they
// are kept in a pool.
func eventTime(v View) processor.TimestampExtractor {
	type reading struct {
		decoder decode.Decoder
		fields  []decode.Field
	}
	pool := sync.Pool{New: func() any {
		return &reading{decoder: decode.New(string(v.Format), v.Columns, []string{v.Timestamp}), fields: make([]decode.Field, 1)}
	}}
	return func(r *processor.Record, m processor.RecordMetadata, partitionTime int64) (int64, error) {
		if r.Value == nil {
			return processor.FailOnInvalidTimestamp(r, m, partitionTime)
		}
		in, ok := pool.Get().(*reading)
		if !ok {
			return 0, decode.Undecodable(decode.ReasonNoTime, "no decoder")
		}
		defer pool.Put(in)
		if err := in.decoder.Decode(r.Value, in.fields); err != nil {
			return 0, err
		}
		return in.fields[0].AsTime()
	}
}
