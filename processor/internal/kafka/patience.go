package kafka

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// patience makes a member stay one until its coordinator says otherwise. The client library would give a membership up by itself, when
// every broker refuses a connection, one closes it before the first answer, or a request has been repeated for long. But only the
// coordinator ends a membership; while it is away no session ends either, and a member that gave up is one that the coordinator knows
// when it is back: each generation waits for it until its session has ended. (Upstream: AbstractCoordinator repeats without an end.)
func (c Config) patience() []kgo.Opt {
	return []kgo.Opt{
		kgo.RetryTimeoutFn(retryTimeouts(c.RetryTimeout)),
		kgo.AlwaysRetryEOF(),
		kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := c.dial(ctx, network, addr)
			if err != nil && !errors.Is(err, context.Canceled) {
				err = &net.OpError{Op: "dial", Net: network, Err: &awayError{err}}
			}
			return conn, err
		}),
	}
}

// retryTimeouts is for how long a request is repeated: 0, without an end, what keeps a member in the group.
func retryTimeouts(other time.Duration) func(key int16) time.Duration {
	return func(key int16) time.Duration {
		switch kmsg.Key(key) {
		case kmsg.JoinGroup, kmsg.SyncGroup, kmsg.Heartbeat, kmsg.OffsetFetch:
			return 0
		default:
			return other
		}
	}
}

// awayError is a connection that was not made, whatever the reason, as one that may be made later: the client repeats what times out.
type awayError struct{ err error }

func (e *awayError) Error() string { return e.err.Error() }

func (e *awayError) Unwrap() error { return e.err }

// Timeout implements [net.Error].
func (e *awayError) Timeout() bool { return true }

// Temporary implements [net.Error].
func (e *awayError) Temporary() bool { return true }
