package restore

import (
	"math"

	"github.com/statemesh/statemesh/store"
)

// cuts finds the places of a log at which a store is whole, and those at which it is exact besides.
//
// Whole: no producer has transactional data before the place and its control record only behind it. A marker of another
// producer, as that of a zombie whose transaction is aborted, ends nothing. What is not transactional is closed at once.
//
// Exact: a compacted log may lack a value because there is a newer one further on, at most at the last stable offset that the
// brokers knew when they answered. So a place is exact if nothing was missing since the last exact one; else from the highest
// last stable offset on that had been reported when the last hole was read.
type cuts struct {
	// next is the place up to which the log was looked at; epoch the leader epoch of the batch before it, -1 when none is;
	// data the place behind the last record before it.
	next  store.Offset
	epoch int32
	data  store.Offset
	// target: places below it are not exact. unsure: the first answer sets it.
	target store.Offset
	unsure bool
	// source: the log is a source topic; it is whole where the group has committed, and nowhere else.
	source bool
	// open has the producers with data of which the control record was not read. A marker that the cleaner took away, or that
	// belongs to what was read before an interruption, never comes. So a transaction ends too, at the offset noted here, when
	// all is read that was there after the last data of it had come: what is handed to a read_committed reader is decided, and
	// its marker below the high watermark that the next answer tells. (That of the same answer may be older than the last
	// stable offset beside it.) 0: no later answer has come yet.
	open map[int64]store.Offset
}

// unknownProducer stands for those whose data may be before the place at which reading begins.
const unknownProducer = math.MinInt64

// cutPoint is a whole place in a piece of a log: bytes before it (-1: there is none), and cuts.next, epoch and data there.
type cutPoint struct {
	at    int
	next  store.Offset
	epoch int32
	data  store.Offset
}

func (p cutPoint) exists() bool { return p.at >= 0 }

// scan looks at what an event brings. It returns the last whole place and the last exact one, and whether something is missing
// in the log.
func (c *cuts) scan(e *event) (whole, exact cutPoint, hole bool, err error) {
	whole.at, exact.at = -1, -1
	for producer, until := range c.open {
		if until == 0 {
			c.open[producer] = e.high
		}
	}
	if c.unsure {
		c.target, c.unsure = max(c.target, e.top), false
	}
	lack := func() {
		hole = true
		c.target = max(c.target, e.top)
	}
	raw := e.chunk.raw
	for in := raw; len(in) > 0; {
		b, rest, ok, err := nextBatch(in)
		if err != nil {
			return whole, exact, hole, err
		}
		if !ok || b.first >= e.next {
			break
		}
		in = rest
		if b.last < c.next {
			continue
		}
		if b.first > c.next || b.attributes&attrControl == 0 && store.Offset(b.count) <= b.last-b.first {
			lack()
		}
		c.read(&b, e)
		if !c.source {
			c.mark(len(raw)-len(in), &whole, &exact)
		}
	}
	if c.next < e.next {
		lack()
		c.next, c.epoch = e.next, -1
	}
	if !c.source || e.atBound {
		c.mark(len(raw), &whole, &exact)
	}
	return whole, exact, hole, nil
}

// read takes in one batch.
func (c *cuts) read(b *batch, e *event) {
	c.next, c.epoch = min(b.last+1, e.next), b.leaderEpoch
	switch {
	case b.attributes&attrControl != 0:
		delete(c.open, b.producer)
		return
	case b.count == 0: // the cleaner keeps the last batch of a producer, emptied
		return
	}
	c.data = c.next
	if b.attributes&attrTransaction != 0 && !c.source {
		c.doubt(b.producer) // also if it is in doubt: this may be its next transaction
	}
}

// doubt notes that there is data of a producer of which the fate is open.
func (c *cuts) doubt(producer int64) {
	if c.open == nil {
		c.open = make(map[int64]store.Offset)
	}
	c.open[producer] = 0
}

// mark notes that the log was read up to here, at this many bytes of the piece, if that is a cut.
func (c *cuts) mark(at int, whole, exact *cutPoint) {
	for producer, until := range c.open {
		if until > 0 && until <= c.next {
			delete(c.open, producer)
		}
	}
	if len(c.open) > 0 {
		return
	}
	*whole = cutPoint{at: at, next: c.next, epoch: c.epoch, data: c.data}
	if c.next >= c.target && !c.unsure {
		*exact = *whole
	}
}

// wondering reports whether the next answer is of use though it brings nothing.
func (c *cuts) wondering() bool {
	if c.unsure {
		return true
	}
	for _, until := range c.open {
		if until == 0 {
			return true
		}
	}
	return false
}
