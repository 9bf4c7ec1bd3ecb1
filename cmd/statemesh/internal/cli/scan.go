package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/statemesh/statemesh/client"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

type scanRow struct {
	Key       json.RawMessage `json:"key"`
	Value     json.RawMessage `json:"value"`
	Timestamp *int64          `json:"timestamp,omitempty"` // Unix milliseconds
	Partition int32           `json:"partition"`
}

type scanFlags struct {
	from, to, prefix string
	reverse          bool
	limit            int64
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
partition are of one commit. Output that ends with an error is not complete.`,
		Example: `  statemesh scan flights_by_carrier
  statemesh scan latest_by_tailnum --prefix N1 --limit 10 -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			out, err := newPrinter(cmd, "KEY", "VALUE", "PARTITION")
			if err != nil {
				return err
			}
			if f.limit < 0 {
				return usageError{fmt.Errorf("--limit %d: want 0 for all, or more", f.limit)}
			}
			return ask.run(cmd, p, func(ctx context.Context, s *session) error {
				if err := read.apply(s); err != nil {
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
				for row, err := range s.Scan(ctx, info.Name, q, s.opts...) {
					if err != nil {
						return errors.Join(err, out.flush())
					}
					if err := writeRow(out, row, info); err != nil {
						return err
					}
				}
				return out.flush()
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
	fl.BoolVar(&f.reverse, "reverse", false, "greatest key first")
	fl.Int64VarP(&f.limit, "limit", "n", 0, "most rows (default all)")
	fl.Int32Var(&f.partition, "partition", 0, "only this partition (default all)")
	return cmd
}

func (f *scanFlags) query(cmd *cobra.Command, keys *keyFlags, info router.StoreInfo) (client.ScanQuery, error) {
	q := client.ScanQuery{Reverse: f.reverse, Limit: f.limit}
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

func writeRow(out *printer, row client.Row, info router.StoreInfo) error {
	key, value := show(row.Key, info.KeyFormat), show(row.Value.Data, info.ValueFormat)
	r := scanRow{Key: key.json, Value: value.json, Partition: int32(row.Partition)}
	if row.Value.Timestamp >= 0 {
		r.Timestamp = &row.Value.Timestamp
	}
	return out.row(r, key.text, value.text, fmt.Sprint(row.Partition))
}
