package processor

import "github.com/statemesh/statemesh/store"

// recordOverhead is what a batch with one record needs beside key and value, in bytes: 61 for the batch's header, up to
// 40 for the record's numbers, each a varint.
const recordOverhead = 128

// limited refuses, before anything is written, what the store's changelog would refuse later (PL-14).
type limited struct {
	store.KeyValue

	name    store.Name
	limit   int64
	setting string
}

// Put implements store.KeyValue.
func (l *limited) Put(key []byte, v store.Value) error {
	if err := l.check(key, v); err != nil {
		return err
	}
	return l.KeyValue.Put(key, v)
}

// PutIfAbsent implements store.KeyValue.
func (l *limited) PutIfAbsent(key []byte, v store.Value) (store.Value, bool, error) {
	if err := l.check(key, v); err != nil {
		return store.Value{}, false, err
	}
	return l.KeyValue.PutIfAbsent(key, v)
}

func (l *limited) check(key []byte, v store.Value) error {
	if size := int64(len(key) + len(v.Data)); size > l.limit {
		return &store.TooLargeError{Store: l.name, What: "record", Size: size, Limit: l.limit, Setting: l.setting}
	}
	return nil
}
