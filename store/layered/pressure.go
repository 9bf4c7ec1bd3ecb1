package layered

import (
	"fmt"
	"sync/atomic"
)

// recent keeps the recent tables of all tasks within Config.RecentBytes. While they take less than half of it, a task may
// fill Config.MoveBytes: many idle tasks cost the busy ones nothing. From there on each may have an equal part of that
// half, and moves when it has more; those that wait for the engine have the other half, and beyond it all writers wait too.
type recent struct {
	move, all int64        // MoveBytes, RecentBytes
	bytes     atomic.Int64 // of the tables of all tasks, as of each one's last commit or move
	holders   atomic.Int64 // how many tasks have any
}

// leastShare is what a task may have however many there are.
const leastShare = 4 << 10

// pressed reports whether the tables take half of what they may.
func (r *recent) pressed() bool { return r.bytes.Load() >= r.all/2 }

// share is how many bytes of recent commits a task may hold before they move.
func (r *recent) share() int64 {
	if !r.pressed() {
		return r.move
	}
	return min(r.move, max(leastShare, r.all/2/max(1, r.holders.Load())))
}

// count notes that a task that held before holds now.
func (r *recent) count(before, now int64) {
	r.bytes.Add(now - before)
	if before == 0 && now > 0 {
		r.holders.Add(1)
	} else if before > 0 && now == 0 {
		r.holders.Add(-1)
	}
}

// recentBytes is what the tables of a view cost, 0 of none.
func (v *view) recentBytes() (n int64) {
	if v == nil {
		return 0
	}
	for _, sv := range v.stores {
		for _, l := range sv.layers {
			n += l.table.bytes.Load()
		}
	}
	return n
}

// RecentBytes is the memory of the recent tables of all tasks.
func (s *Stores) RecentBytes() int64 { return s.recent.bytes.Load() }

// relieve holds back a writer whose recent commits cannot wait: they are three times their share, or all that there is for
// recent commits is in use, by whomever: the next commit may be large, and hundreds of tasks may each make one. Then those of all
// tasks move, for one fsync serves all.
func (s *Stores) relieve(t *Task) error {
	if all := s.RecentBytes(); all >= s.cfg.RecentBytes {
		if err := s.moveNow(s.dirty()...); err != nil {
			return fmt.Errorf("recent commits of all tasks take %d bytes of %d and cannot move: %w", all, s.cfg.RecentBytes, err)
		}
		return nil
	}
	if t.recentBytes() < 3*s.recent.share() {
		return nil
	}
	if err := s.moveNow(t); err != nil {
		return fmt.Errorf("task %s: recent commits take %d bytes and cannot move: %w", t.id, t.recentBytes(), err)
	}
	return nil
}
