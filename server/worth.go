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
	a.Facts.Age += time.Since(w.at)
	if rd.opts.OnlyActive && a.Facts.Role != store.RoleActive {
		return a, &store.NotActiveError{
			Store: rd.store, Partition: a.Partition, Role: a.Facts.Role, RetryAfter: retryNoMetadata,
		}
	}
	if rd.opts.Isolation == store.ReadCommitted && a.Facts.Isolation != store.ReadCommitted {
		return a, fmt.Errorf("%w: an answer at %s to a read at READ_COMMITTED", wire.ErrMalformed, a.Facts.Isolation)
	}
	if b := s.bound(rd, a.Facts.Role); b > 0 && a.Facts.Age > b {
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
