// Package wire is the only translation between the messages of statemesh.v1 and the words of the domain (packages store
// and router). FromX makes a message, ToX reads one; what is read is checked, because it may come from anybody.
//
// Errors cross in one table, status.go: [ToStatus] on the way out, [FromStatus] on the way in, and what comes in is the
// same error for [errors.Is] and [errors.As], with the same facts, as what went out.
//
// Client and server also share here what must agree between them: message limits, keepalive, and the mark of a
// forwarded request.
package wire
