package kafka

import (
	"context"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kgo"
)

// logger hands the client library's messages to slog. What the library calls info is several lines per transaction: it is
// our debug, and its debug is a step below.
type logger struct {
	to *slog.Logger
	//nolint:containedctx // kgo.Logger has no context to pass on; this one is empty and never ends
	ctx context.Context
}

func newLogger(to *slog.Logger) logger {
	return logger{to: to, ctx: context.Background()} //nolint:forbidigo // see the field
}

// Level is asked before each message, so a logger whose level changes at run time is followed.
func (l logger) Level() kgo.LogLevel {
	for lv := kgo.LogLevelDebug; lv > kgo.LogLevelNone; lv-- {
		if l.to.Enabled(l.ctx, slogLevel(lv)) {
			return lv
		}
	}
	return kgo.LogLevelNone
}

// Log implements kgo.Logger.
func (l logger) Log(level kgo.LogLevel, msg string, keyvals ...any) {
	if level > kgo.LogLevelNone {
		l.to.Log(l.ctx, slogLevel(level), msg, keyvals...) //nolint:sloglint // the message is the library's own
	}
}

func slogLevel(level kgo.LogLevel) slog.Level {
	switch level {
	case kgo.LogLevelDebug:
		return slog.LevelDebug - 4
	case kgo.LogLevelInfo:
		return slog.LevelDebug
	case kgo.LogLevelWarn:
		return slog.LevelWarn
	default:
		return slog.LevelError
	}
}
