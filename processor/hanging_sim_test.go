package processor

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// hang leaves a transaction open that has an offset of the group in it. The result ends it.
func (f *fleet) hang(topic string, partition int32) (end func()) {
	f.t.Helper()
	ctx := f.t.Context()
	cl, err := kgo.NewClient(kgo.SeedBrokers(f.brokers...), kgo.Dialer(f.dial), kgo.MaxVersions(offsetVersions()))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(cl.Close)
	id := "hanging"
	init := kmsg.NewPtrInitProducerIDRequest()
	init.TransactionalID, init.TransactionTimeoutMillis = &id, int32((10 * time.Minute).Milliseconds())
	producer, err := init.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(producer.ErrorCode)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	add := kmsg.NewPtrAddOffsetsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = id, producer.ProducerID, producer.ProducerEpoch, testApp
	added, err := add.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(added.ErrorCode)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	commit := kmsg.NewPtrTxnOffsetCommitRequest()
	commit.TransactionalID, commit.Group, commit.Generation = id, testApp, -1
	commit.ProducerID, commit.ProducerEpoch = producer.ProducerID, producer.ProducerEpoch
	t := kmsg.NewTxnOffsetCommitRequestTopic()
	t.Topic = topic
	p := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	p.Partition = partition
	t.Partitions = append(t.Partitions, p)
	commit.Topics = append(commit.Topics, t)
	committed, err := commit.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(committed.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return func() {
		if _, err := init.RequestWith(ctx, cl); err != nil {
			f.t.Error(err)
		}
	}
}

// TestSimHangingTransaction: an open transaction over an input is waited for by the restore of its task, for minutes and
// by name, not by the start of the instance, which would end before the transaction can.
func TestSimHangingTransaction(t *testing.T) {
	simulate(t, func(t *testing.T, rng *rand.Rand) {
		f := newFleet(t, true, 2)
		f.options = func(c *Config) { c.TaskTimeout = 2 * time.Minute }
		tr := truth{}
		f.produce(tr, rng, 100, 20)
		a := f.start("a")
		f.waitCaughtUp(time.Minute)
		if err := a.stop(); err != nil {
			t.Fatal(err)
		}

		end := f.hang(testInput, 0)
		f.produce(tr, rng, 100, 20)
		a = f.start("a")
		time.Sleep(time.Duration(30+rng.IntN(60)) * time.Second)
		select {
		case <-a.done:
			t.Fatalf("run: %v, while it can wait", a.err)
		default:
		}
		end()
		f.waitCaughtUp(time.Minute)
		f.eventually("all served", time.Minute, func() error { return allServe(2, a) })
		f.check(tr, a)
		if err := a.stop(); err != nil {
			t.Fatal(err)
		}

		f.hang(testInput, 0)
		a = f.start("a")
		select {
		case <-a.done:
		case <-time.After(10 * time.Minute):
			t.Fatal("still waiting")
		}
		if !is[*TaskError](a.err) || !strings.Contains(a.err.Error(), "offsets of "+testInput) {
			t.Fatalf("run: %v; want an error of a task that names the input", a.err)
		}
	})
}
