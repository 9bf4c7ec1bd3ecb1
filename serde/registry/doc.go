// Package registry is the serdes of what a schema registry knows: Avro, JSON Schema and Protobuf in the wire format of
// Confluent's registry, which Redpanda, Karapace and Apicurio speak too. Each value is a zero byte, four bytes of the schema's
// id, big endian, for Protobuf the place of the message in its file, and then the encoded value.
//
//	reg, err := registry.New(ctx, registry.Config{URLs: []string{"https://registry:8081"}})
//	flights, err := registry.Avro[Flight](reg, flightSchema)
//	values := flights.ForTopic("flights", serde.Value)    // the subject is flights-value
//	b, err := values.Encode(f)
//
// # Asking
//
// The registry is asked once for each schema that is read, and once for each subject that is written; what it answered is kept for
// as long as the client lives, for a schema never changes under its id. That a schema is unknown, or that nobody answered, is kept
// for [Config.RetryAfter], so that a record that cannot be read does not cost a request each time.
//
// A schema is registered only when [Config.AutoRegister] says so. Without it a value whose schema the registry does not know is
// not written.
//
// # Errors
//
//	*UnknownSchemaError   the registry knows no such schema                      ErrUnknownSchema
//	*IncompatibleError    it knows one, and that does not fit                    ErrIncompatible
//	*UnavailableError     it did not answer, or not to the question              serde.ErrUnavailable
//
// The first two are also serde.ErrDecode when they are about bytes and serde.ErrEncode when they are about a value; the third
// is neither: asking again may help. No error holds data.
package registry
