package cli

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/statemesh/statemesh/cmd/statemesh/internal/trialbroker"
)

// brokerEvent is the line of `statemesh broker -o json`.
type brokerEvent struct {
	Event    string `json:"event"` // "listening"
	Endpoint string `json:"endpoint"`
}

func newBrokerCommand() *cobra.Command {
	var cfg trialbroker.Config
	cmd := &cobra.Command{
		Use:     "broker",
		GroupID: groupTry,
		Short:   "Run a small broker for trials and tests, not for anything else",
		Long: `Run a broker that speaks Kafka's protocol, for a first run and for tests. It is not a Kafka: one node, no
replication, no guarantee beyond its process. Without --data everything is in memory.`,
		Example: `  statemesh broker --listen 127.0.0.1:9092 --data ./trial`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			out, err := newPrinter(cmd)
			if err != nil {
				return err
			}
			cfg.Logger = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			b, err := trialbroker.Start(ctx, cfg)
			if err != nil {
				return err
			}
			kept := "in memory, gone with this process"
			if cfg.DataDir != "" {
				kept = "kept in " + cfg.DataDir
			}
			line := fmt.Sprintf("trial broker at %s (%s). For trials and tests only.", b.Addr(), kept)
			err = errors.Join(out.row(brokerEvent{Event: "listening", Endpoint: b.Addr()}, line), out.flush())
			if err == nil {
				<-ctx.Done()
			}
			return errors.Join(err, b.Close())
		},
	}
	outputFlag(cmd)
	cmd.Flags().StringVar(&cfg.Listen, "listen", "127.0.0.1:9092", "address, host:port; port 0 takes a free one")
	cmd.Flags().StringVar(&cfg.DataDir, "data", "", "directory that keeps topics and groups over restarts (default in memory)")
	cmd.Flags().DurationVar(&cfg.MinSessionTimeout, "min-session-timeout", 0, "shortest session timeout a group may ask for (default 1s)")
	cmd.Flags().IntVar(&cfg.MaxMessageBytes, "max-message-bytes", 0, "largest batch it takes, in bytes (default 1048588)")
	return cmd
}
