package server

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/statemesh/statemesh/proto/statemesh/v1"
	"github.com/statemesh/statemesh/store"
)

// TestBytesInFlight: when requests hold all the memory they may, clients are refused by name, peers have a quarter for
// themselves, and once it is given back everything works; no request keeps anything.
func TestBytesInFlight(t *testing.T) {
	t.Parallel()
	const limit = 64 << 20
	m := newMesh(t, 2, 4, func(p int) int { return p % 2 }, func(_ string, c *Config, _ *Deps) { c.MaxBytes = limit })
	var keys [][]byte
	for p := range store.Partition(4) {
		k := m.keyIn(p)
		m.put(k, make([]byte, 100<<10))
		keys = append(keys, k)
	}
	a, b := m.node("a"), m.node("b")
	calls := map[string]func() error{
		"get": func() error {
			_, err := a.query().Get(t.Context(), &statemeshv1.GetRequest{Store: string(testStore), Key: keys[0]})
			return err
		},
		"get of a peer's": func() error {
			_, err := a.query().Get(t.Context(), &statemeshv1.GetRequest{Store: string(testStore), Key: keys[1]})
			return err
		},
		"batch": func() error {
			_, err := a.query().BatchGet(t.Context(), &statemeshv1.BatchGetRequest{Store: string(testStore), Keys: keys})
			return err
		},
		"scan": func() error {
			s, err := a.query().Scan(t.Context(), &statemeshv1.ScanRequest{Store: string(testStore)})
			for err == nil {
				_, err = s.Recv()
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		},
	}
	for name, call := range calls {
		if err := call(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if held := a.srv.Bytes() + b.srv.Bytes(); held != 0 {
		t.Fatalf("%d bytes are held and nothing is in flight", held)
	}
	if err := a.srv.bytes.take(limit*3/4, limit); err != nil { // as if by others
		t.Fatal(err)
	}
	for name, call := range calls {
		e, ok := errors.AsType[*store.OverloadedError](asErr(t, call(), statemeshv1.Reason_REASON_OVERLOADED))
		if !ok || e.Limit != bytesLimit || e.RetryAfter <= 0 {
			t.Errorf("%s: %v, want the limit by name and when to come back", name, e)
		}
	}
	// What comes from a peer is admitted still.
	if _, err := b.query().Get(t.Context(), &statemeshv1.GetRequest{Store: string(testStore), Key: keys[0]}); err != nil {
		t.Errorf("by way of b: %v", err)
	}
	a.srv.bytes.give(limit * 3 / 4)
	for name, call := range calls {
		if err := call(); err != nil {
			t.Errorf("%s, afterwards: %v", name, err)
		}
	}
	if held := a.srv.Bytes() + b.srv.Bytes(); held != 0 {
		t.Errorf("%d bytes are held and nothing is in flight", held)
	}
}

// TestAnswersAreHeld: a request is refused as its answer grows beyond what is left, not only by what it begins with.
func TestAnswersAreHeld(t *testing.T) {
	t.Parallel()
	const limit, value = 8 << 20, 200 << 10
	m := newMesh(t, 2, 2, func(p int) int { return p }, func(_ string, c *Config, _ *Deps) { c.MaxBytes = limit })
	var keys [][]byte
	for i := range 10 {
		k := fmt.Appendf(nil, "key %d", i)
		m.put(k, make([]byte, value))
		keys = append(keys, k)
	}
	a := m.node("a")
	room := int64(5 * value)
	if err := a.srv.bytes.take(limit*3/4-room, limit); err != nil {
		t.Fatal(err)
	}
	_, err := a.query().BatchGet(t.Context(), &statemeshv1.BatchGetRequest{Store: string(testStore), Keys: keys})
	wantErr(t, err, statemeshv1.Reason_REASON_OVERLOADED)
	if _, err := a.query().Get(t.Context(), &statemeshv1.GetRequest{Store: string(testStore), Key: keys[0]}); err != nil {
		t.Errorf("one of them: %v", err)
	}
	if held := a.srv.Bytes(); held != limit*3/4-room {
		t.Errorf("%d bytes are held, want %d", held, limit*3/4-room)
	}
}

// TestTooLargeBeforeOverloaded: an answer that can never be sent is told to be too large, so that its caller halves the
// batch, and not that it should come back, also where its part from one partition is above all bytes in flight.
func TestTooLargeBeforeOverloaded(t *testing.T) {
	t.Parallel()
	const limit, value = 8 << 20, 1 << 20
	m := newMesh(t, 2, 2, func(p int) int { return p }, func(_ string, c *Config, _ *Deps) { c.MaxBytes = limit })
	for p := range store.Partition(2) { // of a itself, and of its peer
		var keys [][]byte
		k := m.keyIn(p)
		m.put(k, make([]byte, value))
		for range 7 {
			keys = append(keys, k)
		}
		_, err := m.node("a").query().BatchGet(t.Context(), &statemeshv1.BatchGetRequest{Store: string(testStore), Keys: keys})
		wantErr(t, err, statemeshv1.Reason_REASON_TOO_LARGE)
		if _, err := m.node("a").query().BatchGet(t.Context(), &statemeshv1.BatchGetRequest{Store: string(testStore), Keys: keys[:3]}); err != nil {
			t.Error(err)
		}
	}
}

// TestMessagesFitTheBytes: with few bytes in flight messages are smaller; what can never work is refused at start.
func TestMessagesFitTheBytes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		bytes   int64
		message int
		want    int // the message limit; 0: refused
	}{
		{0, 0, 16 << 20},
		{1 << 30, 0, 16 << 20},
		{8 << 20, 0, 4 << 20},
		{8 << 20, 4 << 20, 4 << 20},
		{8 << 20, 5 << 20, 0},
		{-1, 0, 0},
		{1000, 0, 0},
	} {
		c := Config{Application: "app", Instance: "a", Endpoint: "a:1", Listen: "127.0.0.1:0", MaxBytes: tt.bytes, MaxMessageBytes: tt.message}.withDefaults()
		err := c.validate()
		if (err == nil) != (tt.want > 0) || err == nil && c.MaxMessageBytes != tt.want {
			t.Errorf("%d bytes, messages of %d: %d, %v; want %d", tt.bytes, tt.message, c.MaxMessageBytes, err, tt.want)
		}
	}
}
