package streamstest

import (
	"github.com/statemesh/statemesh/serde"
)

// Output reads what can be read of a topic, from its beginning, as a consumer at read_committed does (upstream's TestOutputTopic). Records
// of several partitions come in the order in which they could first be read. Outputs of the same topic do not know of each other.
type Output[K, V any] struct {
	d      *Driver
	topic  string
	keys   serde.Serde[K]
	values serde.Serde[V]
	read   int
}

// NewOutput returns a reader of a topic: one that a sink writes to, or any other that the topology has, as are repartition topics,
// changelogs, and that of dead letters. It fails for others, unless a sink of the topology chooses its topics.
func NewOutput[K, V any](d *Driver, topic string, keys serde.Serde[K], values serde.Serde[V]) *Output[K, V] {
	d.helper()()
	if !d.d.WritesAny() {
		d.check(d.topic(topic, d.d.Topics()))
	}
	keys, values = keys.ForTopic(topic, serde.Key), values.ForTopic(topic, serde.Value)
	d.check(keys.Err())
	d.check(values.Err())
	return &Output[K, V]{d: d, topic: topic, keys: keys, values: values}
}

// Len is how many records there are to be read.
func (o *Output[K, V]) Len() int { return len(o.d.topics.Arrived(o.topic, o.read)) }

// Read returns the next record; ok is false when there is none.
func (o *Output[K, V]) Read() (r Record[K, V], ok bool) {
	o.d.helper()()
	records := o.d.topics.Arrived(o.topic, o.read)
	if len(records) == 0 {
		return r, false
	}
	o.read++
	r, err := decode(records[0], o.keys, o.values)
	o.d.check(err)
	return r, true
}

// ReadAll returns the records there are, nil when there are none.
func (o *Output[K, V]) ReadAll() []Record[K, V] {
	o.d.helper()()
	var all []Record[K, V]
	for {
		r, ok := o.Read()
		if !ok {
			return all
		}
		all = append(all, r)
	}
}

// ReadStrings returns the records there are as text, see [Record.String].
func (o *Output[K, V]) ReadStrings() []string {
	o.d.helper()()
	var lines []string
	for _, r := range o.ReadAll() {
		lines = append(lines, r.String())
	}
	return lines
}

// ReadMap returns the last value of each key among the records there are, as a table has them: a tombstone takes its key away. Records
// without a key are left out.
func ReadMap[K comparable, V any](o *Output[K, V]) map[K]V {
	o.d.helper()()
	m := make(map[K]V)
	for _, r := range o.ReadAll() {
		switch {
		case r.NullKey:
		case r.NullValue:
			delete(m, r.Key)
		default:
			m[r.Key] = r.Value
		}
	}
	return m
}
