package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/statemesh/statemesh/client"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

type countRow struct {
	Store string `json:"store"`
	Rows  int64  `json:"rows"`
	Exact bool   `json:"exact"`
}

func newCountCommand(p Process) *cobra.Command {
	var ask askFlags
	var read readFlags
	var exact bool
	var partition int32
	cmd := &cobra.Command{
		Use:     "count STORE",
		GroupID: groupAsk,
		Short:   "Count the rows of a store",
		Long: `Count the rows of a store: keys, windows, sessions, or, in a versioned store, keys that have a value. The number is an
estimate, unless --exact has every row counted, which costs as much as a scan. A versioned store has only the estimate.`,
		Example: `  statemesh count flights_by_carrier --exact`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			out, err := newPrinter(cmd)
			if err != nil {
				return err
			}
			return ask.run(cmd, p, func(ctx context.Context, s *session) error {
				if err := read.apply(s, args[0]); err != nil {
					return err
				}
				if cmd.Flags().Changed("partition") {
					s.opts = append(s.opts, client.InPartition(store.Partition(partition)))
				}
				count := s.Count
				if exact {
					count = s.CountExact
				}
				n, err := count(ctx, store.Name(args[0]), s.opts...)
				if err != nil {
					return err
				}
				out.notePartial(n.Answers...)
				row := countRow{Store: args[0], Rows: n.Approximate, Exact: exact}
				return errors.Join(out.row(row, fmt.Sprint(row.Rows)), out.flush())
			})
		},
	}
	ask.add(cmd)
	read.add(cmd)
	cmd.Flags().BoolVar(&exact, "exact", false, "count every row")
	cmd.Flags().Int32Var(&partition, "partition", 0, "only this partition (default all)")
	return cmd
}

type partitionRow struct {
	Store     string   `json:"store"`
	Partition int32    `json:"partition"`
	Rows      *int64   `json:"approximate_rows"`
	Bytes     *int64   `json:"approximate_bytes"`
	Owner     string   `json:"owner"`
	Global    bool     `json:"global,omitempty"` // every instance has it
	Standbys  []string `json:"standbys"`
}

func newDescribeCommand(p Process) *cobra.Command {
	var ask askFlags
	cmd := &cobra.Command{
		Use:     "describe STORE",
		GroupID: groupAsk,
		Short:   "Tell how large the partitions of a store are and who holds them",
		Long: `Tell how large each partition of a store is, approximately, and who holds it. "-" is what nobody could tell: for a
partition that nobody can be asked for, exits with the reason.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			out, err := newPrinter(cmd, "PARTITION", "ROWS", "BYTES", "OWNER", "STANDBYS")
			if err != nil {
				return err
			}
			return ask.run(cmd, p, func(ctx context.Context, s *session) error {
				return s.describe(ctx, out, store.Name(args[0]))
			})
		},
	}
	ask.add(cmd)
	return cmd
}

func (s *session) describe(ctx context.Context, out *printer, name store.Name) error {
	m, err := s.Metadata(ctx)
	if err != nil {
		return err
	}
	info, err := m.Store(name)
	if err != nil {
		return err
	}
	n, failed := s.Count(ctx, name, s.opts...) // what is known without it is shown all the same
	sizes := make(map[store.Partition]client.PartitionCount, len(n.Partitions))
	for _, c := range n.Partitions {
		sizes[c.Partition] = c
	}
	for p := range store.Partition(info.Partitions) {
		replicas := m.Replicas(name, p)
		r := partitionRow{Store: string(name), Partition: int32(p), Global: info.Global, Standbys: []string{}}
		for _, rep := range replicas {
			switch {
			case info.Global: // nobody in particular
			case rep.Role == store.RoleActive:
				r.Owner = rep.Endpoint
			default:
				r.Standbys = append(r.Standbys, rep.Endpoint)
			}
		}
		rows, bytes := "-", "-"
		if c, ok := sizes[p]; ok {
			r.Rows, rows = &c.Rows, fmt.Sprint(c.Rows)
			if c.Bytes >= 0 {
				r.Bytes, bytes = &c.Bytes, fmt.Sprint(c.Bytes)
			}
		}
		slices.Sort(r.Standbys)
		owner := cmp.Or(r.Owner, "-")
		if info.Global {
			owner = "every instance"
		}
		if err := out.row(r, fmt.Sprint(p), rows, bytes, owner, fmt.Sprint(len(r.Standbys))); err != nil {
			return err
		}
	}
	return errors.Join(failed, out.flush())
}

// orDash is a duration that a store may not have.
func orDash(d time.Duration) string {
	if d <= 0 {
		return "-"
	}
	return d.String()
}

// storeRowOf is a row of `stores`.
func storeRowOf(st router.StoreInfo) storeRow {
	return storeRow{
		Name: string(st.Name), Kind: st.Kind.String(), Partitions: st.Partitions, Subtopology: st.Subtopology,
		Key: orBytes(st.KeyFormat), Value: orBytes(st.ValueFormat), SourceTopic: st.SourceTopic,
		RetentionMillis: st.Retention.Milliseconds(), WindowMillis: st.WindowSize.Milliseconds(),
	}
}
