package processor

import "github.com/statemesh/statemesh/store"

// recordOverhead is what a batch with one record needs beside key and value, in bytes: 61 for the batch's header, up to
// 40 for the record's numbers, each a varint.
const recordOverhead = 128

// limited refuses, before anything is written, what the store's changelog would refuse later (PL-14).
type limited struct {
	name    store.Name
	limit   int64
	setting string
}

func (l *limited) check(key int, v store.Value) error {
	if size := int64(key + len(v.Data)); size > l.limit {
		return &store.TooLargeError{Store: l.name, What: "record", Size: size, Limit: l.limit, Setting: l.setting}
	}
	return nil
}

// limit is what the changelog of a store takes.
func (t *task) limit(name store.Name) limited {
	return limited{name: name, limit: t.env.maxRecord, setting: t.env.limitedBy}
}

// limitedKeyValue is limited for a key-value store.
type limitedKeyValue struct {
	store.KeyValue

	limited
}

// Put implements store.KeyValue.
func (l *limitedKeyValue) Put(key []byte, v store.Value) error {
	if err := l.check(len(key), v); err != nil {
		return err
	}
	return l.KeyValue.Put(key, v)
}

// PutIfAbsent implements store.KeyValue.
func (l *limitedKeyValue) PutIfAbsent(key []byte, v store.Value) (store.Value, bool, error) {
	if err := l.check(len(key), v); err != nil {
		return store.Value{}, false, err
	}
	return l.KeyValue.PutIfAbsent(key, v)
}

// admit refuses a record for a sink that no broker would take: found when it is processed, a handler can skip it; found
// at the commit, nothing can.
func (e *taskEnv) admit(topic string, r *Record) error {
	size := int64(len(r.Key) + len(r.Value))
	for _, h := range r.Headers {
		size += int64(len(h.Key)+len(h.Value)) + headerOverhead
	}
	if size > e.maxRecord {
		return &RecordTooLargeError{Topic: topic, Size: size, Limit: e.maxRecord, Setting: e.limitedBy}
	}
	return nil
}

// headerOverhead is what a header takes beside its key and value: two lengths.
const headerOverhead = 10
