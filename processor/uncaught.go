package processor

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// UncaughtAction is what follows when a stream thread fails for good: after retries, and with what no other handler took
// (upstream's StreamsUncaughtExceptionHandler, KIP-671).
type UncaughtAction uint8

// The answers. ShutdownInstance is the default.
const (
	// ShutdownInstance ends the runtime with the error (upstream's SHUTDOWN_CLIENT). Other instances take its tasks over, and fail
	// in turn if a record is the reason.
	ShutdownInstance UncaughtAction = iota
	// ReplaceThread begins the thread again, with a new membership and new processors, after a pause that grows up to half a
	// minute (upstream's REPLACE_THREAD). The other threads' tasks go on meanwhile.
	ReplaceThread
)

// String is the word of configuration files.
func (a UncaughtAction) String() string {
	switch a {
	case ShutdownInstance:
		return "shutdown-instance"
	case ReplaceThread:
		return "replace-thread"
	default:
		return "unknown"
	}
}

// PanicError reports that a processor panicked. No handler passes over it: what the processor left half done is undone with
// its transaction, and nobody knows what else it was about.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.Value, e.Stack) }

// guard turns a panic of what the task runs into its failure. It is deferred where the task calls what is not ours.
func (t *task) guard(err *error) {
	if v := recover(); v != nil {
		*err = t.fail(&PanicError{Value: v, Stack: debug.Stack()})
	}
}

// keepThread runs a thread until ctx ends, again if it fails and the handler says so.
func (r *Runtime) keepThread(ctx, hard context.Context, t *thread) error {
	const first, last = 200 * time.Millisecond, 30 * time.Second
	for wait := first; ; wait = min(2*wait, last) {
		began := r.now()
		err := t.run(ctx, hard)
		if err == nil || ctx.Err() != nil || r.cfg.UncaughtHandler != ReplaceThread || !mayPass(err) {
			return err
		}
		if r.now().Sub(began) > time.Minute {
			wait = first
		}
		r.metrics.replaced.Inc()
		r.cfg.Listener.ThreadReplaced(t.index, err)
		t.log.ErrorContext(ctx, "stream thread failed and is replaced", "error", err, "after", wait)
		t.reset()
		if sleep(ctx, wait) != nil {
			return nil //nolint:nilerr // to end is what was asked
		}
	}
}

// mayPass reports whether a thread that failed may succeed another time: the leader's refusal is about the process, and stays.
func mayPass(err error) bool { return !is[*RefusedError](err) && !errors.Is(err, errStopHere) }

// reset forgets what the thread knew of its former life. Its next membership has another transactional id.
func (t *thread) reset() {
	t.attempt++
	t.stop, t.failures, t.aborted = nil, 0, nil
	t.refusal, t.refusedSince = nil, time.Time{}
	t.fetchErrs = nil
}
