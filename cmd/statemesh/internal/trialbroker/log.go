package trialbroker

import (
	"fmt"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kfake"
)

// logAdapter carries kfake's lines into slog at their own level. kfake knows no contexts and formats its own text.
type logAdapter struct{ log *slog.Logger }

func (a logAdapter) Logf(level kfake.LogLevel, format string, args ...any) {
	switch level {
	case kfake.LogLevelError:
		a.log.Error("trial broker", "text", fmt.Sprintf(format, args...))
	case kfake.LogLevelWarn:
		a.log.Warn("trial broker", "text", fmt.Sprintf(format, args...))
	default: // its info and debug lines are per request: formatting them would cost more than the request
	}
}
