package server

import (
	"context"
	"fmt"
	"time"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// read is what all parts of one request share.
type read struct {
	store store.Name
	opts  wire.ReadOptions
	// info of the store under the metadata at the start. Neither kind nor partition count of a store changes.
	info   router.StoreInfo
	family family
	origin router.Origin
	call   *call

	formats serde.Formats
	// keys and values are the formats in which rows are sent; nil: as bytes.
	keys, values *serde.Format
}

// newRead checks what every query has in common.
func (s *Server) newRead(ctx context.Context, name string, options *statemeshv1.ReadOptions, format statemeshv1.Format) (*read, error) {
	if name == "" || len(name) > wire.MaxStoreNameBytes {
		return nil, &store.InvalidRequestError{Field: "store", Reason: fmt.Sprintf("a name has 1 to %d bytes", wire.MaxStoreNameBytes)}
	}
	opts, err := wire.ToReadOptions(store.Name(name), options)
	if err != nil {
		return nil, err
	}
	snap := s.deps.Table.Load()
	if snap == nil {
		return nil, noMetadata(store.Name(name))
	}
	info, err := snap.Store(store.Name(name))
	if err != nil {
		return nil, err
	}
	c := callOf(ctx)
	rd := &read{
		store: info.Name, opts: opts, info: info, family: familyOf(info.Kind), origin: c.origin, call: c, formats: s.cfg.Formats,
	}
	return rd, rd.setFormat(format)
}

// patience is how long a copy may still wait: Wait counts from the start of the request, whoever is asked in between.
func (rd *read) patience() time.Duration {
	if rd.opts.Wait <= 0 {
		return 0
	}
	return max(0, rd.opts.Wait-time.Since(rd.call.start))
}

// acceptsPartial reports whether a copy that is being restored may answer, when no other can. It meets no token.
func (rd *read) acceptsPartial() bool { return rd.opts.Partial && rd.opts.AtLeast.Empty() }

// retryNoMetadata: about as long as a group takes to publish its first map.
const retryNoMetadata = 200 * time.Millisecond

func noMetadata(name store.Name) error {
	return &store.NotReadyError{Store: name, Reason: "no metadata yet", RetryAfter: retryNoMetadata}
}

// partition is the one that key belongs to (invariant 7). named is what the caller believes; nil: nothing.
func (s *Server) partition(rd *read, key []byte, named *int32) (store.Partition, error) {
	switch {
	case len(key) == 0:
		return 0, &store.InvalidKeyError{Store: rd.store, Reason: "empty"}
	case len(key) > s.cfg.MaxKeyBytes:
		return 0, &store.TooLargeError{
			Store: rd.store, What: "key", Size: int64(len(key)), Limit: int64(s.cfg.MaxKeyBytes), Setting: "server.max.key.bytes",
		}
	}
	p := router.PartitionFor(key, rd.info.Partitions)
	if named != nil && store.Partition(*named) != p {
		return 0, &store.WrongPartitionError{Store: rd.store, Have: store.Partition(*named), Want: p}
	}
	return p, nil
}

// partitions are those named, or all of the store.
func (rd *read) partitions(named []int32) ([]store.Partition, error) {
	if len(named) == 0 {
		all := make([]store.Partition, rd.info.Partitions)
		for i := range all {
			all[i] = store.Partition(i)
		}
		return all, nil
	}
	if len(named) > int(rd.info.Partitions) {
		return nil, &store.InvalidRequestError{
			Field: "partitions", Reason: fmt.Sprintf("%d of them: store %s has %d", len(named), rd.store, rd.info.Partitions),
		}
	}
	seen := make([]bool, rd.info.Partitions)
	for _, p := range named {
		if p < 0 || p >= rd.info.Partitions {
			return nil, &store.InvalidRequestError{
				Field: "partitions", Reason: fmt.Sprintf("%d: store %s has %d, from 0", p, rd.store, rd.info.Partitions),
			}
		}
		if seen[p] {
			return nil, &store.InvalidRequestError{Field: "partitions", Reason: fmt.Sprintf("%d is named twice", p)}
		}
		seen[p] = true
	}
	out := make([]store.Partition, 0, len(named))
	for p, asked := range seen { // ascending, as answers are
		if asked {
			out = append(out, store.Partition(p))
		}
	}
	return out, nil
}

// bound is the age that an answer of a copy in this role may have; 0: any that the copy vouches for. The owner answers a
// request without a bound by its own rules; a standby or a cache may be behind for long, so it gets the default.
func (s *Server) bound(rd *read, role store.Role) time.Duration {
	if rd.opts.MaxStaleness == 0 && role != store.RoleActive {
		return s.cfg.DefaultMaxStaleness
	}
	return rd.opts.MaxStaleness
}

// pinned is a reading that is counted while it is open. It belongs to one goroutine at a time.
type pinned struct {
	store.Reading

	s      *Server
	closed bool
}

// pin opens a partition of this instance.
func (s *Server) pin(ctx context.Context, rd *read, p store.Partition, m manner) (*pinned, error) {
	o := store.ReadOptions{MaxAge: rd.opts.MaxStaleness, Isolation: rd.opts.Isolation, OnlyActive: rd.opts.OnlyActive}
	if s.bound(rd, store.RoleStandby) == 0 && m != partially { // nobody but the owner meets that
		o.OnlyActive = true
	}
	if !rd.opts.AtLeast.Empty() {
		o.AtLeast, o.Wait = rd.opts.AtLeast.At(p), rd.patience()
	}
	switch m {
	case hasty: // it ages until the answer is sent
		o.MaxAge, o.Wait, o.Hasty = o.MaxAge/2, 0, true
	case partially:
		o.Partial = true
	case thorough:
	}
	r, err := s.deps.Stores.Read(ctx, rd.store, p, o)
	if err != nil {
		return nil, err
	}
	if o.Partial && r.Facts().Partial != nil {
		s.m.partial.Inc()
	}
	s.m.readings.Inc()
	return &pinned{Reading: r, s: s}, nil
}

// Close closes the reading once.
func (p *pinned) Close() {
	if !p.closed {
		p.closed = true
		p.Reading.Close()
		p.s.m.readings.Dec()
	}
}
