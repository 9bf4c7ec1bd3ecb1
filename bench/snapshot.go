package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/statemesh/statemesh"
	"github.com/statemesh/statemesh/client"
	"github.com/statemesh/statemesh/processor"
	"github.com/statemesh/statemesh/processor/views"
)

// snapshot brings an instance that is new to what another one has, out of changelogs in which each key was written ten times, and
// out of copies of the other one's. The other one runs in a process of its own. Both are done twice, in turn; the better of two counts.
func snapshot(ctx context.Context, b *bench) (err error) {
	const app, partitions, updates, rounds = "snapshot", 4, 10, 2
	compact := "compact"
	if err := errors.Join(b.create(ctx, app, partitions, nil),
		b.create(ctx, app+"-counts-changelog", partitions, map[string]*string{"cleanup.policy": &compact})); err != nil {
		return err
	}
	keys := max(b.records/updates, 1)
	if err := b.load(ctx, app+"-counts-changelog", b.records, func(i int) *kgo.Record { return counted(i%keys, i) }); err != nil {
		return err
	}
	listen, err := freeAddr(ctx)
	if err != nil {
		return err
	}
	donor, err := b.startChild(ctx, app, "-listen", listen)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, donor.stop()) }()
	var log, copied seeded
	for round := range rounds {
		for _, way := range []struct {
			name string
			off  bool
			best *seeded
		}{{"log", true, &log}, {"copy", false, &copied}} {
			if err := b.answers(ctx, app, listen, keys); err != nil {
				return err
			}
			dir := filepath.Join(b.dir, fmt.Sprintf("%s-%s-%d", app, way.name, round))
			s, err := b.seed(ctx, app, dir, way.off, donor)
			if err != nil {
				return fmt.Errorf("by %s: %w", way.name, err)
			}
			if round == 0 || s.cpu < way.best.cpu {
				*way.best = s
			}
		}
	}
	what := fmt.Sprintf("new copies of %d tasks, %d updates per key", log.tasks, updates)
	offsets := b.records * log.tasks / partitions
	b.table.rate(what+", from a peer", "offsets/CPU s", perSecond(offsets, copied.cpu), "from the changelogs", perSecond(offsets, log.cpu), ">= 2")
	b.table.rate(what+", from a peer", "offsets/s", perSecond(offsets, copied.wall), "from the changelogs", perSecond(offsets, log.wall), "")
	b.table.figure(what+": what it costs the peer", "CPU s", copied.donor.Seconds(), "")
	return nil
}

// answers waits until an instance has all of the keys.
func (b *bench) answers(ctx context.Context, app, listen string, keys int) error {
	c, err := client.New(client.Config{Seeds: []string{listen}, Application: app})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	for have := 0; have < min(keys, 100); {
		ask, cancel := context.WithTimeout(ctx, time.Second)
		_, err := c.Get(ask, "counts", key(have), client.NoCache())
		cancel()
		if err == nil {
			have++
			continue
		}
		if wait := pause(ctx, 50*time.Millisecond); wait != nil {
			return errors.Join(wait, err)
		}
	}
	return nil
}

// seeded is what it took: the time until an instance had copies that answer, its CPU until they were on disk, and that of who gave them.
type seeded struct {
	tasks            int
	wall, cpu, donor time.Duration
}

// seed starts an instance beside the one there is, waits until the copies that the group builds there answer, and ends it.
func (b *bench) seed(ctx context.Context, app, dir string, logOnly bool, donor *child) (s seeded, err error) {
	s.tasks = 2 // of 4, as many as are built at a time
	inst, err := statemesh.New(statemesh.Config{
		Processor: processor.Config{
			ApplicationID: app, Kafka: processor.KafkaConfig{Brokers: b.brokers}, NoSnapshots: logOnly,
		},
		Views:    []views.View{{Name: "counts", Topic: app, Format: views.Bytes, Type: views.Count}},
		StateDir: dir, Listen: "127.0.0.1:0",
	})
	if err != nil {
		return s, err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- inst.Run(running) }()
	err = b.profile(filepath.Base(dir), func() error {
		from, err := b.seeds(ctx, inst, donor, &s)
		stop()
		err = errors.Join(err, <-ended)
		// What was read of changelogs is on disk only now; a copy goes there at once.
		_, s.cpu = used().since(from)
		return err
	})
	return s, errors.Join(err, os.RemoveAll(dir))
}

// seeds waits from the first copy that is begun, when the instance has started and joined, to the last that answers.
func (b *bench) seeds(ctx context.Context, inst *statemesh.Instance, donor *child, s *seeded) (from usage, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	var ticks int64
	for {
		begun, whole := copiesOf(inst)
		switch {
		case begun > 0 && from.at.IsZero():
			if ticks, err = donor.ticks(); err != nil {
				return from, err
			}
			from = used()
		case whole >= s.tasks:
			s.wall, _ = used().since(from)
			after, err := donor.ticks()
			s.donor = time.Duration(after-ticks) * tick
			return from, err
		}
		if err := pause(ctx, 2*time.Millisecond); err != nil {
			return from, fmt.Errorf("%d copies of %d: %w", whole, s.tasks, err)
		}
	}
}

// copiesOf counts what an instance has, as copies or as the owner, and what of it answers.
func copiesOf(inst *statemesh.Instance) (begun, whole int) {
	status := inst.Status()
	for _, t := range status.Tasks {
		if begun++; t.Serving {
			whole++
		}
	}
	for _, c := range status.Standbys {
		if begun++; c.Ready {
			whole++
		}
	}
	return begun, whole
}
