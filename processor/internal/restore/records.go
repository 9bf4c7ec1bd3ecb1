package restore

import (
	"encoding/binary"
	"fmt"

	"github.com/statemesh/statemesh/store"
)

// Record is a committed record of a source topic, as it is in the log. Its slices are valid during the call that hands it
// over.
type Record struct {
	Partition store.Partition
	Offset    store.Offset
	// Key and Value are nil for null.
	Key, Value []byte
	// Timestamp in Unix milliseconds.
	Timestamp int64
	Headers   []Header
}

// Header is a record header.
type Header struct {
	Key   string
	Value []byte
}

// decodeRecords is decode for a log that is read as what it is, the records of a source topic: with headers, offsets and
// those that have no key.
func (d *decoder) decodeRecords(c chunk, partition store.Partition, apply func([]Record) error) (counts, error) {
	d.whole = true
	defer func() {
		clear(d.records)
		d.whole, d.records = false, d.records[:0]
	}()
	return d.decode(c, func(changes []store.Change) error {
		for i, ch := range changes {
			headers, err := readHeaders(d.places[i].headers)
			if err != nil {
				return fmt.Errorf("record at offset %d: %w", d.places[i].offset, err)
			}
			d.records = append(d.records, Record{
				Partition: partition, Offset: d.places[i].offset, Key: ch.Key, Value: ch.Value, Timestamp: ch.Timestamp,
				Headers: headers,
			})
		}
		err := apply(d.records)
		clear(d.records)
		d.records = d.records[:0]
		return err
	})
}

// readHeaders reads what follows the value of a record: a count, and that many names and values.
func readHeaders(in []byte) ([]Header, error) {
	count, n := binary.Varint(in)
	if n <= 0 || count < 0 || count > int64(len(in)) {
		return nil, fmt.Errorf("%d bytes of headers are malformed", len(in))
	}
	if count == 0 {
		return nil, nil
	}
	in = in[n:]
	headers := make([]Header, 0, count)
	for range count {
		name, rest, ok := nullable(in)
		if !ok || name == nil {
			return nil, fmt.Errorf("header %d of %d is malformed", len(headers), count)
		}
		value, rest, ok := nullable(rest)
		if !ok {
			return nil, fmt.Errorf("header %d of %d is malformed", len(headers), count)
		}
		headers = append(headers, Header{Key: string(name), Value: value})
		in = rest
	}
	return headers, nil
}
