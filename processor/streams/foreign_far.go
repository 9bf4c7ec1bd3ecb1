package streams

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/store"
)

// The far side of joins on foreign keys: where the right table lives, and what goes there and back.

// instruction is what a subscription asks for (upstream's SubscriptionWrapper.Instruction).
type instruction byte

const (
	unsubscribe        instruction = iota // and say nothing
	unsubscribeAndTell                    // that there is no value; nobody needs it here, see foreignJoin.here
	subscribeAndTell                      // the value, or that there is none
	subscribe                             // and say the value if there is one
)

// subscription is a left key's to a foreign key, and what is kept of it.
type subscription struct {
	what instruction
	// hash of the left value, hashed saying that there is one.
	hash   [hashSize]byte
	hashed bool
	pk     []byte
	// partition where the left key lives.
	partition int32
}

// wireVersion is that of upstream's SubscriptionWrapper since 3.4; answers are of version 0.
const (
	wireVersion  = 1
	wireNoHash   = 0x80 // no hash follows
	wireIsEmpty  = 0x40 // of an answer: there is a value, of no bytes. Upstream takes it for none.
	wireVersions = 0x3f
)

var errWire = errors.New("foreign-key join: bytes are not what was sent")

// append writes it as upstream's SubscriptionWrapperSerde does.
func (s *subscription) append(dst []byte) []byte {
	if s.hashed {
		dst = append(append(dst, wireVersion, byte(s.what)), s.hash[:]...)
	} else {
		dst = append(dst, wireVersion|wireNoHash, byte(s.what))
	}
	return binary.BigEndian.AppendUint32(append(dst, s.pk...), uint32(s.partition))
}

func parseSubscription(b []byte) (s subscription, err error) {
	if len(b) < 2 {
		return s, errWire
	}
	head := b[0]
	s.what, s.hashed = instruction(b[1]), head&wireNoHash == 0
	if v := head &^ wireNoHash; v != wireVersion {
		return s, fmt.Errorf("%w: subscription of version %d", errWire, v)
	}
	if b = b[2:]; s.hashed {
		if len(b) < hashSize {
			return s, errWire
		}
		copy(s.hash[:], b)
		b = b[hashSize:]
	}
	if len(b) < 4 || s.what > subscribe {
		return s, errWire
	}
	s.pk, s.partition = b[:len(b)-4], int32(binary.BigEndian.Uint32(b[len(b)-4:]))
	return s, nil
}

// answer is what comes back to a left key (upstream's SubscriptionResponseWrapper).
type answer struct {
	hash   [hashSize]byte
	hashed bool
	// there says that the foreign key has a value.
	there bool
	value []byte
}

func (a *answer) append(dst []byte) []byte {
	var head byte
	if !a.hashed {
		head |= wireNoHash
	}
	if a.there && len(a.value) == 0 {
		head |= wireIsEmpty
	}
	if dst = append(dst, head); a.hashed {
		dst = append(dst, a.hash[:]...)
	}
	return append(dst, a.value...)
}

func parseAnswer(b []byte) (a answer, err error) {
	if len(b) == 0 || b[0]&wireVersions != 0 {
		return a, errWire
	}
	head := b[0]
	if b = b[1:]; head&wireNoHash == 0 {
		if len(b) < hashSize {
			return a, errWire
		}
		a.hashed = true
		copy(a.hash[:], b)
		b = b[hashSize:]
	}
	a.there, a.value = len(b) > 0 || head&wireIsEmpty != 0, b
	return a, nil
}

// subscriber is the key of a subscription in its store: length of the foreign key, the foreign key, the left key (upstream's
// CombinedKeySchema). Without a left key it begins all those of the foreign key.
func subscriber(dst, foreign, pk []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(foreign)))
	return append(append(dst, foreign...), pk...)
}

// event is a subscription that has come.
type event[F any] struct {
	key       F
	known     encoded[F]
	sub       subscription
	timestamp int64
	headers   []processor.Header
}

// receive keeps subscriptions (upstream's SubscriptionReceiveProcessorSupplier).
func (j *foreignJoin[K, L, F, R, W]) receive(sc *scope[event[F]]) (func(*Record[F, []byte]) error, error) {
	kv, err := sc.Store(j.subscriptions)
	if err != nil {
		return nil, err
	}
	fk := coder[F]{serde: j.r.keys}
	var row []byte
	var out event[F]
	return func(r *Record[F, []byte]) error {
		sub, err := parseSubscription(r.Value)
		if err != nil {
			return err
		}
		if r.NoKey {
			sc.Drop("null foreign key")
			return nil
		}
		fb, err := fk.encode(r.Key, r.key)
		if err != nil {
			return err
		}
		v := store.Value{Timestamp: r.Timestamp}
		if sub.what == subscribe || sub.what == subscribeAndTell {
			v.Data = r.Value
		}
		row = subscriber(row[:0], fb, sub.pk)
		if err := kv.Put(row, v); err != nil || v.Data == nil {
			return err
		}
		out = event[F]{key: r.Key, known: r.key, sub: sub, timestamp: r.Timestamp, headers: r.Headers}
		return sc.emit(&out)
	}, nil
}

// response is an answer on its way to the partition of a left key.
type response struct {
	pk, value []byte
	partition int32
	timestamp int64
	headers   []processor.Header
}

// answer tells who subscribes what there is (upstream's SubscriptionJoinProcessorSupplier).
func (j *foreignJoin[K, L, F, R, W]) answer(sc *scope[response]) (func(*event[F]) error, error) {
	read, err := j.r.view.open(sc.Context)
	if err != nil {
		return nil, err
	}
	value := coder[R]{serde: j.r.values}
	var out response
	var buf []byte
	return func(e *event[F]) error {
		r, at, ok, err := read(e.key, e.known)
		if err != nil {
			return err
		}
		a, ts := answer{hash: e.sub.hash, hashed: e.sub.hashed, there: ok}, e.timestamp
		if ok {
			ts = max(ts, at)
			if a.value, err = value.encode(r, encoded[R]{}); err != nil {
				return err
			}
		}
		if e.sub.what == subscribe && !a.there {
			return nil
		}
		buf = a.append(buf[:0])
		out = response{pk: e.sub.pk, value: buf, partition: e.sub.partition, timestamp: ts, headers: e.headers}
		return sc.emit(&out)
	}, nil
}

// foreign tells all subscribers of a foreign key its new value (upstream's ForeignTableJoinProcessorSupplier).
func (j *foreignJoin[K, L, F, R, W]) foreign(sc *scope[response]) (func(*Change[F, R]) error, error) {
	kv, err := sc.Store(j.subscriptions)
	if err != nil {
		return nil, err
	}
	fk, value := coder[F]{serde: j.r.keys}, coder[R]{serde: j.r.values}
	var out response
	var row, buf []byte
	return func(c *Change[F, R]) error {
		if c.Stale && j.r.view.versioned {
			sc.Drop("out of order")
			return nil
		}
		fb, err := fk.encode(c.Key, c.key)
		if err != nil {
			return err
		}
		var vb []byte
		if !c.NoNew {
			if vb, err = value.encode(c.New, c.value); err != nil {
				return err
			}
		}
		row = subscriber(row[:0], fb, nil)
		it, err := kv.Scan(store.Scan{Prefix: row})
		if err != nil {
			return err
		}
		defer it.Close()
		for it.Next() {
			e := it.Entry()
			sub, err := parseSubscription(e.Data)
			if err != nil {
				return err
			}
			a := answer{hash: sub.hash, hashed: sub.hashed, there: !c.NoNew, value: vb}
			buf = a.append(buf[:0])
			out = response{
				pk: e.Key[len(row):], value: buf, partition: sub.partition, timestamp: max(c.Timestamp, e.Timestamp), headers: c.Headers,
			}
			if err := sc.emit(&out); err != nil {
				return err
			}
		}
		return it.Err()
	}, nil
}

// answerOutlet leads to the topic of answers.
func answerOutlet(sink string) *outlet[response] {
	out := newOutlet[response]()
	out.ways[sink] = func(ctx *processor.Context) receiver[response] { return &answerEncoder{ctx: ctx, child: sink} }
	return out
}

// answerEncoder hands answers to the sink of their topic.
type answerEncoder struct {
	ctx   *processor.Context
	child string
}

func (e *answerEncoder) receive(r *response) error {
	rec := processor.Record{Key: r.pk, Value: r.value, Timestamp: r.timestamp, Headers: r.headers}
	rec.ToPartition(r.partition)
	return e.ctx.ForwardTo(e.child, rec)
}
