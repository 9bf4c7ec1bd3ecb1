package server

import (
	"testing"

	"go.uber.org/goleak"
)

// Everything ends: no test leaves a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
