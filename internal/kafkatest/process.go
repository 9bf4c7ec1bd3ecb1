package kafkatest

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/statemesh/statemesh/internal/childproc"
)

// serves returns when something listens at addr, or with an error when the process or ctx ends before.
func serves(ctx context.Context, p *childproc.Process, addr string) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var dialer net.Dialer
	for {
		if conn, err := dialer.DialContext(ctx, "tcp", addr); err == nil {
			return conn.Close()
		}
		select {
		case <-tick.C:
		case <-p.Done():
			return errors.New("the process ended")
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
