// Package decode takes fields out of the values of records: what views and expressions read.
//
// A [Decoder] is made for the names that somebody asks for. It judges the whole value, as the standard library does, keeps
// nothing of what nobody asked for, and allocates nothing per record but for an error. It belongs to one task; what it returns
// points into the value or into its own buffer, and is valid until the next record.
//
// Errors are *processor.DeserializationError, with a constant reason and without data of the record: errors are logged.
package decode
