package server

import (
	"encoding/binary"
	"hash/fnv"

	"github.com/statemesh/statemesh/store"
)

// resumePoint is the last row that a scan delivered. Rows are ordered by place (cursor, or key), then partition, so one row
// says for every partition where to go on, at any instance: a partition up to this one is done with the place, a later one
// is not. (The same key in two partitions is what a foreign partitioner does; it must not cost or double a row.)
type resumePoint struct {
	place     []byte
	partition store.Partition
}

// A resume token is: version, fingerprint of the scan it belongs to (8 bytes), partition (uvarint), place. It is opaque to
// callers but no secret: a forged one reads what its holder may read anyway.
const tokenVersion = 1

func (r resumePoint) token(fingerprint uint64) []byte {
	b := make([]byte, 0, 1+8+binary.MaxVarintLen32+len(r.place))
	b = append(b, tokenVersion)
	b = binary.BigEndian.AppendUint64(b, fingerprint)
	b = binary.AppendUvarint(b, uint64(r.partition))
	return append(b, r.place...)
}

// parseToken reads a token of the scan with this fingerprint, over a store of n partitions.
func parseToken(b []byte, fingerprint uint64, n int32) (resumePoint, error) {
	bad := func(why string) (resumePoint, error) {
		return resumePoint{}, &store.InvalidRequestError{Field: "resume_token", Reason: why}
	}
	if len(b) < 1+8 || b[0] != tokenVersion {
		return bad("no token of this version")
	}
	if binary.BigEndian.Uint64(b[1:]) != fingerprint {
		return bad("it belongs to a scan of another store, other partitions, bounds or order")
	}
	p, used := binary.Uvarint(b[9:])
	if used <= 0 || p >= uint64(n) || used > 1 && b[9+used-1] == 0 || len(b) == 9+used {
		return bad("damaged")
	}
	return resumePoint{place: b[9+used:], partition: store.Partition(p)}, nil
}

// fingerprint tells scans apart whose tokens must not be mixed up.
func (sc *scan) fingerprint(parts []store.Partition) uint64 {
	h := fnv.New64a()
	var n [binary.MaxVarintLen64]byte
	num := func(v int64) { _, _ = h.Write(n[:binary.PutVarint(n[:], v)]) } // a hash never fails
	field := func(b []byte) {
		if b == nil {
			num(-1)
			return
		}
		num(int64(len(b)))
		_, _ = h.Write(b)
	}
	field([]byte(sc.rd.store))
	num(int64(len(parts)))
	for _, p := range parts {
		num(int64(p))
	}
	field(sc.from)
	field(sc.to)
	field(sc.prefix)
	if sc.reverse {
		num(1)
	}
	if sc.rd.family != keyValues {
		num(int64(sc.rd.family))
		field(sc.key)
		for _, t := range sc.times() {
			num(t)
		}
	}
	return h.Sum64()
}
