package layered

import (
	"context"
	"fmt"
	"slices"

	"github.com/statemesh/statemesh/store"
	"github.com/statemesh/statemesh/store/engine"
)

// newTask checks specs and lays out a task without data.
func (s *Stores) newTask(id store.TaskID, specs []store.Spec) (*Task, error) {
	t := &Task{
		id: id, stores: s, specs: slices.Clone(specs), moving: newTurn(), gone: make(chan struct{}),
		byName: make(map[store.Name]*part, len(specs)), scans: make(map[*scanPin]struct{}),
	}
	for _, spec := range specs {
		if spec.Name == "" {
			return nil, fmt.Errorf("task %s: a store without a name", id)
		}
		if err := spec.Validate(); err != nil {
			return nil, fmt.Errorf("task %s: store %s: %w", id, spec.Name, err)
		}
		if _, ok := t.byName[spec.Name]; ok {
			return nil, fmt.Errorf("task %s: store %s is declared twice", id, spec.Name)
		}
		p := &part{placed: &placed{spec: spec}, task: t, number: len(t.parts)}
		if segmentsOf(spec) != nil {
			p.expired = s.metrics.expired.WithLabelValues(string(spec.Name))
		}
		if spec.Kind == store.KindVersioned {
			p.versions = &versions{}
		}
		t.byName[spec.Name] = p
		t.parts = append(t.parts, p)
	}
	return t, nil
}

// load opens the task's key spaces and publishes what they hold. Nobody else has the task yet, or the caller holds all
// its rights (Wipe).
func (t *Task) load(ctx context.Context) error {
	t.engines = nil
	for _, on := range t.stores.media() {
		if err := t.openSpace(ctx, on); err != nil {
			return err
		}
	}
	first, seqs, err := t.found()
	if err != nil {
		return err
	}
	for _, p := range t.parts {
		p.active, p.written = p.newTable(), nil
		p.now = moment{time: noTime, seq: seqs[p.spec.Name]}
		if at, ok := first.StoreTimes[p.spec.Name]; ok {
			p.now.time = at
		}
		if p.versions != nil {
			p.versions.begin(p.now.time)
		}
		if err := t.expire(p.placed, p.now); err != nil {
			return err
		}
	}
	v := &view{task: t, cp: first}
	if v.bases, err = t.newBases(); err != nil {
		return err
	}
	v.retain()
	for _, p := range t.parts {
		v.stores = append(v.stores, storeView{placed: p.placed, layers: []layer{{table: p.active}}, now: p.now})
	}
	t.pub.Lock()
	defer t.pub.Unlock()
	// Ticks go on from where they were: open snapshots of a wiped copy still count theirs.
	v.tick = t.marks.current
	t.publish(v)
	t.marks = marks{current: v.tick + 1, published: v.tick, oldest: t.oldest()}
	t.moved = v.tick
	t.uncommitted = 0
	t.fresh.Store(true)
	return nil
}

// newTable is an empty table for the store.
func (p *part) newTable() *table {
	if p.segments != nil {
		return newOrderedTable(p.task.stores.seed)
	}
	return newTable(p.task.stores.seed)
}

// medium is where a store is kept.
type medium uint8

const (
	onDisk medium = iota
	inMemory
)

// media are those that the stores have.
func (s *Stores) media() []medium {
	if s.cfg.InMemory {
		return []medium{inMemory}
	}
	return []medium{onDisk, inMemory}
}

// mediumOf says where a store is kept.
func (s *Stores) mediumOf(spec store.Spec) medium {
	if spec.InMemory || s.cfg.InMemory {
		return inMemory
	}
	return onDisk
}

// openSpace opens the key space of the stores on one medium, where there are any.
func (t *Task) openSpace(ctx context.Context, on medium) error {
	var mine []*part
	for _, p := range t.parts {
		if t.stores.mediumOf(p.spec) == on {
			mine = append(mine, p)
		}
	}
	eng, limits := t.stores.home(t.id, on)
	if len(mine) == 0 {
		return dropSpace(ctx, eng, t.id) // of a former topology
	}
	var had engine.Space
	for _, sp := range eng.Spaces() {
		if sp.Task == t.id {
			had = sp
		}
	}
	var rec record
	if had.Record != nil {
		var err error
		if rec, err = decodeRecord(had.Record); err != nil {
			return err
		}
	}
	declared := make([]engine.Declared, 0, len(mine))
	for _, p := range mine {
		fresh := had.Record != nil && !rec.fits(p.spec, had.Stores[p.spec.Name].ID)
		declared = append(declared, engine.Declared{Name: p.spec.Name, Kind: p.spec.Kind, Fresh: fresh})
	}
	sp, err := eng.Open(ctx, t.id, declared)
	if err != nil {
		return err
	}
	for _, p := range mine {
		p.placed = &placed{
			spec: p.spec, engine: len(t.engines), id: sp.Stores[p.spec.Name].ID, segments: segmentsOf(p.spec),
		}
		limits := limits
		if t.stores.cfg.InMemory && !p.spec.InMemory {
			limits = t.stores.diskOptions().Limits() // what the disk would refuse is refused in its place
		}
		if p.limits, err = t.stores.limitsOf(p.spec, limits); err != nil {
			return err
		}
	}
	t.engines = append(t.engines, &engineUse{Engine: eng, space: sp.ID})
	t.stores.wake() // what Open left behind may be reclaimed
	return nil
}

// found is the checkpoint of what the engines hold, with the numbers of the last rows of stores with duplicates.
func (t *Task) found() (cp store.Checkpoint, seqs map[store.Name]int32, err error) {
	n := 0
	seqs = make(map[store.Name]int32)
	for i, use := range t.engines {
		for _, sp := range use.Spaces() {
			if sp.ID != use.space || sp.Record == nil {
				continue
			}
			rec, err := decodeRecord(sp.Record)
			if err != nil {
				return cp, nil, err
			}
			for name, s := range rec.Stores {
				p, ok := t.byName[name]
				if ok && p.engine == i && p.id == s.ID {
					seqs[name] = s.Seq
					continue
				}
				delete(rec.Stores, name) // gone, or begun anew since
			}
			own := rec.checkpoint(func(name store.Name) bool {
				_, ok := rec.Stores[name]
				return ok && !t.byName[name].spec.NoChangelog
			})
			if n++; n == 1 {
				cp = own
			} else {
				cp = combine(cp, own)
			}
		}
	}
	if n == 0 {
		cp = store.Checkpoint{StreamTime: -1}
	}
	for _, p := range t.parts {
		if _, ok := cp.Changelogs[p.spec.Name]; !ok && !p.spec.NoChangelog {
			cp.Restoring = true
		}
	}
	return cp, seqs, nil
}

// home is the engine of a task's stores on a medium: where its copy is, or else where the fewest are.
func (s *Stores) home(id store.TaskID, on medium) (engine.Engine, engine.Limits) {
	if on == inMemory {
		return s.memory, engine.Limits{}
	}
	best, fewest := s.disks[0], -1
	for i, d := range s.disks {
		spaces := d.Spaces()
		if slices.ContainsFunc(spaces, func(sp engine.Space) bool { return sp.Task == id }) {
			return d.Engine, d.limits
		}
		if i < s.cfg.Databases && (fewest < 0 || len(spaces) < fewest) {
			best, fewest = d, len(spaces)
		}
	}
	return best.Engine, best.limits
}

// dropSpace drops the key space of a task if there is one.
func dropSpace(ctx context.Context, e engine.Engine, id store.TaskID) error {
	for _, sp := range e.Spaces() {
		if sp.Task == id {
			return e.Drop(ctx, sp.ID)
		}
	}
	return nil
}
