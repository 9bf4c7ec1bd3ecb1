// Package streams is the typed DSL over package processor (upstream's Streams DSL): streams, tables and global tables of Go types,
// compiled into a [processor.Topology] whose nodes, stores and internal topics bear upstream's names.
//
//	b := streams.NewBuilder()
//	clicks := streams.From(b, "clicks", serde.String(), serde.JSON[Click]())
//	perPage := streams.Count(streams.GroupBy(clicks, func(_ string, c Click) string { return c.Page }), "clicks-per-page")
//	streams.ToStream(perPage).To("counts")
//	topology, err := b.Build()
//
// What keeps the types of a stream or table is a method; what makes another kind of thing, or other types, is a function, since
// methods have no type parameters in Go. Functions are called on the task's stream thread, one record at a time, and must be
// deterministic: a record is processed again after a failure. They must not keep or change what they are given.
//
// # Serdes
//
// A stream knows the serdes of its keys and values from its source. An operator that makes another type leaves the serde open:
// types that Kafka's own serializers cover (string, []byte, numbers, bool, UUID, time) have one by themselves, for others say it
// with WithKeys and WithValues, on the stream that is written, grouped or joined. A serde that is missing is an error of Build that
// names the operator. Bytes that were read go on as they are while key and value are not changed.
//
// # Null
//
// A record may have no key or no value (Kafka's null). Record says so in NoKey and NoValue. Where the type has a nil (pointers, slices,
// maps, interfaces; serde.Nullable makes a pointer of any type) null is nil, as in upstream: functions are called with it, and nil that they
// return is null; bytes that decode to nil, as the null of JSON does, are none. Other types have no null: functions that make values are
// not called for a record without one, and it goes on as it is, so a tombstone stays a tombstone. Functions that make keys of values
// (SelectKey, Map, FlatMap, GroupBy) have nothing to make a key of then: the record is dropped and counted as "null value", for a zero in its
// place could delete another key further down. Functions of keys get the zero value for a key that is not there. Aggregations and joins
// drop and count records that lack a key or value, as upstream.
//
// # Processors of one's own
//
// [Process] and [ProcessValues] run typed processors with typed stores: [KeyValueStore] and its kin declare one, [Uses] connects it, and its
// Open gives it to the processor in Init.
//
// # Names
//
// Each operator has the name that upstream would give it, by its position: KSTREAM-FILTER-0000000003. Stores and internal topics named by
// position change their names when an operator is added before them, and their contents are lost with it, so [Builder.Warnings] lists
// them. Named, and the names that aggregations and joins take, prevent that.
//
// # Errors
//
// Operators return no errors: what is wrong is kept, and all of it reported by Build.
package streams
