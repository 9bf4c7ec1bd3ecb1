package store

// Flushed is a change that the record cache has let go of: what is told of a key between two flushes is one change,
// however often the key was put. Its slices are valid until the listener returns, and may be passed on as part of a
// record; they must not be kept.
type Flushed struct {
	Key []byte
	// Start and End of the window (End exclusive) or session (both inclusive), in Unix milliseconds; 0 in key-value
	// stores.
	Start, End int64
	// New is the value of the last put: nil Data when that deleted. Its Timestamp is that of the put, in every kind of
	// store.
	New Value
	// Old is what the listener was told last: nil Data when the key had no value then. It survives commits and restarts.
	Old Value
}

// FlushListener is told of the changes of one store, on the task's stream thread, in the order of the last put of each
// key (upstream's CacheFlushListener). It may write to stores and forward records. An error ends the task, since no
// single record is to blame for it.
type FlushListener func(Flushed) error
