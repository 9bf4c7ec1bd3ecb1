package client

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/statemesh/statemesh/store"
)

// ErrNoMap reports that no instance and no seed gave the map, so there is nobody to ask.
var ErrNoMap = errors.New("client: nobody gave the map")

// ErrCut reports that the server ended a scan at READ_UNCOMMITTED before its last row, at its limit of rows or bytes for one
// stream or because its state became too old. There is no commit to go on from: select less, with bounds or a limit, or read at
// READ_COMMITTED, where a scan goes on by itself.
var ErrCut = errors.New("client: scan cut off: select less, or read at READ_COMMITTED")

// CallError is a call that was not answered. It unwraps to what the last attempt said, an error of package store or
// [github.com/statemesh/statemesh/proto/wire.ErrUnreachable], and to the error of the context when that ended the call.
type CallError struct {
	// Op is what was asked: "get", "batch get", "scan", "count", "learn the map".
	Op    string
	Store store.Name
	// Endpoint of the instance that was asked last; empty when there was nobody to ask.
	Endpoint string
	// Attempts that were made.
	Attempts int
	// Took is the time from the call to its end.
	Took time.Duration
	// Err is what the last attempt said.
	Err error
	// Ctx is the context's error when that ended the call, else nil.
	Ctx error
}

func (e *CallError) Error() string {
	s := e.Op
	if e.Store != "" {
		s += " " + string(e.Store)
	}
	if e.Endpoint != "" {
		s += " at " + e.Endpoint
	}
	if e.Attempts > 1 {
		s += fmt.Sprintf(" (%d attempts in %s)", e.Attempts, e.Took.Round(time.Millisecond))
	}
	if e.Ctx != nil {
		s += ": " + e.Ctx.Error()
	}
	return s + ": " + e.Err.Error()
}

// Unwrap returns Err, and Ctx if there is one.
func (e *CallError) Unwrap() []error {
	if e.Ctx != nil {
		return []error{e.Err, e.Ctx}
	}
	return []error{e.Err}
}

// listed is what several instances said, in one line.
type listed []error

func (l listed) Error() string {
	texts := make([]string, len(l))
	for i, err := range l {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns what each of them said.
func (l listed) Unwrap() []error { return l }
