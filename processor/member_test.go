package processor

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A poll that waits in vain has brought nothing, whatever the client puts into its fetches: it is what makes the member look again.
func TestPollInVain(t *testing.T) {
	t.Parallel()
	cl, err := kgo.NewClient(kgo.SeedBrokers("127.0.0.1:1"), kgo.ConsumeTopics("in"), kgo.BlockRebalanceOnPoll())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.CloseAllowingRebalance()
	m := newMember(t.Context())
	m.client = cl
	if fetches := m.poll(t.Context(), time.Millisecond, 1); !broughtNothing(fetches) {
		t.Fatalf("%d records from a broker that is not there, in %d fetches", fetches.NumRecords(), len(fetches))
	}
}
