package restore

import (
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/statemesh/statemesh/processor/internal/commitmeta"
)

// TestCommitOfADyingOwner: the former owner commits once more while the restore asks for the offsets. What was written
// before the offsets that the restore hands on is below its bound: the offsets come first, the bound after.
func TestCommitOfADyingOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.produce(changelogTopic, 0, kv{"a", "1", 1})
		w.commitOffset(0, 10, commitmeta.Meta{Sequence: 1})
		r := w.restorer(nil)
		task := newMemoryTask(t, 0)
		req := w.request(task)
		// The copy has all there is, so a second restore fetches only what its bound tells it to.
		if _, err := r.Restore(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		other := w.client(w.kafka.Opts()...) // a connection has one request at a time
		defer other.Close()
		w.adm = kadm.NewClient(other)
		asked, done := make(chan struct{}), make(chan struct{})
		var once atomic.Bool
		w.cluster.ControlKey(int16(kmsg.OffsetFetch), func(kmsg.Request) (kmsg.Response, error, bool) {
			if !once.Swap(true) {
				close(asked)
				w.cluster.SleepControl(func() { <-done })
			}
			return nil, nil, false
		})
		w.wg.Go(func() {
			<-asked
			w.produce(changelogTopic, 0, kv{"a", "2", 2}, kv{"late", "1", 2})
			w.commitOffset(0, 20, commitmeta.Meta{Sequence: 2})
			close(done)
		})
		res, err := r.Restore(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if res.Sequence != 2 {
			t.Fatalf("sequence %d, want 2: the commit came before the answer", res.Sequence)
		}
		wantContent(t, task, countsStore, "a=2@2", "late=1@2")
	})
}
