package fakekafka_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/statemesh/statemesh/internal/fakekafka"
)

func client(t *testing.T, c *kfake.Cluster, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(c.ListenAddrs()...)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return cl
}

// What a transaction wrote that was aborted is never read as committed, however little of it a fetch may bring.
func TestAbortedInLargeFetch(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	cluster, err := fakekafka.New(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	cl := client(t, cluster, kgo.TransactionalID("t"), kgo.DefaultProduceTopic("in"), kgo.ProducerBatchCompression(kgo.NoCompression()))
	defer cl.Close()
	if _, err := kadm.NewClient(cl).CreateTopic(t.Context(), 1, 1, nil, "in"); err != nil {
		t.Fatal(err)
	}
	transaction := func(records int, end kgo.TransactionEndTry) {
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for range records { // a batch each
			if err := cl.ProduceSync(t.Context(), &kgo.Record{Value: fmt.Append(nil, bool(end), strings.Repeat("x", 1000))}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		if err := cl.EndTransaction(t.Context(), end); err != nil {
			t.Fatal(err)
		}
	}
	transaction(20, kgo.TryAbort)
	transaction(1, kgo.TryCommit)

	reader := client(t, cluster, kgo.ConsumeTopics("in"), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxBytes(3000))
	defer reader.Close()
	got := reader.PollFetches(t.Context()).Records()
	if len(got) != 1 || !strings.HasPrefix(string(got[0].Value), "true") {
		t.Fatalf("%d records, the first %.10q, want the one that was committed", len(got), got[0].Value)
	}
}
