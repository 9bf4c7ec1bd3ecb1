package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/statemesh/statemesh/client"
	"github.com/statemesh/statemesh/router"
)

// timedCommand is a command that asks for rows of one key by time.
type timedCommand struct {
	ask   askFlags
	read  readFlags
	keys  keyFlags
	times timeFlags
	page  pageFlags
}

func (t *timedCommand) add(cmd *cobra.Command) {
	t.ask.add(cmd)
	t.read.add(cmd)
	t.keys.add(cmd)
}

func (t *timedCommand) addRange(cmd *cobra.Command) {
	t.add(cmd)
	t.times.add(cmd, "from", "to")
	t.page.add(cmd)
}

// asking is what a command asks of a store about a key.
type asking func(ctx context.Context, s *session, out *printer, info router.StoreInfo, key []byte) error

// asks gives a command that asks for a range of times its flags and what it does.
func (t *timedCommand) asks(cmd *cobra.Command, p Process, ask asking) *cobra.Command {
	cmd.GroupID = groupAsk
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return t.run(cmd, p, args, ask) }
	t.addRange(cmd)
	return cmd
}

// run finds the store and reads the key, then asks.
func (t *timedCommand) run(cmd *cobra.Command, p Process, args []string, ask asking) error {
	out, err := newPrinter(cmd)
	if err != nil {
		return err
	}
	if err := errors.Join(t.times.parse(), t.page.check()); err != nil {
		return usageError{err}
	}
	return t.ask.run(cmd, p, func(ctx context.Context, s *session) error {
		if err := t.read.apply(s, args[0]); err != nil {
			return err
		}
		info, err := s.storeInfo(ctx, args[0])
		if err != nil {
			return err
		}
		var key []byte
		if len(args) > 1 {
			if key, err = t.keys.parse(args[1], info); err != nil {
				return err
			}
			if key == nil {
				key = []byte{}
			}
		}
		return ask(ctx, s, out, info, key)
	})
}

func newFetchCommand(p Process) *cobra.Command {
	var t timedCommand
	var at string
	cmd := t.asks(&cobra.Command{
		Use:   "fetch STORE KEY",
		Short: "Read windows of a key",
		Long: `Read the windows of a key that start between --from and --to, or the value of the one that starts exactly at
--at. Without any of these: all windows that are kept. A window that is not there exits with 3 when --at asked for it.`,
		Example: `  statemesh fetch departures_per_hour JFK --from 2013-01-01T05:00:00Z --to 2013-01-01T08:00:00Z
  statemesh fetch departures_per_hour JFK --at 1357020000000 -o json`,
		Args: cobra.ExactArgs(2),
	}, p, func(ctx context.Context, s *session, out *printer, info router.StoreInfo, key []byte) error {
		if at == "" {
			return writeRows(out, info, s.ScanWindows(ctx, info.Name, client.WindowQuery{
				Key: key, From: t.times.from, To: t.times.to, Page: t.page.page(),
			}, s.opts...))
		}
		start, err := parseTime("--at", at)
		if err != nil {
			return err
		}
		r, err := s.FetchWindow(ctx, info.Name, key, start, s.opts...)
		return writePoint(out, info, key, r, err)
	})
	cmd.Flags().StringVar(&at, "at", "", "start of the window: RFC 3339, or milliseconds since 1970")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		for _, other := range []string{"from", "to", "reverse", "limit"} {
			if at != "" && cmd.Flags().Changed(other) {
				return usageError{fmt.Errorf("--at is about one window: it cannot be combined with --%s", other)}
			}
		}
		return nil
	}
	return cmd
}

func newSessionsCommand(p Process) *cobra.Command {
	var t timedCommand
	return t.asks(&cobra.Command{
		Use:   "sessions STORE [KEY]",
		Short: "Read the sessions of a key, or of all",
		Long: `Read sessions, of one key or of all, that overlap the time from --from to --to: those that end at --from or later and
start at --to or earlier. Start and end of a session are both inclusive.`,
		Example: `  statemesh sessions visits user-7
  statemesh sessions visits --from 2013-01-01T05:00:00Z --to 2013-01-01T08:00:00Z -o json`,
		Args: cobra.RangeArgs(1, 2),
	}, p, func(ctx context.Context, s *session, out *printer, info router.StoreInfo, key []byte) error {
		return writeRows(out, info, s.ScanSessions(ctx, info.Name, client.SessionQuery{
			Key: key, EarliestEnd: t.times.from, LatestStart: t.times.to, Page: t.page.page(),
		}, s.opts...))
	})
}

func newAsOfCommand(p Process) *cobra.Command {
	var t timedCommand
	cmd := &cobra.Command{
		Use:     "as-of STORE KEY TIME",
		GroupID: groupAsk,
		Short:   "Read the value that a key had at some time",
		Long: `Read the version of a key that was valid at TIME: RFC 3339, or milliseconds since 1970. A key that had no value then
exits with 3, and so does a time before the store's history begins.`,
		Example: `  statemesh as-of prices ACME 2013-01-01T05:00:00Z`,
		Args:    cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := parseTime("TIME", args[2])
			if err != nil {
				return err
			}
			return t.run(cmd, p, args[:2], func(ctx context.Context, s *session, out *printer, info router.StoreInfo, key []byte) error {
				r, err := s.GetAsOf(ctx, info.Name, key, at, s.opts...)
				return writePoint(out, info, key, r, err)
			})
		},
	}
	t.add(cmd)
	return cmd
}

func newHistoryCommand(p Process) *cobra.Command {
	var t timedCommand
	return t.asks(&cobra.Command{
		Use:   "history STORE KEY",
		Short: "Read the versions of a key",
		Long: `Read the versions of a key that were valid at some time between --from and --to, each with the time it was valid. "-" is
the end of the latest.`,
		Example: `  statemesh history prices ACME --from 2013-01-01T00:00:00Z --reverse`,
		Args:    cobra.ExactArgs(2),
	}, p, func(ctx context.Context, s *session, out *printer, info router.StoreInfo, key []byte) error {
		return writeRows(out, info, s.ScanVersions(ctx, info.Name, client.VersionQuery{
			Key: key, From: t.times.from, To: t.times.to, Page: t.page.page(),
		}, s.opts...))
	})
}
