package cli

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/statemesh/statemesh/client"
)

// yearOrMillis are as many digits as a year has. Whoever types them means one, and as milliseconds they would be ten seconds of
// 1970, which selects everything or nothing.
const yearOrMillis = 4

// parseTime reads a time as RFC 3339 has it, or as Unix milliseconds.
func parseTime(what, text string) (time.Time, error) {
	if _, err := strconv.ParseUint(text, 10, 64); err == nil && len(text) == yearOrMillis {
		return time.Time{}, usageError{fmt.Errorf("%s %s: a year or milliseconds? want %s-01-01T00:00:00Z, or %s with a zero in front for milliseconds since 1970", what, text, text, text)}
	}
	if ms, err := strconv.ParseInt(text, 10, 64); err == nil {
		if ms < 0 {
			return time.Time{}, usageError{fmt.Errorf("%s %s: before 1970", what, text)}
		}
		return time.UnixMilli(ms).UTC(), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, usageError{fmt.Errorf("%s %q: want a time like 2013-01-01T06:00:00Z, or milliseconds since 1970", what, text)}
	}
	if t.Before(time.UnixMilli(0)) {
		return time.Time{}, usageError{fmt.Errorf("%s %s: before 1970", what, text)}
	}
	return t, nil
}

// showTime is a time for people and programs.
func showTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.999Z07:00") }

// showSpan is a time span; "" for what it does not have.
func showSpan(s client.Span) (start, end string) {
	if s.IsZero() {
		return "", ""
	}
	if !s.End.IsZero() {
		end = showTime(s.End)
	}
	return showTime(s.Start), end
}

// timeFlags bound a time, both ends inclusive.
type timeFlags struct {
	fromName, toName string
	fromText, toText string
	from, to         time.Time // zero: open
}

func (f *timeFlags) add(cmd *cobra.Command, from, to string) {
	f.fromName, f.toName = from, to
	cmd.Flags().StringVar(&f.fromText, from, "", "earliest time, inclusive: RFC 3339, or milliseconds since 1970 (default open)")
	cmd.Flags().StringVar(&f.toText, to, "", "latest time, inclusive (default open)")
}

func (f *timeFlags) parse() error {
	var err1, err2 error
	if f.fromText != "" {
		f.from, err1 = parseTime("--"+f.fromName, f.fromText)
	}
	if f.toText != "" {
		f.to, err2 = parseTime("--"+f.toName, f.toText)
	}
	if err := errors.Join(err1, err2); err != nil {
		return usageError{err}
	}
	return nil
}

func (f *timeFlags) given() bool { return f.fromText != "" || f.toText != "" }

// pageFlags say which rows of those selected are wanted.
type pageFlags struct {
	reverse bool
	limit   int64
}

func (f *pageFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.reverse, "reverse", false, "greatest key, or latest time, first")
	cmd.Flags().Int64VarP(&f.limit, "limit", "n", 0, "most rows (default all)")
}

func (f *pageFlags) check() error {
	if f.limit < 0 {
		return usageError{fmt.Errorf("--limit %d: want 0 for all, or more", f.limit)}
	}
	return nil
}

func (f *pageFlags) page() client.Page { return client.Page{Reverse: f.reverse, Limit: f.limit} }
