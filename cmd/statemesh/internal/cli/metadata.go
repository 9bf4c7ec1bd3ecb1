package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

type storeRow struct {
	Name        string `json:"name"`
	Kind        string `json:"kind"`
	Partitions  int32  `json:"partitions"`
	Subtopology int32  `json:"subtopology"`
	Key         string `json:"key_format"`
	Value       string `json:"value_format"`
	SourceTopic string `json:"source_topic"`
	// 0 where the kind has none.
	RetentionMillis int64 `json:"retention_ms,omitempty"`
	WindowMillis    int64 `json:"window_size_ms,omitempty"`
}

func newStoresCommand(p Process) *cobra.Command {
	var ask askFlags
	cmd := &cobra.Command{
		Use:     "stores",
		GroupID: groupAsk,
		Short:   "List the stores of the application",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out, err := newPrinter(cmd, "STORE", "KIND", "PARTITIONS", "KEY", "VALUE", "WINDOW", "RETENTION", "SOURCE TOPIC")
			if err != nil {
				return err
			}
			return ask.run(cmd, p, func(ctx context.Context, s *session) error {
				m, err := s.Metadata(ctx)
				if err != nil {
					return err
				}
				for _, st := range m.Stores() {
					r := storeRowOf(st)
					if err := out.row(r, r.Name, r.Kind, fmt.Sprint(r.Partitions), r.Key, r.Value,
						orDash(st.WindowSize), orDash(st.Retention), r.SourceTopic); err != nil {
						return err
					}
				}
				return out.flush()
			})
		},
	}
	ask.add(cmd)
	return cmd
}

func orBytes(format string) string {
	if format == "" {
		return "bytes"
	}
	return format
}

type instanceRow struct {
	ID          string   `json:"id"`
	Incarnation string   `json:"incarnation"`
	Endpoint    string   `json:"endpoint"`
	Rack        string   `json:"rack,omitempty"`
	Active      []string `json:"active"`
	Standby     []string `json:"standby"`
	Epoch       int64    `json:"epoch"`
}

func newInstancesCommand(p Process) *cobra.Command {
	var ask askFlags
	cmd := &cobra.Command{
		Use:     "instances",
		GroupID: groupAsk,
		Short:   "List the instances and the tasks they hold",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out, err := newPrinter(cmd, "INSTANCE", "ENDPOINT", "RACK", "ACTIVE", "STANDBY")
			if err != nil {
				return err
			}
			return ask.run(cmd, p, func(ctx context.Context, s *session) error {
				m, err := s.Metadata(ctx)
				if err != nil {
					return err
				}
				for _, inst := range m.Instances() {
					r := instanceRow{
						ID: inst.ID, Incarnation: inst.Incarnation, Endpoint: inst.Endpoint, Rack: inst.Rack,
						Active: taskNames(inst.Active), Standby: taskNames(inst.Standby), Epoch: int64(m.Epoch()),
					}
					if err := out.row(r, r.ID, r.Endpoint, r.Rack, strings.Join(r.Active, " "), strings.Join(r.Standby, " ")); err != nil {
						return err
					}
				}
				return out.flush()
			})
		},
	}
	ask.add(cmd)
	return cmd
}

func taskNames(tasks []store.TaskID) []string {
	names := make([]string, len(tasks))
	for i, t := range tasks {
		names[i] = t.String()
	}
	return names
}

type ownerRow struct {
	Store     string   `json:"store"`
	Partition int32    `json:"partition"`
	Instance  string   `json:"instance"`
	Endpoint  string   `json:"endpoint"`
	Standbys  []string `json:"standbys"`
	MovingTo  string   `json:"moving_to,omitempty"`
	Epoch     int64    `json:"epoch"`
}

func newOwnerCommand(p Process) *cobra.Command {
	var ask askFlags
	var keys keyFlags
	cmd := &cobra.Command{
		Use:     "owner STORE KEY",
		GroupID: groupAsk,
		Short:   "Tell which partition a key belongs to and who owns it",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			out, err := newPrinter(cmd, "PARTITION", "ENDPOINT", "INSTANCE", "STANDBYS", "MOVING TO")
			if err != nil {
				return err
			}
			return ask.run(cmd, p, func(ctx context.Context, s *session) error {
				info, err := s.storeInfo(ctx, args[0])
				if err != nil {
					return err
				}
				key, err := keys.parse(args[1], info)
				if err != nil {
					return err
				}
				o, err := s.Owner(ctx, info.Name, key)
				if err != nil {
					return err
				}
				r := ownerRow{
					Store: args[0], Partition: int32(o.Partition), Instance: o.Active.Instance, Endpoint: o.Active.Endpoint,
					Standbys: endpoints(o.Standbys), MovingTo: o.MovingTo, Epoch: int64(o.Epoch),
				}
				if r.Instance == "" {
					return &store.NoReplicaError{Store: info.Name, Partition: o.Partition, Epoch: int64(o.Epoch)}
				}
				return errors.Join(out.row(r, fmt.Sprint(r.Partition), r.Endpoint, r.Instance, strings.Join(r.Standbys, " "), r.MovingTo), out.flush())
			})
		},
	}
	ask.add(cmd)
	keys.add(cmd)
	return cmd
}

func endpoints(rs []router.Replica) []string {
	out := make([]string, len(rs))
	for i, r := range rs {
		out[i] = r.Endpoint
	}
	return out
}
