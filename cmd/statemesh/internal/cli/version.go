package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

type versionInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func newVersionCommand(p Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out, err := newPrinter(cmd)
			if err != nil {
				return err
			}
			v := readVersion(p.Version)
			line := fmt.Sprintf("statemesh %s (%s, %s)", v.Version, v.Go, v.Platform)
			if err := out.row(v, line); err != nil {
				return err
			}
			return out.flush()
		},
	}
	outputFlag(cmd)
	return cmd
}

// readVersion prefers what was stamped, then the version of the module, then the revision it was built from.
func readVersion(stamped string) versionInfo {
	v := versionInfo{Version: stamped, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.Revision = s.Value
		}
	}
	if v.Version == "" {
		v.Version = info.Main.Version
	}
	if (v.Version == "" || v.Version == "(devel)") && len(v.Revision) >= 12 {
		v.Version = "devel-" + v.Revision[:12]
	}
	if v.Version == "" {
		v.Version = "devel"
	}
	return v
}
