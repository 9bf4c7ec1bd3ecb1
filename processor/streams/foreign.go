package streams

import (
	"bytes"

	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/serde"
	"github.com/statemesh/statemesh/store"
)

// JoinForeign joins a table with another one by a key that is in the values of the first (upstream's KTable.join on a foreign key,
// KIP-213): a key has a value when key finds a foreign key in its left value and the right table has a value for that. Many left keys may
// have the same foreign key. The tables' topics may have different numbers of partitions.
//
// Each left key subscribes to its foreign key where that lives, through one internal topic, and is told of its values through another one.
// So results come late, and by the hash of the left value an answer to one that is gone is known and dropped. Values of the left table
// must encode alike each time. A right table whose topic is not partitioned by Kafka's default needs PartitionBy, which finds the partition of
// a foreign key by its bytes: the record that it is given has nothing else (upstream's TableJoined.withOtherPartitioner, KIP-775). How the left
// table is partitioned need not be said: answers go where their subscriptions came from. Options: As, Values, History, PartitionBy, and
// those of stores.
func JoinForeign[K, L, F, R, W any](
	l *Table[K, L], r *Table[F, R], key func(k K, l L) (F, bool), join func(k K, l L, r R) W, opts ...Option,
) *Table[K, W] {
	j := &foreignJoin[K, L, F, R, W]{l: l, r: r, nulls: nullsOf[F](), key: key}
	j.join = func(k K, l L, r Maybe[R]) W { return join(k, l, r.Value) }
	return j.build("JoinForeign", opts)
}

// LeftJoinForeign is [JoinForeign] that has a value for each key of the left table (upstream's KTable.leftJoin on a foreign key).
func LeftJoinForeign[K, L, F, R, W any](
	l *Table[K, L], r *Table[F, R], key func(k K, l L) (F, bool), join func(k K, l L, r Maybe[R]) W, opts ...Option,
) *Table[K, W] {
	return (&foreignJoin[K, L, F, R, W]{l: l, r: r, nulls: nullsOf[F](), key: key, join: join, left: true}).build("LeftJoinForeign", opts)
}

// foreignJoin is a join of tables on a foreign key.
type foreignJoin[K, L, F, R, W any] struct {
	l    *Table[K, L]
	r    *Table[F, R]
	key  func(k K, l L) (F, bool)
	join func(k K, l L, r Maybe[R]) W
	left bool

	nulls         nulls[F]
	subscriptions store.Name
}

// foreignNames are the names of a join on a foreign key.
type foreignNames struct {
	subscriptions, responses                          string // topics
	send, sendSink, sendSource                        string
	receive, answer, foreign                          string
	answerSink, answerSource, resolve, result, stored string
}

// names uses up the positions that upstream's KTableImpl does.
func (j *foreignJoin[K, L, F, R, W]) names(b *Builder, o options) (n foreignNames) {
	const prefix = "KTABLE-FK-JOIN-"
	name := func(suffix, byPosition string) string { return b.suffixed(o.named, suffix, byPosition) }
	n.subscriptions = name("-subscription-registration", prefix+"SUBSCRIPTION-REGISTRATION-") + "-topic"
	n.send = name("-subscription-registration-processor", prefix+"SUBSCRIPTION-REGISTRATION-")
	n.sendSink = name("-subscription-registration-sink", "KTABLE-SINK-")
	n.sendSource = name("-subscription-registration-source", "KTABLE-SOURCE-")
	j.subscriptions = store.Name(name("-subscription-store", prefix+"SUBSCRIPTION-STATE-STORE-"))
	n.receive = name("-subscription-receive", prefix+"SUBSCRIPTION-PROCESSOR-")
	n.answer = name("-subscription-join-foreign", prefix+"SUBSCRIPTION-PROCESSOR-")
	n.foreign = name("-foreign-join-subscription", prefix+"SUBSCRIPTION-PROCESSOR-")
	n.responses = name("-subscription-response", prefix+"SUBSCRIPTION-RESPONSE-") + "-topic"
	n.answerSink = name("-subscription-response-sink", "KTABLE-SINK-")
	n.answerSource = name("-subscription-response-source", "KTABLE-SOURCE-")
	n.resolve = name("-subscription-response-resolver", prefix+"SUBSCRIPTION-RESPONSE-RESOLVER-PROCESSOR-")
	n.result = name("-result", prefix+"OUTPUT-")
	if n.stored = string(o.store); n.stored == "" {
		n.stored = b.name(prefix + "OUTPUT-STATE-STORE-")
	}
	if o.named == "" {
		b.warn(n.result, "the topics and the store of subscriptions of the join are named by position; give it a name with Named")
	}
	return n
}

func (j *foreignJoin[K, L, F, R, W]) build(operation string, opts []Option) *Table[K, W] {
	b := j.l.b
	o := b.read(operation, opts, "As", "Values", "History", "PartitionBy", "CachingDisabled", "LoggingDisabled", "LoggingConfig", "InMemory")
	n := j.names(b, o)
	b.needs(n.send, "left keys", j.l.keys.Err())
	b.needs(n.send, "left values", j.l.values.Err())
	b.needs(n.send, "foreign keys", j.r.keys.Err())
	b.needs(n.send, "right values", j.r.values.Err())
	j.l.wantOld()
	j.r.wantOld()
	j.l.view.require()
	j.r.view.require()

	subscribed := j.subscribe(b, n, o.partitioner)
	received := newOutlet[event[F]]()
	receive := b.put(&graphNode{name: n.receive, parents: []*graphNode{subscribed}, add: addProcessor(n.receive,
		supplier(j.receive, received, nil), []store.Spec{{Name: j.subscriptions, Kind: store.KindTimestampedKeyValue}}, nil)})
	answers := answerOutlet(n.answerSink)
	answer := b.put(&graphNode{name: n.answer, parents: []*graphNode{receive}, add: addProcessor(n.answer,
		supplier(j.answer, answers, nil), nil, j.r.view.stores)})
	foreign := b.put(&graphNode{name: n.foreign, parents: []*graphNode{j.r.node}, add: addProcessor(n.foreign,
		supplier(j.foreign, answers, nil), nil, []store.Name{j.subscriptions})})
	responses := newOutlet[Record[K, []byte]]()
	answered := b.put(&graphNode{
		name: n.answerSource, parents: []*graphNode{answer, foreign}, add: func(t *processor.Topology, parents ...string) {
			t.AddRepartition(n.responses, processor.RepartitionOptions{
				Source: n.answerSource, Sink: n.answerSink, Topic: n.responses, Follows: true, Partitioner: processor.AsTold,
				Processor: source(j.l.keys, serde.Bytes(), responses),
			}, parents...)
		},
	})
	resolved := newOutlet[Record[K, W]]()
	resolve := b.put(&graphNode{name: n.resolve, parents: []*graphNode{answered}, add: addProcessor(n.resolve,
		supplier(j.resolve, resolved, nil), nil, j.l.view.stores)})

	here := b.put(&graphNode{
		name: n.resolve + "-here", parents: []*graphNode{j.l.node}, add: addProcessor(n.resolve+"-here", supplier(j.here, newOutlet[Record[K, W]](), nil), nil, nil),
	})

	k := keepIdle(b, n.result, store.Name(n.stored), j.l.keys, valuesOf(b, n.result, o, natural[W]()), o)
	if o.store != "" {
		k.require()
	} else {
		k.unnamed = "give it a name with As"
	}
	out := newOutlet[Change[K, W]]()
	result := b.put(&graphNode{name: n.result, parents: []*graphNode{resolve, here}, add: func(t *processor.Topology, parents ...string) {
		addProcessor(n.result, supplier(k.enter, out, nil), k.specs(), nil)(t, parents...)
	}})
	return k.table(b, result, out)
}

// subscribe adds what sends subscriptions to the foreign keys.
func (j *foreignJoin[K, L, F, R, W]) subscribe(b *Builder, n foreignNames, p processor.Partitioner) *graphNode {
	sent, got := newOutlet[Record[F, []byte]](), newOutlet[Record[F, []byte]]()
	sent.ways[n.sendSink] = recordWay(n.sendSink, j.r.keys, serde.Bytes())
	send := b.put(&graphNode{name: n.send, parents: []*graphNode{j.l.node}, add: addProcessor(n.send, supplier(j.send, sent, nil), nil, nil)})
	return b.put(&graphNode{name: n.sendSource, parents: []*graphNode{send}, add: func(t *processor.Topology, parents ...string) {
		t.AddRepartition(n.subscriptions, processor.RepartitionOptions{
			Source: n.sendSource, Sink: n.sendSink, Topic: n.subscriptions, Follows: true, Partitioner: j.partitioner(p),
			Processor: source(j.r.keys, serde.Bytes(), got),
		}, parents...)
	}})
}

// partitioner finds the partition of the right table in which a foreign key is. One of the user's sees the key alone: what else is sent is
// no value of the table.
func (j *foreignJoin[K, L, F, R, W]) partitioner(given processor.Partitioner) processor.Partitioner {
	if given == nil {
		return byInnerKey(j.r.keys, nil)
	}
	return func(topic string, r *processor.Record, partitions int32) int32 {
		return given(topic, &processor.Record{Key: r.Key}, partitions)
	}
}

// send tells foreign keys which left keys want to know of them (upstream's SubscriptionSendProcessorSupplier).
func (j *foreignJoin[K, L, F, R, W]) send(sc *scope[Record[F, []byte]]) (func(*Change[K, L]) error, error) { //nolint:unparam // as all operators
	pk, value := coder[K]{serde: j.l.keys}, coder[L]{serde: j.l.values}
	was, is := coder[F]{serde: j.r.keys}, coder[F]{serde: j.r.keys}
	var out Record[F, []byte]
	var buf []byte
	return func(c *Change[K, L]) error {
		if c.Stale && j.l.view.versioned {
			sc.Drop("out of order")
			return nil
		}
		kb, err := pk.encode(c.Key, c.key)
		if err != nil {
			return err
		}
		sub := subscription{pk: kb, partition: int32(sc.TaskID().Partition)}
		if !c.NoNew {
			// Not the bytes that are known: the answer is compared with what the value encodes to.
			vb, err := value.encode(c.New, encoded[L]{})
			if err != nil {
				return err
			}
			sub.hash, sub.hashed = murmur128(vb, hashSeed), true
		}
		to := func(f F, what instruction) error {
			sub.what = what
			buf = sub.append(buf[:0])
			out = Record[F, []byte]{Key: f, Value: buf, Timestamp: c.Timestamp, Headers: c.Headers}
			return sc.emit(&out)
		}
		before, after := j.foreignOf(c.Key, Maybe[L]{c.Old, !c.NoOld}), j.foreignOf(c.Key, Maybe[L]{c.New, !c.NoNew})
		same, err := sameKey(&was, &is, before, after)
		if err != nil {
			return err
		}
		if before.OK && !same {
			if err := to(before.Value, unsubscribe); err != nil {
				return err
			}
		}
		switch {
		case !after.OK:
			return nil
		case before.OK || j.left:
			return to(after.Value, subscribeAndTell) // also of nothing: a former result is gone, or there is one without the right side
		default:
			return to(after.Value, subscribe)
		}
	}, nil
}

// here gives the results that need no answer: of values without a foreign key, and of those that are gone. They are there at once, so
// whatever is still on its way for a former value can be dropped. Upstream sends for these results, too, loses one when the left value
// changes again before it is back, and so keeps what it should have taken back.
func (j *foreignJoin[K, L, F, R, W]) here(sc *scope[Record[K, W]]) (func(*Change[K, L]) error, error) { //nolint:unparam // as all operators
	null := nullsOf[W]()
	var out Record[K, W]
	return func(c *Change[K, L]) error {
		if c.Stale && j.l.view.versioned {
			return nil // counted by who sends
		}
		if after := j.foreignOf(c.Key, Maybe[L]{c.New, !c.NoNew}); after.OK {
			return nil
		}
		out = Record[K, W]{Key: c.Key, key: c.key, NoValue: true, Timestamp: c.Timestamp, Headers: c.Headers}
		if !c.NoNew && j.left {
			setValue(&out, j.join(c.Key, c.New, Maybe[R]{}), null)
			return sc.emit(&out)
		}
		if !c.NoNew {
			sc.Drop("null foreign key")
		}
		if before := j.foreignOf(c.Key, Maybe[L]{c.Old, !c.NoOld}); !before.OK && (!j.left || c.NoOld) {
			return nil // there was no result
		}
		return sc.emit(&out)
	}, nil
}

// foreignOf is the foreign key of a left value, if there is one.
func (j *foreignJoin[K, L, F, R, W]) foreignOf(k K, l Maybe[L]) (f Maybe[F]) {
	if l.OK {
		f.Value, f.OK = j.key(k, l.Value)
		f.OK = f.OK && !j.nulls.null(&f.Value)
	}
	return f
}

// sameKey reports whether both are one key.
func sameKey[F any](was, is *coder[F], before, after Maybe[F]) (bool, error) {
	if !before.OK || !after.OK {
		return before.OK == after.OK, nil
	}
	a, err := was.encode(before.Value, encoded[F]{})
	if err != nil {
		return false, err
	}
	b, err := is.encode(after.Value, encoded[F]{})
	return bytes.Equal(a, b), err
}

// resolve makes results of answers (upstream's ResponseJoinProcessorSupplier).
func (j *foreignJoin[K, L, F, R, W]) resolve(sc *scope[Record[K, W]]) (func(*Record[K, []byte]) error, error) {
	read, err := j.l.view.open(sc.Context)
	if err != nil {
		return nil, err
	}
	value, null := coder[L]{serde: j.l.values}, nullsOf[W]()
	var out Record[K, W]
	return func(r *Record[K, []byte]) error {
		a, err := parseAnswer(r.Value)
		if err != nil {
			return err
		}
		l, _, ok, err := read(r.Key, r.key)
		if err != nil {
			return err
		}
		var hash [hashSize]byte
		if ok {
			vb, err := value.encode(l, encoded[L]{})
			if err != nil {
				return err
			}
			hash = murmur128(vb, hashSeed)
		}
		if ok != a.hashed || hash != a.hash {
			sc.Drop("answer to a former value")
			return nil
		}
		out = Record[K, W]{Key: r.Key, key: r.key, NoValue: true, Timestamp: r.Timestamp, Headers: r.Headers}
		if ok && (a.there || j.left) {
			var right Maybe[R]
			if a.there {
				if right.Value, err = j.r.values.Decode(a.value); err != nil {
					return err
				}
				right.OK = true
			}
			setValue(&out, j.join(r.Key, l, right), null)
		}
		return sc.emit(&out)
	}, nil
}
