package views

import (
	"strconv"
	"sync"
	"time"

	"github.com/statemesh/statemesh/processor"
)

const (
	reasonNoTime  = "no event time"
	reasonBadTime = "invalid event time"
)

// eventTime takes the time of a topic's records out of the field that v names. Tasks share it, decoders are a task's: they
// are kept in a pool.
func eventTime(v View) processor.TimestampExtractor {
	type reading struct {
		decoder decoder
		fields  []field
	}
	pool := sync.Pool{New: func() any {
		return &reading{decoder: newDecoder(v.Format, v.Columns, []string{v.Timestamp}), fields: make([]field, 1)}
	}}
	return func(r *processor.Record, m processor.RecordMetadata, partitionTime int64) (int64, error) {
		if r.Value == nil {
			return processor.FailOnInvalidTimestamp(r, m, partitionTime)
		}
		in, ok := pool.Get().(*reading)
		if !ok {
			return 0, undecodable(reasonNoTime, "no decoder")
		}
		defer pool.Put(in)
		if err := in.decoder.decode(r.Value, in.fields); err != nil {
			return 0, err
		}
		return in.fields[0].asTime()
	}
}

// asTime returns the instant that a field holds, in Unix milliseconds.
func (f field) asTime() (int64, error) {
	var ms int64
	switch f.kind {
	case missing:
		return 0, undecodable(reasonNoTime, "the field is missing")
	case number:
		x, err := parseNumber(f.data)
		if err != nil || x != float64(int64(x)) {
			return 0, undecodable(reasonBadTime, "the field holds no whole number of milliseconds")
		}
		ms = int64(x)
	case text, quoted:
		n, err := strconv.ParseInt(string(f.data), 10, 64)
		if err != nil {
			at, err := time.Parse(time.RFC3339Nano, string(f.data))
			if err != nil { // the error quotes the text
				return 0, undecodable(reasonBadTime, "%d bytes that are neither Unix milliseconds nor RFC 3339", len(f.data))
			}
			n = at.UnixMilli()
		}
		ms = n
	default:
		return 0, undecodable(reasonBadTime, "the field holds no time")
	}
	if ms < 0 {
		return 0, undecodable(reasonBadTime, "a time before 1970")
	}
	return ms, nil
}
