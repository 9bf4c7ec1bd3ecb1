package certs_test

import (
	"testing"

	"github.com/statemesh/statemesh/internal/certs"
)

func TestLoopback(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]bool{
		"127.0.0.1:1": true, "127.8.9.10:1": true, "[::1]:1": true, "localhost:1": true, "LocalHost:1": true, "[::ffff:127.0.0.1]:1": true,
		"": false, ":1": false, "0.0.0.0:1": false, "[::]:1": false, "10.0.0.1:1": false, "localhost": false, "127.0.0.1": false,
		"localhost.example:1": false, "127.0.0.1.example:1": false, "mesh.example:1": false,
	} {
		if got := certs.Loopback(addr); got != want {
			t.Errorf("%q: %t, want %t", addr, got, want)
		}
	}
}
