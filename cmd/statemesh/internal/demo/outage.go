package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/statemesh/statemesh/client"
	"github.com/statemesh/statemesh/store"
)

// Outage is what readers saw of one kill.
type Outage struct {
	Instance int `json:"instance"`
	// Tasks it ran.
	Tasks int `json:"tasks"`
	// Bounded are reads that accept a copy of a certain age, Owner those that insist on the owner.
	Bounded Reads `json:"bounded"`
	Owner   Reads `json:"owner"`
	// BackSeconds is how long its successor, on the same state directory, took to serve.
	BackSeconds float64 `json:"back_seconds"`
}

// Reads are those of one kind from one kill to the next.
type Reads struct {
	Asked  int `json:"asked"`
	Failed int `json:"failed"`
	Wrong  int `json:"wrong"`
	// OutageSeconds is the longest time that the keys of one partition got no answer.
	OutageSeconds float64 `json:"outage_seconds"`
}

const (
	// readBound is the age that bounded reads accept. The dead owner's session is shorter.
	readBound = 10 * time.Second
	// readPatience is how long a reader waits for one answer before it counts a failure and asks again.
	readPatience = 500 * time.Millisecond
	// copiesPause is long enough for copies of this size to be read, once they are placed.
	copiesPause = time.Second
)

// outages kills one instance after the other while readers ask for keys of every partition, and says what they saw.
func (d *demo) outages(ctx context.Context) error {
	if d.opts.KillEvery <= 0 {
		return nil
	}
	d.say.gap()
	d.say.line("outage", "%d kills, one every %s; reads accept %s, or insist on the owner", d.opts.Kills, d.opts.KillEvery, readBound)
	for i := range d.opts.Kills {
		if err := d.awaitCopies(ctx); err != nil {
			return err
		}
		o, err := d.outage(ctx, d.fleet.nodes[i%len(d.fleet.nodes)])
		if err != nil {
			return err
		}
		d.report.Outages = append(d.report.Outages, *o)
		d.say.line("kill", "instance %d, owner of %d tasks; back on its state after %.1fs", o.Instance, o.Tasks, o.BackSeconds)
		for _, kind := range []struct {
			name string
			r    Reads
		}{{"bounded", o.Bounded}, {"owner", o.Owner}} {
			d.say.line("", "  %-7s %7s reads, %s failed, %s wrong, no answer for %4.0f ms at most",
				kind.name, thousands(kind.r.Asked), thousands(kind.r.Failed), thousands(kind.r.Wrong), 1000*kind.r.OutageSeconds)
		}
	}
	return d.verifyBoth(ctx, "after kills", d.all)
}

// awaitCopies waits until every partition of every view has its owner and its copies.
func (d *demo) awaitCopies(parent context.Context) error {
	ctx, cancel := context.WithTimeoutCause(parent, startTimeout, errors.New("the copies were not there in time"))
	defer cancel()
	for {
		m, err := d.client.Metadata(ctx)
		whole := err == nil
		if whole {
			for _, st := range m.Stores() {
				for p := range store.Partition(st.Partitions) {
					whole = whole && len(m.Replicas(st.Name, p)) > min(d.opts.Standbys, len(d.fleet.nodes)-1)
				}
			}
		}
		pause := 50 * time.Millisecond
		if whole {
			pause = copiesPause
		}
		select {
		case <-time.After(pause):
			if whole {
				return nil
			}
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// outage is one kill with its readers.
func (d *demo) outage(ctx context.Context, victim *node) (*Outage, error) {
	m, err := d.client.Metadata(ctx)
	if err != nil {
		return nil, err
	}
	o := &Outage{Instance: victim.number}
	for _, inst := range m.Instances() {
		if inst.ID == victim.instance {
			o.Tasks = len(inst.Active)
		}
	}
	reading, stop := context.WithCancel(ctx)
	defer stop()
	var readers sync.WaitGroup
	readers.Go(func() { o.Bounded = d.readOn(reading, client.MaxStaleness(readBound)) })
	readers.Go(func() { o.Owner = d.readOn(reading, client.OnlyActive()) })
	end := time.After(d.opts.KillEvery)
	err = func() error {
		select {
		case <-time.After(200 * time.Millisecond): // something to compare with
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		victim.proc.kill()
		begin := time.Now()
		if err := d.fleet.launch(victim); err != nil {
			return err
		}
		start, cancel := context.WithTimeout(ctx, startTimeout)
		defer cancel()
		if err := d.fleet.awaitServing(start, victim); err != nil {
			return err
		}
		o.BackSeconds = time.Since(begin).Seconds()
		select {
		case <-end:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}()
	stop()
	readers.Wait()
	return o, err
}

// readOn asks for random keys until ctx ends, over one partition after the other, and never gives one up: an outage ends with the
// first answer.
func (d *demo) readOn(ctx context.Context, opts ...client.Option) Reads {
	var (
		mu  sync.Mutex
		all Reads
		wg  sync.WaitGroup
	)
	opts = append(opts, client.NoCache())
	for _, keys := range d.byPartition(ctx) {
		wg.Go(func() {
			var r Reads
			last := time.Now()
			for ctx.Err() == nil {
				q := keys[rand.IntN(len(keys))]
				call, cancel := context.WithTimeout(ctx, readPatience)
				rep := ask(call, d.client, q, opts)
				cancel()
				if ctx.Err() != nil {
					break
				}
				r.Asked++
				switch {
				case rep.problem == "":
				case rep.from == "":
					r.Failed++
					continue
				default:
					r.Wrong++
				}
				r.OutageSeconds = max(r.OutageSeconds, time.Since(last).Seconds())
				last = time.Now()
				select {
				case <-time.After(5 * time.Millisecond):
				case <-ctx.Done():
				}
				last = last.Add(min(5*time.Millisecond, time.Since(last)))
			}
			mu.Lock()
			defer mu.Unlock()
			all.Asked, all.Failed, all.Wrong = all.Asked+r.Asked, all.Failed+r.Failed, all.Wrong+r.Wrong
			all.OutageSeconds = max(all.OutageSeconds, r.OutageSeconds)
		})
	}
	wg.Wait()
	return all
}

// byPartition groups the keys of the views by partition, as questions that any instance may answer.
func (d *demo) byPartition(ctx context.Context) map[string][]question {
	groups := make(map[string][]question)
	m, err := d.client.Metadata(ctx)
	if err != nil {
		return nil
	}
	for i := range d.all {
		v := &d.all[i]
		for _, key := range v.keys {
			if p, err := m.Partition(store.Name(v.name), []byte(key)); err == nil {
				name := fmt.Sprintf("%s-%d", v.name, p)
				groups[name] = append(groups[name], question{view: v, key: key})
			}
		}
	}
	return groups
}
