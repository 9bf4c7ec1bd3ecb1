package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"

	"github.com/spf13/cobra"

	"github.com/statemesh/statemesh/client"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

type scanRow struct {
	Key       json.RawMessage `json:"key"`
	Start     string          `json:"start,omitempty"` // RFC 3339, like End: of windows, sessions, versions
	End       string          `json:"end,omitempty"`
	Value     json.RawMessage `json:"value"`
	Timestamp *int64          `json:"timestamp,omitempty"` // Unix milliseconds
	Partition int32           `json:"partition"`
}

type scanFlags struct {
	from, to, prefix string
	times            timeFlags
	page             pageFlags
	partition        int32
}

func newScanCommand(p Process) *cobra.Command {
	var ask askFlags
	var read readFlags
	var keys keyFlags
	var f scanFlags
	cmd := &cobra.Command{
		Use:     "scan STORE",
		GroupID: groupAsk,
		Short:   "Read rows in the order of their keys",
		Long: `Read rows in the order of their key bytes, over all partitions or one. Bounds are inclusive. The rows of a
partition are of one commit. Windows come by key and start, sessions by key and end; the bounds in time select windows
by their start, and sessions by overlap. Output that ends with an error is not complete.`,
		Example: `  statemesh scan flights_by_carrier
  statemesh scan latest_by_tailnum --prefix N1 --limit 10 -o json
  statemesh scan departures_per_hour --time-from 2013-01-01T06:00:00Z --time-to 2013-01-01T08:00:00Z`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			out, err := newPrinter(cmd, "KEY", "VALUE", "PARTITION")
			if err != nil {
				return err
			}
			if err := errors.Join(f.times.parse(), f.page.check()); err != nil {
				return err
			}
			return ask.run(cmd, p, func(ctx context.Context, s *session) error {
				if err := read.apply(s, args[0]); err != nil {
					return err
				}
				if cmd.Flags().Changed("partition") {
					s.opts = append(s.opts, client.InPartition(store.Partition(f.partition)))
				}
				info, err := s.storeInfo(ctx, args[0])
				if err != nil {
					return err
				}
				q, err := f.query(cmd, &keys, info)
				if err != nil {
					return err
				}
				rows, err := f.rows(ctx, s, info, q)
				if err != nil {
					return err
				}
				return writeRows(out, info, rows)
			})
		},
	}
	ask.add(cmd)
	read.add(cmd)
	keys.add(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.from, "from", "", "smallest key, inclusive")
	fl.StringVar(&f.to, "to", "", "greatest key, inclusive")
	fl.StringVar(&f.prefix, "prefix", "", "only keys that begin with this")
	f.times.add(cmd, "time-from", "time-to")
	f.page.add(cmd)
	fl.Int32Var(&f.partition, "partition", 0, "only this partition (default all)")
	return cmd
}

// rows begins the scan that the kind of the store has.
func (f *scanFlags) rows(ctx context.Context, s *session, info router.StoreInfo, q client.ScanQuery) (iter.Seq2[client.Row, error], error) {
	page := client.Page{Reverse: q.Reverse, Limit: q.Limit}
	timed := info.Kind == store.KindWindow || info.Kind == store.KindTimestampedWindow || info.Kind == store.KindSession
	switch {
	case !timed && f.times.given():
		return nil, usageError{fmt.Errorf("--time-from, --time-to: %s is a %s store", info.Name, info.Kind)}
	case timed && q.Prefix != nil:
		return nil, usageError{fmt.Errorf("--prefix: %s is a %s store: key-value stores only", info.Name, info.Kind)}
	case info.Kind == store.KindSession:
		return s.ScanSessions(ctx, info.Name, client.SessionQuery{
			KeyFrom: q.From, KeyTo: q.To, EarliestEnd: f.times.from, LatestStart: f.times.to, Page: page,
		}, s.opts...), nil
	case timed:
		return s.ScanWindows(ctx, info.Name, client.WindowQuery{
			KeyFrom: q.From, KeyTo: q.To, From: f.times.from, To: f.times.to, Page: page,
		}, s.opts...), nil
	default:
		return s.Scan(ctx, info.Name, q, s.opts...), nil
	}
}

func (f *scanFlags) query(cmd *cobra.Command, keys *keyFlags, info router.StoreInfo) (client.ScanQuery, error) {
	q := client.ScanQuery{Reverse: f.page.reverse, Limit: f.page.limit}
	for _, b := range []struct {
		flag, text string
		to         *[]byte
	}{{"from", f.from, &q.From}, {"to", f.to, &q.To}} {
		if !cmd.Flags().Changed(b.flag) {
			continue
		}
		key, err := keys.parse(b.text, info)
		if err != nil {
			return q, err
		}
		*b.to = key
	}
	if cmd.Flags().Changed("prefix") {
		if q.From != nil || q.To != nil {
			return q, usageError{errors.New("--prefix cannot be combined with --from or --to")}
		}
		q.Prefix = []byte(f.prefix)
		if keys.form == "hex" || keys.form == "base64" {
			var err error
			if q.Prefix, err = parseKey(f.prefix, keys.form); err != nil {
				return q, err
			}
		}
	}
	return q, nil
}

// writeRows writes the rows of a scan; those of windows, sessions and versions with their times.
func writeRows(out *printer, info router.StoreInfo, rows iter.Seq2[client.Row, error]) error {
	timed := false
	for row, err := range rows {
		if err != nil {
			return errors.Join(err, out.flush())
		}
		if !timed && !row.Span.IsZero() {
			timed = true
			out.columns("KEY", "START", "END", "VALUE", "PARTITION")
		}
		if err := writeRow(out, row, info); err != nil {
			return err
		}
	}
	return out.flush()
}

func writeRow(out *printer, row client.Row, info router.StoreInfo) error {
	key, value := show(row.Key, info.KeyFormat), show(row.Value.Data, info.ValueFormat)
	r := scanRow{Key: key.json, Value: value.json, Partition: int32(row.Partition)}
	r.Start, r.End = showSpan(row.Span)
	if row.Value.Timestamp >= 0 {
		r.Timestamp = &row.Value.Timestamp
	}
	if row.Span.IsZero() {
		return out.row(r, key.text, value.text, fmt.Sprint(row.Partition))
	}
	return out.row(r, key.text, r.Start, cmp.Or(r.End, "-"), value.text, fmt.Sprint(row.Partition))
}
