package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/statemesh/statemesh/client"
	"github.com/statemesh/statemesh/internal/configfile"
	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/store"
)

// CF-09: each kind of failure has its documented code, however deep it is wrapped.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	wrap := func(err error) error { return fmt.Errorf("outer: %w", errors.Join(fmt.Errorf("inner: %w", err))) }
	for _, c := range []struct {
		err  error
		want int
	}{
		{errors.New("something"), exitFailure},
		{usageError{errors.New("--x")}, exitUsage},
		{&store.UnknownStoreError{Store: "s"}, exitUsage},
		{&store.WrongKindError{}, exitUsage},
		{&store.InvalidKeyError{}, exitUsage},
		{store.ErrNotFound, exitNotFound},
		{&wire.AbsentError{Store: "s"}, exitNotFound},
		{configfile.LoadError{{Text: "x"}}, exitConfig},
		{&store.NoReplicaError{}, exitUnavailable},
		{&store.NotReadyError{}, exitUnavailable},
		{store.ErrShuttingDown, exitUnavailable},
		{client.ErrNoMap, exitUnavailable},
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, exitUnavailable},
		{&net.DNSError{Name: "nowhere"}, exitUnavailable},
		{kerr.LeaderNotAvailable, exitUnavailable},
		{context.DeadlineExceeded, exitTimeout},
		{errWrong, exitWrong},
		{store.ErrLocked, exitLocal},
		{&net.OpError{Op: "listen", Err: os.NewSyscallError("bind", syscall.EADDRINUSE)}, exitLocal},
		{&fs.PathError{Op: "write", Err: syscall.ENOSPC}, exitLocal},
		{&fs.PathError{Op: "mkdir", Err: syscall.EACCES}, exitLocal},
		{&store.PermissionDeniedError{}, exitDenied},
		{kerr.SaslAuthenticationFailed, exitDenied},
		{kerr.TopicAuthorizationFailed, exitDenied},
		{context.Canceled, exitInterrupted},
	} {
		if got := codeOf(wrap(c.err)); got != c.want {
			t.Errorf("%v: exit code %d, want %d", c.err, got, c.want)
		}
		if !slices.ContainsFunc(ExitCodes(), func(e ExitCode) bool { return e.Code == c.want }) {
			t.Errorf("exit code %d is not documented", c.want)
		}
	}
}
