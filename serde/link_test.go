package serde_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Who names a serde links the standard library and the type of a UUID.
func TestLinksNothing(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	deps := strings.Fields(string(out))
	slices.Sort(deps)
	if want := []string{"github.com/google/uuid", "github.com/statemesh/statemesh/serde"}; !slices.Equal(deps, want) {
		t.Errorf("links %q, want %q", deps, want)
	}
}
