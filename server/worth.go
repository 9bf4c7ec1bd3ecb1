package server

import (
	"fmt"
	"time"

	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// worth is what one partition's part of an answer is worth, as of the moment at.
type worth struct {
	answer wire.Answer
	at     time.Time
}

// localWorth describes a reading of this instance.
func (s *Server) localWorth(p store.Partition, r store.Reading) worth {
	return worth{at: time.Now(), answer: wire.Answer{
		Partition: p, Facts: r.Facts(), Epoch: s.epoch(), Instance: s.cfg.Instance, Endpoint: s.cfg.Endpoint,
	}}
}

// seal brings the age up to now and checks that the answer may be sent: the last thing before it is.
func (s *Server) seal(rd *read, w worth) (wire.Answer, error) {
	a := w.answer
	if a.Facts.Age >= 0 {
		a.Facts.Age += time.Since(w.at)
	}
	b := s.bound(rd, a.Facts.Role)
	if a.Facts.Partial != nil {
		if !rd.acceptsPartial() {
			return a, fmt.Errorf("%w: a partial answer to a read that accepts none", wire.ErrMalformed)
		}
		b = rd.opts.MaxStaleness // who accepts that accepts any age, unless a bound is stated
	} else if a.Facts.Age < 0 {
		return a, fmt.Errorf("%w: an answer of unknown age", wire.ErrMalformed)
	}
	if a.Facts.Role != store.RoleActive && (rd.opts.OnlyActive || b == 0 && a.Facts.Partial == nil) {
		return a, &store.NotActiveError{
			Store: rd.store, Partition: a.Partition, Role: a.Facts.Role, RetryAfter: retryNoMetadata,
		}
	}
	if rd.opts.Isolation == store.ReadCommitted && a.Facts.Isolation != store.ReadCommitted {
		return a, fmt.Errorf("%w: an answer at %s to a read at READ_COMMITTED", wire.ErrMalformed, a.Facts.Isolation)
	}
	if b > 0 && a.Facts.Age < 0 {
		p := a.Facts.Partial
		return a, &store.NotReadyError{
			Store: rd.store, Partition: a.Partition, Reason: "restoring", Restored: p.Restored, Total: p.Total, Left: p.Left, RetryAfter: retryStale,
		}
	}
	if b > 0 && a.Facts.Age > b {
		return a, &store.NotReadyError{
			Store: rd.store, Partition: a.Partition, RetryAfter: retryStale,
			Reason: fmt.Sprintf("age %s is above %s", a.Facts.Age.Round(time.Microsecond), b),
		}
	}
	return a, nil
}

// check reports the first answer that must not be sent, while another candidate can still be asked.
func (s *Server) check(rd *read, ws ...worth) error {
	for _, w := range ws {
		if _, err := s.seal(rd, w); err != nil {
			return err
		}
	}
	return nil
}

// retryStale: an owner renews the proof of its age at least this often while queries come.
const retryStale = 200 * time.Millisecond

func (s *Server) epoch() router.Epoch {
	if snap := s.deps.Table.Load(); snap != nil {
		return snap.Epoch()
	}
	return 0
}
