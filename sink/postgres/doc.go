// Package postgres writes what a sink reads into a table of PostgreSQL, and the offset of each partition into a table beside it.
//
// One batch is one transaction: the offset's row is locked and compared, the rows are written, the offset is moved. Whoever is killed
// at whatever point has written all of a batch or nothing of it, and the offset says which. A transaction whose outcome is not
// known, since the connection broke while it committed, is tried again: the lock waits for the first one to end, and the offset that is found
// tells whether it did.
//
// A table that does not exist is made, unless Config.NoCreate; one that does is looked at, and never changed.
package postgres
