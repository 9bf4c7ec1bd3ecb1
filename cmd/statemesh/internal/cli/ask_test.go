package cli

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/statemesh/statemesh/client"
)

func TestHints(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		flags askFlags
		end   string
		want  string // of the last line; empty: no hint
	}{
		"no TLS":              {askFlags{}, "error reading server preface: EOF", "may want TLS"},
		"nobody there":        {askFlags{}, "connect: connection refused", ""},
		"TLS at plain text":   {askFlags{caFile: "ca"}, "tls: first record does not look like a TLS handshake", "may have no TLS"},
		"no certificate":      {askFlags{caFile: "ca"}, "write: broken pipe", "may want to see a certificate"},
		"refused certificate": {askFlags{caFile: "ca", certFile: "me"}, "remote error: tls: unknown certificate authority", "may not accept"},
		"other authority":     {askFlags{caFile: "ca"}, "x509: certificate signed by unknown authority", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := fmt.Errorf("learn the map: %w: %s", client.ErrNoMap, c.end)
			got := c.flags.hint(err)
			if !errors.Is(got, client.ErrNoMap) {
				t.Fatalf("%v is no longer what it was", got)
			}
			hint := strings.TrimPrefix(got.Error(), err.Error())
			if c.want == "" && hint != "" || !strings.Contains(hint, c.want) {
				t.Errorf("hint %q, want %q", hint, c.want)
			}
		})
	}
	if err := errors.New("server preface"); (&askFlags{}).hint(err) != err { //nolint:errorlint // the same value
		t.Error("a hint for what is not about connecting")
	}
}
