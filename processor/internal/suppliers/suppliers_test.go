package suppliers_test

import (
	"io"
	"strings"
	"testing"

	"github.com/statemesh/statemesh/processor/internal/suppliers"
)

type empty struct{}

func (*empty) Read([]byte) (int, error) { return 0, io.EOF }

func TestReason(t *testing.T) {
	t.Parallel()
	one := strings.NewReader("one")
	for _, c := range []struct {
		name     string
		supplier func() io.Reader
		want     string
	}{
		{"a new one each time", func() io.Reader { return strings.NewReader("") }, ""},
		{"nothing to share", func() io.Reader { return &empty{} }, ""},
		{"none", nil, "has no supplier"},
		{"nil", func() io.Reader { return nil }, "its supplier returned nil"},
		{"nil of a type", func() io.Reader { return (*strings.Reader)(nil) }, "its supplier returned nil"},
		{"the same one", func() io.Reader { return one }, "its supplier must return a new processor at each call"},
	} {
		if have := suppliers.Reason(c.supplier); have != c.want {
			t.Errorf("%s: %q, want %q", c.name, have, c.want)
		}
	}
}
