package layered

import (
	"sync/atomic"
	"time"

	"github.com/statemesh/statemesh/store"
)

// counter estimates how many keys a store has by counting them, and remembers the result. Counting exactly as values
// come in would cost a read for each blind write and each restored record, for a number that few ask for.
//
// A count that was quick is repeated whenever the state has changed; a slow one only after countRest times as long as
// it took, so that asking in a loop costs at most one part in countRest of a core.
type counter struct{ last atomic.Pointer[counted] }

const (
	countRest  = 50
	countQuick = 10 * time.Millisecond
)

type counted struct {
	keys     int64
	bytes    int64  // of keys and values
	tick     uint64 // of the view that was counted, 0 for a count that is not of a view
	at       time.Time
	duration time.Duration
}

// estimate returns the size of the view with this tick; 0 names no view.
func (c *counter) estimate(tick uint64, scan func() (store.Iterator, error)) (*counted, error) {
	start := time.Now()
	if last := c.last.Load(); last != nil {
		same := tick != 0 && last.tick == tick
		if same || last.duration > countQuick && start.Sub(last.at) < countRest*last.duration {
			return last, nil
		}
	}
	it, err := scan()
	if err != nil {
		return nil, err
	}
	defer it.Close()
	n := &counted{tick: tick}
	for it.Next() {
		e := it.Entry()
		n.keys++
		n.bytes += int64(len(e.Key) + len(e.Data))
	}
	if err := it.Err(); err != nil {
		return nil, err
	}
	n.at = time.Now()
	n.duration = n.at.Sub(start)
	c.last.Store(n)
	return n, nil
}
