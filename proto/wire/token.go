package wire

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"math"
	"slices"

	"github.com/statemesh/statemesh/store"
)

// MaxTokenBytes is how long the tokens of one request may be together: about 3,000 partitions.
const MaxTokenBytes = 64 << 10

// A token on the wire is: version, name of the store, cuts, inputs, checksum (CRC-32C of all before, 4 bytes). Numbers are
// uvarints, texts have their length before them, and everything is in order, so equal tokens are equal bytes.
//
//	cuts    number of topic ids { id (16 bytes), number of partitions { partition, next offset } }
//	inputs  number of topics { name, number of partitions { partition, offset } }
//
// All cuts of a store are of one changelog, so its id is there once. The checksum finds damage, not forgery: a forged
// token makes its holder wait, and nobody else.
const readTokenVersion = 1

const topicIDBytes = 16

// FromToken encodes a token of a store; nil for one that asks for nothing.
func FromToken(name store.Name, t store.Token) []byte {
	if t.Empty() {
		return nil
	}
	b := make([]byte, 0, 64+len(name))
	b = append(b, readTokenVersion)
	b = appendText(b, string(name))
	b = appendCuts(b, t.Cuts)
	b = binary.AppendUvarint(b, uint64(len(t.Inputs)))
	if len(t.Inputs) > 0 {
		for _, topic := range slices.Sorted(maps.Keys(t.Inputs)) {
			b = appendText(b, topic)
			b = appendOffsets(b, t.Inputs[topic])
		}
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func appendCuts(b []byte, cuts map[store.Partition]store.Cut) []byte {
	if len(cuts) == 1 { // an answer's
		for p, c := range cuts {
			b = append(binary.AppendUvarint(b, 1), c.TopicID[:]...)
			b = binary.AppendUvarint(binary.AppendUvarint(b, 1), uint64(p))
			return binary.AppendUvarint(b, uint64(c.Next))
		}
	}
	byID := make(map[[topicIDBytes]byte]map[store.Partition]store.Offset, 1)
	for p, c := range cuts {
		if byID[c.TopicID] == nil {
			byID[c.TopicID] = make(map[store.Partition]store.Offset)
		}
		byID[c.TopicID][p] = c.Next
	}
	b = binary.AppendUvarint(b, uint64(len(byID)))
	ids := slices.SortedFunc(maps.Keys(byID), func(x, y [topicIDBytes]byte) int { return slices.Compare(x[:], y[:]) })
	for _, id := range ids {
		b = append(b, id[:]...)
		b = appendOffsets(b, byID[id])
	}
	return b
}

func appendOffsets(b []byte, m map[store.Partition]store.Offset) []byte {
	b = binary.AppendUvarint(b, uint64(len(m)))
	for _, p := range slices.Sorted(maps.Keys(m)) {
		b = binary.AppendUvarint(b, uint64(p))
		b = binary.AppendUvarint(b, uint64(m[p]))
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// ToToken decodes a token. What is not exactly what FromToken makes is refused: the error says what is wrong with it.
func ToToken(b []byte) (store.Name, store.Token, error) {
	switch {
	case len(b) > MaxTokenBytes:
		return "", store.Token{}, fmt.Errorf("%d bytes: the limit is %d", len(b), MaxTokenBytes)
	case len(b) < 1 || b[0] != readTokenVersion:
		return "", store.Token{}, errNoToken
	case len(b) < 1+crc32.Size:
		return "", store.Token{}, errDamaged
	}
	body, sum := b[:len(b)-crc32.Size], b[len(b)-crc32.Size:]
	if crc32.Checksum(body, castagnoli) != binary.BigEndian.Uint32(sum) {
		return "", store.Token{}, errDamaged
	}
	r := tokenReader{b: body[1:]}
	name := store.Name(r.text())
	var t store.Token
	r.cuts(&t)
	r.inputs(&t)
	if r.bad || len(r.b) > 0 || t.Empty() {
		return "", store.Token{}, errDamaged
	}
	return name, t, nil
}

type tokenError string

func (e tokenError) Error() string { return string(e) }

const (
	errNoToken = tokenError("no token of this version")
	errDamaged = tokenError("damaged")
)

// tokenReader reads what is left of a token. Once bad it reads zeroes.
type tokenReader struct {
	b   []byte
	bad bool
}

func (r *tokenReader) number(most uint64) uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > most || n > 1 && r.b[n-1] == 0 { // the last: not the shortest form
		r.b, r.bad = nil, true
		return 0
	}
	r.b = r.b[n:]
	return v
}

// count reads how many things of at least size bytes follow: no more than fit.
func (r *tokenReader) count(size int) int { return int(r.number(uint64(len(r.b) / size))) }

func (r *tokenReader) bytes(n int) []byte {
	if n > len(r.b) {
		r.b, r.bad = nil, true
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *tokenReader) text() string { return string(r.bytes(r.count(1))) }

func (r *tokenReader) cuts(t *store.Token) {
	n := r.count(topicIDBytes + 3)
	if n == 0 {
		return
	}
	t.Cuts = make(map[store.Partition]store.Cut, n)
	var before []byte
	for range n {
		id := r.bytes(topicIDBytes)
		if r.bad || before != nil && slices.Compare(before, id) >= 0 {
			r.bad = true
			return
		}
		before = id
		c := store.Cut{TopicID: [topicIDBytes]byte(id)}
		r.offsets(func(p store.Partition, o store.Offset) {
			if _, twice := t.Cuts[p]; twice {
				r.bad = true
			}
			c.Next = o
			t.Cuts[p] = c
		})
	}
}

func (r *tokenReader) inputs(t *store.Token) {
	n := r.count(4)
	if n == 0 {
		return
	}
	t.Inputs = make(store.Position, n)
	before := ""
	for i := range n {
		topic := r.text()
		if r.bad || i > 0 && topic <= before {
			r.bad = true
			return
		}
		before = topic
		r.offsets(func(p store.Partition, o store.Offset) { t.Inputs.Set(topic, p, o) })
	}
}

// offsets reads partitions, ascending, at least one, each with its offset.
func (r *tokenReader) offsets(each func(store.Partition, store.Offset)) {
	n := r.count(2)
	r.bad = r.bad || n == 0
	before := -1
	for range n {
		p, o := int(r.number(math.MaxInt32)), r.number(math.MaxInt64)
		if r.bad || p <= before {
			r.bad = true
			return
		}
		before = p
		each(store.Partition(p), store.Offset(o))
	}
}
