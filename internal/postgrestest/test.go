package postgrestest

import (
	"context"
	"errors"
	"os"
	"testing"
)

// Required is the environment variable that makes a missing PostgreSQL a failure.
const Required = "POSTGRES_REQUIRED"

// Run starts a server for the time of a test, which is skipped when none is installed. When the test fails the end of the server's log is shown.
func Run(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	s, err := Start(tb.Context(), settings...)
	Need(tb, err)
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("end of the server's log:\n%s", s.LogTail(8192))
		}
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// Need ends a test that has no server: err is that of Start.
func Need(tb testing.TB, err error) {
	tb.Helper()
	switch {
	case err == nil:
	case errors.Is(err, ErrNotInstalled) && os.Getenv(Required) == "":
		tb.Skip(err)
	default:
		tb.Fatal(err)
	}
}

// MustRestart is Restart for tests.
func (s *Server) MustRestart(tb testing.TB) {
	tb.Helper()
	if err := s.Restart(context.WithoutCancel(tb.Context())); err != nil {
		tb.Fatal(err)
	}
}
