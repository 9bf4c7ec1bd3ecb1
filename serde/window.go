package serde

import (
	"encoding/binary"
	"errors"
	"math"
	"time"
)

// Windowed is a key with its window: [Start, End) of a time window, [Start, End] of a session, in Unix milliseconds
// (upstream's Windowed).
type Windowed[K any] struct {
	Key        K
	Start, End int64
}

// WindowBytes is how many bytes behind those of the key say which window it is, 0 where keys have none: what partitions must not depend on.
func (s Serde[T]) WindowBytes() int { return s.codec().window }

var errWindow = errors.New("no window begins before 1970 or ends before it begins")

// TimeWindowed is the key of a time window as topics have it: the bytes of the key, then eight of the start (upstream's
// TimeWindowedSerializer). The end is not in the bytes: it is start and size, at most math.MaxInt64.
func TimeWindowed[K any](key Serde[K], size time.Duration) Serde[Windowed[K]] {
	return timeWindowed("time window of "+key.Name(), key, size, 8)
}

// TimeWindowedChangelog is the key of a time window as changelogs of window stores have it: [TimeWindowed] and four bytes
// that tell duplicates apart (upstream's WindowKeySchema). They are written as 0, and not read.
func TimeWindowedChangelog[K any](key Serde[K], size time.Duration) Serde[Windowed[K]] {
	return timeWindowed("stored time window of "+key.Name(), key, size, 12)
}

// timeWindowed has a tail of that many bytes behind the key, the first eight of which are the start.
func timeWindowed[K any](name string, key Serde[K], size time.Duration, tail int) Serde[Windowed[K]] {
	ms := size.Milliseconds()
	if ms < 1 {
		return invalid[Windowed[K]](name, errors.New("serde: the size of a window is at least 1ms"))
	}
	return windowed(name, key, tail,
		func(dst []byte, w Windowed[K]) ([]byte, error) {
			if w.Start < 0 {
				return nil, errWindow
			}
			dst = binary.BigEndian.AppendUint64(dst, uint64(w.Start))
			return append(dst, make([]byte, tail-8)...), nil
		},
		func(b []byte) (start, end int64, err error) {
			if start = int64(binary.BigEndian.Uint64(b)); start < 0 {
				return 0, 0, errWindow
			}
			if end = start + ms; end < start {
				end = math.MaxInt64
			}
			return start, end, nil
		},
		func(key Serde[K]) Serde[Windowed[K]] { return timeWindowed(name, key, size, tail) })
}

// SessionWindowed is the key of a session: the bytes of the key, then eight of the end and eight of the start (upstream's
// SessionWindowedSerializer, and its changelogs).
func SessionWindowed[K any](key Serde[K]) Serde[Windowed[K]] {
	return windowed("session of "+key.Name(), key, 16,
		func(dst []byte, w Windowed[K]) ([]byte, error) {
			if w.Start < 0 || w.End < w.Start {
				return nil, errWindow
			}
			dst = binary.BigEndian.AppendUint64(dst, uint64(w.End))
			return binary.BigEndian.AppendUint64(dst, uint64(w.Start)), nil
		},
		func(b []byte) (start, end int64, err error) {
			end, start = int64(binary.BigEndian.Uint64(b)), int64(binary.BigEndian.Uint64(b[8:]))
			if start < 0 || end < start {
				return 0, 0, errWindow
			}
			return start, end, nil
		},
		SessionWindowed[K])
}

// windowed puts a tail of a fixed length behind the key.
func windowed[K any](name string, key Serde[K], tail int,
	write func([]byte, Windowed[K]) ([]byte, error), read func([]byte) (start, end int64, err error),
	again func(Serde[K]) Serde[Windowed[K]],
) Serde[Windowed[K]] {
	c := &codec[Windowed[K]]{name: name, err: key.Err(), window: tail}
	c.appendTo = func(dst []byte, w Windowed[K]) ([]byte, error) {
		b, err := key.Append(dst, w.Key)
		switch {
		case err != nil:
			return nil, err
		case b == nil: // a key that stands for nil has no windows
			return nil, errNil
		}
		return write(b, w)
	}
	c.decode = func(b []byte) (w Windowed[K], err error) {
		at := len(b) - tail
		if at < 0 {
			return w, errLength
		}
		if w.Start, w.End, err = read(b[at:]); err != nil {
			return w, err
		}
		w.Key, err = key.Decode(b[:at:at])
		return w, err
	}
	if key.codec().forTopic != nil {
		c.forTopic = func(topic string, part Part) Serde[Windowed[K]] { return again(key.ForTopic(topic, part)) }
	}
	return Serde[Windowed[K]]{c}
}
