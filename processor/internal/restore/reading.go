package restore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/statemesh/statemesh/store"
)

// read applies the logs up to their bounds, side by side.
func (j *job) read(ctx context.Context) error {
	j.commits = time.Now()
	j.report(Restoring, nil)
	var streams []*stream
	byStream := map[*stream]*restored{}
	for _, s := range j.stores {
		if s.next >= s.end {
			continue
		}
		st := &stream{
			store: s.name, topic: s.log.Topic, id: s.facts.id, partition: int32(j.partition()), bound: s.end, next: s.next,
			cut: s.log.Replay != nil,
		}
		streams = append(streams, st)
		byStream[st] = s
	}
	if len(streams) == 0 {
		return nil
	}
	j.r.active.Add(1)
	defer j.r.active.Add(-1)
	out := j.r.open(streams)
	defer j.r.close(streams, out)
	cfg := &j.r.cfg
	tick := time.NewTicker(min(cfg.ProgressInterval, cfg.HangingTimeout/2, cfg.StallTimeout/2))
	defer tick.Stop()
	for left := len(streams); left > 0; {
		if ctx.Err() != nil { // with chunks waiting the select would see it by luck only
			return context.Cause(ctx)
		}
		select {
		case e := <-out:
			err := e.err
			if err == nil {
				err = j.apply(ctx, byStream[e.s], e)
			}
			if errors.Is(err, errOutOfRange) {
				err = &rebuildError{reason: fmt.Sprintf("changelog %s-%d no longer has offset %d", e.s.topic, e.s.partition, byStream[e.s].next)}
			}
			if err != nil {
				return err
			}
			if e.last {
				left--
			}
		case <-tick.C:
			if err := j.r.stuck(streams); err != nil {
				return err
			}
			j.report(Restoring, nil)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-j.r.done:
			return ErrStopped
		}
	}
	return nil
}

// apply hands one chunk to the task and moves the position behind it.
func (j *job) apply(ctx context.Context, s *restored, e event) error {
	defer j.r.applied(e)
	if s.chain && s.exact > 0 {
		if _, _, hole, err := s.cuts.scan(&e); err != nil || hole {
			s.chain = false
		}
	}
	if e.held > 0 {
		var d *decoder
		select {
		case d = <-j.r.decoders:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		var n counts
		var err error
		if s.log.Replay != nil {
			n, err = d.decodeRecords(e.chunk, j.partition(), s.log.Replay)
		} else {
			n, err = d.decode(e.chunk, func(changes []store.Change) error { return j.req.Task.Restore(s.name, changes) })
		}
		j.r.decoders <- d
		j.records += n.records
		j.r.metrics.read(n, e.held)
		if n.skipped > 0 {
			j.r.log.WarnContext(ctx, "changelog records without a key skipped", "task", j.req.Task.ID().String(), "store", string(s.name), "records", n.skipped)
		}
		if err != nil {
			j.req.Task.Rollback() // a part of the chunk may be in
			j.applied = false
			return fmt.Errorf("changelog %s-%d from offset %d: %w", s.log.Topic, j.partition(), e.chunk.from, err)
		}
	}
	s.next = e.next
	pos := j.cp.Changelogs[s.name]
	pos.Next = e.next
	if e.epoch >= 0 {
		pos.LeaderEpoch = e.epoch
	}
	j.cp.Changelogs[s.name] = pos
	j.applied = true
	if j.req.Task.UncommittedBytes() >= j.r.share() || !j.readable && time.Since(j.commits) >= j.r.cfg.CommitInterval {
		j.keep()
	}
	return nil
}

// share is how much one task may apply before it commits.
func (r *Restorer) share() int64 { return max(r.cfg.CommitBytes/max(r.active.Load(), 1), minCommit) }

// minCommit keeps commits from becoming tiny when very many tasks restore at a time.
const minCommit = 64 << 10

// keep commits what was applied, marked as restoring, so that an interrupted restore goes on from here (CR-01).
func (j *job) keep() {
	if !j.applied {
		return
	}
	cp := j.cp.Clone()
	cp.Restoring = true
	if cp.WallTime == 0 { // the copy was empty: it lacks no deletion from before
		cp.WallTime = j.started.UnixMilli()
	}
	j.req.Task.Commit(cp)
	j.applied, j.readable, j.commits = false, false, time.Now()
}

// leave is the end of a restore that is cut off. A copy that answers goes on to: what it has read since is less than a share.
func (j *job) leave() {
	if j.readable {
		j.req.Task.Rollback()
		return
	}
	j.keep()
}

// finish commits the restored state: it is now what the group's newest commit made of the task.
func (j *job) finish(ctx context.Context, inputs map[store.TopicPartition]Committed, at time.Time) Result {
	res := Result{
		Inputs: inputs, StreamTime: -1, Position: store.Position{}, Rebuilt: j.rebuilt, Records: j.records,
	}
	cp := j.cp.Clone()
	cp.Inputs = make(map[store.TopicPartition]store.Offset, len(inputs))
	for tp, c := range inputs {
		if !c.Exists {
			continue
		}
		cp.Inputs[tp] = c.Next
		if c.Next > 0 {
			res.Position.Set(tp.Topic, tp.Partition, c.Next-1)
		}
		if c.Meta.Sequence > res.Sequence {
			res.Sequence, res.Observed = c.Meta.Sequence, c.Meta.Times()
		}
		res.StreamTime = max(res.StreamTime, c.Meta.StreamTime)
	}
	if j.floor > res.Sequence {
		// Offsets that were reset or have expired: the changelog, and so the state, stays. Sequences never go back.
		j.r.log.WarnContext(ctx, "the group's offsets are older than the local copy: records may be processed again",
			"task", j.req.Task.ID().String(), "sequence", res.Sequence, "local_sequence", j.floor)
		res.Sequence = j.floor
	}
	cp.Sequence, cp.StreamTime, cp.Position = res.Sequence, res.StreamTime, res.Position.Clone()
	for _, s := range j.stores {
		if s.exact == 0 || s.chain {
			continue
		}
		if res.Exact == nil {
			res.Exact = make(map[store.Name]store.Offset)
		}
		res.Exact[s.name] = s.exact
	}
	cp.WallTime, cp.Restoring = at.UnixMilli(), len(res.Exact) > 0
	j.req.Task.Commit(cp)
	return res
}
