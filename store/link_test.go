package store_test

import (
	"os/exec"
	"strings"
	"testing"
)

// Whoever speaks the vocabulary links the standard library and nothing else.
func TestLinksStandardLibraryOnly(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	const self = "github.com/statemesh/statemesh/store"
	if deps := strings.Fields(string(out)); len(deps) != 1 || deps[0] != self {
		t.Errorf("links %q, want %s alone", deps, self)
	}
}
