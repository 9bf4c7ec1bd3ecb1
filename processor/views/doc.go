// Package views builds views without code: a store per view, filled from a topic by a description that fits in a
// configuration file. It uses only the public Processor API.
//
// # Values
//
// The encoding of a view's value is fixed by its type and, where it keeps the record's value, by the format:
//
//	type           value                                                        ValueFormat
//	table, latest  json: the value of the record, as it is                      json
//	               csv: a JSON object of the columns that are not empty, in     json
//	               the order of the configuration, each a JSON string
//	               string, bytes: the value of the record, as it is             string, bytes
//	count          int64, 8 bytes big-endian (upstream's LongSerializer)        int64
//	sum, min, max  float64, 8 bytes big-endian (upstream's DoubleSerializer)    double
//	avg            {"count":3,"sum":12,"avg":4}                                 json
//	stats          {"count":3,"sum":12,"min":-4,"max":9,"avg":4}                json
//
// Numbers are float64 in the order in which the records arrive: integers are exact up to 2^53, in sums too. In JSON they
// have the shortest form that reads back as the same number.
//
// # Keys
//
// Without key fields the key of the record is the key of the view. With them it is text: a string as it is, a number as
// it is written (1 and 1.0 are two keys), true or false. See [EncodeKey] for keys of several fields.
//
// # Time and order
//
// A table takes records in the order of offsets, as upstream's KTable does, whatever their timestamps. Where records of
// one key come from several partitions, as they may before a repartition topic, that order is the order of arrival and
// differs from run to run; latest decides by timestamp instead, and depends on the order only between equal ones.
// count, sum, min, max, avg and stats do not depend on it, but for the last digits of sums that are not exact. The
// timestamp of an aggregate is the greatest of its records (upstream's KStreamAggregate), that of a table or latest the
// record's own.
//
// # Windows
//
// With a [Window] an aggregate is kept per key and window, in a window store, or per key and session, in a session store; the
// rules are those of package windows, which are upstream's. Stream time is that of the task. A window takes records until it is
// closed; a record whose windows are all closed is dropped as "late", one that is in some of its windows but not in others is
// counted as "late for some of its windows". Where records come through a repartition topic from several partitions they
// arrive out of order, as they are read: grace should cover by how much. What a session adds up is merged when a record joins
// two, so that sums of numbers that are no integers may differ in their last digits.
//
// # Versions, global tables
//
// A table with a [View.History] is a versioned store: a version is valid from the timestamp of its record, in whatever order records
// come. One that is [View.Global] is whole on every instance; the values of its topic are kept as those of any table, and its
// topic, which must be compacted or keep everything, is its changelog.
//
// # What is not in a view
//
// Counted as dropped for the view, by reason: "null key" (no key, or a key field is missing), "empty key" (stores do not
// take one), "null value" (in an aggregate, or where the key comes from the value), "missing field", "sum out of range"
// (the record would make a sum infinite), for windows "late" and "late for some of its windows", for latest "older than
// the latest" and for versions "older than the history". A null value deletes from a table or
// latest by the record's key. An empty value is a value.
//
// A record that cannot be decoded is a [processor.DeserializationError] with a reason: "invalid utf-8", "invalid json",
// "not a json object", "invalid csv", "wrong number of columns", "key field is not a scalar", "not a number", "number
// out of range", "no event time", "invalid event time". It is then in no view of its topic, even if only one of them stumbled: what is dropped or
// dead-lettered was not counted anywhere.
package views
