package client

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/statemesh/statemesh/proto/wire"
	"github.com/statemesh/statemesh/store"
)

// TestPartial: who accepts partial state is told of it with every answer, an absence in it is no proof, a session has seen nothing,
// and who does not accept it does not get it.
func TestPartial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, 2, "a")
		want := m.fill(10)
		m.member("a").partial = &store.Partial{Restored: 3, Total: 10, StreamTime: -1}
		c := m.client(nil)
		session := NewReadSession()
		for k, v := range want {
			r := wantValue(t, c, k, v, Partial(), InReadSession(session))
			if p := r.Answer.Facts.Partial; p == nil || p.Restored != 3 || r.Answer.Facts.Age != -1 {
				t.Fatalf("%+v", r.Answer)
			}
		}
		if tok := session.Token(counts); !tok.Empty() {
			t.Errorf("a session has seen %s", tok)
		}
		_, err := c.Get(t.Context(), counts, []byte("nobody's"), Partial())
		if !errors.Is(err, store.ErrNotFound) || !errors.Is(err, store.ErrPartial) || !strings.Contains(err.Error(), "3 of 10 restored") {
			t.Error(err)
		}
		n := 0
		err = nil
		for _, e := range c.Scan(t.Context(), counts, ScanQuery{}, Partial()) {
			if err = e; e == nil {
				n++
			}
		}
		if n != len(want) || !errors.Is(err, store.ErrPartial) {
			t.Errorf("%d rows, then %v", n, err)
		}
		if _, err := c.Get(t.Context(), counts, []byte("key-0001")); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("who did not accept it: %v", err)
		}
	})
}
