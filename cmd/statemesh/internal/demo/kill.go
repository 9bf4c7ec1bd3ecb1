package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/statemesh/statemesh/client"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// Kill is what became of the process that was killed.
type Kill struct {
	Instance int `json:"instance"`
	// AtRecord is how many records had been acknowledged.
	AtRecord int `json:"at_record"`
	// Tasks it held.
	Tasks int `json:"tasks"`
	// AnsweredSeconds is how long it took until another instance answered for every view partition it had owned. 0 with
	// a fleet of one.
	AnsweredSeconds float64 `json:"answered_seconds"`
	// BackSeconds is how long its successor, on the same state directory, took to serve.
	BackSeconds float64 `json:"back_seconds"`
}

// kill ends a process with SIGKILL, waits for the others to take over, and starts it again.
func (d *demo) kill(ctx context.Context, victim *node, at int) error {
	m, err := d.client.Metadata(ctx)
	if err != nil {
		return err
	}
	k := Kill{Instance: victim.number, AtRecord: at}
	for _, inst := range m.Instances() {
		if inst.ID == victim.instance {
			k.Tasks = len(inst.Active)
		}
	}
	owned := d.keysOf(m, victim.instance)
	pid := victim.proc.pid()
	victim.proc.kill()
	struck := time.Now()
	d.say.line("kill", "instance %d (process %d) with SIGKILL at record %s; it held %d tasks", k.Instance, pid, thousands(at), k.Tasks)

	if others := d.others(victim); len(others) > 0 {
		if err := d.awaitTakeOver(ctx, others[0], owned); err != nil {
			return err
		}
		k.AnsweredSeconds = time.Since(struck).Seconds()
		d.say.line("", "the others answer for its keys after %s", seconds(time.Since(struck)))
	}
	begin := time.Now()
	if err := d.fleet.launch(victim); err != nil {
		return err
	}
	startCtx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := d.fleet.awaitServing(startCtx, victim); err != nil {
		return err
	}
	k.BackSeconds = time.Since(begin).Seconds()
	d.say.line("", "started again on its state: serves after %s, process %d", seconds(time.Since(begin)), victim.proc.pid())
	d.report.Kill = &k
	return nil
}

// ownedKey is a key that an instance owned.
type ownedKey struct {
	store store.Name
	key   string
}

// keysOf returns one key of each view partition that an instance owns, as far as there are keys.
func (d *demo) keysOf(m *router.Snapshot, instance string) []ownedKey {
	var keys []ownedKey
	for _, v := range d.half {
		seen := make(map[store.Partition]bool)
		for _, key := range v.keys {
			name := store.Name(v.name)
			p, err := m.Partition(name, []byte(key))
			if err != nil || seen[p] {
				continue
			}
			seen[p] = true
			for _, r := range m.Replicas(name, p) {
				if r.Role == store.RoleActive && r.Instance == instance {
					keys = append(keys, ownedKey{name, key})
				}
			}
		}
	}
	return keys
}

// awaitTakeOver asks one of the others until it has an answer for each key.
func (d *demo) awaitTakeOver(parent context.Context, n *node, keys []ownedKey) error {
	ctx, cancel := context.WithTimeoutCause(parent, startTimeout, errors.New("nobody took over in time"))
	defer cancel()
	for _, k := range keys {
		for {
			_, err := d.client.Get(ctx, k.store, []byte(k.key), client.NoCache(), client.Via(n.endpoint))
			if err == nil {
				break
			}
			if parent.Err() != nil {
				return context.Cause(parent)
			}
			if ctx.Err() != nil {
				return fmt.Errorf("key %s of %s: %w (%w)", k.key, k.store, context.Cause(ctx), err)
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}
	return nil
}
