package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/statemesh/statemesh/router"
	"github.com/statemesh/statemesh/store"
)

// A paused process keeps its connections and says nothing. Whoever asks it, for a caller who accepts a copy, asks a copy as well
// after a while, and takes the first good answer.

// hedge is a second attempt at a request's answer, made elsewhere (a hedged request). Its asker fills a place of its own.
type hedge struct {
	asker

	// adopt takes what it has answered for the request; drop lets go of it. One of them is called, once.
	adopt func() error
	drop  func()
}

var (
	// errOvertaken is why a call is cancelled whose answer nobody needs any more.
	errOvertaken = errors.New("server: a copy has answered first")
	// errNoHedge says that there was nobody else to ask.
	errNoHedge = errors.New("server: no other copy may be asked")
)

const (
	// maxHedges bounds the hedges under way: where everything is slow they would only double the work.
	maxHedges = 128
	// slowFactor times HedgeDelay is how long an instance that a copy has overtaken is asked last.
	slowFactor = 4
)

// askRemote asks another instance, and if it says nothing for a while, and others may answer all of the partitions, these.
func (s *Server) askRemote(ctx context.Context, rd *read, g *group, parts []store.Partition, ask asker) error {
	if ask.hedge == nil || s.cfg.HedgeDelay < 0 || slices.ContainsFunc(g.legs, func(l *leg) bool { return !l.others }) {
		return ask.remote(ctx, g.to, parts, g.manner)
	}
	own, overtake := context.WithCancelCause(ctx)
	defer overtake(nil)
	other, end := context.WithCancel(ctx)
	defer end()
	h, failed, done := hedge{}, error(nil), make(chan struct{})
	// Who waits for a token is slow because the caller wants it to be.
	patience := time.AfterFunc(s.cfg.HedgeDelay+rd.patience(), func() {
		defer close(done)
		if h, failed = s.askElsewhere(other, rd, g, ask); failed == nil {
			overtake(errOvertaken)
		}
	})
	err := ask.remote(own, g.to, parts, g.manner)
	if patience.Stop() {
		return err
	}
	if err == nil || ctx.Err() != nil || errors.Is(err, store.ErrMoved) { // who has moved on says who is to be asked
		end()
	}
	<-done
	outcome := "overtaken" // by who was slow
	defer func() { s.m.hedges.WithLabelValues(outcome).Inc() }()
	switch {
	case failed != nil:
		outcome = "failed"
		return err
	case err == nil || ctx.Err() != nil:
		h.drop()
		return err
	default:
		outcome = "answered"
		s.slow.note(g.to.Endpoint, time.Now().Add(slowFactor*s.cfg.HedgeDelay))
		return h.adopt()
	}
}

// askElsewhere asks the other copies for what one has not answered yet.
func (s *Server) askElsewhere(ctx context.Context, rd *read, g *group, ask asker) (h hedge, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = s.panicError(ctx, rd.call.method, v)
		}
	}()
	if s.hedges.Add(1) > maxHedges {
		s.hedges.Add(-1)
		return hedge{}, errNoHedge
	}
	defer s.hedges.Add(-1)
	legs := make([]*leg, len(g.legs))
	for i, l := range g.legs {
		legs[i] = &leg{q: l.q, lastResort: true, hedged: true}
		legs[i].q.Tried = append(slices.Clone(l.q.Tried), store.Candidate{
			Instance: g.to.Instance, Endpoint: g.to.Endpoint, Role: g.to.Role, Reason: fmt.Sprintf("no answer within %s", s.cfg.HedgeDelay),
		})
		if router.Decide(s.deps.Table.Load(), legs[i].q).Verdict == router.Refuse {
			return hedge{}, errNoHedge
		}
	}
	h = ask.hedge()
	if err := s.rounds(ctx, rd, legs, h.asker); err != nil {
		h.drop()
		return hedge{}, err
	}
	return h, nil
}

// slowPeers are endpoints that are to be asked last for a while. The zero value is ready; safe for concurrent use.
type slowPeers struct {
	mu    sync.Mutex
	until map[string]time.Time
}

func (p *slowPeers) note(endpoint string, until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.until == nil {
		p.until = make(map[string]time.Time)
	}
	p.until[endpoint] = until
}

// is reports whether endpoint still is one of them, and forgets it when its time is over. One that nobody asks about again stays.
func (p *slowPeers) is(endpoint string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.until) == 0 {
		return false
	}
	until, ok := p.until[endpoint]
	if ok && !time.Now().Before(until) {
		delete(p.until, endpoint)
		return false
	}
	return ok
}
