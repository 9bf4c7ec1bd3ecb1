// Package serde is the vocabulary of keys and values: how Go types become the bytes that producers write, stores keep and
// callers ask with, and back.
//
//	keys, values := serde.String(), serde.JSON[Flight]()
//	b, err := values.Encode(f)
//	f, err = values.Decode(b)          // errors.Is(err, serde.ErrDecode): not what was expected
//
// # Bytes
//
// They are those of Kafka's own serializers where there is one, so programs in other languages read and write the same:
//
//	Go type             bytes                                            upstream
//	[]byte              as they are                                      ByteArraySerializer
//	string              UTF-8                                            StringSerializer
//	bool                1: 0 or 1                                        BooleanSerializer
//	int16, int32, int64 2, 4, 8: big endian, two's complement            Short-, Integer-, LongSerializer
//	float32, float64    4, 8: IEEE 754, big endian                       Float-, DoubleSerializer
//	uuid.UUID           36: its text                                     UUIDSerializer
//	time.Time           8: Unix milliseconds                             LongSerializer
//	[]T                 count, lengths, items                            ListSerializer (KIP-466)
//	Windowed[K]         key, start; or key, end, start                   TimeWindowed-, SessionWindowedSerializer
//	JSON                as encoding/json                                 -
//
// Protobuf messages are in serde/protobuf, and what a schema registry knows in serde/registry: this package links the standard
// library and a UUID's type.
//
// # Order
//
// Stores order keys by their bytes, unsigned. Text sorts as text, but the numbers of Kafka's serializers do not sort as
// numbers: negative ones come behind the others, for their first bit is set. OrderedInt32, OrderedInt64 and
// OrderedFloat64 sort; no serializer of Kafka's reads them.
//
// # Nil, empty, absent
//
// Absent is no answer of a serde: a store says that a key has no value. Nil bytes are a tombstone, and only Bytes, List and
// Nullable have a value for it; the others refuse it as [ErrDecode], and never make it. Empty bytes are a value: the empty
// string, an empty protobuf message. JSON's null is four bytes, not nil.
//
// # Errors
//
// [ErrDecode] and [ErrEncode] are about the bytes and the value, and stay; [ErrUnavailable] is about the moment. None holds
// data.
//
// # Without types
//
// A store declares its keys and values by the name of a [Format]. A server, a shell or a generic client finds it in
// [Formats] and translates between bytes and six Go types.
package serde
