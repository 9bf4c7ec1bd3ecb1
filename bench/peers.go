package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// The topologies of bench/peers, run by Kafka Streams and by us, one after the other, on the same topics with the same guarantee. Both
// are processes that are measured from outside: by what the group has committed, and by what the system says of the process. The second
// half of the records counts, so that the peer's compiler is done.
const (
	peersIn, peersTable = "peers-in", "peers-table"
	peersPartitions     = 4
	peersHours          = 24 // of the records' timestamps
)

var peersJar = filepath.Join("bench", "peers", "kafka-streams", "target")

// peers compares; see Main.java for the other side.
func peers(ctx context.Context, b *bench) error {
	if _, err := os.Stat(filepath.Join(peersJar, "lib")); err != nil {
		return fmt.Errorf("%w; make bench-peers builds it", err)
	}
	if err := b.peersInput(ctx); err != nil {
		return err
	}
	for _, t := range peerTopologies() {
		for _, guarantee := range []string{"exactly_once_v2", "at_least_once"} {
			if b.peerOnly != "" && b.peerOnly != t.name || b.guaranteeOnly != "" && b.guaranteeOnly != guarantee {
				continue
			}
			_, _ = fmt.Fprintf(b.log, "bench: %s, %s\n", t.name, guarantee)
			theirs, err := b.peer(ctx, t.name, guarantee, "theirs", b.startTheirs)
			if err != nil {
				return fmt.Errorf("kafka streams, %s: %w", t.name, err)
			}
			ours, err := b.peer(ctx, t.name, guarantee, "ours", b.startOurs)
			if err != nil {
				return fmt.Errorf("%s: %w", t.name, err)
			}
			what := fmt.Sprintf("%s, %s, 2nd half", t.name, guarantee)
			b.table.rate(what, "records/CPU s", ours.perCPU, "Kafka Streams", theirs.perCPU, t.goal)
			b.table.rate(what, "records/s", ours.perSecond, "Kafka Streams", theirs.perSecond, "")
			b.table.cost(t.name+", "+guarantee+", most resident", "MB", ours.resident, "Kafka Streams", theirs.resident, "< 0.33")
		}
	}
	return nil
}

// peersInput makes the topics: records of a day, in their order, and a table with every key.
func (b *bench) peersInput(ctx context.Context) error {
	for _, topic := range []string{peersIn, peersTable} {
		if err := b.create(ctx, topic, peersPartitions, forGood()); err != nil {
			return err
		}
	}
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	step := peersHours * time.Hour / time.Duration(b.records)
	err := b.load(ctx, peersIn, b.records, func(i int) *kgo.Record {
		v := value(i)
		v[0] = byte(rand.IntN(256))
		return &kgo.Record{Key: key(rand.IntN(b.keys)), Value: v, Timestamp: begin.Add(time.Duration(i) * step)}
	})
	if err != nil {
		return err
	}
	return b.load(ctx, peersTable, b.keys, func(i int) *kgo.Record {
		return &kgo.Record{Key: key(i), Value: value(i), Timestamp: begin}
	})
}

// forGood keeps records whatever their timestamps are: a broker deletes by these what is a week old.
func forGood() map[string]*string { return map[string]*string{"retention.ms": new("-1")} }

// peerRun is what one side did.
type peerRun struct{ perCPU, perSecond, resident float64 }

type starter func(ctx context.Context, topology, app, out, guarantee string) (*child, error)

// peer runs one side until it has committed every record.
func (b *bench) peer(ctx context.Context, topology, guarantee, side string, start starter) (r peerRun, err error) {
	app := strings.Join([]string{topology, guarantee, side}, "-")
	out := app + "-out"
	if err := b.create(ctx, out, peersPartitions, forGood()); err != nil {
		return r, err
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.brokers...))
	if err != nil {
		return r, err
	}
	defer cl.Close()
	c, err := start(ctx, topology, app, out, guarantee)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	half, err := c.committed(ctx, kadm.NewClient(cl), app, int64(b.records/2))
	if err != nil {
		return r, err
	}
	end, err := c.committed(ctx, kadm.NewClient(cl), app, int64(b.records))
	if err != nil {
		return r, err
	}
	n := float64(end.records - half.records)
	r.perCPU = n / (time.Duration(end.ticks-half.ticks) * tick).Seconds()
	r.perSecond = n / end.at.Sub(half.at).Seconds()
	r.resident, err = c.memory("VmHWM:")
	return r, err
}

// progress is how far a process is, and what it has used for it.
type progress struct {
	at             time.Time
	ticks, records int64
}

// committed waits until the application has committed so many records of the input.
func (c *child) committed(ctx context.Context, adm *kadm.Client, app string, want int64) (p progress, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Minute, fmt.Errorf("%d records: not after 30 minutes", want))
	defer cancel()
	for {
		offsets, err := adm.FetchOffsets(ctx, app)
		if err == nil {
			p.records = 0
			offsets.Each(func(o kadm.OffsetResponse) {
				if o.Topic == peersIn {
					p.records += max(o.At, 0)
				}
			})
			if p.records >= want {
				p.at = time.Now()
				p.ticks, err = c.ticks()
				return p, err
			}
		}
		select {
		case <-c.exited:
			return p, errors.Join(errors.New("the process ended"), c.err)
		default:
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return p, errors.Join(context.Cause(ctx), err)
		}
	}
}

// peerInterval is how often both sides commit: the default of exactly once; under at least once often enough to see how far they are.
func peerInterval(guarantee string) time.Duration {
	if guarantee == "exactly_once_v2" {
		return 100 * time.Millisecond
	}
	return time.Second
}

// startTheirs starts Kafka Streams with its defaults but for the guarantee, one thread and a heap of a gigabyte.
func (b *bench) startTheirs(ctx context.Context, topology, app, out, guarantee string) (*child, error) {
	classes := peersJar + "/kafka-streams-peer-1.jar:" + peersJar + "/lib/*"
	return b.startProcess(exec.CommandContext(ctx, "java", "-Xmx1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", classes,
		"peers.Main", topology, strings.Join(b.brokers, ","), app, filepath.Join(b.dir, app), peersIn, out, peersTable,
		"processing.guarantee="+guarantee, "num.stream.threads=1", fmt.Sprintf("commit.interval.ms=%d", peerInterval(guarantee).Milliseconds())))
}

// startOurs starts this program with the same topology and settings.
func (b *bench) startOurs(ctx context.Context, topology, app, out, guarantee string) (*child, error) {
	return b.startChild(ctx, app, "-peer", topology, "-out", out, "-guarantee", guarantee)
}
