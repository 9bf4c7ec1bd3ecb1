package badgerdb

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/dgraph-io/badger/v4"
)

// logger passes Badger's messages on. What Badger calls information is of interest only to who debugs it.
type logger struct {
	ctx func() context.Context
	log *slog.Logger
	// ignored is set when Badger said that it goes on without a table that it could not read.
	ignored atomic.Bool
}

var _ badger.Logger = (*logger)(nil)

func newLogger(ctx context.Context, log *slog.Logger) *logger {
	ctx = context.WithoutCancel(ctx)
	return &logger{ctx: func() context.Context { return ctx }, log: log}
}

func (l *logger) Errorf(format string, args ...any) {
	if strings.HasPrefix(format, "Ignoring table") {
		l.ignored.Store(true)
	}
	l.write(slog.LevelError, format, args)
}

func (l *logger) Warningf(format string, args ...any) { l.write(slog.LevelWarn, format, args) }
func (l *logger) Infof(format string, args ...any)    { l.write(slog.LevelDebug, format, args) }

// Debugf drops what Badger says about its steps.
func (l *logger) Debugf(string, ...any) {}

func (l *logger) write(level slog.Level, format string, args []any) {
	if ctx := l.ctx(); l.log.Enabled(ctx, level) {
		l.log.Log(ctx, level, "badger", "message", strings.TrimSpace(fmt.Sprintf(format, args...)))
	}
}
