// Package store is the vocabulary of statemesh and the contracts of its state: names and numbers that must not be
// mixed up, the reads a store answers, what a commit of a task carries, and the errors every layer shares. It links
// only the standard library; engines live in packages below it. Read this package first.
//
// # Who may do what
//
// A task's state has one writer, the stream thread that runs the task, and any number of readers. The writer works on
// an overlay that nobody else sees; [store/layered] turns it into a commit. Readers pin a snapshot of whole commits and
// must close it. Byte slices handed to a store are copied; byte slices a store hands out belong to the caller.
//
// # Absent, nil and empty
//
// A nil value is a delete (a tombstone in the changelog). An empty, non-nil value is a value like any other. Absence is
// reported as [ErrNotFound], never as a nil or an empty value.
package store
