package server

// size is how large the values of a store were lately: the sum over some lookups.
type size struct{ lookups, bytes int }

const (
	// sizeLookups are those that count; of older ones half is forgotten at a time.
	sizeLookups = 256
	// sizeShare of a message is what the values of a batch fill on average: they vary, and a batch that turns out too large
	// is asked for twice.
	sizeShare = 4
)

// keys returns how many lookups, of most, should share a message of limit bytes: at least one.
func (s size) keys(most, limit int) int {
	if s.bytes == 0 {
		return most
	}
	return max(1, min(most, int(int64(limit/sizeShare)*int64(s.lookups)/int64(s.bytes))))
}

// seen adds n lookups whose values had so many bytes.
func (s size) seen(n, bytes int) size {
	s.lookups, s.bytes = s.lookups+n, s.bytes+bytes
	for s.lookups >= 2*sizeLookups {
		s.lookups, s.bytes = s.lookups/2, s.bytes/2
	}
	return s
}

// refused takes it that n values fill a message of limit bytes, for an answer with them was too large. What was seen before
// has misled, unless that was more.
func (s size) refused(n, limit int) size {
	if int64(s.bytes)*int64(n) >= int64(limit)*int64(s.lookups) && s.lookups > 0 {
		return s
	}
	return size{lookups: n, bytes: limit}
}
