package client

import (
	"fmt"
	"sync"

	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/store"
)

// ReadSession is one reader's view over time: with [InReadSession] its reads never go backwards, whichever replicas answer
// and whoever owns the partitions by then, and they see what the reader is told that it wrote. It costs no round trip: each
// answer brings a token, which the next request sends along. Safe for concurrent use.
//
// A replica that is not there yet answers *[store.BehindError], unless [Wait] lets it catch up.
type ReadSession struct {
	mu     sync.Mutex
	tokens map[store.Name]store.Token
}

// NewReadSession returns a session that has seen nothing.
func NewReadSession() *ReadSession { return &ReadSession{tokens: make(map[store.Name]store.Token)} }

// Token is what the next read of a store will insist on. The caller owns it.
func (s *ReadSession) Token(name store.Name) store.Token {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tokens[name].Clone()
}

// Saw makes later reads of a store show at least what t stands for: the token of an answer that came on another way.
func (s *ReadSession) Saw(name store.Name, t store.Token) {
	if t.Empty() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	have := s.tokens[name]
	have.Raise(t)
	s.tokens[name] = have
}

// Wrote makes later reads of a store show what came of a record: topic, partition and offset are those of the produce
// acknowledgement. The topic must be one that the store is built from; the partition must be the store's own, so it does
// not work behind a repartitioning.
func (s *ReadSession) Wrote(name store.Name, topic string, p store.Partition, offset store.Offset) {
	s.Saw(name, store.Token{Inputs: store.Position{topic: {p: offset}}})
}

// EncodeToken makes bytes of the token of a store, to be carried elsewhere: into a cookie, to another process. nil for a
// token that asks for nothing.
func EncodeToken(name store.Name, t store.Token) []byte { return wire.FromToken(name, t) }

// DecodeToken reads what EncodeToken made. Anything else is an *[store.InvalidRequestError].
func DecodeToken(b []byte) (store.Name, store.Token, error) {
	name, t, err := wire.ToToken(b)
	if err != nil {
		return "", store.Token{}, fmt.Errorf("decode token: %w", &store.InvalidRequestError{Field: "token", Reason: err.Error()})
	}
	return name, t, nil
}
