package client

import (
	"time"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// Option changes one call.
type Option func(*callOptions)

type callOptions struct {
	read      wire.ReadOptions
	partition store.Partition
	placed    bool // partition was given
	session   *ReadSession
	via       string // endpoint to ask, whoever owns the key
	anyone    bool   // ask a random instance
	err       error  // what is wrong with the options
}

func gather(opts []Option) *callOptions {
	o := &callOptions{}
	for _, opt := range opts {
		opt(o)
	}
	return o
}

// proto is the message of the next request to a store: a session has grown since the last one.
func (o *callOptions) proto(name store.Name) *statemeshv1.ReadOptions {
	if o.session == nil {
		return wire.FromReadOptions(name, &o.read)
	}
	read := o.read
	read.AtLeast = read.AtLeast.Clone()
	read.AtLeast.Raise(o.session.Token(name))
	return wire.FromReadOptions(name, &read)
}

func (o *callOptions) prefer() router.Preference {
	if o.read.OnlyActive {
		return router.OnlyActive
	}
	return router.PreferActive
}

// MaxStaleness is the oldest answer that is accepted, at least 1 ms: the age of the state when the answer is handed over,
// the time on the way included. Without it the server's defaults hold. A shorter bound, zero above all, is refused: who
// wants the owner's state says [OnlyActive].
func MaxStaleness(d time.Duration) Option {
	return func(o *callOptions) {
		o.read.MaxStaleness = d
		if d < time.Millisecond {
			o.err = &store.InvalidRequestError{Field: "max_staleness", Reason: d.String() + ": want at least 1ms"}
		}
	}
}

// NoCache keeps the remote caches of the instances out of the answer.
func NoCache() Option { return func(o *callOptions) { o.read.BypassCache = true } }

// OnlyActive accepts an answer of the owner alone: no standby, no cache.
func OnlyActive() Option { return func(o *callOptions) { o.read.OnlyActive = true } }

// Isolation is what the read may see; without it [store.ReadCommitted]. The answer says what it shows. A scan at
// [store.ReadUncommitted] that breaks after its first rows ends with an error: they may have been taken back. So does one
// that the server ends at a limit of its own, with [ErrCut].
func Isolation(level store.Isolation) Option {
	return func(o *callOptions) { o.read.Isolation = level }
}

// Partial accepts, when no copy can answer otherwise, what one has so far that is being restored: the answer's Facts.Partial then
// says how far that is. Values may be old, and what is not there may be there: an [store.ErrNotFound] that is no proof is an
// [store.ErrPartial] too. Such an answer meets no token, so it is never given to a call that has one, by [AtLeast] or by a session
// that has seen something, and [MaxStaleness] only as far as its age is proven. A scan of such a state ends, after its rows, with an
// error that is [store.ErrPartial].
func Partial() Option { return func(o *callOptions) { o.read.Partial = true } }

// AtLeast is what the answer must contain: the token of an earlier answer of this store, or the positions of a produce
// acknowledgement. A replica that has not come so far is passed over; *[store.BehindError] when none has, at once unless
// there is a [Wait]. A [ReadSession] does this by itself.
func AtLeast(t store.Token) Option { return func(o *callOptions) { o.read.AtLeast.Raise(t) } }

// Wait is how long a replica may wait until it has what the caller insists on, within the deadline of the call. It changes
// nothing for a caller that has no token.
func Wait(d time.Duration) Option {
	return func(o *callOptions) {
		o.read.Wait = d
		if d < 0 {
			o.err = &store.InvalidRequestError{Field: "wait", Reason: d.String() + ": negative"}
		}
	}
}

// InReadSession makes the call part of a session: its answers show at least what the session has seen, and the session
// has seen them then.
func InReadSession(s *ReadSession) Option { return func(o *callOptions) { o.session = s } }

// InPartition says where the key is, or which partition to read, instead of the hash of the key. For a key that the
// default partitioner would not put there the server refuses to answer: it could prove nothing.
func InPartition(p store.Partition) Option {
	return func(o *callOptions) { o.partition, o.placed = p, true }
}

// Via asks the instance at endpoint, whoever owns the key, and nobody else: that instance answers out of its own stores,
// its cache, or by a hop. For tests and diagnosis.
func Via(endpoint string) Option { return func(o *callOptions) { o.via = endpoint } }

// ViaAny asks an instance chosen at random, as a caller that knows no map would. For tests and benchmarks.
func ViaAny() Option { return func(o *callOptions) { o.anyone = true } }
