//go:build realkafka

package postgres

import (
	"math/rand/v2"
	"testing"

	"github.com/statemesh/statemesh/internal/kafkatest"
	"github.com/statemesh/statemesh/processor/declared"
)

// TestRealKafkaKills is TestKills with a real broker.
func TestRealKafkaKills(t *testing.T) {
	b := kafkatest.Run(t, map[string]string{"num.partitions": "3"})
	w := newWorld(t, b.Brokers(), 3, rand.Uint64())
	policy := "compact"
	if _, err := w.admin.CreateTopic(t.Context(), 3, 1, map[string]*string{"cleanup.policy": &policy}, testTopic); err != nil {
		t.Fatal(err)
	}
	w.kills(t, declared.Table, 4)
	t.Run("stream", func(t *testing.T) {
		w.tb = t
		w.kills(t, declared.Stream, 2)
	})
}
