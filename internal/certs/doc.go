// Package certs keeps the certificates of a process in step with their files: what is replaced on disk is used from the
// next handshake on, without a restart. It serves both ends of a connection, so that server and client follow the same
// rules; so is where plain text is served unasked, [Loopback].
package certs
