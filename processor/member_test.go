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

// TestWishesEndWithTheNextJoin: what asks for a join is met by any that begins later, and by none that had begun: what that says was
// read before.
func TestWishesEndWithTheNextJoin(t *testing.T) {
	t.Parallel()
	m := newMember(t.Context())
	m.joinsNow()
	m.note(memberEvent{kind: eventRejoin})
	m.says(false)
	if m.joined() {
		t.Error("it has not said that it drains")
	}
	m.note(memberEvent{kind: eventNudge})
	events, _ := m.take()
	for _, e := range events {
		if m.joinedSince(&e) {
			t.Errorf("event %d was noted after the join had begun", e.kind)
		}
	}
	m.joinsNow()
	m.says(true)
	for _, e := range events {
		if !m.joinedSince(&e) {
			t.Errorf("event %d asks for a join that has begun", e.kind)
		}
	}
	if !m.isJoining() || !m.joined() || m.isJoining() {
		t.Error("it joined, and said that it drains")
	}
}
