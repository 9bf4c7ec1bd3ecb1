package cli

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"syscall"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/statemesh/statemesh/client"
	"github.com/statemesh/statemesh/internal/configfile"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/store"
)

// The exit codes. Scripts rely on them: a number never changes its meaning.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitConfig      = 4
	exitUnavailable = 5
	exitTimeout     = 6
	exitWrong       = 7
	exitLocal       = 8
	exitDenied      = 9
	exitInterrupted = 130
)

// ExitCode explains one exit code.
type ExitCode struct {
	Code    int
	Meaning string
}

// ExitCodes lists them all; docs/cli.md is made from it.
func ExitCodes() []ExitCode {
	return []ExitCode{
		{exitOK, "Success; for a server also the orderly end after SIGTERM or SIGINT."},
		{exitFailure, "A failure that no other code describes."},
		{exitUsage, "Wrong command, flag or argument; unknown store; a query the store does not answer."},
		{exitNotFound, "The key has no value, proven by a replica that may say so."},
		{exitConfig, "The configuration is refused; every problem was printed."},
		{exitUnavailable, "No instance or broker could be reached, or none may answer now. Trying again may help."},
		{exitTimeout, "The time given by --timeout was not enough."},
		{exitWrong, "demo: at least one answer was wrong or missing. check: a rule was broken, or there was nothing to judge. topology diff: something that is there would not be taken over."},
		{exitLocal, "This machine: state directory held by another process, address in use, disk full or read-only."},
		{exitDenied, "Not allowed: credentials, certificates or access rules."},
		{exitInterrupted, "Interrupted before the work was done."},
	}
}

// usageError is a mistake on the command line.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }

func (e usageError) Unwrap() error { return e.err }

// errWrong is the end of a demo or a check whose answers were not all right; the report said which.
var errWrong = errors.New("wrong or missing answers")

// codeOf is the one table of errors and exit codes. The first row that matches decides.
func codeOf(err error) int {
	for _, row := range []struct {
		code  int
		match func(error) bool
	}{
		{exitOK, is(nil)},
		{exitUsage, as[usageError]},
		{exitConfig, as[configfile.LoadError]},
		{exitWrong, is(errWrong, errBreaks)},
		{exitNotFound, is(store.ErrNotFound)},
		{exitUsage, is(store.ErrUnknownStore, store.ErrInvalidKey, store.ErrInvalidRequest, store.ErrWrongKind, store.ErrWrongPartition)},
		{exitLocal, is(store.ErrLocked, syscall.EADDRINUSE, syscall.ENOSPC, syscall.EROFS, fs.ErrPermission)},
		{exitDenied, denied},
		{exitInterrupted, is(context.Canceled)},
		{exitUnavailable, is(client.ErrNoMap, wire.ErrUnreachable)},
		{exitTimeout, is(context.DeadlineExceeded)},
		{exitUnavailable, is(store.ErrNotReady, store.ErrNoReplica, store.ErrMoved, store.ErrOverloaded, store.ErrShuttingDown, store.ErrClosed, store.ErrBehind, store.ErrNotActive)},
		{exitUnavailable, as[*net.OpError]},
		{exitUnavailable, as[*net.DNSError]},
		{exitUnavailable, kerr.IsRetriable},
	} {
		if row.match(err) {
			return row.code
		}
	}
	return exitFailure
}

func is(targets ...error) func(error) bool {
	return func(err error) bool {
		for _, t := range targets {
			if errors.Is(err, t) {
				return true
			}
		}
		return false
	}
}

func as[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// denied reports what a broker or an instance refuses to whom we are.
func denied(err error) bool {
	return is(store.ErrPermissionDenied, kerr.SaslAuthenticationFailed, kerr.TopicAuthorizationFailed, kerr.GroupAuthorizationFailed,
		kerr.ClusterAuthorizationFailed, kerr.TransactionalIDAuthorizationFailed, kerr.UnsupportedSaslMechanism,
		kerr.IllegalSaslState)(err)
}
