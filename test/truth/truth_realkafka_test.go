//go:build realkafka

package truth

import (
	"testing"

	"github.com/statemesh/statemesh/internal/kafkatest"
)

// TestRealKafkaTruth proves all answers on a real Kafka.
func TestRealKafkaTruth(t *testing.T) {
	b := kafkatest.Run(t, nil)
	t.Run("clicks", func(t *testing.T) { proveClicks(t, b.Brokers()) })
	t.Run("flights", func(t *testing.T) { proveFlights(t, b.Brokers()) })
}
