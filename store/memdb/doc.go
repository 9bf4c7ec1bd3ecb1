// Package memdb is the engine that keeps everything in memory: an ordered map per store whose copies are made by
// sharing, so a snapshot costs a constant and readers never wait for a move. Nothing outlives the process.
package memdb
