package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// subtopologyRow is a line of `statemesh topology describe -o json`.
type subtopologyRow struct {
	Subtopology int32  `json:"subtopology"`
	Global      bool   `json:"global,omitempty"`
	Application string `json:"application"`
	// Nodes, each one behind its predecessors.
	Nodes  []nodeRow          `json:"nodes"`
	Stores []topologyStoreRow `json:"stores"`
}

type nodeRow struct {
	Name         string       `json:"name"`
	Kind         string       `json:"kind"` // source, processor, sink
	Topics       []string     `json:"topics,omitempty"`
	Stores       []store.Name `json:"stores,omitempty"`
	Successors   []string     `json:"successors,omitempty"`
	Predecessors []string     `json:"predecessors,omitempty"`
}

type topologyStoreRow struct {
	Name      string `json:"name"`
	Kind      string `json:"kind"`
	Changelog string `json:"changelog,omitempty"`
	InMemory  bool   `json:"in_memory,omitempty"`
}

func newTopologyDescribeCommand(p Process) *cobra.Command {
	var ask askFlags
	var sets []string
	var format string
	cmd := &cobra.Command{
		Use:   "describe [FILE]",
		Short: "Show the topology of an instance or of a configuration as text, as a picture or as data",
		Long: `Show the topology that a running instance has, or that of a configuration file: sub-topologies with their sources, processors, stores
and sinks. The text has the form of Kafka Streams' TopologyDescription; mermaid is drawn by GitHub and others, dot by Graphviz. With
-o json there is one object per sub-topology.`,
		Example: `  statemesh topology describe --addr 10.0.0.7:7070
  statemesh topology describe mesh.yaml
  statemesh topology describe mesh.yaml --format dot | dot -Tsvg > mesh.svg`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			out, err := newPrinter(cmd)
			if err != nil {
				return err
			}
			form := map[string]func(*router.Topology) string{
				"text":    func(t *router.Topology) string { return t.Text },
				"mermaid": func(t *router.Topology) string { return t.Mermaid },
				"dot":     func(t *router.Topology) string { return t.DOT },
			}[format]
			if form == nil {
				return usageError{fmt.Errorf("--format %q: want text, mermaid or dot", format)}
			}
			show := func(t *router.Topology) error { return showTopology(cmd, out, t, form) }
			if len(args) == 0 {
				if len(sets) > 0 {
					return usageError{errors.New("--set: a running instance has its settings")}
				}
				return ask.run(cmd, p, func(ctx context.Context, s *session) error {
					addr, err := ask.one()
					if err != nil {
						return err
					}
					t, err := s.Topology(ctx, addr)
					if err != nil {
						return err
					}
					return show(t)
				})
			}
			if len(ask.addrs) > 0 {
				return usageError{fmt.Errorf("--addr and %s: want one of them", args[0])}
			}
			b, err := builtOf(p, args[0], sets)
			if err != nil {
				return err
			}
			return show(b.Description())
		},
	}
	ask.add(cmd)
	cmd.Flags().StringVar(&format, "format", "text", "text, mermaid or dot")
	cmd.Flags().StringArrayVar(&sets, "set", nil, "setting as key=value, above file and environment; may be repeated")
	return cmd
}

// showTopology writes a topology in a form, or as data.
func showTopology(cmd *cobra.Command, out *printer, t *router.Topology, form func(*router.Topology) string) error {
	if !out.json() {
		_, err := fmt.Fprint(cmd.OutOrStdout(), form(t))
		return err
	}
	for _, sub := range t.Subtopologies {
		if err := out.row(subtopologyRowOf(t.Application, sub)); err != nil {
			return err
		}
	}
	return out.flush()
}

func subtopologyRowOf(application string, sub router.Subtopology) subtopologyRow {
	r := subtopologyRow{Subtopology: sub.ID, Global: sub.Global, Application: application, Nodes: []nodeRow{}, Stores: []topologyStoreRow{}}
	for _, n := range sub.Nodes {
		r.Nodes = append(r.Nodes, nodeRow{
			Name: n.Name, Kind: n.Kind.String(), Topics: n.Topics, Stores: n.Stores, Successors: n.Successors, Predecessors: n.Predecessors,
		})
	}
	for _, st := range sub.Stores {
		r.Stores = append(r.Stores, topologyStoreRow{Name: string(st.Name), Kind: st.Kind.String(), Changelog: st.Changelog, InMemory: st.InMemory})
	}
	return r
}
