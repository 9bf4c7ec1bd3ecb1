package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// progress reports on long work: how much, how fast, and when it will be done.
type progress struct {
	out      io.Writer
	what     string // "records"
	done     atomic.Int64
	fraction func() float64 // of the whole, 0 to 1; nil or negative: not known
	terminal bool
}

// newProgress writes to w: on a terminal one line that is overwritten, elsewhere a line now and then.
func newProgress(w io.Writer, what string, fraction func() float64) *progress {
	p := &progress{out: w, what: what, fraction: fraction}
	if f, ok := w.(*os.File); ok {
		if info, err := f.Stat(); err == nil {
			p.terminal = info.Mode()&os.ModeCharDevice != 0
		}
	}
	return p
}

// run reports until ctx ends. The first report comes only after the first interval: quick work stays silent.
func (p *progress) run(ctx context.Context) {
	interval := 5 * time.Second
	if p.terminal {
		interval = 500 * time.Millisecond
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	begin := time.Now()
	for shown := false; ; {
		select {
		case <-tick.C:
			p.line(time.Since(begin))
			shown = true
		case <-ctx.Done():
			if shown && p.terminal {
				_, _ = fmt.Fprint(p.out, "\r\x1b[K")
			}
			return
		}
	}
}

func (p *progress) line(took time.Duration) {
	n := p.done.Load()
	text := fmt.Sprintf("%s %s, %s/s", thousands(n), p.what, thousands(int64(float64(n)/took.Seconds())))
	if p.fraction != nil {
		if f := p.fraction(); f > 0 {
			left := time.Duration(float64(took) * (1 - f) / f).Round(time.Second)
			text += fmt.Sprintf(", %.0f %%, about %s left", 100*f, left)
		}
	}
	if p.terminal {
		text = "\r\x1b[K" + text
	} else {
		text += "\n"
	}
	_, _ = io.WriteString(p.out, text)
}

// thousands writes 336776 as 336,776.
func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	neg := strings.HasPrefix(s, "-")
	s = strings.TrimPrefix(s, "-")
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	if neg {
		return "-" + s
	}
	return s
}
