package cli

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/statemesh/statemesh/internal/configfile"
)

// The references in docs are what the code says.
func TestDocsAreInStep(t *testing.T) {
	t.Parallel()
	for name, write := range references() {
		var want bytes.Buffer
		if err := write(&want); err != nil {
			t.Fatal(err)
		}
		have, err := os.ReadFile(filepath.Join("../../../../docs", name))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want.String(), string(have)); diff != "" {
			t.Errorf("docs/%s is behind the code; make docs mends it:\n%s", name, diff)
		}
	}
}

// The example in the reference is a configuration that works.
func TestExampleIsValid(t *testing.T) {
	t.Parallel()
	if _, err := configfile.Load(configfile.Source{Path: "example", Data: []byte(configfile.Example)}); err != nil {
		t.Error(err)
	}
}

// CF-08: flags of one command do not leak into another, or into the next run.
func TestFlagsDoNotLeak(t *testing.T) {
	t.Parallel()
	run := func(args ...string) string {
		var out, errs bytes.Buffer
		Run(context.Background(), Process{Args: args, Stdout: &out, Stderr: &errs, Stdin: strings.NewReader("")})
		return out.String() + errs.String()
	}
	if got := run("version", "-o", "json"); !strings.HasPrefix(got, "{") {
		t.Fatalf("with -o json: %q", got)
	}
	if got := run("version"); strings.HasPrefix(got, "{") {
		t.Errorf("after a run with -o json: %q", got)
	}
	if got := run("stores", "--addr", "example.org:1"); !strings.Contains(got, "example.org:1") {
		t.Errorf("stores: %q", got)
	}
	if got := run("instances", "--timeout", "1ms"); strings.Contains(got, "example.org") {
		t.Errorf("instances took the address of stores: %q", got)
	}
}
